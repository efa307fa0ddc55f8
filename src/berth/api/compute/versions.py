"""Microversions of the compute API, the document that tells clients of them, and links."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from berth.api.kernel.call import Call
from berth.api.kernel.problem import Problem

PREFIX: Final = "/compute"
V21: Final = f"{PREFIX}/v2.1"
MIN: Final = 1
MAX: Final = 94
"""2.95 and later are not offered: evacuated servers would have to stay stopped."""

_HEADER: Final = "openstack-api-version"
_LEGACY_HEADER: Final = "x-openstack-nova-api-version"
_VERSION: Final = re.compile(r"2\.(0|[1-9][0-9]{0,3})")


def read_version(headers: Mapping[str, str]) -> int:
    """The minor of the microversion that a request asks for; 1 if it asks for none."""
    asked = headers.get(_LEGACY_HEADER)
    for part in headers.get(_HEADER, "").split(","):
        service, _, version = part.strip().partition(" ")
        if service.lower() == "compute":
            asked = version.strip()
    if asked is None:
        return MIN
    if asked == "latest":
        return MAX
    match = _VERSION.fullmatch(asked)
    if match is None:
        raise Problem(400, f"API Version String {asked!r} is not of the form 2.N.")
    minor = int(match[1])
    if not MIN <= minor <= MAX:
        text = f"Version 2.{minor} is not supported by the API. Minimum is 2.{MIN} and maximum is 2.{MAX}."
        raise Problem(406, text)
    return minor


def make_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers that tell the version of a response: that of the request, or else the first."""
    try:
        minor = read_version(headers)
    except Problem:
        minor = MIN
    return [
        ("openstack-api-version", f"compute 2.{minor}"),
        ("x-openstack-nova-api-version", f"2.{minor}"),
        ("vary", "OpenStack-API-Version, X-OpenStack-Nova-API-Version"),
    ]


def show_document(base: str) -> dict[str, Any]:
    """What /compute/v2.1 says of itself; ``base`` is its own URL."""
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": f"2.{MAX}",
        "min_version": f"2.{MIN}",
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": f"{base}/"}],
        "media-types": [
            {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}
        ],
    }


def require_version(call: Call, minor: int) -> None:
    """Refuse a path that came with a later version than the one of the request."""
    if call.version < minor:
        raise Problem(
            404, f"{call.request.method} {call.request.path} needs microversion 2.{minor} or later."
        )


def require_since(call: Call, body: msgspec.Struct, since: dict[str, int]) -> None:
    """Refuse fields that came with a later version than the one of the request."""
    for name, minor in since.items():
        if call.version < minor and getattr(body, name) is not msgspec.UNSET:
            raise Problem(
                400,
                f"Invalid input: {name} needs microversion 2.{minor} or later; this request uses "
                f"2.{call.version}.",
            )


# -- where things are --------------------------------------------------------------------------


def make_base_url(call: Call) -> str:
    """The URL of /compute/v2.1, as the caller reached it."""
    return f"{call.origin}{V21}"


def make_links(call: Call, what: str, id: str) -> list[dict[str, str]]:
    """The links to one thing."""
    return [
        {"rel": "self", "href": f"{make_base_url(call)}/{what}/{id}"},
        {"rel": "bookmark", "href": f"{call.origin}/compute/{what}/{id}"},
    ]

"""One request as both sides get it, and an answer in the form in which both are compared.

What may differ is left out here: the order of lists that mean sets, times, and the sentences of refusals,
after whose first words Berth may add one of its own.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class WireRequest(NamedTuple):
    """``body`` is what is sent as JSON. A provider generation in it may be the name of a provider, as
    ``"@UUID"``: then it is the one that upstream has at that moment."""

    method: str
    path: str
    version: int
    body: Any = None

    @property
    def headers(self) -> dict[str, str]:
        sent = {"x-auth-token": "admin", "openstack-api-version": f"placement 1.{self.version}"}
        return sent if self.body is None else {**sent, "content-type": "application/json"}

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body).encode()

    def __str__(self) -> str:
        body = "" if self.body is None else f" {json.dumps(self.body)}"
        return f"1.{self.version} {self.method} {self.path}{body}"


class ComparedAnswer(NamedTuple):
    status: int
    code: str | None
    """Of a refusal."""
    body: Any
    headers: dict[str, str]


def answer_of(status: int, headers: Mapping[str, str], content: bytes) -> ComparedAnswer:
    given = {name.lower(): value for name, value in headers.items()}
    # Upstream compresses nothing.
    if "vary" in given:
        given["vary"] = given["vary"].replace(", accept-encoding", "")
    body: Any = json.loads(content) if content else None
    if status >= 400:
        return ComparedAnswer(status, body["errors"][0].get("code"), None, {})
    said: dict[str, str] = {
        name: given[name] for name in ("cache-control", "openstack-api-version", "vary") if name in given
    }
    if "location" in given:
        said["location"] = urlsplit(given["location"]).path
    return ComparedAnswer(status, None, canonical(body), said)


def canonical(value: Any) -> Any:
    """A body in one form. No list of this API has an order that means anything."""
    if isinstance(value, dict):
        return {name: canonical(part) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    return sorted(map(canonical, value), key=lambda item: json.dumps(item, sort_keys=True))

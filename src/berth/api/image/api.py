"""The image API: find the route, call the handler, and refuse in Glance's shape.

{"code": "404 Not Found", "title": "Not Found", "message": "..."}
"""

import re
from http import HTTPStatus
from typing import Any, Final

import msgspec

from berth.api.image import contents, images, members
from berth.api.image.fields import CONTAINER_FORMATS, DISK_FORMATS, STATUSES, UUID_PATTERN, VISIBILITIES
from berth.api.kernel.application import RoutedApi
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Call, Handler, Services, json
from berth.api.kernel.http import JSON, Request, Response, read_origin
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route, Router
from berth.ledger.quotas import count_used, limits_of
from berth.view import View

_PREFIX: Final = "/image"
_V2: Final = f"{_PREFIX}/v2"
_MINOR: Final = 9
"""The newest minor version of Glance's API that is offered."""


# -- /v2/schemas: what images and members look like, in JSON schema, for clients that read it ----

_TEXT: Final = {"type": ["null", "string"]}
_WHOLE: Final = {"type": ["null", "integer"]}
_BOOLEAN: Final = {"type": "boolean"}
_READ_ONLY: Final = {"readOnly": True}
_TIME: Final = {"type": "string", **_READ_ONLY}
_IMAGE: Final[dict[str, Any]] = {
    "name": "image",
    "properties": {
        "id": {"type": "string", "pattern": UUID_PATTERN},
        "name": _TEXT | {"maxLength": 255},
        "status": {"type": "string", "enum": list(STATUSES), **_READ_ONLY},
        "visibility": {"type": "string", "enum": list(VISIBILITIES)},
        "owner": _TEXT | {"maxLength": 255},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 255}},
        "disk_format": _TEXT | {"enum": [None, *DISK_FORMATS]},
        "container_format": _TEXT | {"enum": [None, *CONTAINER_FORMATS]},
        "min_disk": {"type": "integer"},
        "min_ram": {"type": "integer"},
        "protected": _BOOLEAN,
        "os_hidden": _BOOLEAN,
        "size": _WHOLE | _READ_ONLY,
        "virtual_size": _WHOLE | _READ_ONLY,
        "checksum": _TEXT | _READ_ONLY,
        "os_hash_algo": _TEXT | _READ_ONLY,
        "os_hash_value": _TEXT | _READ_ONLY,
        "created_at": _TIME,
        "updated_at": _TIME,
        "self": _TIME,
        "file": _TIME,
        "schema": _TIME,
    },
    "additionalProperties": {"type": "string"},
    "links": [
        {"rel": "self", "href": "{self}"},
        {"rel": "enclosure", "href": "{file}"},
        {"rel": "describedby", "href": "{schema}"},
    ],
}
_IMAGES: Final[dict[str, Any]] = {
    "name": "images",
    "properties": {
        "images": {"type": "array", "items": _IMAGE},
        "first": {"type": "string"},
        "next": {"type": "string"},
        "schema": {"type": "string"},
    },
    "links": [
        {"rel": "first", "href": "{first}"},
        {"rel": "next", "href": "{next}"},
        {"rel": "describedby", "href": "{schema}"},
    ],
}
_MEMBER: Final[dict[str, Any]] = {
    "name": "member",
    "properties": {
        "image_id": {"type": "string", "pattern": UUID_PATTERN, **_READ_ONLY},
        "member_id": {"type": "string", **_READ_ONLY},
        "status": {"type": "string", "enum": ["pending", "accepted", "rejected"]},
        "created_at": _TIME,
        "updated_at": _TIME,
        "schema": _TIME,
    },
}
_MEMBERS: Final[dict[str, Any]] = {
    "name": "members",
    "properties": {"members": {"type": "array", "items": _MEMBER}, "schema": {"type": "string"}},
    "links": [{"rel": "describedby", "href": "{schema}"}],
}


async def show_image_schema(call: Call) -> Response:
    return json(_IMAGE)


async def show_images_schema(call: Call) -> Response:
    return json(_IMAGES)


async def show_member_schema(call: Call) -> Response:
    return json(_MEMBER)


async def show_members_schema(call: Call) -> Response:
    return json(_MEMBERS)


# -- /v2/info -----------------------------------------------------------------------------------


async def show_usage(call: Call) -> Response:
    """How much the caller's project has of images, and may have."""

    def answer(view: View) -> dict[str, Any]:
        limits, used = limits_of(view, call.quotas, call.project), count_used(view, call.project)
        return {
            called: {"limit": limits[resource], "usage": used[resource]}
            for called, resource in (
                ("image_size_total", "image_size_total"),
                ("image_count_total", "images"),
            )
        }

    return json({"usage": await call.read(answer)})


async def show_import(call: Call) -> Response:
    """How images can be imported: in no way."""
    methods = {"description": "Import methods available.", "type": "array", "value": []}
    return json({"import-methods": methods})


# -- what is not offered ------------------------------------------------------------------------

_ABSENT: Final = (
    ("metadefs", "Metadata definitions"),
    ("schemas/metadefs", "Metadata definitions"),
    ("tasks", "Tasks"),
    ("schemas/task", "Tasks"),
    ("schemas/tasks", "Tasks"),
    ("info/stores", "Several stores"),
    ("stores", "Several stores"),
    ("cache", "The image cache"),
    ("cached_images", "The image cache"),
    ("queued_images", "The image cache"),
)
_ABSENT_OF_IMAGES: Final = {
    "import": "Image import",
    "stage": "Image import",
    "tasks": "Tasks",
    "locations": "Locations of images",
}


def _find_absent(path: str) -> str | None:
    """What of Glance a path belongs to that is not offered here."""
    below = path.removeprefix(f"{_V2}/")
    parts = below.split("/")
    if parts[0] == "images" and len(parts) == 3:
        return _ABSENT_OF_IMAGES.get(parts[2])
    return next((name for start, name in _ABSENT if below == start or below.startswith(f"{start}/")), None)


_UPLOAD: Final = re.compile(f"{_V2}/images/[^/]+/file/*")


def is_upload(method: str, path: str) -> bool:
    """Whether a request brings the content of an image: its body may have any length."""
    return method == "PUT" and _UPLOAD.fullmatch(path) is not None


ROUTES: Final = (
    *images.ROUTES,
    *contents.ROUTES,
    *members.ROUTES,
    Route("GET", "/schemas/image", show_image_schema, policy="get_images"),
    Route("GET", "/schemas/images", show_images_schema, policy="get_images"),
    Route("GET", "/schemas/member", show_member_schema, policy="get_images"),
    Route("GET", "/schemas/members", show_members_schema, policy="get_images"),
    Route("GET", "/info/import", show_import, policy="get_images"),
    Route("GET", "/info/usage", show_usage, policy="get_images"),
)
_ROUTER: Final[Router[Route[Handler]]] = Router(ROUTES, below=_V2)


class ImageApi(RoutedApi):
    PREFIX = _PREFIX

    def __init__(self, services: Services) -> None:
        super().__init__(services, _ROUTER, versions_at=(_PREFIX, f"{_PREFIX}/versions", _V2))

    def streams_body(self, method: str, path: str) -> bool:
        return is_upload(method, path)

    async def answer(self, request: Request, caller: Caller) -> Response:
        if request.path == f"{_V2}/images/":
            # As in Glance, the path of an image without its id is not that of the list.
            raise Problem(404, "The path has no image ID.")
        absent = _find_absent(request.path.rstrip("/"))
        if absent is not None:
            request.route = f"{_V2}/*"
            raise Problem(404, f"{absent}: not offered by this image service.")
        return await super().answer(request, caller)

    def refuse(self, problem: Problem, request: Request) -> Response:
        title = HTTPStatus(problem.status).phrase
        body = {"code": f"{problem.status} {title}", "title": title, "message": problem.text}
        return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)

    def show_versions(self, request: Request) -> Response:
        """As Glance has it, a list of versions is a choice: 300. Where its clients look for it by name it is
        an answer."""
        href = f"{read_origin(request)}{_V2}/"
        return json(
            status=300 if request.path.rstrip("/") == _PREFIX else 200,
            payload={
                "versions": [
                    {
                        "id": f"v2.{minor}",
                        "status": "CURRENT" if minor == _MINOR else "SUPPORTED",
                        "links": [{"rel": "self", "href": href}],
                    }
                    for minor in range(_MINOR, -1, -1)
                ]
            },
        )

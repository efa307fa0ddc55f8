"""The image API: find the route, call the handler, and refuse in Glance's shape.

{"code": "404 Not Found", "title": "Not Found", "message": "..."}
"""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from berth.api.image import images
from berth.api.kernel.application import RoutedApi
from berth.api.kernel.call import Call, Handler, Services, json
from berth.api.kernel.http import JSON, Request, Response, read_origin
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route, Router

_PREFIX: Final = "/image"
_V2: Final = f"{_PREFIX}/v2"
_MINOR: Final = 9
"""The newest minor version of Glance's API that is offered."""


# -- /v2/schemas: what an image looks like, in JSON schema, for clients that read it --------------

_TEXT: Final = {"type": ["null", "string"]}
_WHOLE: Final = {"type": ["null", "integer"]}
_BOOLEAN: Final = {"type": "boolean"}
_IMAGE: Final[dict[str, Any]] = {
    "name": "image",
    "properties": {
        "id": {"type": "string"},
        "name": _TEXT,
        "status": {"type": "string", "readOnly": True, "enum": ["queued", "active", "deactivated"]},
        "visibility": {"type": "string", "enum": ["public", "private", "shared", "community"]},
        "owner": _TEXT,
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 255}},
        "disk_format": _TEXT,
        "container_format": _TEXT,
        "min_disk": {"type": "integer"},
        "min_ram": {"type": "integer"},
        "protected": _BOOLEAN,
        "os_hidden": _BOOLEAN,
        "size": _WHOLE | {"readOnly": True},
        "virtual_size": _WHOLE | {"readOnly": True},
        "checksum": _TEXT | {"readOnly": True},
        "os_hash_algo": _TEXT | {"readOnly": True},
        "os_hash_value": _TEXT | {"readOnly": True},
        "created_at": {"type": "string", "readOnly": True},
        "updated_at": {"type": "string", "readOnly": True},
        "self": {"type": "string", "readOnly": True},
        "file": {"type": "string", "readOnly": True},
        "schema": {"type": "string", "readOnly": True},
    },
    "additionalProperties": {"type": "string"},
}
_IMAGES: Final[dict[str, Any]] = {
    "name": "images",
    "properties": {
        "images": {"type": "array", "items": _IMAGE},
        "first": {"type": "string"},
        "next": {"type": "string"},
        "schema": {"type": "string"},
    },
}


async def show_image_schema(call: Call) -> Response:
    return json(_IMAGE)


async def show_images_schema(call: Call) -> Response:
    return json(_IMAGES)


ROUTES: Final = (
    *images.ROUTES,
    Route("GET", "/schemas/image", show_image_schema, policy="get_images"),
    Route("GET", "/schemas/images", show_images_schema, policy="get_images"),
)
_ROUTER: Final[Router[Route[Handler]]] = Router(ROUTES, below=_V2)


class ImageApi(RoutedApi):
    PREFIX = _PREFIX

    def __init__(self, services: Services) -> None:
        super().__init__(services, _ROUTER, versions_at=(_PREFIX, f"{_PREFIX}/versions", _V2))

    def refuse(self, problem: Problem, request: Request) -> Response:
        title = HTTPStatus(problem.status).phrase
        body = {"code": f"{problem.status} {title}", "title": title, "message": problem.text}
        return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)

    def show_versions(self, request: Request) -> Response:
        href = f"{read_origin(request)}{_V2}/"
        return json(
            {
                "versions": [
                    {
                        "id": f"v2.{minor}",
                        "status": "CURRENT" if minor == _MINOR else "SUPPORTED",
                        "links": [{"rel": "self", "href": href}],
                    }
                    for minor in range(_MINOR, -1, -1)
                ]
            }
        )

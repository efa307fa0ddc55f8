"""/v2/schemas: what an image looks like, in JSON schema, for clients that read it."""

from typing import Any, Final

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.router import Route

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
    Route("GET", "/schemas/image", show_image_schema, policy="get_images"),
    Route("GET", "/schemas/images", show_images_schema, policy="get_images"),
)

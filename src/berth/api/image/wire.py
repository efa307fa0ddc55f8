"""An image as the API writes it: one flat object, in which further properties stand beside its own fields."""

from typing import Any, Final

from berth.api.kernel.times import show_time
from berth.model.servers import Image

FIELDS: Final = {
    "name": "name",
    "visibility": "visibility",
    "owner": "owner",
    "tags": "tags",
    "disk_format": "disk_format",
    "container_format": "container_format",
    "min_disk": "min_disk_gb",
    "min_ram": "min_memory_mb",
    "protected": "is_protected",
    "os_hidden": "is_hidden",
}
"""What callers may set, by the names on the wire."""

READ_ONLY: Final = frozenset(
    (
        "id",
        "status",
        "size",
        "virtual_size",
        "checksum",
        "os_hash_algo",
        "os_hash_value",
        "created_at",
        "updated_at",
        "self",
        "file",
        "schema",
        "locations",
        "direct_url",
        "stores",
    )
)
HASH: Final = "sha512"


def shown(image: Image) -> dict[str, Any]:
    path = f"/v2/images/{image.id}"
    fields = {name: getattr(image, field) for name, field in FIELDS.items()}
    return image.properties | {
        **fields,
        "id": image.id,
        "status": image.status,
        "size": image.size,
        "virtual_size": None,
        "checksum": image.checksum,
        "os_hash_algo": None if image.hash_value is None else HASH,
        "os_hash_value": image.hash_value,
        "created_at": show_time(image.created_at_s),
        "updated_at": show_time(image.updated_at_s),
        "self": path,
        "file": f"{path}/file",
        "schema": "/v2/schemas/image",
    }

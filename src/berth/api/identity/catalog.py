"""Where services are to be found: below the address at which the caller found this one."""

import uuid
from typing import Any, Final

REGION: Final = "RegionOne"
DOMAIN_ID: Final = "default"
DOMAIN_NAME: Final = "Default"
_INTERFACES: Final = ("public", "internal", "admin")
_PATHS: Final = {
    "compute": "/compute/v2.1",
    "identity": "/identity/v3",
    "image": "/image",
    "placement": "",
}
_NAMESPACE: Final = uuid.UUID("2c0cb6f0-6c2d-4c32-8b0e-63bd0f2f8d4e")


def catalog(origin: str) -> list[dict[str, Any]]:
    """As a token has it."""
    return [
        {
            "id": service["id"],
            "type": service["type"],
            "name": service["name"],
            "endpoints": [
                {key: endpoint[key] for key in ("id", "interface", "region", "region_id", "url")}
                for endpoint in endpoints(origin)
                if endpoint["service_id"] == service["id"]
            ],
        }
        for service in services()
    ]


def services() -> list[dict[str, Any]]:
    return [{"id": _id(type), "type": type, "name": type, "enabled": True} for type in _PATHS]


def endpoints(origin: str) -> list[dict[str, Any]]:
    return [
        {
            "id": _id(f"{type} {interface}"),
            "service_id": _id(type),
            "interface": interface,
            "region": REGION,
            "region_id": REGION,
            "url": origin + path,
            "enabled": True,
        }
        for type, path in _PATHS.items()
        for interface in _INTERFACES
    ]


def _id(name: str) -> str:
    return uuid.uuid5(_NAMESPACE, name).hex

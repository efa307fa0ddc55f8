"""Devices by name, as the settings of a region define them: PCI aliases as in nova.conf, device profiles as
in Cyborg. A server keeps those that its flavor names."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_ID = Annotated[str, Meta(pattern="^[0-9a-fA-F]{4}\\Z")]
_Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\s:,][^:,]*\Z")]
NumaPolicy = Literal["required", "preferred", "legacy", "socket"]


class PciAlias(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    name: _Name
    vendor_id: _ID | None = None
    product_id: _ID | None = None
    device_type: Literal["type-PCI", "type-PF", "type-VF"] = "type-PCI"
    numa_policy: NumaPolicy = "legacy"
    resource_class: str | None = None
    traits: str = ""


class DeviceProfile(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Each group of it is found on one provider."""

    name: _Name
    groups: Annotated[tuple[dict[str, str], ...], Meta(min_length=1, max_length=16)]
    description: str = ""

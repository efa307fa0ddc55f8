"""What clients send about servers: the structs that bodies must fit.

Much of what Nova takes is other services' business: networks, volumes, passwords, files. It is named all the
same, so that it can be refused in words (``server_fields``), and so that what is not named is a mistake.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.kernel.problem import Problem
from berth.scheduler.spec_table import count_bytes

COUNT_MAX: Final = 1000
METADATA_BYTES_MAX: Final = 64 << 10
_HINTS_MAX: Final = 100

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=255)]
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Host = Annotated[str, Meta(min_length=1, max_length=255)]
Ref = Annotated[str, Meta(max_length=1024)]
MetadataKey = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9\-_:. ]+\Z")]
Metadata = dict[MetadataKey, Text]
Uuids = (
    Annotated[str, Meta(min_length=1, max_length=64)]
    | Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(max_length=_HINTS_MAX)]
)

_NAMES: Final = {
    "flavor_ref": "flavorRef",
    "image_ref": "imageRef",
    "admin_pass": "adminPass",
    "disk_config": "OS-DCF:diskConfig",
    "access_ipv4": "accessIPv4",
    "access_ipv6": "accessIPv6",
    "on_shared_storage": "onSharedStorage",
}


class _Sent(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, rename=_NAMES):
    pass


class _Elsewhere(_Sent, kw_only=True, frozen=True):
    """What a server is made or made anew with elsewhere, and not here."""

    admin_pass: Text | None = None
    disk_config: Any = None
    access_ipv4: Any = None
    access_ipv6: Any = None
    user_data: Any = None
    personality: Any = None
    hostname: Any = None
    trusted_image_certificates: Any = None


class NewServer(_Elsewhere, kw_only=True, frozen=True):
    name: Name
    flavor_ref: Ref | int
    image_ref: Ref | None = None
    min_count: Count | None = None
    max_count: Count | None = None
    availability_zone: Annotated[str, Meta(max_length=600)] | None = None
    host: Host | UnsetType = UNSET
    hypervisor_hostname: Host | UnsetType = UNSET
    metadata: Metadata = {}
    key_name: Name | None = None
    description: Text | UnsetType | None = UNSET
    return_reservation_id: bool = False
    tags: list[Any] | UnsetType = UNSET
    networks: Any = None
    block_device_mapping: Any = None
    block_device_mapping_v2: Any = None
    config_drive: Any = None
    security_groups: Any = None


class NewServerHints(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    group: Annotated[str, Meta(max_length=64)] | None = None
    same_host: Uuids = []
    different_host: Uuids = []


class NewServerBody(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"hints": "OS-SCH-HNT:scheduler_hints", "hints_too": "os:scheduler_hints"},
):
    server: NewServer
    hints: dict[str, Any] | None = None
    hints_too: dict[str, Any] | None = None


class ChangedServer(_Sent, kw_only=True, frozen=True):
    name: Name | UnsetType = UNSET
    description: Text | UnsetType | None = UNSET
    disk_config: Any = None
    access_ipv4: Any = None
    access_ipv6: Any = None
    hostname: Any = None
    pinned_availability_zone: Any = UNSET


class ChangedServerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: ChangedServer


class MetadataBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    metadata: Metadata


class MetaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    meta: Annotated[Metadata, Meta(min_length=1, max_length=1)]


# -- actions ------------------------------------------------------------------------------------


class Resize(_Sent, kw_only=True, frozen=True):
    flavor_ref: Ref | int
    disk_config: Any = None


class Migrate(_Sent, kw_only=True, frozen=True):
    host: Host | UnsetType | None = UNSET


class LiveMigrate(_Sent, kw_only=True, frozen=True):
    host: Host | None = None
    block_migration: Any = None
    disk_over_commit: Any = None
    force: Any = None


class Evacuate(_Sent, kw_only=True, frozen=True):
    host: Host | None = None
    force: Any = None
    admin_pass: Any = None
    on_shared_storage: Any = None


class Rebuild(_Elsewhere, kw_only=True, frozen=True):
    image_ref: Ref
    name: Name | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    description: Text | UnsetType | None = UNSET
    key_name: Name | UnsetType | None = UNSET
    preserve_ephemeral: Any = None


class Unshelve(_Sent, kw_only=True, frozen=True):
    """A zone of None unpins the server from the one that it was made in."""

    availability_zone: Name | UnsetType | None = UNSET
    host: Host | UnsetType = UNSET


class Lock(_Sent, kw_only=True, frozen=True):
    locked_reason: Name | UnsetType = UNSET


def checked_name(name: str) -> str:
    """A name that can be read by people: printable, and not hidden behind blanks."""
    if name != name.strip() or not name.isprintable():
        raise Problem(
            400,
            f"Invalid input: name is {name!r}; it must be printable, without blanks at its beginning or end.",
        )
    return name


def checked_metadata(metadata: dict[str, str]) -> dict[str, str]:
    size = count_bytes(metadata)
    if size > METADATA_BYTES_MAX:
        raise Problem(
            403, f"The metadata of a server has {METADATA_BYTES_MAX} bytes at most, and this would be {size}."
        )
    return metadata

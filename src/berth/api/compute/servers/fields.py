"""What a request about a server may say: each field and each hint that Nova has is used, or refused by name.

There are no networks, no volumes, no key pairs and no way into a guest here. A request that asks for one of
them is refused: a server that is ACTIVE has what was asked for. What clients send when nothing was asked for
(``networks: auto``, the image as the only disk) is accepted. A name that is not in the tables is a mistake.
"""

from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, UnsetType

from berth.api.kernel.problem import Problem
from berth.model.rejections import MetadataTooLarge
from berth.scheduler.spec_table import Fate, count_bytes

DISK_CONFIG: Final = "MANUAL"


class Field(NamedTuple):
    """``words`` say what it is used for, or what is not offered. ``harmless`` are the values of a refused
    field that ask for nothing."""

    fate: Fate
    words: str
    harmless: tuple[Any, ...] = ()


def _used(words: str) -> Field:
    return Field(Fate.USED, words)


def _refused(words: str, *harmless: Any) -> Field:
    return Field(Fate.REFUSED, words, harmless)


_NO_NETWORKS: Final = "there are no networks"
_NO_VOLUMES: Final = "there are no volumes and no further disks"
_NO_KEYS: Final = "there are no key pairs"
_NO_WAY_IN: Final = "nothing can be injected into a guest"
_NOT_KEPT: Final = "it is not kept"
_DRIVERS_CHOICE: Final = "the driver decides how disks are moved"

_IN_GUEST: Final = {
    "OS-DCF:diskConfig": _refused("disks are never repartitioned", DISK_CONFIG),
    "accessIPv4": _refused(_NOT_KEPT, ""),
    "accessIPv6": _refused(_NOT_KEPT, ""),
    "hostname": _refused(_NO_WAY_IN),
}
_MADE: Final = {
    **_IN_GUEST,
    "adminPass": _refused(_NO_WAY_IN, ""),
    "personality": _refused(_NO_WAY_IN, []),
    "user_data": _refused(_NO_WAY_IN, ""),
    "trusted_image_certificates": _refused("signatures of images are not verified", []),
}
_NAMED: Final = {
    "name": _used("its name"),
    "description": _used("kept"),
    "metadata": _used("kept"),
}

FIELDS: Final[dict[str, dict[str, Field]]] = {
    "create": {
        **_MADE,
        **_NAMED,
        "flavorRef": _used("its sizes, and which hosts may have it"),
        "imageRef": _used("its image, and which hosts may have it"),
        "availability_zone": _used("its zone: ZONE, or ZONE:HOST for administrators"),
        "host": _used("its host, for administrators"),
        "hypervisor_hostname": _used("its host, for administrators"),
        "min_count": _used("create at least this many, or none"),
        "max_count": _used("create as many as fit, up to this many"),
        "berth:needs": _used("what other services need for it, for administrators and services"),
        "return_reservation_id": _used("whether the answer has the id of the reservation"),
        "networks": _refused(
            f"{_NO_NETWORKS}, and ports (`[{{port: ID}}]`) only with the setting port_source_url",
            "auto",
            "none",
            [],
        ),
        "security_groups": _refused(_NO_NETWORKS, [], [{"name": "default"}]),
        "block_device_mapping": _refused(_NO_VOLUMES, []),
        "block_device_mapping_v2": _refused(_NO_VOLUMES, []),
        "config_drive": _refused(_NO_WAY_IN, False, "", "false", "False"),
        "key_name": _refused(_NO_KEYS),
        "tags": _refused("tags are not kept: use metadata", []),
    },
    "update": {
        **_IN_GUEST,
        "name": _used("its name"),
        "description": _used("kept"),
        "pinned_availability_zone": _refused("the zone of a server is changed by unshelving it"),
    },
    "rebuild": {
        **_MADE,
        **_NAMED,
        "imageRef": _used("its new image, which its host must support"),
        "key_name": _refused(_NO_KEYS, None),
        "preserve_ephemeral": _refused("ephemeral disks are always recreated", False),
    },
    "resize": {
        "flavorRef": _used("its sizes, and which hosts may have it"),
        "OS-DCF:diskConfig": _IN_GUEST["OS-DCF:diskConfig"],
    },
    "migrate": {"host": _used("the destination host")},
    "os-migrateLive": {
        "host": _used("the destination host"),
        "block_migration": _refused(_DRIVERS_CHOICE, "auto"),
        "disk_over_commit": _refused(_DRIVERS_CHOICE, False),
        "force": _refused("the filters are always asked", False),
    },
    "evacuate": {
        "host": _used("the destination host"),
        "onSharedStorage": _refused("the server is rebuilt on its new host", False),
        "adminPass": _MADE["adminPass"],
        "force": _refused("the filters are always asked", False),
    },
    "unshelve": {
        "availability_zone": _used("its new zone; null for any zone"),
        "host": _used("its new host"),
    },
    "lock": {"locked_reason": _used("kept")},
}
"""Every field of every body, by operation."""

_ONE_FILTER: Final = "no filter reads it"

HINTS: Final[dict[str, Field]] = {
    "group": _used("the server group that it is a member of"),
    "same_host": _used("servers whose host it must share"),
    "different_host": _used("servers whose hosts it must avoid"),
    "query": _refused(_ONE_FILTER),
    "target_cell": _refused(_ONE_FILTER),
    "different_cell": _refused(_ONE_FILTER),
    "build_near_host_ip": _refused(_ONE_FILTER),
    "cidr": _refused(_ONE_FILTER),
}


def refuse_fields(operation: str, body: msgspec.Struct, **harmless: tuple[Any, ...]) -> None:
    """Refuse a body that asks for something that is not offered. ``harmless`` are further values of fields
    that ask for nothing in this request."""
    for field in msgspec.structs.fields(body):
        known, value = FIELDS[operation][field.encode_name], getattr(body, field.name)
        accepted = (field.default, *known.harmless, *harmless.get(field.name, ()))
        # False == 0 in Python, but they are different values in JSON.
        if known.fate is not Fate.USED and not any(
            value == one and type(value) is type(one) for one in accepted
        ):
            raise _refuse_field(field.encode_name, value, known)


def _refuse_field(name: str, value: Any, known: Field) -> Problem:
    said = [str(one) for one in known.harmless if one and isinstance(one, str)]
    allowed = f"{', '.join(said)} or left out" if said else "left out"
    return Problem(
        400, f"Invalid input: {name} is {str(value)[:100]!r}; it must be {allowed}: {known.words}."
    )


def list_plain_disks(image: str | None) -> tuple[list[dict[str, Any]], ...]:
    """The ways in which clients name the image of a server as its only disk, on the host."""
    if not image:
        return ()
    id = image.rstrip("/").rpartition("/")[2]
    disk = {"uuid": id, "source_type": "image", "destination_type": "local", "boot_index": 0}
    return ([disk | {"delete_on_termination": True}], [disk])


def read_hints(*given: dict[str, Any] | None) -> dict[str, Any]:
    """The hints of a request, given under one of two names. Each must be one that is used."""
    named = [hints for hints in given if hints is not None]
    if len(named) > 1:
        raise Problem(
            400, "Invalid input: scheduler hints are given under two names: use os:scheduler_hints alone."
        )
    hints = named[0] if named else {}
    used = [name for name, field in HINTS.items() if field.fate is Fate.USED]
    for name in hints:
        if name not in used:
            words = HINTS[name].words if name in HINTS else "it is unknown"
            raise Problem(
                400,
                f"Invalid input: the hint {name[:100]} is not supported: {words}. Supported: "
                f"{', '.join(used)}.",
            )
    return hints


# -- what bodies have in common -----------------------------------------------------------------


METADATA_BYTES_MAX: Final = 64 << 10

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=255)]
HostName = Annotated[str, Meta(min_length=1, max_length=255)]
Ref = Annotated[str, Meta(max_length=1024)]
MetadataKey = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9\-_:. ]+\Z")]
Metadata = dict[MetadataKey, Text]

_NAMES: Final = {
    "flavor_ref": "flavorRef",
    "image_ref": "imageRef",
    "admin_pass": "adminPass",
    "disk_config": "OS-DCF:diskConfig",
    "access_ipv4": "accessIPv4",
    "access_ipv6": "accessIPv6",
    "on_shared_storage": "onSharedStorage",
    "needs": "berth:needs",
}


class ServerBody(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, rename=_NAMES):
    """Its fields have the names of Nova on the wire."""


class BuildBody(ServerBody, kw_only=True, frozen=True):
    """What Nova can build a server with, and Berth cannot."""

    admin_pass: Text | None = None
    disk_config: Any = None
    access_ipv4: Any = None
    access_ipv6: Any = None
    user_data: Any = None
    personality: Any = None
    hostname: Any = None
    trusted_image_certificates: Any = None


def check_name(name: str | UnsetType) -> None:
    """Refuse a name that people cannot read: it is printable, without blanks around it."""
    if isinstance(name, str) and (name != name.strip() or not name.isprintable()):
        raise Problem(
            400,
            f"Invalid input: name is {name!r}; it must be printable, without blanks at its beginning or end.",
        )


def find_excess(metadata: dict[str, str]) -> MetadataTooLarge | None:
    """Whether there is more metadata than a server may have."""
    size = count_bytes(metadata)
    return None if size <= METADATA_BYTES_MAX else MetadataTooLarge(size, METADATA_BYTES_MAX)

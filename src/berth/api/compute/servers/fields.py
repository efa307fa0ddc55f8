"""What a request about a server may say: each field and each hint that Nova has is used, or refused by name.

There are no networks and no volumes here. A request that asks for one is refused: a server that is ACTIVE has
what was asked for. What its guest is given (user data, a key, a host name) is handed to the driver. What
clients send when nothing was asked for (``networks: auto``, the image as the only disk) is accepted. A name
that is not in the tables is a mistake.
"""

import base64
import ipaddress
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.kernel.call import Call
from berth.api.kernel.paging import NO
from berth.api.kernel.problem import Problem
from berth.model.rejections import MetadataTooLarge
from berth.model.servers import NO_GUEST, Server
from berth.runtime.ids import Ids
from berth.scheduler.spec_table import Fate, count_bytes


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
_NO_FILES: Final = "no files are put into a guest: use user_data"
_DRIVERS_CHOICE: Final = "the driver decides how disks are moved"

_DISK_CONFIG: Final = _used("handed to the driver: AUTO or MANUAL")
_PASSWORD: Final = _used(
    "in the answer, or else a new one; as with Nova's defaults, drivers do not set it in the guest"
)
_IN_GUEST: Final = {
    "OS-DCF:diskConfig": _DISK_CONFIG,
    "accessIPv4": _used("kept"),
    "accessIPv6": _used("kept"),
    "hostname": _used("handed to the driver"),
}
_MADE: Final = {
    **_IN_GUEST,
    "adminPass": _PASSWORD,
    "personality": _refused(_NO_FILES, []),
    "user_data": _used("handed to the driver"),
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
        "config_drive": _used("handed to the driver: whether the server has a config drive"),
        "key_name": _used("its public key is handed to the driver"),
        "tags": _used("kept"),
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
        "key_name": _used("its public key is handed to the driver; null for none"),
        "preserve_ephemeral": _refused("ephemeral disks are always recreated", False),
    },
    "resize": {
        "flavorRef": _used("its sizes, and which hosts may have it"),
        "OS-DCF:diskConfig": _refused("a resize does not change it", "MANUAL"),
    },
    "migrate": {"host": _used("the destination host")},
    "os-migrateLive": {
        "host": _used("the destination host"),
        "block_migration": _refused(_DRIVERS_CHOICE, "auto", True),
        "disk_over_commit": _refused(_DRIVERS_CHOICE, False),
        "force": _refused("the filters are always asked", False),
    },
    "evacuate": {
        "host": _used("the destination host"),
        "onSharedStorage": _refused("the server is rebuilt on its new host", False),
        "adminPass": _refused("a server keeps the password that it has", ""),
        "force": _refused("the filters are always asked", False),
    },
    "unshelve": {
        "availability_zone": _used("its new zone; null for any zone"),
        "host": _used("its new host"),
    },
    "reboot": {"type": _used("SOFT: by the guest; HARD: it is switched off and on")},
    "rescue": {
        "adminPass": _used("answered as it was given; a simulated guest has no passwords"),
        "rescue_image_ref": _refused("a server is rescued with the image that it was made from"),
    },
    "createImage": {"name": _used("the image's name"), "metadata": _used("properties of the image")},
    "createBackup": {
        "name": _used("the image's name"),
        "backup_type": _used("which backups it is counted with"),
        "rotation": _used("how many backups of this type are kept; 0 keeps none"),
        "metadata": _used("properties of the image"),
    },
    "os-resetState": {"state": _used("active or error: what its record says")},
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
        if False in accepted and isinstance(value, str) and value.lower() in NO:
            # Nova takes booleans as text, too.
            value = False
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


DiskConfig = Literal["AUTO", "MANUAL"]
UserData = Annotated[str, Meta(max_length=65_535)]
Hostname = Annotated[
    str, Meta(min_length=2, max_length=255, pattern=r"^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?\Z")
]
_FQDN: Final = 94
"""From this microversion on a host name may have its domain with it."""
_HOSTNAME_MAX: Final = 63


class GuestBody(ServerBody, kw_only=True, frozen=True):
    """What is kept of a server for its guest, and for its owner."""

    disk_config: DiskConfig | UnsetType = UNSET
    access_ipv4: Text | UnsetType | None = UNSET
    access_ipv6: Text | UnsetType | None = UNSET
    hostname: Hostname | UnsetType = UNSET


class BuildBody(GuestBody, kw_only=True, frozen=True):
    """What a server is built with."""

    admin_pass: Text | UnsetType = UNSET
    user_data: UserData | UnsetType | None = UNSET
    personality: Any = None
    trusted_image_certificates: Any = None


SINCE: Final = {"hostname": 90}


_PASSWORD_LETTERS: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_PASSWORD_LENGTH: Final = 12


def show_password(given: str | UnsetType, ids: Ids) -> dict[str, str]:
    """The password in an answer: the one that was given, or a new one."""
    if isinstance(given, str) and given:
        return {"adminPass": given}
    made = (ids.rng.choice(_PASSWORD_LETTERS) for _ in range(_PASSWORD_LENGTH))
    return {"adminPass": "".join(made)}


def change_guest(server: Server, asked: GuestBody) -> Server:
    """The server with what a body says of its guest, where it does."""
    guest, changes = server.guest, {}
    if isinstance(asked.disk_config, str):
        guest = msgspec.structs.replace(guest, partitions_disk=asked.disk_config == "AUTO")
    if isinstance(asked.hostname, str):
        guest = msgspec.structs.replace(guest, hostname=asked.hostname)
    if isinstance(asked, BuildBody) and not isinstance(asked.user_data, UnsetType):
        guest = msgspec.structs.replace(guest, user_data=asked.user_data or None)
    for name in ("access_ipv4", "access_ipv6"):
        if not isinstance(getattr(asked, name), UnsetType):
            text = getattr(asked, name)
            changes[name] = str(ipaddress.ip_address(text)) if text else ""
    # The default itself is left out of the journal; what is only equal to it is not.
    return msgspec.structs.replace(server, guest=NO_GUEST if guest == NO_GUEST else guest, **changes)


def check_guest(call: Call, asked: GuestBody) -> None:
    """Refuse addresses that are none, host names that are too long, and user data that is not in base64."""
    name = asked.hostname
    if isinstance(name, str) and call.version < _FQDN and ("." in name or len(name) > _HOSTNAME_MAX):
        raise Problem(
            400,
            f"Invalid input: hostname is {name[:100]!r}; before microversion 2.{_FQDN} it must have at most "
            f"{_HOSTNAME_MAX} characters, and no dot.",
        )
    for field, kind in (("access_ipv4", ipaddress.IPv4Address), ("access_ipv6", ipaddress.IPv6Address)):
        value = getattr(asked, field)
        if isinstance(value, str) and value:
            try:
                kind(value)
            except ValueError as error:
                raise Problem(400, f"Invalid input: {_NAMES[field]} is {value!r}: {error}.") from None
    if isinstance(asked, BuildBody) and isinstance(asked.user_data, str):
        try:
            base64.b64decode(asked.user_data, validate=True)
        except ValueError:
            raise Problem(400, "Invalid input: user_data must be in base64.") from None


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

"""What a flavor and an image ask for, as Nova would ask it.

A flavor's sizes are resources of the unsuffixed group. Its extra specs add to them, change them or take them
away; whatever class is named by any group of the extra specs, even with nothing of it, is not taken from the
sizes any more. A key that is for the scheduler and cannot be understood is refused, where Nova would write a
line to its log and leave it out.

| key | value | meaning |
| --- | --- | --- |
| ``resources:CLASS``, ``resources1:CLASS`` | an amount, 0 for none | what the group of that suffix needs |
| ``trait:NAME``, ``trait1:NAME`` | required, forbidden | what a provider of the group must have, or not |
| ``group_policy`` | none, isolate | whether suffixed groups may share a provider |
| ``same_subtree``, ``same_subtree1`` | suffixes, with commas | whose providers are in one subtree |
| ``aggregate_instance_extra_specs:KEY`` | text | what an aggregate of the host must say |
| ``berth:disk`` | local, pool | where the disk is: on the host itself, or in a pool that it can use |

An image's ``trait:NAME = required`` joins the unsuffixed group; what else it says of its host is for filters.

All other keys are judged where something new is asked for (``check_flavor``). A server that is there already
keeps its flavor, and can be moved although the flavor has a key that would be refused today.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from berth.model.placement import AMOUNT_MAX, SHARES_VIA_AGGREGATE
from berth.model.rejections import SpecInvalid
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, RequestGroup
from berth.scheduler.spec_table import (
    DISK_KEY,
    DISK_PLACES,
    METADATA_SCOPE,
    read_properties,
    suffixes_in,
    wrong_extra_spec,
    wrong_image_property,
)

SPECS_MAX: Final = 1_000
GROUPS_MAX: Final = 100
_MB_PER_GB: Final = 1024

_KEY: Final = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{0,64}):(.*)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,254}")
_DIGITS: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_GROUP_POLICY: Final = "group_policy"
_SAME_SUBTREE: Final = "same_subtree"
_DISK: Final = "DISK_GB"
_DISK_SUFFIX: Final = "_disk"
"""The group of a disk that is to be on the host, or in a pool."""


class FlavorSize(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes, in the units that Nova uses for each."""

    vcpus: int
    memory_mb: int
    disk_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = {}


class FlavorAsk(msgspec.Struct, frozen=True):
    """What goes into a ScheduleRequest."""

    ask: CandidatesRequest
    metadata: tuple[tuple[str, str], ...]
    image: tuple[tuple[str, str], ...] = ()
    """The properties of the image that are used or passed on, by their present names."""


class _Group:
    """A group while it is being read."""

    def __init__(self) -> None:
        self.resources: dict[str, int] = {}
        self.required: dict[str, None] = {}
        self.forbidden: dict[str, None] = {}

    def request(self, suffix: str) -> RequestGroup:
        return RequestGroup(
            suffix=suffix,
            resources=tuple((name, amount) for name, amount in self.resources.items() if amount),
            required=tuple((name,) for name in self.required),
            forbidden=frozenset(self.forbidden),
        )


def check_flavor(flavor: FlavorSize, image_properties: Mapping[str, str] = {}) -> FlavorAsk | SpecInvalid:
    """The request of a flavor and an image, if every key of both has a meaning here and a valid value."""
    asked = read_flavor(flavor, image_properties)
    wrong = wrong_extra_spec(flavor.extra_specs) or wrong_image_property(image_properties)
    return asked if isinstance(asked, SpecInvalid) or wrong is None else wrong


def read_flavor(
    flavor: FlavorSize, image_properties: Mapping[str, str] = {}, root_disk: bool = True
) -> FlavorAsk | SpecInvalid:
    """The request of a flavor and an image. ``root_disk`` False is for servers that boot from a volume."""
    for specs in (flavor.extra_specs, image_properties):
        if len(specs) > SPECS_MAX:
            return SpecInvalid("extra_specs", f"{len(specs)} of them", f"{SPECS_MAX} at most")
    groups: dict[str, _Group] = {UNSUFFIXED: _Group()}
    for wrong in (
        _read_extra_specs(groups, flavor.extra_specs),
        _read_image(groups[UNSUFFIXED], image_properties),
        _add_sizes(groups, flavor, root_disk),
        _place_disk(groups, flavor.extra_specs.get(DISK_KEY)),
    ):
        if wrong is not None:
            return wrong
    requested = [group.request(suffix) for suffix, group in groups.items()]
    wrong = _wrong_groups(requested)
    if wrong is not None:
        return wrong
    return FlavorAsk(
        CandidatesRequest(
            groups=tuple(group for group in requested if group.resources),
            isolate=flavor.extra_specs.get(_GROUP_POLICY) == "isolate",
            same_subtrees=_same_subtrees(flavor.extra_specs, requested),
        ),
        tuple(
            (key.removeprefix(METADATA_SCOPE), value)
            for key, value in flavor.extra_specs.items()
            if key.startswith(METADATA_SCOPE)
        ),
        tuple(read_properties(image_properties).items()) if image_properties else (),
    )


# -- reading ------------------------------------------------------------------------------------


def _read_extra_specs(groups: dict[str, _Group], specs: Mapping[str, str]) -> SpecInvalid | None:
    for key, value in specs.items():
        if key == _GROUP_POLICY and value not in ("none", "isolate"):
            return SpecInvalid(key, value, "none or isolate")
        if key == METADATA_SCOPE:
            return SpecInvalid(key, value, "the key that an aggregate's metadata must have, behind the colon")
        match = _KEY.fullmatch(key)
        if match is None:
            continue
        scope, suffix, name = match.groups()
        group = groups.setdefault(suffix, _Group())
        if len(groups) > GROUPS_MAX + 1:
            return SpecInvalid(key, value, f"{GROUPS_MAX} groups at most")
        read = _read_resource if scope == "resources" else _read_trait
        wrong = read(group, key, name, value)
        if wrong is not None:
            return wrong
    return None


def _read_resource(group: _Group, key: str, name: str, value: str) -> SpecInvalid | None:
    if _NAME.fullmatch(name) is None:
        return SpecInvalid(key, value, "the name of a resource class behind the colon: A-Z, 0-9 and _")
    if _DIGITS.fullmatch(value) is None or int(value) > AMOUNT_MAX:
        return SpecInvalid(key, value, f"a whole number from 0 to {AMOUNT_MAX}")
    group.resources[name] = int(value)
    return None


def _read_trait(group: _Group, key: str, name: str, value: str) -> SpecInvalid | None:
    if _NAME.fullmatch(name) is None:
        return SpecInvalid(key, value, "the name of a trait behind the colon: A-Z, 0-9 and _")
    if value not in ("required", "forbidden"):
        return SpecInvalid(key, value, "required or forbidden")
    (group.required if value == "required" else group.forbidden)[name] = None
    return None


def _same_subtrees(specs: Mapping[str, str], groups: Iterable[RequestGroup]) -> tuple[frozenset[str], ...]:
    asking = {group.suffix for group in groups if group.resources}
    named = [suffixes_in(value) for key, value in specs.items() if key.startswith(_SAME_SUBTREE)]
    return tuple(suffixes for suffixes in named if suffixes and suffixes <= asking)


def _read_image(group: _Group, properties: Mapping[str, str]) -> SpecInvalid | None:
    for key, value in properties.items():
        if not key.startswith("trait:"):
            continue
        if value != "required":
            return SpecInvalid(key, value, "required, which is all that an image can say of a trait")
        wrong = _read_trait(group, key, key.removeprefix("trait:"), value)
        if wrong is not None:
            return wrong
    return None


def _add_sizes(groups: dict[str, _Group], flavor: FlavorSize, root_disk: bool) -> SpecInvalid | None:
    fields = ("vcpus", "memory_mb", "disk_gb", "ephemeral_gb", "swap_mb")
    for field in fields:
        size = getattr(flavor, field)
        if not 0 <= size <= AMOUNT_MAX:
            return SpecInvalid(field, str(size), f"a whole number from 0 to {AMOUNT_MAX}")
    # Swap is counted in whole gigabytes, rounded up.
    swap_gb = -(-flavor.swap_mb // _MB_PER_GB)
    disk_gb = (flavor.disk_gb if root_disk else 0) + flavor.ephemeral_gb + swap_gb
    if disk_gb > AMOUNT_MAX:
        return SpecInvalid("disk_gb", str(disk_gb), f"{AMOUNT_MAX} at most, with ephemeral and swap disks")
    named = {name for group in groups.values() for name in group.resources}
    sizes = {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.memory_mb, _DISK: disk_gb}
    resources = groups[UNSUFFIXED].resources
    groups[UNSUFFIXED].resources = {n: s for n, s in sizes.items() if n not in named} | resources
    return None


def _place_disk(groups: dict[str, _Group], place: str | None) -> SpecInvalid | None:
    """Ask for the disk in a group of its own, of a provider that shares, or of one that does not."""
    if place is None:
        return None
    if place not in DISK_PLACES:
        return SpecInvalid(DISK_KEY, place, " or ".join(DISK_PLACES))
    asking = [suffix for suffix, group in groups.items() if suffix != UNSUFFIXED and _DISK in group.resources]
    if asking or _DISK_SUFFIX in groups:
        suffix = asking[0] if asking else _DISK_SUFFIX
        say = f"trait{suffix}:{SHARES_VIA_AGGREGATE}"
        return SpecInvalid(DISK_KEY, place, f"left out beside the group {suffix}: say {say} there")
    amount = groups[UNSUFFIXED].resources.pop(_DISK, 0)
    if amount:
        group = groups[_DISK_SUFFIX] = _Group()
        group.resources[_DISK] = amount
        (group.required if place == "pool" else group.forbidden)[SHARES_VIA_AGGREGATE] = None
    return None


def _wrong_groups(groups: Iterable[RequestGroup]) -> SpecInvalid | None:
    """What cannot be asked for, although each key by itself could."""
    found_any = False
    for group in groups:
        found_any = found_any or bool(group.resources)
        required = {name for names in group.required for name in names}
        for name in sorted(required & group.forbidden):
            key = f"trait{group.suffix}:{name}"
            return SpecInvalid(key, "forbidden", "not both required (by the image, too) and forbidden")
        if not group.resources and (required or group.forbidden):
            name = min(required | group.forbidden)
            key = f"trait{group.suffix}:{name}"
            value = "required" if name in required else "forbidden"
            return SpecInvalid(key, value, f"traits of a group that asks for resources{group.suffix}: too")
    return None if found_any else SpecInvalid("resources", "nothing", "some resource, of a size above 0")

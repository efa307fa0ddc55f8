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

NUMA cells, dedicated cpus and pages (topology.py) and devices by name (devices.py) are groups of the same
request (docs/decisions/024):

* ``_numa0``, ``_numa1``: cpus and memory of each guest cell, all from one provider, each from another. A
  guest that asks for no cells is one, which may in the end be split: ``otherwise`` says so.
* ``_pci0``, ``_pci1``: one device each, near a guest cell as its policy wants it.
* ``_accel0``, ``_accel1``: the groups of a device profile.

PCI devices that a server needs beside its flavor, such as a port's VF, are near a guest cell by the same
policy: their groups are joined to the request by those who know them (``pci_groups``).

All other keys are judged where something new is asked for (``check_flavor``). A server that is there already
keeps its flavor, and what its names of devices meant. It can be moved although the flavor has a key that
would be refused today, or names a device that has left the settings.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from berth.model.devices import DeviceProfile, NumaPolicy, PciAlias
from berth.model.placement import AMOUNT_MAX, DEDICATED, HYPERTHREADING, NUMA_ROOT, SHARES_VIA_AGGREGATE
from berth.model.rejections import SpecInvalid
from berth.model.scheduling import UNSUFFIXED, Affinity, CandidatesRequest, RequestGroup
from berth.scheduler.devices import ALIAS_KEY, DeviceCatalog
from berth.scheduler.spec_table import (
    DISK_KEY,
    DISK_PLACES,
    METADATA_SCOPE,
    Fate,
    extra_spec,
    image_property,
    read_properties,
    suffixes_in,
    wrong_extra_spec,
    wrong_image_property,
)
from berth.scheduler.topology import (
    PAGES,
    SMALL,
    THREADS_OF_A_CORE,
    GuestSize,
    GuestTopology,
    find_named,
    find_wrong_cpus,
    read_pci_policy,
    read_threads,
    read_topology,
    round_up,
)

SPECS_MAX: Final = 1_000
GROUPS_MAX: Final = 100
_MB_PER_GB: Final = 1024
_SHOWN_MAX: Final = 100

_KEY: Final = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{0,64}):(.*)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,254}")
_DIGITS: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_GROUP_POLICY: Final = "group_policy"
_SAME_SUBTREE: Final = "same_subtree"
_DISK: Final = "DISK_GB"
_DISK_SUFFIX: Final = "_disk"
"""The group of a disk that is to be on the host, or in a pool."""
_CPU: Final = "VCPU"
_MEMORY: Final = "MEMORY_MB"
_SIZES: Final = frozenset((_CPU, DEDICATED, _MEMORY, *PAGES.values()))
"""What a guest cell is made of."""
_TOPOLOGY_KEYS: Final = ("numa_nodes", "cpu_policy", "mem_page_size", "pci_numa_affinity_policy")
NO_DEVICES: Final = DeviceCatalog()
PciGroups = tuple[tuple[str, NumaPolicy | None], ...]
"""Suffixes of groups that ask for PCI devices, each with a policy of its own if it has one."""


class FlavorSize(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes, in the units that Nova uses for each. ``aliases`` and ``profile``: what names of devices mean,
    where it may not be what they mean today."""

    vcpus: int
    memory_mb: int
    disk_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = {}
    aliases: tuple[PciAlias, ...] = ()
    profile: DeviceProfile | None = None


class FlavorAsk(msgspec.Struct, frozen=True):
    """What goes into a ScheduleRequest."""

    ask: CandidatesRequest
    metadata: tuple[tuple[str, str], ...]
    image: tuple[tuple[str, str], ...] = ()
    """The properties of the image that are used or passed on, by their present names."""
    otherwise: tuple[CandidatesRequest, ...] = ()

    def map_asks(self, change: Callable[[CandidatesRequest], CandidatesRequest]) -> "FlavorAsk":
        """The same with all that is asked for changed alike."""
        return msgspec.structs.replace(
            self, ask=change(self.ask), otherwise=tuple(map(change, self.otherwise))
        )


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


def check_flavor(
    flavor: FlavorSize, image_properties: Mapping[str, str] = {}, devices: DeviceCatalog = NO_DEVICES
) -> FlavorAsk | SpecInvalid:
    """The request of a flavor and an image, if every key of both has a meaning here and a valid value."""
    wrong = (
        wrong_sizes(flavor)
        or wrong_flavor(flavor)
        or wrong_image_property(image_properties)
        or wrong_guest(flavor, image_properties)
    )
    return read_flavor(flavor, image_properties, devices=devices) if wrong is None else wrong


def wrong_flavor(flavor: FlavorSize) -> SpecInvalid | None:
    """The first extra spec that is refused, whose value is not valid, or that contradicts the flavor's
    size."""
    wrong = wrong_extra_spec(flavor.extra_specs)
    if wrong is not None:
        return wrong
    named = {name: find_named(flavor.extra_specs, name) for name in (_CPU, DEDICATED)}
    shared, dedicated = (sum(amount for _, amount in named[name]) for name in (_CPU, DEDICATED))
    if not dedicated:
        return None
    key, _ = named[DEDICATED][0]
    if shared:
        other = named[_CPU][0]
        return SpecInvalid(
            key, str(dedicated), f"left out beside {other[0]}={other[1]}: use one or the other"
        )
    needed = flavor.vcpus + (flavor.extra_specs.get("hw:emulator_threads_policy") == "isolate")
    if dedicated != needed:
        return SpecInvalid(key, str(dedicated), f"{needed}, for the flavor has {flavor.vcpus} vcpus")
    return None


def wrong_guest(flavor: FlavorSize, image_properties: Mapping[str, str]) -> SpecInvalid | None:
    """What a flavor and an image cannot ask for together. It was not always refused: only new servers are
    held to it."""
    return find_wrong_cpus(GuestSize(flavor.vcpus, flavor.memory_mb), flavor.extra_specs, image_properties)


def wrong_sizes(flavor: FlavorSize) -> SpecInvalid | None:
    """What cannot be read of a flavor by itself, whatever its image and the region's devices are."""
    groups = _read_groups(flavor, {}, root_disk=True, has_cells="")
    return groups if isinstance(groups, SpecInvalid) else None


def wrong_image_traits(properties: Mapping[str, str]) -> SpecInvalid | None:
    """The first trait of an image that cannot be read."""
    return _read_image(_Group(), properties)


def read_flavor(
    flavor: FlavorSize,
    image_properties: Mapping[str, str] = {},
    root_disk: bool = True,
    devices: DeviceCatalog = NO_DEVICES,
    pci_groups: PciGroups = (),
) -> FlavorAsk | SpecInvalid:
    """The request of a flavor and an image. ``root_disk`` False is for servers that boot from a volume."""
    catalog = devices.override(flavor.aliases, flavor.profile)
    guest = _read_guest(flavor, image_properties, catalog, pci_groups)
    if isinstance(guest, SpecInvalid):
        return guest
    has_cells = "" if guest.topology is None else _name_topology(flavor.extra_specs, image_properties)
    groups = _read_groups(flavor, image_properties, root_disk, has_cells)
    if isinstance(groups, SpecInvalid):
        return groups
    clash = next((group.suffix for group in guest.groups() if group.suffix in groups), None)
    if clash is not None:
        return SpecInvalid(f"resources{clash}:", "given", f"of another name: the group {clash} is taken")
    host = groups[UNSUFFIXED]
    wrong = _wrong_traits(host.request(UNSUFFIXED)) if has_cells else None
    if wrong is not None:
        return wrong
    required, forbidden = tuple((name,) for name in host.required), frozenset(host.forbidden)
    if has_cells:
        # The guest is more than this group: its traits are judged wherever the guest is.
        host.required = {}
        if not any(host.resources.values()):
            host.forbidden = {}
    requested = [group.request(suffix) for suffix, group in groups.items()]
    wrong = _wrong_groups([*requested, *guest.groups()])
    if wrong is not None:
        return wrong
    specs = flavor.extra_specs
    isolates = specs.get(_GROUP_POLICY) == "isolate"
    numbered = frozenset(group.suffix for group in requested if group.resources) - {UNSUFFIXED}
    plain = CandidatesRequest(
        groups=tuple(group for group in requested if group.resources),
        isolate=isolates and guest.is_plain,
        root_forbidden=forbidden if has_cells else frozenset(),
        guest_required=required if has_cells else (),
        same_subtrees=_same_subtrees(specs, requested),
        # Guest cells and devices have rules of their own.
        distinct=(numbered,) if isolates and not guest.is_plain else (),
    )
    first, *others = guest.asks(plain) if guest.is_plain else dict.fromkeys(guest.asks(plain))
    return FlavorAsk(
        first,
        tuple(
            (key.removeprefix(METADATA_SCOPE), value)
            for key, value in specs.items()
            if key.startswith(METADATA_SCOPE)
        ),
        tuple(read_properties(image_properties).items()) if image_properties else (),
        tuple(others),
    )


def _read_groups(
    flavor: FlavorSize, image_properties: Mapping[str, str], root_disk: bool, has_cells: str
) -> dict[str, _Group] | SpecInvalid:
    """The groups that a flavor names, and its sizes; without cpus and memory where guest cells have them:
    ``has_cells`` is then the key and value that says so."""
    for specs in (flavor.extra_specs, image_properties):
        if len(specs) > SPECS_MAX:
            return SpecInvalid("extra_specs", f"{len(specs)} of them", f"{SPECS_MAX} at most")
    groups: dict[str, _Group] = {UNSUFFIXED: _Group()}
    for wrong in (
        _read_extra_specs(groups, flavor.extra_specs),
        _read_image(groups[UNSUFFIXED], image_properties),
        _add_sizes(groups, flavor, root_disk, has_cells),
        _place_disk(groups, flavor.extra_specs.get(DISK_KEY)),
    ):
        if wrong is not None:
            return wrong
    return groups


# -- guests and devices -------------------------------------------------------------------------


class _Guest(NamedTuple):
    """What a guest needs beside the groups that its flavor names. ``policies``: the groups of PCI devices,
    and how near a guest cell each must be. ``threads`` is the policy of dedicated cpus."""

    topology: GuestTopology | None
    devices: tuple[RequestGroup, ...]
    policies: tuple[tuple[str, str], ...]
    profile: tuple[RequestGroup, ...]
    threads: str = "prefer"

    @property
    def is_plain(self) -> bool:
        return self.topology is None and not self.devices and not self.profile

    def groups(self) -> tuple[RequestGroup, ...]:
        cells = () if self.topology is None else _cells(self.topology, self.topology.pages[0], 1)
        return (*cells, *self.devices, *self.profile)

    def asks(self, plain: CandidatesRequest) -> Iterator[CandidatesRequest]:
        """What will do, in order."""
        others = (*self.devices, *self.profile)
        beside = msgspec.structs.replace(plain, groups=(*plain.groups, *others)) if others else plain
        if self.topology is None:
            split = _SIZES.intersection(name for name, _ in _unsuffixed(plain).resources)
            rounded = list(_pin_cpus(beside, self.threads))
            yield from rounded
            yield from (msgspec.structs.replace(ask, split=split) for ask in rounded if split)
            return
        near, may_be_far = self._affinities(preferred=True), self._affinities(preferred=False)
        for affinities in dict.fromkeys((near, may_be_far)):
            for size, threads in _grains(self.topology):
                cells = _cells(self.topology, size, threads, plain.root_forbidden)
                suffixes = frozenset(cell.suffix for cell in cells)
                yield msgspec.structs.replace(
                    beside,
                    groups=(*beside.groups, *cells),
                    distinct=(*beside.distinct, *((suffixes,) if len(cells) > 1 else ())),
                    affinities=affinities,
                    guest_groups=suffixes | {UNSUFFIXED},
                )
        if not self.topology.has_cells and not may_be_far:
            for size, threads in _grains(self.topology):
                yield _split_cell(beside, _cells(self.topology, size, threads, plain.root_forbidden)[0])

    def _affinities(self, preferred: bool) -> tuple[Affinity, ...]:
        """Which devices are near a guest cell; with ``preferred`` also those that need not be."""
        assert self.topology is not None
        near = frozenset(f"_numa{number}" for number in range(len(self.topology.cells)))
        return tuple(
            Affinity(suffix, near, or_outside=policy == "legacy", by_socket=policy == "socket")
            for suffix, policy in self.policies
            if preferred or policy != "preferred"
        )


_PLAIN: Final = _Guest(None, (), (), ())


def _read_guest(
    flavor: FlavorSize, properties: Mapping[str, str], catalog: DeviceCatalog, pci_groups: PciGroups
) -> _Guest | SpecInvalid:
    specs = flavor.extra_specs
    if not specs and not properties and not pci_groups:
        return _PLAIN
    wrong = _wrong_hardware(specs, properties)
    if wrong is not None:
        return wrong
    size = GuestSize(flavor.vcpus, flavor.memory_mb)
    policy = read_pci_policy(specs, properties)
    devices = catalog.find_devices(specs)
    profile = catalog.find_profile(specs)
    if isinstance(policy, SpecInvalid):
        return policy
    if isinstance(devices, SpecInvalid):
        return devices
    if isinstance(profile, SpecInvalid):
        return profile
    policies = (
        *((group.suffix, policy or alias.numa_policy) for alias, group in devices),
        *((suffix, own or policy or "legacy") for suffix, own in pci_groups),
    )
    # To be near its device a guest must be somewhere: in one cell.
    needs_cell = any(policy in ("required", "socket") for _, policy in policies)
    topology = read_topology(size, specs, properties, needs_cell)
    if isinstance(topology, SpecInvalid):
        return topology
    threads = read_threads(specs, properties)
    return _Guest(topology, tuple(group for _, group in devices), policies, profile, threads)


def _wrong_hardware(specs: Mapping[str, str], properties: Mapping[str, str]) -> SpecInvalid | None:
    """The first key about hardware whose value cannot be read."""
    for key, value in (*specs.items(), *properties.items()):
        if key.startswith(("hw:", "hw_")):
            row = extra_spec(key) if key.startswith("hw:") else image_property(key)
            if row is not None and row.fate is Fate.USED and not row.values.are(value):
                return SpecInvalid(key, value[:_SHOWN_MAX], row.values.accepted)
    return None


def _name_topology(specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """A key, with its value, that makes a guest one of cells."""
    keys = [f"{prefix}{name}" for name in _TOPOLOGY_KEYS for prefix in ("hw:", "hw_")]
    texts = {**specs, **properties}
    keys += [f"resources:{DEDICATED}", ALIAS_KEY]
    return next((f"{key}={texts[key]}" for key in keys if key in texts), "numa_affinity_policy of a port")


def _grains(topology: GuestTopology) -> Iterator[tuple[int, int]]:
    """Sizes of pages, and threads of a core to round up to, that make a difference."""
    amounts = [cell.dedicated for cell in topology.cells]
    amounts[0] += topology.emulator_cpus
    for size in topology.pages:
        seen = set()
        for threads in _list_threads(topology.threads):
            rounded = tuple(round_up(amount, threads) for amount in amounts)
            if rounded not in seen:
                seen.add(rounded)
                yield size, threads


def _cells(
    topology: GuestTopology, page_size: int, threads: int, forbidden: frozenset[str] = frozenset()
) -> tuple[RequestGroup, ...]:
    """The groups of guest cells, with pages of a size and cpus in cores of so many threads, on providers
    without the forbidden traits."""
    found = []
    for number, cell in enumerate(topology.cells):
        dedicated = cell.dedicated + (topology.emulator_cpus if number == 0 else 0)
        memory = (_MEMORY, cell.memory_mb)
        if page_size != SMALL:
            memory = (PAGES[page_size], cell.memory_mb * 1024 // page_size)
        amounts = ((_CPU, cell.shared), (DEDICATED, round_up(dedicated, threads)), memory)
        required = [NUMA_ROOT] if topology.has_cells else []
        required += [HYPERTHREADING] if topology.threads == "require" else []
        found.append(
            RequestGroup(
                suffix=f"_numa{number}",
                label=f"guest cell {number}" if topology.has_cells else "the guest",
                resources=tuple((name, amount) for name, amount in amounts if amount),
                required=tuple((name,) for name in required),
                forbidden=forbidden.union((HYPERTHREADING,) if topology.threads == "isolate" else ()),
            )
        )
    return tuple(found)


def _pin_cpus(ask: CandidatesRequest, policy: str) -> Iterator[CandidatesRequest]:
    """The request with the dedicated cpus that its groups name in cores of so many threads, on providers that
    suit the thread policy."""
    if not any(name == DEDICATED for group in ask.groups for name, _ in group.resources):
        yield ask
        return
    pinned = (
        tuple(_pin_group(group, threads, policy) for group in ask.groups) for threads in _list_threads(policy)
    )
    yield from (msgspec.structs.replace(ask, groups=groups) for groups in dict.fromkeys(pinned))


def _pin_group(group: RequestGroup, threads: int, policy: str) -> RequestGroup:
    amounts = dict(group.resources)
    if DEDICATED not in amounts:
        return group
    amounts[DEDICATED] = round_up(amounts[DEDICATED], threads)
    required = dict.fromkeys((*group.required, (HYPERTHREADING,)) if policy == "require" else group.required)
    forbidden = group.forbidden.union((HYPERTHREADING,) if policy == "isolate" else ())
    return msgspec.structs.replace(
        group, resources=tuple(amounts.items()), required=tuple(required), forbidden=forbidden
    )


def _list_threads(policy: str) -> tuple[int, ...]:
    """Threads of a core to round up to."""
    return THREADS_OF_A_CORE if policy != "isolate" else (1,)


def _split_cell(ask: CandidatesRequest, cell: RequestGroup) -> CandidatesRequest:
    """The request with a guest that may be split over cells of its host: as part of the unsuffixed group."""
    host = _unsuffixed(ask)
    both = msgspec.structs.replace(
        host,
        resources=(*host.resources, *cell.resources),
        forbidden=host.forbidden | cell.forbidden,
    )
    others = tuple(group for group in ask.groups if group.suffix != UNSUFFIXED)
    split = frozenset(name for name, _ in cell.resources)
    return msgspec.structs.replace(
        ask,
        groups=(both, *others),
        split=split,
        split_required=frozenset(name for names in cell.required for name in names),
        guest_groups=frozenset((UNSUFFIXED,)),
    )


def _unsuffixed(ask: CandidatesRequest) -> RequestGroup:
    return next((group for group in ask.groups if group.suffix == UNSUFFIXED), RequestGroup())


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


def _add_sizes(
    groups: dict[str, _Group], flavor: FlavorSize, root_disk: bool, has_cells: str
) -> SpecInvalid | None:
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
    resources = groups[UNSUFFIXED].resources
    if has_cells:
        # Dedicated cpus may be named; that they are as many as the flavor has is for a check to say.
        resources.pop(DEDICATED, None)
        clash = _find_named_size(groups)
        if clash is not None:
            return SpecInvalid(*clash, f"left out: {has_cells} takes cpus and memory as the flavor has them")
    named = {name for group in groups.values() for name in group.resources}
    sizes = {} if has_cells else {_CPU: flavor.vcpus, _MEMORY: flavor.memory_mb}
    if DEDICATED in named:
        sizes.pop(_CPU, None)
    sizes[_DISK] = disk_gb
    groups[UNSUFFIXED].resources = {n: s for n, s in sizes.items() if n not in named} | resources
    return None


def _find_named_size(groups: dict[str, _Group]) -> tuple[str, str] | None:
    """The first amount that is named for what guest cells are made of."""
    named = (
        (f"resources{suffix}:{name}", str(amount))
        for suffix, group in groups.items()
        for name, amount in group.resources.items()
        if name in _SIZES
    )
    return next(named, None)


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


def _wrong_traits(group: RequestGroup) -> SpecInvalid | None:
    required = {name for names in group.required for name in names}
    for name in sorted(required & group.forbidden):
        key = f"trait{group.suffix}:{name}"
        return SpecInvalid(key, "forbidden", "not both required (by the image, too) and forbidden")
    return None


def _wrong_groups(groups: Iterable[RequestGroup]) -> SpecInvalid | None:
    """What cannot be asked for, although each key by itself could."""
    found_any = False
    for group in groups:
        found_any = found_any or bool(group.resources)
        wrong = _wrong_traits(group)
        if wrong is not None:
            return wrong
        required = {name for names in group.required for name in names}
        if not group.resources and (required or group.forbidden):
            name = min(required | group.forbidden)
            key = f"trait{group.suffix}:{name}"
            value = "required" if name in required else "forbidden"
            return SpecInvalid(key, value, f"traits of a group that asks for resources{group.suffix}: too")
    return None if found_any else SpecInvalid("resources", "nothing", "some resource, of a size above 0")

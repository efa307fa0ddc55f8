"""Guests and devices on random hosts: a plan finds a place if and only if trying everything does, the ledger
accepts it, and what it accepts can be pinned."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import pytest

from berth.cell.units import choose_units
from berth.ledger import decide
from berth.model.commands import (
    Claim,
    CreateTrait,
    ReplaceAllocations,
    SetTraits,
)
from berth.model.ids import ConsumerId
from berth.model.placement import (
    HYPERTHREADING,
    NUMA_ROOT,
    SHARES_VIA_AGGREGATE,
    SOCKET_TRAITS,
    Inventory,
)
from berth.model.rejections import NoFit, Rejection
from berth.model.saga_runs import OwnedProvider
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, Plan, ScheduleRequest
from berth.oracle.candidates import all_candidates
from berth.scheduler.devices import read_catalog
from berth.scheduler.flavors import FlavorAsk, FlavorSize, check_flavor
from berth.scheduler.plan import plan
from berth.view import UNLIMITED, ProviderRecord, View
from tests.options import scheduler_options
from tests.unit.scheduler.fleets import Fleet

OPTIONS = scheduler_options()
DEVICES = read_catalog(
    [
        f'{{"name": "{p}", "resource_class": "PGPU", "numa_policy": "{p}"}}'
        for p in ("required", "preferred", "legacy", "socket")
    ],
    [],
)


def random_fleet(rng: random.Random) -> Fleet:
    """Hosts with one to three cells, of which some is used, and GPUs below cells and hosts."""
    fleet = Fleet()
    for host in range(rng.randint(1, 2)):
        name = f"h{host}"
        fleet.provider(name, {"DISK_GB": 100})
        for number in range(rng.randint(1, 3)):
            cell = f"{name}-numa{number}"
            threads = rng.choice((1, 1, 2))
            amounts: dict[str, Inventory | int] = {
                "VCPU": rng.randint(2, 6),
                "PCPU": Inventory(rng.randrange(threads, 9, threads), min_unit=threads, step_size=threads),
                "MEMORY_MB": rng.choice((2048, 4096, 8192)),
            }
            traits = (NUMA_ROOT, HYPERTHREADING) if threads > 1 else (NUMA_ROOT,)
            socket = rng.choice((*SOCKET_TRAITS[:2], None))
            fleet.provider(cell, amounts, parent=name, traits=traits + ((socket,) if socket else ()))
            if rng.random() < 0.5:
                fleet.take(cell, {"VCPU": rng.randint(1, 2)})
            for gpu in range(rng.randint(0, 2)):
                fleet.provider(f"{cell}-gpu{gpu}", {"PGPU": 1}, parent=rng.choice((cell, cell, name)))
    return fleet


def random_flavor(rng: random.Random) -> FlavorAsk:
    specs: dict[str, str] = {}
    cells = rng.choice((0, 0, 1, 2, 3))
    if cells:
        specs["hw:numa_nodes"] = str(cells)
    if rng.random() < 0.5:
        specs["hw:cpu_policy"] = "dedicated"
        specs["hw:cpu_thread_policy"] = rng.choice(("prefer", "require", "isolate"))
    if rng.random() < 0.5:
        specs["pci_passthrough:alias"] = f"{rng.choice(list(DEVICES.aliases))}:{rng.randint(1, 3)}"
    vcpus = rng.randint(1, 4) * max(1, cells)
    size = FlavorSize(
        vcpus=vcpus, memory_mb=1024 * rng.randint(1, 4) * max(1, cells), disk_gb=1, extra_specs=specs
    )
    found = check_flavor(size, {}, DEVICES)
    assert isinstance(found, FlavorAsk), found
    return found


def is_possible(view: View, ask: CandidatesRequest) -> bool:
    """Whether there is a way, by trying all of them. What may be split is there if the cells have it in all:
    nothing else is asked of the same classes here."""
    roots = [record for record in view.providers.values() if record.parent is None]
    return any(_is_possible_at(view, ask, root) for root in roots)


def _is_possible_at(view: View, ask: CandidatesRequest, root: ProviderRecord) -> bool:
    groups = []
    for group in ask.groups:
        split = ask.split if group.suffix == UNSUFFIXED else frozenset[str]()
        for name, amount in group.resources:
            usable = [
                one
                for one in root.tree()
                if group.forbidden.isdisjoint(one.traits) and ask.split_required.issubset(one.traits)
            ]
            if name in split and sum(_free(view, one, name) for one in usable) < amount:
                return False
        rest = tuple(part for part in group.resources if part[0] not in split)
        groups.append(msgspec.structs.replace(group, resources=rest, in_tree=root.id))
    return bool(all_candidates(view, msgspec.structs.replace(ask, groups=tuple(groups), split=frozenset())))


def _free(view: View, record: ProviderRecord, name: str) -> int:
    class_id = view.classes.id_of(name)
    assert class_id is not None
    inventory = record.inventories.get(class_id)
    if inventory is None:
        return 0
    free = min(inventory.capacity - record.used.get(class_id, 0), inventory.max_unit)
    return max(0, free // inventory.step_size * inventory.step_size)


@pytest.mark.parametrize("block", range(10))
def test_a_place_is_found_if_there_is_one_and_the_ledger_accepts_it(block: int) -> None:
    outcomes = [check_flavor_on_fleet(seed) for seed in range(block * 40, (block + 1) * 40)]
    assert 5 <= sum(outcomes) <= 35


def test_a_guest_is_split_over_cells_that_differ_in_threads() -> None:
    """Of 4 cpus, 2 are of a cell that gives them by twos, and 2 of one that has 3."""
    assert check_flavor_on_fleet(8735)


def check_flavor_on_fleet(seed: int) -> bool:
    """Whether there is a place for a flavor on a fleet, both at random: a plan finds it if there is one."""
    rng = random.Random(seed)
    fleet, asked = random_fleet(rng), random_flavor(rng)
    member = ConsumerId("member")
    wanted = ScheduleRequest(
        ask=asked.ask, otherwise=asked.otherwise, members=(member,), at_least=1, project="p", user="u"
    )
    found = plan(fleet.view, wanted, OPTIONS, rng, 0)
    possible = any(is_possible(fleet.view, ask) for ask in (asked.ask, *asked.otherwise))
    assert isinstance(found, (Plan, NoFit)), (seed, found)
    assert isinstance(found, Plan) == possible, f"seed {seed}: {found}"
    if isinstance(found, Plan):
        verdict = decide(fleet.view, ReplaceAllocations(found.claims), 0)
        assert not isinstance(verdict, Rejection), (seed, verdict)
    return possible


# -- devices of many sorts on one host --------------------------------------------------------------

TRAITS: Final = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
SORTS: Final = [
    (resource_class, trait, policy)
    for resource_class in ("PGPU", "SRIOV_NET_VF")
    for trait in ("", *TRAITS)
    for policy in ("required", "legacy", "preferred", "socket")
]
MIXED: Final = read_catalog(
    [
        f'{{"name": "{c}-{t}-{p}", "resource_class": "{c}", "traits": "{t}", "numa_policy": "{p}"}}'
        for c, t, p in SORTS
    ],
    [],
)

GIVEN_UP_ONCE: Final = (421, 872, 1021, 1527, 1549, 1694)
"""Hosts on which the search once gave up, though there is a place."""
TOOK_LONG_ONCE: Final = (263, 283, 68, 142, 328, 244, 282, 258, 58, 126, 324, 86, 101, 300)
"""Hosts on which it once took 70,000 steps and more."""


class Device(NamedTuple):
    """``cell`` None: it is below the host itself."""

    cell: int | None
    resource_class: str
    units: int
    traits: frozenset[str]


class MixedHost:
    """A host of some cells with devices of many sorts, and a guest that asks for many of them. Its disk is
    its own, or that of a pool."""

    policies: tuple[str, ...] = ("required", "legacy", "preferred")

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.has_pool = seed % 2 == 1
        count = rng.choice((2, 2, 4))
        self.cells = [rng.randint(2, 8) for _ in range(count)]
        self.sockets = self._choose_sockets(seed, count)
        self.devices = [
            self._random_device(rng, cell)
            for cell in (*range(count), None)
            for _ in range(rng.randint(4, 8) if cell is not None else rng.randint(0, 2))
        ]
        guest_cells = min(rng.choice((1, 2, 2, count)), count)
        asked = {rng.choice(self._list_aliases()): rng.randint(2, 8) for _ in range(rng.randint(2, 3))}
        self._ask_for([rng.randint(1, 5) for _ in range(guest_cells)], asked)

    def _list_aliases(self) -> list[str]:
        return [name for name, alias in MIXED.aliases.items() if alias.numa_policy in self.policies]

    def _ask_for(self, guest: list[int], asked: Mapping[str, int]) -> None:
        """So many cpus in each cell of the guest, and so many devices of each alias."""
        self.guest = guest
        self.specs = {
            "hw:cpu_policy": "dedicated",
            "hw:numa_nodes": str(len(guest)),
            "pci_passthrough:alias": ",".join(f"{name}:{count}" for name, count in asked.items()),
        }
        first = 0
        for cell, cpus in enumerate(guest):
            self.specs[f"hw:numa_cpus.{cell}"] = f"{first}-{first + cpus - 1}"
            self.specs[f"hw:numa_mem.{cell}"] = "1024"
            first += cpus
        self.wanted = [MIXED.aliases[name] for name, count in asked.items() for _ in range(count)]

    @staticmethod
    def _choose_sockets(seed: int, count: int) -> list[str | None]:
        """The trait of the socket of each cell; None where nobody knows."""
        rng = random.Random(f"sockets {seed}")
        return [rng.choice((*SOCKET_TRAITS[: count // 2], None)) for _ in range(count)]

    @staticmethod
    def _random_device(rng: random.Random, cell: int | None) -> Device:
        resource_class = rng.choice(("PGPU", "SRIOV_NET_VF"))
        count = 1 if resource_class == "PGPU" else rng.randint(1, 4)
        return Device(cell, resource_class, count, frozenset(t for t in TRAITS if rng.random() < 0.4))

    def fleet(self) -> Fleet:
        fleet = Fleet()
        for trait in TRAITS:
            fleet.must(CreateTrait(trait))
        if self.has_pool:
            fleet.provider("pool", {"DISK_GB": 1000}, traits=(SHARES_VIA_AGGREGATE,), aggregates=("a",))
        fleet.provider("h", {} if self.has_pool else {"DISK_GB": 1000}, aggregates=("a",))
        for number, cpus in enumerate(self.cells):
            amounts = {"PCPU": cpus, "MEMORY_MB": 1 << 20}
            socket = self.sockets[number]
            traits = (NUMA_ROOT,) if socket is None else (NUMA_ROOT, socket)
            fleet.provider(f"h-numa{number}", amounts, parent="h", traits=traits)
        for number, device in enumerate(self.devices):
            parent = "h" if device.cell is None else f"h-numa{device.cell}"
            fleet.provider(f"d{number}", {device.resource_class: device.units}, parent=parent)
            if device.traits:
                fleet.must(SetTraits(fleet.id_of(f"d{number}"), None, device.traits))
        return fleet

    def ask(self) -> FlavorAsk:
        size = FlavorSize(
            vcpus=sum(self.guest), memory_mb=1024 * len(self.guest), disk_gb=1, extra_specs=self.specs
        )
        found = check_flavor(size, {}, MIXED)
        assert isinstance(found, FlavorAsk), found
        return found

    def has_place(self) -> bool:
        """Whether there is a way, by trying all cells for the guest's, and then to give each device away."""
        return any(
            self._has_devices(frozenset(some))
            for some in itertools.combinations(range(len(self.cells)), len(self.guest))
            if any(
                all(self.cells[cell] >= cpus for cell, cpus in zip(cells, self.guest, strict=True))
                for cells in itertools.permutations(some)
            )
        )

    def _has_devices(self, cells: frozenset[int]) -> bool:
        may_be = [
            [
                unit
                for number, device in enumerate(self.devices)
                if device.resource_class == alias.resource_class
                and (not alias.traits or alias.traits in device.traits)
                and (
                    device.cell in cells
                    or (device.cell is None and alias.numa_policy == "legacy")
                    or (alias.numa_policy == "socket" and self._is_on_socket(device, cells))
                    or alias.numa_policy == "preferred"
                )
                for unit in ((number, n) for n in range(device.units))
            ]
            for alias in self.wanted
        ]
        holder: dict[tuple[int, int], int] = {}

        def give(number: int, seen: set[tuple[int, int]]) -> bool:
            for unit in may_be[number]:
                if unit not in seen:
                    seen.add(unit)
                    if unit not in holder or give(holder[unit], seen):
                        holder[unit] = number
                        return True
            return False

        return all(give(number, set()) for number in range(len(self.wanted)))

    def _is_on_socket(self, device: Device, cells: frozenset[int]) -> bool:
        socket = None if device.cell is None else self.sockets[device.cell]
        return socket is not None and socket in {self.sockets[cell] for cell in cells}


class HardHost(MixedHost):
    """Up to eight cells, and a guest with up to four of different sizes; most of its devices are of one class
    under all policies. Such mixes took the search longest."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = random.Random(seed)
        count = rng.choice((2, 4, 8))
        self.cells = [rng.randint(4, 8) for _ in range(count)]
        self.sockets = self._choose_sockets(seed, count)
        self.devices = [
            self._random_device(rng, cell) for cell in (*range(count), None) for _ in range(rng.randint(2, 8))
        ]
        guest = [rng.randint(1, 5) for _ in range(min(rng.choice((1, 2, 3, 4)), count))]
        names = rng.sample(self._list_aliases(), 3)
        if rng.random() < 0.7:
            resource_class = rng.choice(("PGPU", "SRIOV_NET_VF"))
            names = [f"{resource_class}-{rng.choice(('', *TRAITS))}-{policy}" for policy in self.policies]
        self._ask_for(guest, Counter(rng.choice(names) for _ in range(rng.randint(6, 24))))


class SocketHost(MixedHost):
    """Devices may also be on a socket with the guest."""

    policies = ("required", "socket")


class HardSocketHost(HardHost):
    policies = ("required", "legacy", "preferred", "socket")


def check_plan(host: MixedHost, seed: int) -> tuple[bool, int]:
    """Whether there is a place, and how many steps it took to find it, or that there is none."""
    view, asked = host.fleet().view, host.ask()
    wanted = ScheduleRequest(
        ask=asked.ask,
        otherwise=asked.otherwise,
        members=(ConsumerId("member"),),
        at_least=1,
        project="p",
        user="u",
    )
    view.steps.begin(UNLIMITED)
    found = plan(view, wanted, OPTIONS, random.Random(1), 0)
    steps = UNLIMITED - view.steps.left
    view.steps.end()
    assert isinstance(found, (Plan, NoFit)), (seed, found)
    assert isinstance(found, Plan) == host.has_place(), (seed, found)
    if isinstance(found, Plan):
        verdict = decide(view, ReplaceAllocations(found.claims), 0)
        assert not isinstance(verdict, Rejection), (seed, verdict)
    else:
        assert not found.gave_up, seed
    return isinstance(found, Plan), steps


@pytest.mark.parametrize("seeds", [range(100), range(100, 200), range(200, 300), GIVEN_UP_ONCE])
def test_devices_of_many_sorts_are_placed_if_they_can_be(seeds: Sequence[int]) -> None:
    outcomes = [check_plan(MixedHost(seed), seed) for seed in seeds]
    assert any(is_placed for is_placed, _ in outcomes)


@pytest.mark.parametrize("seeds", [range(100), range(100, 200)])
def test_devices_on_a_socket_are_placed_if_they_can_be(seeds: Sequence[int]) -> None:
    outcomes = [check_plan(SocketHost(seed), seed) for seed in seeds]
    assert {is_placed for is_placed, _ in outcomes} == {True, False}


@pytest.mark.parametrize("seeds", [range(50), TOOK_LONG_ONCE])
def test_hard_mixes_on_one_host_take_few_steps(seeds: Sequence[int]) -> None:
    """With a place or without one: a step is about a microsecond."""
    found = [check_plan(kind(seed), seed) for seed in seeds for kind in (HardHost, HardSocketHost)]
    assert {is_placed for is_placed, _ in found} == {True, False}
    assert max(steps for _, steps in found) < 25_000


# -- dedicated cpus ---------------------------------------------------------------------------------

CORES = tuple((str(cpu), str(cpu + 8)) for cpu in range(8))
CELL = OwnedProvider("id-of-h-numa0", units={"PCPU": tuple(map(str, range(16)))}, siblings=CORES)


@pytest.mark.parametrize("seed", range(40))
def test_dedicated_cpus_that_are_claimed_can_be_pinned(seed: int) -> None:
    """Servers come and go, with any number of cpus and either policy; whoever requires siblings gets them."""
    rng = random.Random(seed)
    fleet = Fleet()
    fleet.provider("h", {"DISK_GB": 100})
    amounts: dict[str, Inventory | int] = {
        "PCPU": Inventory(16, min_unit=2, step_size=2),
        "MEMORY_MB": 1 << 20,
    }
    fleet.provider("h-numa0", amounts, parent="h", traits=(NUMA_ROOT, HYPERTHREADING))
    pinned: dict[ConsumerId, tuple[str, ...]] = {}
    count = 0
    for number in range(60):
        if pinned and rng.random() < 0.4:
            gone = rng.choice(list(pinned))
            del pinned[gone]
            fleet.must(ReplaceAllocations((Claim(gone, (), "p", "u", 1),)))
            continue
        policy = rng.choice(("prefer", "require"))
        specs = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": policy}
        asked = check_flavor(FlavorSize(vcpus=rng.randint(1, 6), memory_mb=1024, extra_specs=specs))
        assert isinstance(asked, FlavorAsk)
        member = ConsumerId(f"member-{number}")
        wanted = ScheduleRequest(
            ask=asked.ask, otherwise=asked.otherwise, members=(member,), at_least=1, project="p", user="u"
        )
        found = plan(fleet.view, wanted, OPTIONS, rng, 0)
        if isinstance(found, NoFit):
            continue
        assert isinstance(found, Plan), found
        fleet.must(ReplaceAllocations(found.claims))
        taken = {cpu for cpus in pinned.values() for cpu in cpus}
        ((_, held),) = found.placements[0].chosen.wanted
        cpus = choose_units(CELL, "PCPU", dict(held)["PCPU"], taken, (), policy)
        assert cpus is not None, (number, held, pinned)
        assert taken.isdisjoint(cpus)
        pinned[member] = cpus
        count += 1
    assert count > 10

"""Random pools, hosts, servers and operations, some of which fail half-way: at every step of every operation
the pools have in use what a naive model says.

The model knows of each server what it has in which pool. While a move is under way or waits to be settled,
of each class in each pool the larger of before and after is in use; what an evacuated server had where it is
not any more is in use until its old host is back.
"""

from collections import Counter
from typing import Any, Final, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from berth.doctor.findings import examine
from berth.model.ids import ProviderId
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import Flavor, Server
from tests.unit.sagas.regions import Faults, Region, host_id, pool_id

DISK: Final = "DISK_GB"
ADDRESS: Final = "IPV4_ADDRESS"
SERVERS: Final = ("a", "b", "c")
MOVES: Final = ("resize", "migrate", "live_migrate", "evacuate")
ACTIONS: Final = (
    *("create", "confirm", "revert", "heal", "delete", "rebuild", "stop", "start"),
    *("shelve", "shelve_away", "shelve_offload", "unshelve"),
    *(2 * MOVES),
)
STEPS: Final = ("prepare", "build", "send", "receive", "live migrate", "snapshot")

Key = tuple[ProviderId, str]
"""A pool and a class."""


class PoolPlan(NamedTuple):
    resource_class: str
    total: int
    hosts: frozenset[int]


class Layout(NamedTuple):
    """``local``: which hosts have a disk of their own."""

    hosts: int
    local: frozenset[int]
    pools: tuple[PoolPlan, ...]


class Deed(NamedTuple):
    action: str
    server: str
    flavor: Flavor
    fails: str | None


class PoolModel:
    def __init__(self, layout: Layout) -> None:
        self.region = Region(hosts=layout.hosts, disk_gb=0)
        for number in layout.local:
            self.region.add_inventory(host_id(number), DISK, 60)
        for number, pool in enumerate(layout.pools, 1):
            self.region.add_pool(number, pool.hosts, **{pool.resource_class: pool.total})
        self.keys: list[Key] = [
            (pool_id(number), pool.resource_class) for number, pool in enumerate(layout.pools, 1)
        ]
        self._ids = {name: name for name in SERVERS}
        self._before: dict[str, Counter[Key]] = {}
        self._evacuated: dict[int, Counter[Key]] = {}
        """Hosts that are down, and what is held in pools until they are back."""

    # -- what is so -----------------------------------------------------------------------------

    def check(self, about: object) -> None:
        for provider, name in self.keys:
            record = self.region.view.providers[provider]
            class_id = self.region.view.classes.id_of(name)
            assert class_id is not None
            there = record.used.get(class_id, 0)
            assert there == self._expect((provider, name)), (about, provider, name)
            assert there <= record.inventories[class_id].capacity, about

    def _expect(self, key: Key) -> int:
        nothing: Counter[Key] = Counter()
        held = sum(max(self._now(id)[key], self._before.get(id, nothing)[key]) for id in self._ids.values())
        return held + sum(left[key] for left in self._evacuated.values())

    def _now(self, id: str) -> Counter[Key]:
        held = self.region.held(id)
        return Counter({key: held.get(key[0], {}).get(key[1], 0) for key in self.keys})

    def check_amounts(self) -> None:
        """A server that nothing is being done to has what its flavor says, or nothing at all."""
        for id in self._ids.values():
            server = self.region.server_or_none(id)
            held = self.region.held(id)
            if server is None or not held:
                continue
            for name, amount in ((DISK, server.flavor.disk_gb), (ADDRESS, _addresses(server.flavor))):
                parts = [here[name] for here in held.values() if name in here]
                assert parts == ([amount] if amount else []), (id, name, held)
            place = server.flavor.extra_specs.get("berth:disk")
            if place is not None and server.flavor.disk_gb:
                (provider,) = (provider for provider, here in held.items() if DISK in here)
                is_pooled = any(provider == pool for pool, _ in self.keys)
                assert is_pooled == (place == "pool")

    # -- what is done ---------------------------------------------------------------------------

    def do(self, deed: Deed) -> None:
        if deed.action == "heal":
            self._heal()
            return
        server = self.region.server_or_none(self._ids[deed.server])
        if (deed.action == "create") != (server is None):
            return
        if server is None:
            self._ids[deed.server] = self.region.ids.uuid()
        id = self._ids[deed.server]
        host = _host_number(server)
        if deed.action == "evacuate":
            if server is None or host is None or server.migration is not None:
                return
            if host not in self._evacuated:
                self.region.set_down(host)
                self._evacuated[host] = Counter()
        if deed.action in MOVES and server is not None and server.migration is None:
            self._before[id] = self._now(id)
        more: dict[str, Any] = {"flavor": deed.flavor} if deed.action in ("create", "resize") else {}
        refused = self.region.begin(deed.action, id, **more)
        if refused is None and self.region.view.records.count(Outbox):
            self._carry_out(deed)
        after = self.region.server_or_none(id)
        if after is not None and after.migration is not None:
            return
        before = self._before.pop(id, Counter())
        if deed.action == "evacuate" and host is not None and _host_number(after) != host:
            self._evacuated[host].update(before - self._now(id))

    def _carry_out(self, deed: Deed) -> None:
        def look(run: SagaRun) -> None:
            if run.phase not in ("done", "failed"):
                self.check((deed, run.phase, run.step))

        self.region.watch = look
        self.region.carry_out(Faults([deed.fails] if deed.fails is not None else []))
        self.region.watch = None

    def _heal(self) -> None:
        """Every host that was down is back, and clean."""
        for host in list(self._evacuated):
            self.region.set_down(host, down=False)
            self.region.release(host)
            del self._evacuated[host]

    def end(self) -> None:
        self._heal()
        for name in SERVERS:
            self.do(Deed("delete", name, flavors_none, None))
        self.check("the end")
        assert not self.region.view.consumers


def _addresses(flavor: Flavor) -> int:
    return int(flavor.extra_specs.get(f"resources:{ADDRESS}", "0"))


def _host_number(server: Server | None) -> int | None:
    if server is None or server.place is None:
        return None
    return int(server.place.name.removeprefix("host-"))


def make_flavor(vcpus: int, disk_gb: int, addresses: int, place: str | None) -> Flavor:
    specs = {f"resources:{ADDRESS}": str(addresses)} if addresses else {}
    specs |= {"berth:disk": place} if place is not None else {}
    name = f"{vcpus}-{disk_gb}-{addresses}-{place}"
    return Flavor(id=name, name=name, vcpus=vcpus, memory_mb=512, disk_gb=disk_gb, extra_specs=specs)


flavors_none: Final = make_flavor(1, 0, 0, None)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    hosts = draw(st.integers(2, 4))
    some = st.frozensets(st.integers(1, hosts), min_size=1)
    disk = st.builds(PoolPlan, st.just(DISK), st.sampled_from((40, 80, 100)), some)
    address = st.builds(PoolPlan, st.just(ADDRESS), st.integers(1, 3), some)
    pools = draw(st.lists(disk, min_size=1, max_size=2)) + draw(st.lists(address, max_size=1))
    return Layout(hosts, draw(st.frozensets(st.integers(1, hosts))), tuple(pools))


flavors = st.builds(
    make_flavor,
    st.integers(1, 2),
    st.sampled_from((0, 10, 20, 40, 40)),
    st.sampled_from((0, 0, 1)),
    st.sampled_from((None, None, "pool", "local")),
)
deeds = st.builds(
    Deed,
    st.sampled_from(ACTIONS),
    st.sampled_from(SERVERS),
    flavors,
    st.sampled_from((None, None, None, *STEPS)),
)


@settings(max_examples=60, deadline=None)
@given(layouts(), st.lists(flavors, min_size=3, max_size=3), st.lists(deeds, min_size=6, max_size=16))
def test_the_pools_have_in_use_what_the_model_says(
    layout: Layout, first: list[Flavor], what: list[Deed]
) -> None:
    model = PoolModel(layout)
    creations = [Deed("create", name, flavor, None) for name, flavor in zip(SERVERS, first, strict=True)]
    for deed in creations + what:
        model.do(deed)
        model.check(deed)
        model.check_amounts()
        assert examine(model.region.view, model.region.now_s) == (), deed
    model.end()

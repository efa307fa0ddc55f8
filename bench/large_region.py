"""A large region: the commands that make its journal, and those that make the journals of its cells.

Servers were built once and are running: each has its allocations, a record with the action that made it, and
an instance in the journal of its cell. Without cells there are hosts and allocations alone.
"""

import random
from collections.abc import Iterator
from typing import Final

from bench.fleets import host_id
from berth.model import commands as c
from berth.model.events import AnyRecord, RecordChanged
from berth.model.ids import AggregateId, ConsumerId, ProviderId
from berth.model.placement import CELL, Inventory, Label
from berth.model.saga_runs import Agent, Instance
from berth.model.servers import RUNNING, Action, ActionEvent, Counter, Flavor, Host, Place, Server
from berth.sagas.hosts import cell_aggregate

FLAVORS: Final = tuple(
    Flavor(id=f"f{cpus}", name=f"f{cpus}", vcpus=cpus, memory_mb=2048 * cpus, disk_gb=10 * cpus)
    for cpus in (1, 2, 4, 8)
)
PROJECTS: Final = 500
USERS: Final = 2000
HOSTS_IN_RACK: Final = 40
TRAITS: Final = frozenset(("COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42"))
INVENTORIES: Final = {
    "VCPU": Inventory(128, allocation_ratio=4.0),
    "MEMORY_MB": Inventory(1 << 20),
    "DISK_GB": Inventory(10_000),
}
BUILT_AT_S: Final = 1_700_000_000


class LargeRegion:
    def __init__(self, hosts: int, servers: int, cells: int = 0) -> None:
        self.cells: Final = tuple(f"cell{number:02d}" for number in range(1, cells + 1))
        self.hosts: Final = hosts
        self._hosts = [host_id(number) for number in range(hosts)]
        dice = random.Random(1)
        # The numbers of the hosts that the servers are on.
        self._places = [dice.randrange(hosts) for _ in range(servers)]

    def commands(self) -> Iterator[c.Command]:
        """Those of the region."""
        if self.cells:
            yield _write(*FLAVORS, Counter(id="host", value=len(self._hosts)))
        for cell in self.cells:
            yield c.LabelAggregate(cell_aggregate(cell), Label(CELL, cell))
        for number in range(len(self._hosts)):
            yield from self._make_host(number)
        for number, host in enumerate(self._places):
            yield self._make_server(number, host)

    def cell_commands(self, cell: str) -> Iterator[c.Command]:
        """Those of one of its cells."""
        for number, id in enumerate(self._hosts):
            if self._cell_of(number) == cell:
                agent = Agent(id=id, name=_name(number), driver="sim", registered_at_s=BUILT_AT_S, protocol=3)
                yield _write(agent)
        for number, host in enumerate(self._places):
            if self._cell_of(host) == cell:
                yield _write(Instance(id=_id(1, number), hosts=(self._hosts[host],), last=1))

    def _make_host(self, number: int) -> Iterator[c.Command]:
        provider = ProviderId(self._hosts[number])
        yield c.CreateProvider(provider, _name(number))
        yield c.SetInventories(provider, 0, INVENTORIES)
        yield c.SetTraits(provider, 1, TRAITS)
        aggregates = [AggregateId(_id(2, number // HOSTS_IN_RACK))]
        if self.cells:
            cell = self._cell_of(number)
            aggregates.append(cell_aggregate(cell))
            yield _write(
                Host(
                    id=provider,
                    number=number + 1,
                    name=_name(number),
                    cell=cell,
                    registered_at_s=BUILT_AT_S,
                    updated_at_s=BUILT_AT_S,
                )
            )
        yield c.SetAggregates(provider, 2, tuple(aggregates))

    def _make_server(self, number: int, host: int) -> c.Command:
        id, place = _id(1, number), self._hosts[host]
        flavor = FLAVORS[number * 7919 % len(FLAVORS)]
        project, user = _id(3, number % PROJECTS), _id(4, number % USERS)
        amounts = (
            ("VCPU", flavor.vcpus),
            ("MEMORY_MB", flavor.memory_mb),
            ("DISK_GB", flavor.disk_gb),
        )
        held = ((ProviderId(place), amounts),)
        claim = c.ReplaceAllocations((c.Claim(ConsumerId(id), held, project, user, None, "INSTANCE"),))
        if not self.cells:
            return claim
        server = Server(
            id=id,
            name=f"server-{number}",
            project=project,
            user=user,
            flavor=flavor,
            image=_id(5, 0),
            state="active",
            power=RUNNING,
            place=Place(place, _name(host), self._cell_of(host)),
            held=held,
            generation=1,
            run_count=1,
            created_at_s=BUILT_AT_S,
            updated_at_s=BUILT_AT_S,
            launched_at_s=BUILT_AT_S,
        )
        action = Action(
            id=_id(6, number),
            server=id,
            name="create",
            request_id=f"req-{_id(7, number)}",
            project=project,
            user=user,
            started_at_s=BUILT_AT_S,
            updated_at_s=BUILT_AT_S,
            events=(ActionEvent("build", BUILT_AT_S, BUILT_AT_S, "Success", _name(host)),),
            seen=3,
            state="done",
        )
        return c.Enact((RecordChanged(None, server), RecordChanged(None, action)), (claim,))

    def _cell_of(self, host: int) -> str:
        return self.cells[host * len(self.cells) // len(self._hosts)]


def _write(*records: AnyRecord) -> c.Enact:
    return c.Enact(tuple(RecordChanged(None, record) for record in records))


def _name(host: int) -> str:
    return f"host-{host:06d}"


def _id(kind: int, number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{kind:012d}"

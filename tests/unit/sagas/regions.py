"""A region without processes: a view, the operations that begin in it, and a cell that executes their runs
at once, with the real runner, client of Placement and status sync. Only the
agents and the network are left out: a step of an agent succeeds, unless it is told to fail."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Literal

import msgspec

from berth.cell import saga_runs
from berth.cell.placement import ClaimRefused, ClaimWriter
from berth.client import Answer, Client
from berth.ledger import decide
from berth.model import commands as c
from berth.model.events import RecordChanged
from berth.model.groups import Group
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import HEALTHY, Inventory, Label, Wanted
from berth.model.rejections import ConsumerGenerationConflict, Rejection
from berth.model.saga_runs import Agent, Instance, Outbox, SagaRun
from berth.model.servers import ConflictPolicy, Flavor, Held, Host, Image, Migration, Place, Server
from berth.region.status_sync import apply_progress
from berth.runtime.ids import Ids
from berth.sagas import (
    confirm,
    create,
    delete,
    evacuate,
    live_migrate,
    migrate,
    rebuild,
    resize,
    revert,
    shelve,
    shelve_offload,
    start,
    stop,
    unshelve,
)
from berth.sagas.conflicts import as_dict, held_now, name_classes
from berth.sagas.hosts import cell_aggregate
from berth.sagas.proposals import Context
from berth.sagas.release import release_evacuated
from berth.sagas.runner import (
    AgentTask,
    ClaimTask,
    MoveClaim,
    Skip,
    is_finished,
    make_conflict,
    must_succeed,
    record_claim_moved,
    record_claim_refused,
    record_failure,
    record_success,
    step_of,
    task_of,
)
from berth.scheduler.options import scheduler_options
from berth.view import View

CELL = "cell1"
NOW_S = 1_000_000
HOSTS = 5
SMALL = Flavor(id="small", name="small", vcpus=2, memory_mb=512, disk_gb=5)
LARGE = Flavor(id="large", name="large", vcpus=4, memory_mb=1024, disk_gb=10)
IMAGE = Image(id="image-2", status="active")
SCHEDULER = scheduler_options()
RUNNER = asyncio.Runner()
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
_PLAIN = {
    "confirm": confirm.propose,
    "revert": revert.propose,
    "shelve": shelve.propose,
    "shelve_away": shelve.propose_away,
    "shelve_offload": shelve_offload.propose,
    "start": start.propose,
    "stop": stop.propose,
}
"""Sagas that need nothing but the server."""


def host_id(number: int) -> ProviderId:
    return ProviderId(f"00000000-0000-4000-8000-{number:012}")


def nic_id(number: int) -> ProviderId:
    return ProviderId(f"10000000-0000-4000-8000-{number:012}")


def pool_id(number: int) -> ProviderId:
    return ProviderId(f"20000000-0000-4000-8000-{number:012}")


class Faults:
    """Steps that fail, by name, each as often as it is tried; ``once``: only the first time."""

    def __init__(self, fails: Collection[str] = (), once: Collection[str] = ()) -> None:
        self._fails = set(fails)
        self._once = set(once)
        self.met: list[str] = []

    def error(self, name: str) -> str | None:
        if name not in self._fails | self._once:
            return None
        self._once.discard(name)
        self.met.append(name)
        return f"{name} has failed"


class Region:
    """Hosts host-1 to host-5 of one cell, each with a network card below it. ``disk_gb`` 0: they have no disk
    of their own."""

    def __init__(self, hosts: int = HOSTS, vcpus: int = 16, disk_gb: int = 100) -> None:
        self.view = View()
        self.cell = View()
        self.ids = Ids(seed=7)
        self.now_s = NOW_S
        self.run_count: list[SagaRun] = []
        self.watch: Callable[[SagaRun], None] | None = None
        """Called with a run before each of its steps, and when it has ended."""
        self.do(c.LabelAggregate(cell_aggregate(CELL), Label("cell", CELL)))
        for number in range(1, hosts + 1):
            self._add_host(number, vcpus, disk_gb)

    def _add_host(self, number: int, vcpus: int, disk_gb: int) -> None:
        id, nic, name = host_id(number), nic_id(number), f"host-{number}"
        self.do(c.CreateProvider(id, name))
        self.do(c.CreateProvider(nic, f"{name}-nic", id))
        inventories = {
            "VCPU": Inventory(vcpus, max_unit=8),
            "MEMORY_MB": Inventory(4096),
        }
        if disk_gb:
            inventories["DISK_GB"] = Inventory(disk_gb)
        self.do(c.SetInventories(id, None, inventories))
        self.do(c.SetInventories(nic, None, {BANDWIDTH: Inventory(1000)}))
        self.do(c.SetAggregates(id, None, (cell_aggregate(CELL),)))
        self.do(c.Enact((RecordChanged(None, Host(id=id, number=number, name=name, cell=CELL)),)))
        self._write(self.cell, c.Enact((RecordChanged(None, Agent(id=id, name=name, driver="sim")),)))

    def add_pool(self, number: int, hosts: Iterable[int], **amounts: int) -> ProviderId:
        """A provider that shares these amounts with some of the hosts."""
        id, aggregate = pool_id(number), AggregateId(f"30000000-0000-4000-8000-{number:012}")
        self.do(c.CreateProvider(id, f"pool-{number}"))
        self.do(c.SetInventories(id, None, {name: Inventory(total) for name, total in amounts.items()}))
        self.do(c.SetTraits(id, None, frozenset(("MISC_SHARES_VIA_AGGREGATE",))))
        self.do(c.SetAggregates(id, None, (aggregate,)))
        for host in hosts:
            now = self.view.providers[host_id(host)].aggregates
            self.do(c.SetAggregates(host_id(host), None, (*now, aggregate)))
        return id

    # -- changing -------------------------------------------------------------------------------

    def _write(self, view: View, command: c.Command) -> Rejection | None:
        verdict = decide(view, command, self.now_s)
        if isinstance(verdict, Rejection):
            return verdict
        for event in verdict:
            view.apply(event)
        return None

    def tries(self, propose: Callable[[View, int], c.Command | Rejection]) -> Rejection | None:
        """Why not, and nothing has changed then; None if it was done."""
        before = self.view.state()
        command = propose(self.view, self.now_s)
        assert self.view.state() == before, "a proposal only looks"
        if isinstance(command, Rejection):
            return command
        return self._write(self.view, command) or getattr(command, "refused", None)

    def do(self, command: c.Command) -> None:
        assert self._write(self.view, command) is None

    def claim(self, consumer: str, *wanted: Wanted, type: str | None = "INSTANCE") -> None:
        """Somebody writes allocations past the operations."""
        claim = c.Claim(ConsumerId(consumer), wanted, "project", "user", consumer_type=type)
        self.do(c.ReplaceAllocations((claim,)))

    def add_inventory(self, provider: ProviderId, name: str, total: int) -> None:
        self.do(c.AddInventory(provider, name, Inventory(total)))

    def put_record(self, record: Any) -> None:
        self.do(c.Enact((RecordChanged(self.view.records.current(record), record),)))

    def set_down(self, number: int, *, down: bool = True) -> None:
        self.do(c.SetHostStatus(host_id(number), msgspec.structs.replace(HEALTHY, down=down)))
        changed = saga_runs.mark_host(self.cell, host_id(number), down, self.now_s)
        assert changed is not None
        self._write(self.cell, changed)

    def group(self, id: str, policy: Literal["affinity", "anti-affinity"]) -> None:
        limit = 1 if policy == "anti-affinity" else None
        self.do(c.CreateGroup(GroupId(id), Group(id, policy, "host", limit, None, "project", "user", 0)))

    # -- asking ---------------------------------------------------------------------------------

    def server_or_none(self, id: str) -> Server | None:
        return self.view.records.get(Server, id)

    def server(self, id: str) -> Server:
        server = self.server_or_none(id)
        assert server is not None
        return server

    def migrations(self, server: str) -> list[Migration]:
        return self.view.records.find(Migration, "server", server)

    def migration(self, server: str) -> Migration:
        return self.migrations(server)[-1]

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        return as_dict(held_now(self.view, consumer))

    def hosts_of(self, consumer: str) -> list[str]:
        record = self.view.consumers.get(ConsumerId(consumer))
        return [] if record is None else sorted(host.name for host in self.view.hosts_held(record.held))

    def context(self, policy: ConflictPolicy = "fail", alternates: int = 2) -> Context:
        return Context("req-1", "project", "user", self.ids, SCHEDULER, policy, 3, alternates)

    # -- operations -----------------------------------------------------------------------------

    def begin(self, saga: str, id: str, policy: ConflictPolicy = "fail", **more: Any) -> Rejection | None:
        """Begin an operation by its name in the table; None when it has."""

        def propose(view: View, now_s: int) -> c.Command | Rejection:
            context = self.context(policy, more.pop("alternates", 2))
            match saga:
                case "create":
                    more.setdefault("flavor", SMALL)
                    server = Server(id=id, name=id, project="project", user="user", **more)
                    return create.propose(view, now_s, context, (server,), 1)
                case "delete":
                    return delete.propose(view, now_s, context, id, **more)
                case "resize":
                    return resize.propose(view, now_s, context, id, more.pop("flavor", LARGE), **more)
                case "migrate":
                    return migrate.propose(view, now_s, context, id, **more)
                case "live_migrate":
                    return live_migrate.propose(view, now_s, context, id, **more)
                case "evacuate":
                    return evacuate.propose(view, now_s, context, id, **more)
                case "rebuild":
                    return rebuild.propose(view, now_s, context, id, IMAGE)
                case "unshelve" | "unshelve_here":
                    return unshelve.propose(view, now_s, context, id, **more)
                case _:
                    return _PLAIN[saga](view, now_s, context, id)

        return self.tries(propose)

    def run(self, saga: str, id: str, faults: Faults | None = None, **more: Any) -> SagaRun:
        """Begin an operation, and execute its run to its end."""
        refused = self.begin(saga, id, **more)
        assert refused is None, refused
        return self.carry_out(faults)

    def carry_out(self, faults: Faults | None = None) -> SagaRun:
        """Hand the run in the outbox to the cell, and bring up its progress, step by step."""
        (outbox,) = self.view.records.all(Outbox)
        assert outbox.run is not None
        taken = saga_runs.accept_run(self.cell, outbox.run, self.now_s * 10**9)
        assert taken is not None
        self._write(self.cell, taken)
        self.do(c.Enact((RecordChanged(outbox, None),)))
        return self._finish(outbox.run.id, faults or Faults())

    def release(self, number: int) -> list[SagaRun]:
        """The host is back and clean."""
        command = release_evacuated(self.cell, self.ids, host_id(number), self.now_s * 10**9)
        if command is None:
            return []
        self._write(self.cell, command)
        return [self._finish(run.id, Faults()) for run in list(self.cell.records.all(SagaRun))]

    def _finish(self, id: str, faults: Faults) -> SagaRun:
        run = self._order(id)
        while not is_finished(run):
            self._bring_up(run)
            if self.watch is not None:
                self.watch(run)
            change = RUNNER.run(self._step(run, faults))
            command = saga_runs.advance_run(self.cell, 0, run, change, self.now_s)
            assert not isinstance(command, Rejection)
            self._write(self.cell, command)
            after = self._order(id)
            assert after.version > run.version, "every transition is a version"
            run = after
        self._bring_up(run)
        self._bring_up(run)
        if self.watch is not None:
            self.watch(run)
        acknowledged = saga_runs.remove_finished(self.cell, id)
        assert acknowledged is not None
        self._write(self.cell, acknowledged)
        self.run_count.append(run)
        return run

    def _order(self, id: str) -> SagaRun:
        run = self.cell.records.get(SagaRun, id)
        assert run is not None
        return run

    def _bring_up(self, run: SagaRun) -> None:
        command = apply_progress(self.view, run, self.now_s)
        if command is not None:
            self.do(command)

    async def _step(self, run: SagaRun, faults: Faults) -> Callable[[SagaRun], SagaRun]:
        """What a conductor would do, without waiting."""
        now_ns = self.now_s * 10**9
        task = task_of(run)
        name = step_of(run).undo_name if run.phase == "back" else step_of(run).name
        claim = ClaimWriter(_Placement(self))
        match task:
            case Skip():
                return lambda run: record_success(run, now_ns)
            case MoveClaim(way):
                error = faults.error("move the claim")
                if error is not None:
                    return partial(record_claim_refused, now_ns=now_ns, error=error)
                moved = await claim.move(run, way)
                return lambda run: record_claim_moved(run, now_ns, *moved)
            case ClaimTask(entry):
                error = faults.error(name)
                if error is not None and run.phase != "back":
                    return partial(record_failure, now_ns=now_ns, error=error)
                try:
                    both = await claim.write(run, entry)
                except ClaimRefused as refused:
                    assert not must_succeed(run), "what must be done is refused"
                    conflict = make_conflict(run, refused.found, now_ns)
                    return partial(record_failure, now_ns=now_ns, error=str(refused), conflict=conflict)
                return lambda run: record_success(run, now_ns, *both)
            case AgentTask():
                error = faults.error(name)
                agent = self.cell.records.get(Agent, task.place.id)
                if agent is not None and agent.is_down:
                    error = f"{task.place.name} is down"
                    if step_of(run).skip_if_down and run.phase == "forward":
                        return lambda run: record_success(run, now_ns, note=error)
                if error is not None:
                    return lambda run: record_failure(run, now_ns, error)
                return lambda run: record_success(run, now_ns)

    def instance(self, id: str) -> Instance:
        instance = self.cell.records.get(Instance, id)
        assert instance is not None
        return instance


class _Placement(Client):
    """The three requests of Placement that a conductor makes, on the region's own ledger."""

    def __init__(self, region: Region) -> None:
        super().__init__("http://placement:1")
        self._region = region

    async def ask(self, method: str, path: str, body: Any = None, timeout_s: float = 30) -> Answer:
        if method == "GET":
            if path.startswith("/resource_providers/"):
                root = self._region.view.providers[ProviderId(path.rpartition("/")[2])].root
                return Answer(200, {}, {"root_provider_uuid": root.id})
            return self._allocations(path.removeprefix("/allocations/"))
        claims = tuple(_claim(consumer, claim) for consumer, claim in body.items())
        refused = self._region._write(self._region.view, c.ReplaceAllocations(claims))
        if refused is None:
            return Answer(204, {}, None)
        is_moved = isinstance(refused, ConsumerGenerationConflict)
        code = "placement.concurrent_update" if is_moved else "placement.undefined_code"
        return Answer(409, {}, {"errors": [{"code": code, "detail": repr(refused)}]})

    def _allocations(self, consumer: str) -> Answer:
        record = self._region.view.consumers.get(ConsumerId(consumer))
        if record is None:
            return Answer(200, {}, {"allocations": {}})
        held = as_dict(name_classes(self._region.view, record.held))
        found = {id: {"resources": amounts} for id, amounts in held.items()}
        return Answer(200, {}, {"allocations": found, "consumer_generation": record.consumer.generation})


def _claim(consumer: str, body: dict[str, Any]) -> c.Claim:
    wanted = tuple(
        (ProviderId(id), tuple(there["resources"].items())) for id, there in body["allocations"].items()
    )
    return c.Claim(
        ConsumerId(consumer),
        wanted,
        body["project_id"],
        body["user_id"],
        body["consumer_generation"],
        body["consumer_type"],
    )


def held_of(place: Place, flavor: Flavor) -> Held:
    """What a server of this flavor takes on a host."""
    amounts = (("VCPU", flavor.vcpus), ("MEMORY_MB", flavor.memory_mb), ("DISK_GB", flavor.disk_gb))
    return ((ProviderId(place.id), amounts),)


def prepared(
    saga: str, *, state: Literal["active", "stopped"] = "active", is_resized: bool = False
) -> Region:
    """A region with server s, in a state in which an operation may begin (for create: without it)."""
    region = Region()
    if saga == "create":
        return region
    before: Iterable[str] = {
        "confirm": ("resize",),
        "revert": ("resize",),
        "shelve_offload": ("shelve",),
        "unshelve": ("shelve_away",),
        "unshelve_here": ("shelve",),
        "start": ("stop",),
    }.get(saga, ())
    region.run("create", "s")
    if state == "stopped":
        region.run("stop", "s")
    if is_resized:
        region.run("resize", "s")
    for step in before:
        if step != "stop" or state != "stopped":
            region.run(step, "s")
    place = region.server("s").place
    if saga == "evacuate":
        assert place is not None
        region.set_down(int(place.name.removeprefix("host-")))
    return region

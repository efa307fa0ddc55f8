"""A region without processes: a view, the sagas that begin in it, and a cell whose conductor executes their
runs at once, over the region's own Placement API. Only journals, agents and the network are left out: a step
of an agent succeeds, unless it is told to fail."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, cast

import msgspec

from berth.api.kernel.auth.policy import Policy
from berth.cell import saga_runs
from berth.cell.protocol import VERSION
from berth.engine import Engine
from berth.engine.engine import Observer
from berth.ledger import decide
from berth.main import compose
from berth.model import commands as c
from berth.model.events import RecordChanged
from berth.model.groups import Group
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import HEALTHY, Inventory, Label, Wanted
from berth.model.rejections import Rejection
from berth.model.saga_runs import Agent, Instance, Outbox, SagaRun
from berth.model.servers import ConflictPolicy, Flavor, Held, Host, Image, Migration, Place, Server
from berth.region.cell_records import apply_progress
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas import (
    confirm,
    create,
    create_backup,
    create_image,
    delete,
    evacuate,
    live_migrate,
    migrate,
    pause,
    reboot,
    rebuild,
    rescue,
    resize,
    restore,
    resume,
    revert,
    shelve,
    shelve_offload,
    start,
    stop,
    suspend,
    unpause,
    unrescue,
    unshelve,
)
from berth.sagas.conflicts import as_dict, held_now
from berth.sagas.hosts import cell_aggregate
from berth.sagas.proposals import Context
from berth.sagas.release import release_evacuated
from berth.sagas.runner import (
    MoveClaim,
    is_finished,
    step_of,
    task_of,
)
from berth.view import View
from tests.options import scheduler_options
from tests.worlds import SteppedConductor, ViewEngine

CELL = "cell1"
NOW_S = 1_000_000
HOSTS = 5
SMALL = Flavor(id="small", name="small", vcpus=2, memory_mb=512, disk_gb=5)
LARGE = Flavor(id="large", name="large", vcpus=4, memory_mb=1024, disk_gb=10)
IMAGE = Image(id="image-2", status="active")
SCHEDULER = scheduler_options()
LOOP = asyncio.new_event_loop()
"""Steps of the conductor are coroutines; the state machines of hypothesis that drive regions are not."""
S = "50000000-0000-4000-8000-000000000001"
"""The server that most tests are about."""
SETTINGS = Settings(log_level="error")
POLICY = Policy(None, "legacy", SystemClock())
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
_PLAIN = {
    "confirm": confirm.propose,
    "revert": revert.propose,
    "shelve": shelve.propose,
    "shelve_away": shelve.propose_away,
    "shelve_offload": shelve_offload.propose,
    "start": start.propose,
    "stop": stop.propose,
    "reboot": reboot.propose,
    "reboot_hard": reboot.propose_hard,
    "pause": pause.propose,
    "unpause": unpause.propose,
    "suspend": suspend.propose,
    "resume": resume.propose,
    "rescue": rescue.propose,
    "unrescue": unrescue.propose,
    "restore": restore.propose,
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

    def at(self, run: SagaRun) -> str | None:
        """The error of the step that a run is at."""
        if isinstance(task_of(run), MoveClaim):
            return self._error("move the claim")
        return self._error(step_of(run).undo_name if run.phase == "back" else step_of(run).name)

    def _error(self, name: str) -> str | None:
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
        self.clock = _RegionClock(self)
        self.now_s = NOW_S
        self.run_count: list[SagaRun] = []
        self.watch: Callable[[SagaRun], None] | None = None
        """Called with a run before each of its steps, and when it has ended."""
        self.conductor = LOOP.run_until_complete(self._make_conductor())
        self.do(c.LabelAggregate(cell_aggregate(CELL), Label("cell", CELL)))
        for number in range(1, hosts + 1):
            self._add_host(number, vcpus, disk_gb)

    async def _make_conductor(self) -> SteppedConductor:
        """Its way to Placement is the region's API."""

        async def open_engine(observer: Observer) -> Engine:
            return cast(Engine, ViewEngine(self.view, self.clock))

        region = await compose(SETTINGS, open_engine, self.clock, self.ids, policy=POLICY)
        return SteppedConductor(ViewEngine(self.cell, self.clock), region.application, self.clock)

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
        self._write(
            self.cell,
            c.Enact((RecordChanged(None, Agent(id=id, name=name, driver="sim", protocol=VERSION)),)),
        )

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
                case "soft_delete":
                    return delete.propose(view, now_s, context, id, is_soft=True)
                case "create_image":
                    return create_image.propose(view, now_s, context, id, "i", {"os": "x"})
                case "create_backup":
                    rotation = more.pop("rotation", 1)
                    return create_backup.propose(view, now_s, context, id, "b", "daily", rotation, {})
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
        self._send_units()
        (outbox,) = (one for one in self.view.records.all(Outbox) if one.abort is None)
        assert outbox.run is not None
        taken = saga_runs.accept_run(self.cell, outbox.run, self.now_s * 10**9)
        assert isinstance(taken, c.Enact)
        self._write(self.cell, taken)
        self.do(c.Enact((RecordChanged(outbox, None),)))
        self.hand_over_aborts()
        return self._finish(outbox.run.id, faults or Faults())

    def hand_over_aborts(self) -> None:
        """Tell the cell which of its runs are to be aborted."""
        for outbox in list(self.view.records.all(Outbox)):
            if outbox.abort is not None and self.view.records.get(Outbox, outbox.abort) is None:
                noted = saga_runs.abort_run(self.cell, outbox.abort)
                if noted is not None:
                    self._write(self.cell, noted)
                self.do(c.Enact((RecordChanged(outbox, None),)))

    def _send_units(self) -> None:
        """Hand over to the cell what servers hold, so that their units follow."""
        for outbox in list(self.view.records.all(Outbox)):
            if outbox.units is not None:
                changed = saga_runs.reassign_units(self.cell, outbox.units)
                assert not isinstance(changed, Rejection), changed
                if changed is not None:
                    self._write(self.cell, changed)
                self.do(c.Enact((RecordChanged(outbox, None),)))

    def release(self, number: int) -> list[SagaRun]:
        """The host is back and clean."""
        command = release_evacuated(self.cell, self.ids, host_id(number), (), self.now_s * 10**9)
        if command is None:
            return []
        self._write(self.cell, command)
        return [self._finish(run.id, Faults()) for run in list(self.cell.records.all(SagaRun))]

    def _finish(self, id: str, faults: Faults) -> SagaRun:
        self.conductor.fault = faults.at
        run = self._saga_run(id)
        while not is_finished(run):
            self._bring_up(run)
            if self.watch is not None:
                self.watch(run)
                run = self._saga_run(id)
            LOOP.run_until_complete(self.conductor.step(run))
            after = self._saga_run(id)
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

    def _saga_run(self, id: str) -> SagaRun:
        run = self.cell.records.get(SagaRun, id)
        assert run is not None
        return run

    def _bring_up(self, run: SagaRun) -> None:
        command = apply_progress(self.view, run, self.now_s)
        if command is not None:
            self.do(command)

    def instance(self, id: str) -> Instance:
        instance = self.cell.records.get(Instance, id)
        assert instance is not None
        return instance


class _RegionClock:
    """The region's seconds."""

    def __init__(self, region: Region) -> None:
        self._region = region

    def now_ns(self) -> int:
        return self._region.now_s * 10**9

    def monotonic_ns(self) -> int:
        return self.now_ns()


def held_of(place: Place, flavor: Flavor) -> Held:
    """What a server of this flavor takes on a host."""
    amounts = (("VCPU", flavor.vcpus), ("MEMORY_MB", flavor.memory_mb), ("DISK_GB", flavor.disk_gb))
    return ((ProviderId(place.id), amounts),)


def prepared(
    saga: str,
    *,
    state: Literal["active", "stopped"] = "active",
    is_resized: bool = False,
    group: str | None = None,
) -> Region:
    """A region with server s, in a state in which an operation may begin (for create: without it). ``group``:
    a new one, which it is in."""
    region = Region()
    if group is not None:
        region.group(group, "anti-affinity")
    if saga == "create":
        return region
    before: Iterable[str] = {
        "confirm": ("resize",),
        "revert": ("resize",),
        "shelve_offload": ("shelve",),
        "unshelve": ("shelve_away",),
        "unshelve_here": ("shelve",),
        "start": ("stop",),
        "unpause": ("pause",),
        "resume": ("suspend",),
        "unrescue": ("rescue",),
        "restore": ("soft_delete",),
    }.get(saga, ())
    region.run("create", S, group=group)
    if state == "stopped":
        region.run("stop", S)
    if is_resized:
        region.run("resize", S)
    for step in before:
        if step != "stop" or state != "stopped":
            region.run(step, S)
    place = region.server(S).place
    if saga == "evacuate":
        assert place is not None
        region.set_down(int(place.name.removeprefix("host-")))
    return region

"""Units between a region and its cell: no request is lost, whatever comes in between, and one host does not
keep the others from being brought up."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.cell.journal import NoObserver
from berth.engine import Engine
from berth.journal import SqliteAddress, open_journal
from berth.ledger import replace_record
from berth.model.commands import CreateProvider, Enact
from berth.model.events import AnyRecord, Origin, RecordChanged
from berth.model.ids import ProviderId
from berth.model.placement import Inventory
from berth.model.saga_runs import (
    Agent,
    Assignment,
    HostTree,
    Instance,
    Outbox,
    OwnedProvider,
    Spec,
    UnitsRequest,
)
from berth.model.servers import Flavor, Held, Place
from berth.region import status_sync
from berth.region.cell_links import Dispatcher
from berth.region.cell_records import apply_assignments
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.view import View
from berth.view.records import Records

ORIGIN: Final = Origin("", "test", None, "test")
HOST: Final = ProviderId("00000000-0000-4000-8000-000000000001")
CARD: Final = ProviderId("10000000-0000-4000-8000-000000000001")
OTHER_CARD: Final = ProviderId("10000000-0000-4000-8000-000000000002")
FIRST: Final = "50000000-0000-4000-8000-000000000001"
SECOND: Final = "50000000-0000-4000-8000-000000000002"
SPEC: Final = Spec("s", "p", "u", Flavor(id="f", name="f", vcpus=1, memory_mb=1, disk_gb=1), None, {}, ())


class Journals:
    """A region, and a cell with a host that has a card with two functions."""

    def __init__(self, region: Engine, cell: Engine) -> None:
        self.region = region
        self.cell = cell
        self.dispatcher = Dispatcher(region, cell, "cell1", SystemClock())

        self.sync = status_sync.StatusSync(region, cell, "cell1")

    async def carry(self) -> None:
        """Hand over what waits, and bring up what comes of it."""
        await self.dispatcher.dispatch()
        await self.sync.sync()
        await self.dispatcher.dispatch()

    async def ask(self, server: str, functions: int, *, card: str = CARD, may_release: bool = True) -> None:
        held: Held = ((HOST, (("VCPU", 1),)),)
        if functions:
            held = (*held, (ProviderId(card), (("SRIOV_NET_VF", functions),)))
        place = Place(HOST, "host-1", "cell1")
        asked = UnitsRequest(server, place, held, 1, SPEC, may_release=may_release)
        await write(self.region, Outbox(id=f"units {server}", cell="cell1", units=asked))

    def assigned(self) -> dict[str, tuple[str, ...]]:
        return {one.server: tuple(one.unit_names()) for one in self.cell.view.records.all(Assignment)}

    def waiting(self) -> int:
        return self.region.view.records.count(Outbox)


async def write(engine: Engine, *records: AnyRecord) -> None:
    outcome = await engine.submit(
        lambda view, now_s: Enact(tuple(replace_record(view, record) for record in records)),
        ORIGIN,
        lambda view, changed: None,
    )
    assert outcome is None


@contextlib.asynccontextmanager
async def started(path: Path) -> AsyncIterator[Engine]:
    engine = Engine(open_journal(SqliteAddress(path), shared=False), SystemClock(), Ids(1), NoObserver())
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@pytest.fixture
async def journals(tmp_path: Path) -> AsyncIterator[Journals]:
    async with started(tmp_path / "region.db") as region, started(tmp_path / "cell.db") as cell:
        card = OwnedProvider(CARD, units={"SRIOV_NET_VF": ("a", "b")})
        other = OwnedProvider(OTHER_CARD, units={"SRIOV_NET_VF": ("c", "d")})
        await write(cell, HostTree(id=HOST, providers=(OwnedProvider(HOST), card, other)))
        for server in (FIRST, SECOND):
            await write(cell, Instance(id=server, hosts=(HOST,), last=1))
        yield Journals(region, cell)


@pytest.mark.parametrize(("then", "left"), [(2, {FIRST: ("a", "b")}), (0, {})])
async def test_a_request_that_replaces_another_while_that_is_handed_over_is_not_lost(
    journals: Journals, monkeypatch: pytest.MonkeyPatch, then: int, left: dict[str, tuple[str, ...]]
) -> None:
    await journals.ask(FIRST, 1)
    submit = journals.cell.submit

    async def submit_slowly(*arguments: Any) -> Any:
        outcome = await submit(*arguments)
        await journals.ask(FIRST, then)
        return outcome

    with monkeypatch.context() as patched:
        patched.setattr(journals.cell, "submit", submit_slowly)
        await journals.dispatcher.dispatch()
    assert journals.assigned() == {FIRST: ("a",)}
    await journals.carry()
    assert (journals.assigned(), journals.waiting()) == (left, 0)


async def test_a_request_that_comes_before_the_units_are_free_waits_for_them(journals: Journals) -> None:
    await journals.ask(FIRST, 2)
    await journals.carry()
    # The cell is away meanwhile. The one that takes is handed over first.
    await journals.ask(SECOND, 0)
    await journals.ask(FIRST, 1)
    await journals.ask(SECOND, 1)
    assert next(outbox.id for outbox in journals.region.view.records.all(Outbox)) == f"units {SECOND}"
    await journals.carry()
    await journals.carry()
    assert journals.assigned() == {FIRST: ("a",), SECOND: ("b",)}
    assert journals.waiting() == 0


async def test_a_request_waits_until_the_region_knows_the_units(journals: Journals) -> None:
    """Until then the doctor would find a server without what it holds."""
    await journals.ask(FIRST, 1)
    await journals.dispatcher.dispatch()
    assert (journals.assigned(), journals.waiting()) == ({FIRST: ("a",)}, 1)
    await journals.sync.sync()
    await journals.dispatcher.dispatch()
    assert (journals.region.view.records.count(Assignment), journals.waiting()) == (1, 0)


async def test_what_is_counted_follows_without_units(journals: Journals) -> None:
    """A server without units has an assignment where it holds something of a provider below its host."""
    counted = OwnedProvider(CARD, inventories={"SRIOV_NET_VF": Inventory(2)})
    tree = journals.cell.view.records.get(HostTree, HOST)
    assert tree is not None
    await write(journals.cell, msgspec.structs.replace(tree, providers=(OwnedProvider(HOST), counted)))
    for functions in (2, 1):
        await journals.ask(FIRST, functions, may_release=False)
        await journals.carry()
        (one,) = journals.cell.view.records.all(Assignment)
        assert one.counts[CARD] == {"SRIOV_NET_VF": functions}
        assert journals.waiting() == 0


async def test_units_of_a_server_that_may_be_running_are_not_taken_away(journals: Journals) -> None:
    await journals.ask(FIRST, 2)
    await journals.carry()
    for functions in (1, 0):
        await journals.ask(FIRST, functions, may_release=False)
        await journals.dispatcher.dispatch()
        assert journals.assigned() == {FIRST: ("a", "b")}
        # Nobody else gets them.
        await journals.ask(SECOND, 1)
        await journals.dispatcher.dispatch()
        assert journals.assigned() == {FIRST: ("a", "b")}
    # What it holds is of another card now: it has both, until its driver is told.
    await journals.ask(FIRST, 2, card=OTHER_CARD, may_release=False)
    await journals.dispatcher.dispatch()
    assert set(journals.assigned()[FIRST]) == {"a", "b", "c", "d"}
    await journals.ask(FIRST, 2, card=OTHER_CARD)
    await journals.dispatcher.dispatch()
    assert journals.assigned()[FIRST] == ("c", "d")


async def test_a_request_is_dropped_once_a_later_run_says_what_the_server_gets(journals: Journals) -> None:
    await journals.ask(FIRST, 3)
    await journals.dispatcher.dispatch()
    assert (journals.assigned(), journals.waiting()) == ({}, 1)
    await write(journals.cell, Instance(id=FIRST, hosts=(HOST,), last=2))
    await write(journals.region, Outbox(id="another", cell="cell2"))
    await journals.dispatcher.dispatch()
    assert (journals.assigned(), journals.waiting()) == ({}, 1)
    assert journals.region.view.records.get(Outbox, f"units {FIRST}") is None


async def test_a_host_whose_assignments_are_refused_does_not_stop_the_sync(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = make_assignment(FIRST, "bad", "a"), make_assignment(SECOND, "good", "a")
    await write(journals.cell, bad)
    await write(journals.cell, good)

    def refuse(view: View, host: str, current: Any) -> Enact | None:
        return Enact((RecordChanged(bad, None),)) if host == "bad" else apply_assignments(view, host, current)

    sync = status_sync.StatusSync(journals.region, journals.cell, "cell1")
    with monkeypatch.context() as patched:
        patched.setattr(status_sync, "apply_assignments", refuse)
        await sync.sync()
        assert list(journals.region.view.records.all(Assignment)) == [good]
    # Whatever was refused is tried again with the next change.
    await write(journals.cell, Instance(id=FIRST, hosts=(HOST,), last=9))
    await sync.sync()
    assert journals.region.view.records.count(Assignment) == 2


def make_assignment(server: str, host: str, *units: str) -> Assignment:
    return Assignment(
        id=f"{server} on {host}",
        server=server,
        host=host,
        holder=server,
        run="r",
        units={CARD: {"SRIOV_NET_VF": units}},
        counts={},
    )


async def test_the_cost_of_a_change_does_not_grow_with_the_cell(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked at when one of many changes is that one, not all assignments and agents of the cell."""
    hosts = [ProviderId(f"20000000-0000-4000-8000-{number:012}") for number in range(100)]
    await write(journals.cell, *(make_assignment(FIRST, host, "a") for host in hosts))
    await write(journals.cell, *(Agent(id=host, name=host, driver="sim") for host in hosts))
    created = Enact((), tuple(CreateProvider(host, host) for host in hosts))
    assert await journals.region.submit(created, ORIGIN, lambda view, changed: None) is None
    sync = status_sync.StatusSync(journals.region, journals.cell, "cell1")
    await sync.sync()
    assert journals.region.view.records.count(Assignment) == 100
    await write(journals.cell, make_assignment(FIRST, hosts[7], "b"))
    looked_at = 0
    find_all, find, get = Records.all, Records.find, Records.get

    def count_all(records: Records, kind: type[Any]) -> Any:
        nonlocal looked_at
        looked_at += records.count(kind)
        return find_all(records, kind)

    def count_found(records: Records, kind: type[Any], index: str, key: str) -> Any:
        nonlocal looked_at
        found = find(records, kind, index, key)
        looked_at += len(found)
        return found

    def count_got(records: Records, kind: type[Any], id: str) -> Any:
        nonlocal looked_at
        looked_at += 1
        return get(records, kind, id)

    with monkeypatch.context() as patched:
        patched.setattr(Records, "all", count_all)
        patched.setattr(Records, "find", count_found)
        patched.setattr(Records, "get", count_got)
        await sync.sync()
    changed = journals.region.view.records.get(Assignment, f"{FIRST} on {hosts[7]}")
    assert changed is not None
    assert list(changed.unit_names()) == ["b"]
    assert looked_at < 20


async def test_an_assignment_that_goes_with_its_host_is_removed_from_the_region(journals: Journals) -> None:
    assignment = make_assignment(FIRST, "host-1", "a")
    agent = Agent(id="host-1", name="host-1", driver="sim")
    await write(journals.cell, assignment, agent)
    sync = status_sync.StatusSync(journals.region, journals.cell, "cell1")
    await sync.sync()
    assert journals.region.view.records.count(Assignment) == 1
    gone = Enact((RecordChanged(assignment, None), RecordChanged(agent, None)))
    assert await journals.cell.submit(gone, ORIGIN, lambda view, changed: None) is None
    await sync.sync()
    assert journals.region.view.records.count(Assignment) == 0


async def test_a_change_that_comes_while_another_is_brought_up_is_brought_up_next(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(journals.cell, make_assignment(FIRST, "host-1", "a"))
    sync = status_sync.StatusSync(journals.region, journals.cell, "cell1")
    submit = journals.region.submit

    async def submit_slowly(*arguments: Any) -> Any:
        await write(journals.cell, make_assignment(FIRST, "host-1", "b"))
        return await submit(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(journals.region, "submit", submit_slowly)
        await sync.sync()
    await sync.sync()
    (assigned,) = journals.region.view.records.all(Assignment)
    assert list(assigned.unit_names()) == ["b"]


# -- two syncs at once ------------------------------------------------------------------------------


class Overtaken:
    """A region for a sync that is slow: before its change of this number, ``meanwhile`` happens."""

    def __init__(self, region: Engine, number: int, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._region = region
        self._left = number
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._region, name)

    async def submit(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            await self._meanwhile()
        return await self._region.submit(*arguments)


async def sync_overtaken(journals: Journals, number: int, *newer: RecordChanged) -> status_sync.StatusSync:
    """Have a sync bring up what the cell says, while another brings up what it says a little later. The slow
    one, after that."""

    async def overtake() -> None:
        assert await journals.cell.submit(Enact(newer), ORIGIN, lambda view, changed: None) is None
        await status_sync.StatusSync(journals.region, journals.cell, "cell1").sync()

    slow: Any = Overtaken(journals.region, number, overtake)
    sync = status_sync.StatusSync(slow, journals.cell, "cell1")
    await sync.sync()
    return sync


@pytest.mark.parametrize("number", [1, 2])
async def test_the_slower_of_two_syncs_does_not_bring_back_old_assignments(
    journals: Journals, number: int
) -> None:
    old, new = make_assignment(FIRST, "host-1", "a"), make_assignment(SECOND, "host-1", "a")
    await write(journals.cell, old)
    sync = await sync_overtaken(journals, number, RecordChanged(old, None), RecordChanged(None, new))
    assert list(journals.region.view.records.all(Assignment)) == [new]
    await sync.sync()
    assert list(journals.region.view.records.all(Assignment)) == [new]


@pytest.mark.parametrize("number", [1, 2])
async def test_nor_does_it_where_the_faster_one_found_nothing_to_change(
    journals: Journals, number: int
) -> None:
    """The region has what the cell says later, and not what it said in between."""
    assigned = make_assignment(FIRST, "host-1", "a")
    await write(journals.cell, assigned)
    await journals.sync.sync()
    assert (
        await journals.cell.submit(
            Enact((RecordChanged(assigned, None),)), ORIGIN, lambda view, changed: None
        )
        is None
    )
    # A sync of another process begins with all hosts that it knows, as this one does with its agent.
    await write(journals.cell, Agent(id="host-1", name="host-1", driver="sim"))
    await sync_overtaken(journals, number, RecordChanged(None, assigned))
    assert list(journals.region.view.records.all(Assignment)) == [assigned]


@pytest.mark.parametrize("number", [1, 2])
async def test_nor_does_it_bring_back_the_old_state_of_a_host(journals: Journals, number: int) -> None:
    created = Enact((), (CreateProvider(HOST, "host-1"),))
    assert await journals.region.submit(created, ORIGIN, lambda view, changed: None) is None
    agent = Agent(id=HOST, name="host-1", driver="sim")
    await write(journals.cell, agent)
    down = msgspec.structs.replace(agent, is_down=True)
    await sync_overtaken(journals, number, RecordChanged(agent, down))
    assert journals.region.view.hosts[HOST].down


async def test_a_slow_sync_goes_on_with_what_came_since(journals: Journals) -> None:
    old, new = make_assignment(FIRST, "host-1", "a"), make_assignment(SECOND, "host-2", "a")
    await write(journals.cell, old)
    sync = await sync_overtaken(journals, 1, RecordChanged(None, new))
    third = make_assignment(FIRST, "host-3", "a")
    await write(journals.cell, third)
    await sync.sync()
    hosts = {one.host for one in journals.region.view.records.all(Assignment)}
    assert hosts == {"host-1", "host-2", "host-3"}


async def test_a_cell_that_was_restored_from_an_older_copy_is_believed(
    journals: Journals, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        await write(journals.cell, make_assignment(FIRST, f"host-{number}", "a"))
    await journals.sync.sync()
    async with started(tmp_path / "restored.db") as restored:
        await write(restored, make_assignment(SECOND, "host-1", "a"))
        await status_sync.StatusSync(journals.region, restored, "cell1").sync()
    (assigned,) = journals.region.view.records.find(Assignment, "host", "host-1")
    assert assigned.server == SECOND
    assert "cell1: its journal ends at index" in caplog.text

"""Units between a region and its cell: no request is lost, whatever comes in between, and one host does not
keep the others from being brought up."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from berth.cell.journal import NoObserver
from berth.engine import Engine
from berth.journal import SqliteAddress, open_journal
from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.events import AnyRecord, Origin, RecordChanged
from berth.model.ids import ProviderId
from berth.model.saga_runs import (
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
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.view import View

ORIGIN: Final = Origin("", "test", None, "test")
HOST: Final = ProviderId("00000000-0000-4000-8000-000000000001")
CARD: Final = ProviderId("10000000-0000-4000-8000-000000000001")
FIRST: Final = "50000000-0000-4000-8000-000000000001"
SECOND: Final = "50000000-0000-4000-8000-000000000002"
SPEC: Final = Spec("s", "p", "u", Flavor(id="f", name="f", vcpus=1, memory_mb=1, disk_gb=1), None, {}, ())


class Journals:
    """A region, and a cell with a host that has a card with two functions."""

    def __init__(self, region: Engine, cell: Engine) -> None:
        self.region = region
        self.cell = cell
        self.dispatcher = Dispatcher(region, cell, "cell1", SystemClock())

    async def ask(self, server: str, functions: int) -> None:
        held: Held = ((HOST, (("VCPU", 1),)),)
        if functions:
            held = (*held, (CARD, (("SRIOV_NET_VF", functions),)))
        asked = UnitsRequest(server, Place(HOST, "host-1", "cell1"), held, 1, SPEC)
        await write(self.region, Outbox(id=f"units {server}", cell="cell1", units=asked))

    def assigned(self) -> dict[str, tuple[str, ...]]:
        return {one.server: tuple(one.unit_names()) for one in self.cell.view.records.all(Assignment)}

    def waiting(self) -> int:
        return self.region.view.records.count(Outbox)


async def write(engine: Engine, record: AnyRecord) -> None:
    outcome = await engine.submit(
        lambda view, now_s: Enact((replace_record(view, record),)), ORIGIN, lambda view, changed: None
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
        await write(cell, HostTree(id=HOST, providers=(OwnedProvider(HOST), card)))
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
    await journals.dispatcher.dispatch()
    assert (journals.assigned(), journals.waiting()) == (left, 0)


async def test_a_request_that_comes_before_the_units_are_free_waits_for_them(journals: Journals) -> None:
    await journals.ask(FIRST, 2)
    await journals.dispatcher.dispatch()
    # The cell is away meanwhile. The one that takes is handed over first.
    await journals.ask(SECOND, 0)
    await journals.ask(FIRST, 1)
    await journals.ask(SECOND, 1)
    assert next(outbox.id for outbox in journals.region.view.records.all(Outbox)) == f"units {SECOND}"
    await journals.dispatcher.dispatch()
    await journals.dispatcher.dispatch()
    assert journals.assigned() == {FIRST: ("a",), SECOND: ("b",)}
    assert journals.waiting() == 0


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
    def make(server: str, host: str) -> Assignment:
        return Assignment(
            id=f"{server} on {host}",
            server=server,
            host=host,
            holder=server,
            run="r",
            units={CARD: {"SRIOV_NET_VF": ("a",)}},
            counts={},
        )

    bad, good = make(FIRST, "bad"), make(SECOND, "good")
    await write(journals.cell, bad)
    await write(journals.cell, good)
    apply = status_sync.apply_assignments

    def refuse(view: View, host: str, current: Any) -> Enact | None:
        return Enact((RecordChanged(bad, None),)) if host == "bad" else apply(view, host, current)

    sync = status_sync.StatusSync(journals.region, journals.cell, "cell1")
    with monkeypatch.context() as patched:
        patched.setattr(status_sync, "apply_assignments", refuse)
        await sync.sync()
        assert list(journals.region.view.records.all(Assignment)) == [good]
    # Whatever was refused is tried again with the next change.
    await write(journals.cell, Instance(id=FIRST, hosts=(HOST,), last=9))
    await sync.sync()
    assert journals.region.view.records.count(Assignment) == 2

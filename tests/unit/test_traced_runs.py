"""The trace of a request in the records that others read, and the spans of the engine and of the API."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.http import Request
from berth.cell import protocol
from berth.cell.journal import NoObserver
from berth.cell.mailbox import Mailbox
from berth.cell.saga_runs import accept_run
from berth.engine import Engine, Forks
from berth.journal import SqliteAddress, open_journal
from berth.model.commands import CreateTrait, Enact
from berth.model.events import Origin, RecordChanged
from berth.model.formats import ADDITIONS, FORMAT, TRACED
from berth.model.rejections import Rejection
from berth.model.saga_runs import Agent, SagaRun
from berth.runtime import tracing
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.view import View
from tests.collector import Collector, SeenSpan, collecting, traced
from tests.waiting import until
from tests.worlds import RegionWorld, SteppedConductor, ViewEngine

ORIGIN = Origin("req-test", None, None, "test")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path).running() as region:
        await region.fleet()
        yield region


def named(collector: Collector, name: str) -> SeenSpan:
    [found] = (span for span in collector.spans if span.name == name)
    return found


async def test_a_run_says_which_span_it_belongs_to(region: RegionWorld, collector: Collector) -> None:
    with traced(collector):
        id = await region.create(headers={"traceparent": GIVEN})
    request = named(collector, "POST /compute/v2.1/servers")
    assert region.saga_run(id).traceparent == f"00-{TRACE}-{request.id}-01"


async def test_a_run_says_nothing_of_it_while_nothing_is_traced(region: RegionWorld) -> None:
    id = await region.create(headers={"traceparent": GIVEN})
    assert region.saga_run(id).traceparent is None


async def test_a_journal_that_older_programs_read_does_without(
    region: RegionWorld, collector: Collector
) -> None:
    with traced(collector):
        run = region.saga_run(await region.create(headers={"traceparent": GIVEN}))
        region.engine.view.format = TRACED - 1
        older = region.saga_run(await region.create(headers={"traceparent": GIVEN}))
    assert ADDITIONS.find_newer(run, TRACED - 1) == "SagaRun.traceparent"
    assert older.traceparent is None
    # A cell's journal may be older than the region's.
    for format, kept in ((TRACED - 1, None), (FORMAT, run.traceparent)):
        view = View()
        view.format = format
        taken = accept_run(view, run, 7)
        assert not isinstance(taken, Rejection)
        [accepted] = runs_in(taken)
        assert accepted == msgspec.structs.replace(run, since_ns=7, traceparent=kept)


def runs_in(command: Enact | None) -> list[SagaRun]:
    assert command is not None
    return [change.after for change in command.changes if isinstance(change.after, SagaRun)]


@pytest.mark.parametrize(("version", "told"), [(1, None), (2, GIVEN), (protocol.VERSION, GIVEN)])
async def test_an_agent_is_told_if_it_skips_what_it_does_not_know(
    region: RegionWorld, version: int, told: str | None
) -> None:
    """Version 1 of the protocol refuses a field that it does not know. This conductor does not trace: it
    passes on what the run says."""
    run = region.saga_run(await region.create())
    run = msgspec.structs.replace(run, traceparent=GIVEN, step=1)
    assert run.dest is not None
    agent = Agent(id=run.dest.id, name=run.dest.name, driver="sim", protocol=version)
    cell = ViewEngine(View(), region.clock)
    changes = tuple(RecordChanged(None, record) for record in (run, agent))
    await cell.submit(Enact(changes), ORIGIN, lambda *_: None)
    conductor = SteppedConductor(cell, region.call, region.clock)
    conductor._mailbox = mailbox = Mailbox()
    stepping = asyncio.create_task(conductor.step(run))
    await until(lambda: mailbox.find_commands(agent.id, ())[0])
    [[command], _] = mailbox.find_commands(agent.id, ())
    assert (command.verb, command.traceparent) == ("build", told)
    mailbox.settle(agent.id, command.id, None)
    assert await stepping is None


async def fail(request: Request, caller: Caller) -> NoReturn:
    raise RuntimeError("a bug")


async def test_a_refusal_and_a_bug_are_in_the_span_of_their_request(
    region: RegionWorld, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with traced(collector):
        assert (await region.ask("PUT", "/traits/NOT_CUSTOM")).status == 400
        assert (await region.ask("DELETE", "/traits/CUSTOM_GONE")).status == 404
        assert (await region.ask("GET", "/no/such/path?token=secret")).status == 404
        monkeypatch.setattr(region.parts.apis[0], "answer", fail)
        assert (await region.ask("GET", "/resource_providers")).status == 500
        assert (await region.ask("GET", "/healthz")).status == 200
    wrong, gone, unknown, bug = (span for span in collector.spans if "http.route" in span.attributes)
    assert (wrong.attributes["http.response.status_code"], wrong.error) == (400, None)
    assert (gone.name, gone.error) == ("DELETE /traits/{name}", None)
    assert named(collector, "submit").attributes["berth.rejection"] == "TraitsNotFound"
    assert (unknown.name, unknown.attributes["url.path"]) == ("GET unknown", "/no/such/path")
    assert not any("secret" in str(span) for span in collector.spans)
    assert bug.attributes["http.response.status_code"] == 500
    assert (bug.error, bug.attributes["error.type"]) == ("a bug", "RuntimeError")


# -- the engine ---------------------------------------------------------------------------------


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    ids = Ids()
    journal = open_journal(SqliteAddress(tmp_path / "journal.db"), shared=False)
    engine = Engine(journal, SystemClock(), ids, NoObserver(), forks=Forks(ids), outage_seconds=0)
    await engine.start()
    yield engine
    await engine.stop()


def propose_slowly(view: View, now_s: int) -> CreateTrait:
    view.steps.take(1_000_000)
    return CreateTrait("CUSTOM_SLOW")


async def test_what_is_planned_in_a_copy_has_a_span_here_and_is_no_failure(
    engine: Engine, collector: Collector
) -> None:
    with traced(collector), tracing.request_span(GIVEN):
        assert await engine.submit(propose_slowly, ORIGIN, lambda view, changed: changed) is True
    submit = named(collector, "submit")
    below = sorted(
        (span for span in collector.spans if span.parent == submit.id), key=lambda span: span.end_ns
    )
    # Given up in the writer's turn, planned in a child, and judged in its turn.
    assert [(span.name, span.error) for span in below] == [
        ("decide", None),
        ("plan", None),
        ("decide", None),
        ("append", None),
    ]


async def test_each_command_of_a_batch_has_the_append_in_its_trace(
    engine: Engine, collector: Collector
) -> None:
    async def create(number: int) -> None:
        with tracing.request_span(None if number else GIVEN):
            await engine.submit(CreateTrait(f"CUSTOM_{number}"), ORIGIN, lambda view, changed: None)

    with traced(collector):
        await asyncio.gather(*map(create, range(5)))
    appends = [span for span in collector.spans if span.name == "append"]
    assert len({span.trace for span in appends}) == len(appends) == 5
    assert {span.attributes["berth.batch"] for span in appends} <= {1, 2, 3, 4, 5}
    assert max(span.attributes["berth.batch"] for span in appends) > 1

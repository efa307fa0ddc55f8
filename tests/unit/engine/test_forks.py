"""What takes long is done in a child process, and nobody else waits for it.

A child that should take long waits for a file: the test decides when it ends, and no order depends on time.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from berth import ledger
from berth.api.kernel.problem import Problem
from berth.engine import ASKER, Asker, Engine, Forks, Overloaded, Planned, Unavailable
from berth.engine import engine as engine_module
from berth.engine import forks as forks_module
from berth.journal import SqliteAddress, open_journal
from berth.journal import body as body_module
from berth.model.commands import Claim, CreateProvider, Enact, ReplaceAllocations, SetInventories
from berth.model.events import Origin, RecordChanged
from berth.model.ids import ConsumerId, Index, ProviderId
from berth.model.placement import Inventory
from berth.model.rejections import CapacityExceeded, CommandTooLarge, ProviderNotFound, Rejection
from berth.model.scheduling import CandidatesRequest, Plan, RequestGroup, ScheduleRequest
from berth.model.servers import Flavor
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.runtime.telemetry import Telemetry
from berth.scheduler.plan import plan
from berth.view import View
from tests.options import scheduler_options
from tests.servers import ROOT
from tests.waiting import until

ORIGIN = Origin("req-test", None, None, "test")
HOST = ProviderId("host")
SECONDS_MAX = 60.0
"""Longer than any test takes: a deadline that passes is a failure, unless a test is about it."""


@contextlib.asynccontextmanager
async def engine_of_one_host(path: Path, seconds_max: float = SECONDS_MAX) -> AsyncIterator[Engine]:
    """An engine with one host that has room for one."""
    clock, ids = SystemClock(), Ids(1)
    journal = open_journal(SqliteAddress(path / "journal.db"), shared=False)
    telemetry = Telemetry(Settings(log_level="error"), clock)
    engine = Engine(journal, clock, ids, telemetry, forks=Forks(ids, seconds_max))
    await engine.start()
    try:
        for command in (CreateProvider(HOST, "host"), SetInventories(HOST, 0, {"VCPU": Inventory(1)})):
            assert await engine.submit(command, ORIGIN, lambda view, changed: changed) is True
        yield engine
    finally:
        await engine.stop()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with engine_of_one_host(tmp_path) as engine:
        yield engine


@pytest.fixture
def forks(engine: Engine) -> Forks:
    return forks_of(engine)


def forks_of(engine: Engine) -> Forks:
    assert engine._forks is not None
    return engine._forks


def lengthy(view: View) -> None:
    """More steps than are taken while others wait."""
    view.steps.take(engine_module._STEPS_MAX + 1)


def endless(view: View, now_s: int = 0) -> Any:
    lengthy(view)
    while True:
        time.sleep(1)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


def claim(consumer: str, vcpus: int = 1) -> ReplaceAllocations:
    wanted = ((HOST, (("VCPU", vcpus),)),)
    return ReplaceAllocations((Claim(ConsumerId(consumer), wanted, "p", "u", None, "INSTANCE"),))


def new_flavor(id: str, name: str) -> RecordChanged:
    return RecordChanged(None, Flavor(id=id, name=name, vcpus=1, memory_mb=512, disk_gb=0))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- reads --------------------------------------------------------------------------------------


async def test_a_long_read_is_answered_by_a_child_and_a_short_one_is_not(engine: Engine) -> None:
    def long(view: View) -> tuple[int, int]:
        lengthy(view)
        return os.getpid(), view.index

    assert await engine.read(lambda view: os.getpid()) == os.getpid()
    child, index = await engine.read(long)
    assert child != os.getpid()
    assert index == 2


async def test_others_are_answered_before_a_long_read_is(
    engine: Engine, forks: Forks, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"

    def long(view: View) -> str:
        lengthy(view)
        wait_for(flag)
        return "long"

    asking = asyncio.create_task(engine.read(long))
    await until(lambda: forks.pids)
    # A read and a write, which would wait for ever if they waited for the child.
    assert await engine.read(lambda view: view.index) == 2
    assert await engine.submit(claim("one"), ORIGIN, lambda view, changed: changed) is True
    assert not asking.done()
    flag.touch()
    assert await asking == "long"


async def test_a_refusal_keeps_what_it_says(engine: Engine) -> None:
    """Also of those exceptions that take other arguments than they keep."""

    def refuse(view: View) -> None:
        lengthy(view)
        raise Problem(409, "Nothing fits.", "berth.no_fit", headers=(("retry-after", "1"),))

    with pytest.raises(Problem) as caught:
        await engine.read(refuse)
    refused = caught.value
    assert (refused.status, refused.code, refused.text) == (409, "berth.no_fit", "Nothing fits.")
    assert refused.headers == (("retry-after", "1"),)


async def test_a_child_has_no_file_and_no_socket_but_its_pipe(engine: Engine) -> None:
    def files(view: View) -> list[str]:
        lengthy(view)
        there = os.listdir("/proc/self/fd")
        # The folder itself was open while it was read.
        paths = (f"/proc/self/fd/{name}" for name in there)
        return [os.readlink(path) for path in paths if os.path.islink(path)]

    (only,) = await engine.read(files)
    assert only.startswith("pipe:")


async def test_ids_of_a_child_are_nobody_elses(engine: Engine) -> None:
    ids = engine._ids

    def draw(view: View) -> list[str]:
        lengthy(view)
        return [ids.uuid() for _ in range(10)]

    drawn = [*await engine.read(draw), *await engine.read(draw), *(ids.uuid() for _ in range(10))]
    assert len(set(drawn)) == len(drawn)


# -- how it ends --------------------------------------------------------------------------------


async def test_a_child_ends_when_its_caller_is_cancelled(engine: Engine, forks: Forks) -> None:
    asking = asyncio.create_task(engine.read(endless))
    await until(lambda: forks.pids)
    (pid,) = forks.pids
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: not forks.pids)
    assert not is_running(pid)


@pytest.mark.parametrize("writes", [False, True])
async def test_a_child_ends_when_its_client_leaves(engine: Engine, forks: Forks, writes: bool) -> None:
    left = asyncio.Event()

    async def ask() -> Any:
        ASKER.set(Asker("p", left.wait))
        return await (engine.submit(endless, ORIGIN, None) if writes else engine.read(endless))

    asking = asyncio.create_task(ask())
    await until(lambda: forks.pids)
    (pid,) = forks.pids
    left.set()
    with pytest.raises(Overloaded, match="closed the connection"):
        await asking
    await until(lambda: not forks.pids)
    assert not is_running(pid)


async def test_a_child_ends_at_its_deadline(tmp_path: Path) -> None:
    async with engine_of_one_host(tmp_path, seconds_max=0.1) as engine:
        with pytest.raises(Overloaded, match=r"longer than 0\.1 s"):
            await engine.read(endless)
        await until(lambda: not forks_of(engine).pids)


async def test_a_child_ends_when_the_engine_stops(engine: Engine, forks: Forks) -> None:
    asking = asyncio.create_task(engine.submit(endless, ORIGIN, None))
    await until(lambda: forks.pids)
    (pid,) = forks.pids
    await engine.stop()
    with pytest.raises(Unavailable, match="stopping"):
        await asking
    assert not is_running(pid)


async def test_a_child_that_dies_fails_its_read(engine: Engine) -> None:
    def die(view: View) -> None:
        lengthy(view)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Overloaded, match="ended without a result"):
        await engine.read(die)


@pytest.mark.parametrize(
    ("module", "name", "failure"),
    [
        (forks_module, "_fork", BlockingIOError(11, "Resource temporarily unavailable")),
        (forks_module, "_fork", OSError(12, "Cannot allocate memory")),
        (os, "pipe", OSError(24, "Too many open files")),
        (os, "set_blocking", OSError(12, "Cannot allocate memory")),
    ],
)
async def test_a_child_that_cannot_be_started_leaves_nothing_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, failure: OSError
) -> None:
    def fail(*_: object) -> int:
        raise failure

    there = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(module, name, fail)
        with pytest.raises(Overloaded, match="cannot start a process for it"):
            await engine.read(endless)
    assert set(os.listdir("/proc/self/fd")) == there
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    assert await engine.read(lambda view: (lengthy(view), view.index)[1]) == 2  # type: ignore[func-returns-value]


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    program = """
        import asyncio, sys
        from pathlib import Path
        from tests.unit.engine.test_forks import endless, engine_of_one_host, forks_of
        from tests.waiting import until

        async def read() -> None:
            async with engine_of_one_host(Path(sys.argv[1])) as engine:
                asking = asyncio.create_task(engine.read(endless))
                await until(lambda: forks_of(engine).pids)
                print(forks_of(engine).pids[0], flush=True)
                await asking

        asyncio.run(read())
    """
    words = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
    deadline_s = time.monotonic() + 30
    while is_running(child) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not is_running(child)


# -- shares -------------------------------------------------------------------------------------


async def test_a_project_has_one_child_at_a_time_and_leaves_room_for_others(
    engine: Engine, forks: Forks, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    ended: list[str] = []

    def long(view: View) -> None:
        lengthy(view)
        wait_for(flag)

    async def ask(project: str, answer: Callable[[View], None]) -> None:
        ASKER.set(Asker(project))
        await engine.read(answer)
        ended.append(project)

    asking = [asyncio.create_task(ask("greedy", long)) for _ in range(3)]
    await until(lambda: forks.pids)
    await ask("modest", lengthy)
    assert len(forks.pids) == forks_module.OF_ONE_PROJECT_MAX
    flag.touch()
    await asyncio.gather(*asking)
    assert ended == ["modest", "greedy", "greedy", "greedy"]


async def test_too_many_that_wait_are_refused(engine: Engine, forks: Forks) -> None:
    count = forks_module.OF_ONE_PROJECT_MAX + forks_module.WAITING_OF_ONE_PROJECT_MAX
    asking = [asyncio.create_task(engine.read(endless)) for _ in range(count)]
    await until(lambda: len(forks._waiting) == forks_module.WAITING_OF_ONE_PROJECT_MAX)
    with pytest.raises(Overloaded, match="of this project"):
        await engine.read(endless)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await until(lambda: not forks.pids)
    assert not forks._waiting
    assert not forks._running.total()


class Item:
    """Tells when it is unpickled."""

    def __reduce__(self) -> Any:
        return _unpickled_item, ()


unpickled_at: list[int] = []
turns = 0


def _unpickled_item() -> Item:
    unpickled_at.append(turns)
    return Item()


async def test_others_have_their_turn_while_a_long_result_is_unpickled(engine: Engine) -> None:
    async def count_turns() -> None:
        global turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def long(view: View) -> Any:
        lengthy(view)
        items = tuple(Item() for _ in range(1_000))
        return (Planned(None, items), items[0])  # type: ignore[arg-type]

    counting = asyncio.create_task(count_turns())
    planned, first = await engine.read(long)
    counting.cancel()
    assert planned.answer[0] is first
    assert len(planned.answer) == len(unpickled_at) == 1_000
    assert max(Counter(unpickled_at).values()) <= forks_module.PIECE_MAX


# -- plans --------------------------------------------------------------------------------------


async def test_a_plan_of_a_child_is_judged_in_turn_and_brings_its_answer(engine: Engine) -> None:
    def choose(view: View, now_s: int) -> Planned:
        lengthy(view)
        return Planned(claim("one"), {"index": int(view.index)})

    answer: object = await engine.submit(choose, ORIGIN, None)
    assert answer == {"index": 2}
    assert await engine.read(lambda view: len(view.consumers)) == 1


async def test_two_plans_for_the_same_room_never_claim_it_twice(
    engine: Engine, forks: Forks, tmp_path: Path
) -> None:
    """Both children see the room free. The second is told so when its claim is judged, and plans again."""
    flag = tmp_path / "flag"

    async def ask(name: str) -> Any:
        def choose(view: View, now_s: int) -> Planned | Rejection:
            lengthy(view)
            wait_for(flag)
            if view.providers[HOST].used:
                return ProviderNotFound(HOST)
            return Planned(claim(name), name)

        ASKER.set(Asker(name))
        return await engine.submit(choose, ORIGIN, None)

    asking = [asyncio.create_task(ask(name)) for name in ("one", "two")]
    await until(lambda: len(forks.pids) == 2)
    flag.touch()
    answers = await asyncio.gather(*asking)
    assert await engine.read(lambda view: len(view.consumers)) == 1
    assert {type(answer) for answer in answers} == {str, ProviderNotFound}


async def test_a_plan_that_is_refused_each_time_is_given_up(engine: Engine, tmp_path: Path) -> None:
    tries = tmp_path / "tries"

    def choose(view: View, now_s: int) -> Planned:
        lengthy(view)
        with tries.open("a") as file:
            file.write("x")
        return Planned(claim("one", vcpus=2), None)

    with pytest.raises(Overloaded, match="3 times"):
        await engine.submit(choose, ORIGIN, None)
    assert len(tries.read_text()) == engine_module._PLANS_MAX


async def test_others_have_their_turn_between_the_judgement_of_a_large_command_and_its_effect(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    decide = ledger.decide

    def judged(*arguments: Any) -> Any:
        happened.append("judged")
        return decide(*arguments)

    def answered(view: View, changed: bool) -> None:
        happened.append("applied")

    monkeypatch.setattr(engine_module, "decide", judged)
    monkeypatch.setattr(engine_module, "_LARGE_BYTES", 0)
    writing = asyncio.create_task(engine.submit(claim("one"), ORIGIN, answered))
    while not writing.done():
        if happened[-1:] == ["judged"]:
            happened.append(f"seen {await engine.read(lambda view: len(view.consumers))}")
        await asyncio.sleep(0)
    assert happened == ["judged", "seen 0", "applied"]


async def test_a_plan_of_a_child_is_judged_once(
    engine: Engine, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when others wait before it, with whom it would not fit into one batch."""
    flag = tmp_path / "flag"
    judged: list[str] = []
    decide = ledger.decide

    def noted(view: View, command: ReplaceAllocations, now_s: int) -> Any:
        judged.append(command.claims[0].consumer)
        return decide(view, command, now_s)

    def choose(view: View, now_s: int) -> Planned:
        lengthy(view)
        wait_for(flag)
        return Planned(claim("large"), None)

    def submit(consumer: str) -> asyncio.Task[Any]:
        nothing = ReplaceAllocations((Claim(ConsumerId(consumer), (), "p", "u", None, "INSTANCE"),))
        return asyncio.create_task(engine.submit(nothing, ORIGIN, lambda view, changed: None))

    asking = [asyncio.create_task(engine.submit(choose, ORIGIN, None))]
    await until(lambda: forks.pids)
    monkeypatch.setattr(engine_module, "decide", noted)
    monkeypatch.setattr(engine_module, "_LARGE_BYTES", 0)
    async with engine._turn:
        # The writer takes the first and waits for its turn. Then both others wait in the queue.
        asking.append(submit("first"))
        await asyncio.sleep(0)
        await until(lambda: not engine._queue)
        asking.append(submit("small"))
        flag.touch()
        await until(lambda: len(engine._queue) == 2)
    await asyncio.gather(*asking)
    assert judged == ["first", "small", "large"]


async def test_a_large_plan_is_rehearsed_in_pieces_and_others_have_their_turn_in_between(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the memory that a fork has left shared is not all used for the first time in one go."""
    piece = engine_module._REHEARSED
    claims = tuple(
        Claim(ConsumerId(f"{number}"), (), "p", "u", None, "INSTANCE") for number in range(2 * piece + 1)
    )
    happened: list[object] = []
    decide = ledger.decide

    def noted(view: View, command: Any, now_s: int) -> Any:
        part: Any = command.commands[0] if isinstance(command, Enact) else command
        happened.append((len(part.claims), len(view.consumers)))
        return decide(view, command, now_s)

    def choose(view: View, now_s: int) -> Enact:
        lengthy(view)
        return Enact((), (ReplaceAllocations(claims),))

    monkeypatch.setattr(engine_module, "decide", noted)
    writing = asyncio.create_task(engine.submit(choose, ORIGIN, lambda view, changed: len(view.consumers)))
    while not writing.done():
        if happened[-1:] != ["turn"]:
            happened.append("turn")
        await asyncio.sleep(0)
    assert await writing == len(claims)
    pieces = [(piece, 0), (piece, 0), (1, 0), (len(claims), 0)]
    assert happened == ["turn", *(step for judged in pieces for step in (judged, "turn"))]


async def test_what_a_child_has_encoded_is_written_as_it_would_be_here(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = tuple(new_flavor(f"{number}", "small") for number in range(250))
    encoded_here: list[int] = []
    encode = body_module._extend

    def noted(body: bytearray, events: Any, bytes_max: int) -> bool:
        encoded_here.append(len(events))
        return encode(body, events, bytes_max)

    def choose(view: View, now_s: int) -> Enact:
        lengthy(view)
        return Enact(changes, (claim("one"),))

    monkeypatch.setattr(body_module, "_extend", noted)
    await engine.submit(choose, ORIGIN, lambda view, changed: None)
    (batch,) = await engine.history(Index(2), 10)
    (entry,) = batch.entries
    others = encoded_here[0]
    assert encoded_here == [others]
    assert entry.events[others:] == changes


async def test_what_a_child_makes_too_large_is_refused(engine: Engine) -> None:
    def choose(view: View, now_s: int) -> Enact:
        lengthy(view)
        name = "n" * (5 << 20)
        return Enact(tuple(new_flavor(id, name) for id in "abc"))

    assert await engine.submit(choose, ORIGIN, lambda view, changed: None) == CommandTooLarge(3, 8 << 20)


async def test_a_refusal_of_a_child_is_an_answer(engine: Engine) -> None:
    def choose(view: View, now_s: int) -> Rejection:
        lengthy(view)
        return CapacityExceeded(HOST, "VCPU", 2, 0, 1, "host")

    assert await engine.submit(choose, ORIGIN, None) == CapacityExceeded(HOST, "VCPU", 2, 0, 1, "host")


async def test_a_child_that_finds_nothing_to_do_is_answered_from_the_view(engine: Engine) -> None:
    assert await engine.submit(
        lambda view, now_s: lengthy(view), ORIGIN, lambda view, changed: (view.index, changed)
    ) == (2, False)


async def test_a_child_plans_what_would_have_been_planned_here(engine: Engine, forks: Forks) -> None:
    ask = CandidatesRequest(groups=(RequestGroup(resources=(("VCPU", 1),)),))
    members = tuple(ConsumerId(f"member-{number}") for number in range(200))
    request = ScheduleRequest(ask=ask, members=members, at_least=200, project="p", user="u", alternates=3)
    options = scheduler_options(subset_size=7)
    for number in range(40):
        id = ProviderId(f"host-{number}")
        for command in (CreateProvider(id, id), SetInventories(id, 0, {"VCPU": Inventory(8)})):
            await engine.submit(command, ORIGIN, lambda view, changed: None)

    def planned(view: View) -> Any:
        return plan(view, request, options, Ids(5).rng, 0)

    pids: list[int] = []
    asking = asyncio.create_task(engine.read(planned))
    while not asking.done():
        pids += forks.pids
        await asyncio.sleep(0)
    assert pids, "it takes long enough for a child"
    made_there = await asking
    assert isinstance(made_there, Plan)
    assert made_there == planned(engine.view)

"""The engine over a real SQLite journal that is slow, fails, lies about failing, or has other writers.

What must hold whatever happens: what was acknowledged is in the journal, once; what was refused is not;
nobody is told of anything that is not durable; and the view is what replaying the journal gives.
"""

import asyncio
import random
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import wait_all_tasks_blocked

from berth.engine import Engine, Overloaded, Unavailable, replay
from berth.journal import Conflict, Journal, JournalFailure, JournalRow, SqliteAddress, open_journal
from berth.ledger import decide
from berth.model.commands import Claim, Command, CreateProvider, ReplaceAllocations, SetInventories
from berth.model.events import Batch, Entry, Event, Origin, ProviderChanged
from berth.model.ids import ConsumerId, Index, ProviderId
from berth.model.placement import Inventory
from berth.model.rejections import CapacityExceeded, ProviderExists, Rejection
from berth.runtime.ids import Ids
from berth.view import View

ORIGIN = Origin("req-1", None, None, "test")


# -- the world around an engine -----------------------------------------------------------------------


class SteppingClock:
    """A clock that a test never has to wait for."""

    def __init__(self) -> None:
        self._now_ns = 1_000_000_000

    def now_ns(self) -> int:
        self._now_ns += 1_000_000
        return self._now_ns

    def pass_s(self, seconds: float) -> None:
        self._now_ns += int(seconds * 1e9)

    def monotonic_ns(self) -> int:
        return self._now_ns


class NotingObserver:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[tuple[Index, int]] = []
        self.rejections: Counter[str] = Counter()
        self.conflicts = 0
        self.noticed_as: list[bool] = []

    def appended(self, index: Index, commands: int, seconds: float) -> None:
        self.batches.append((index, commands))

    def queued(self, depth: int) -> None:
        assert depth >= 0

    def rejected(self, kind: str) -> None:
        self.rejections[kind] += 1

    def conflicted(self) -> None:
        self.conflicts += 1

    def noticed(self, is_there: bool) -> None:
        self.noticed_as.append(is_there)


class TroubledJournal(Journal):
    """A journal that does to appends and reads what it is told to, then what the real one does."""

    def __init__(self, real: Journal) -> None:
        self.real = real
        self.before_append: deque[Callable[[Batch], None]] = deque()
        self.after_append: deque[Callable[[Batch], None]] = deque()
        self.before_read: deque[Callable[[], None]] = deque()
        self.appending = threading.Event()
        self.released = threading.Event()
        self.released.set()

    def hold(self) -> None:
        """Let no append go on until ``release``."""
        self.appending.clear()
        self.released.clear()

    def release(self) -> None:
        self.released.set()

    def append(self, batch: Batch) -> JournalRow:
        self.appending.set()
        assert self.released.wait(10), "an append was held and never released"
        if self.before_append:
            self.before_append.popleft()(batch)
        row = self.real.append(batch)
        if self.after_append:
            self.after_append.popleft()(batch)
        return row

    def read(self, after: Index, count_max: int | None = None) -> Iterator[Batch]:
        if self.before_read:
            self.before_read.popleft()()
        return self.real.read(after, count_max)

    def read_some(self, after: Index) -> tuple[list[Batch], bool]:
        if self.before_read:
            self.before_read.popleft()()
        return self.real.read_some(after)

    def execute(self, statement: Any, parameters: dict[str, Any] | None = None) -> Any:
        return self.real.execute(statement, parameters)

    def tail(self) -> Index:
        return self.real.tail()

    def missing(self) -> str | None:
        return self.real.missing()

    def close(self) -> None:
        self.real.close()


def fail(_: Batch | None = None) -> None:
    raise JournalFailure("the cable is out")


def fine(_: Batch | None = None) -> None:
    pass


class EngineWorld:
    """An engine, its troubled journal and its observer."""

    def __init__(self, path: Path, *, shared: bool = False, seed: int = 0, **options: Any) -> None:
        self.path = path
        self.journal = TroubledJournal(open_journal(SqliteAddress(path), shared=shared))
        self.observer = NotingObserver()
        # Without patience: what fails is refused at once, where a test does not ask for more.
        options.setdefault("outage_seconds", 0)
        self.clock = SteppingClock()
        self.engine = Engine(self.journal, self.clock, Ids(seed), self.observer, shared=shared, **options)

    def submit(self, command: Command) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.engine.submit(command, ORIGIN, saw))

    def ready(self) -> str | None:
        return self.engine.ready

    async def names(self) -> set[str]:
        return await self.engine.read(lambda view: set(view.names))

    async def append_begun(self) -> None:
        assert await asyncio.to_thread(self.journal.appending.wait, 5), "no append began"


@asynccontextmanager
async def running(
    path: Path, *, shared: bool = False, seed: int = 0, **options: float
) -> AsyncIterator[EngineWorld]:
    world = EngineWorld(path, shared=shared, seed=seed, **options)
    await world.engine.start()
    try:
        yield world
    finally:
        world.journal.release()
        await world.engine.stop()


def saw(view: View, changed: bool) -> frozenset[str]:
    """The answer to every command here: the names there are right after it."""
    return frozenset(view.names)


def create(number: int) -> CreateProvider:
    return CreateProvider(ProviderId(f"00000000-0000-0000-0000-{number:012}"), f"host-{number}")


def batches_in(path: Path) -> list[Batch]:
    """The journal, as another process would read it. Fails on a gap."""
    journal = open_journal(SqliteAddress(path), shared=True)
    try:
        return list(journal.read(Index(0)))
    finally:
        journal.close()


def events_in(path: Path) -> list[Event]:
    return [event for batch in batches_in(path) for entry in batch.entries for event in entry.events]


def created_in(path: Path) -> Counter[str]:
    """How often each provider was created according to the journal."""
    return Counter(
        event.after.name
        for event in events_in(path)
        if isinstance(event, ProviderChanged) and event.before is None and event.after is not None
    )


def replayed(path: Path) -> View:
    journal = open_journal(SqliteAddress(path), shared=True)
    try:
        view = View()
        replay(journal, view)
        return view
    finally:
        journal.close()


# -- the start ----------------------------------------------------------------------------------------


async def test_a_read_before_the_start_is_refused(tmp_path: Path) -> None:
    """It was answered from an empty view."""
    world = EngineWorld(tmp_path / "berth.db")
    try:
        with pytest.raises(Unavailable, match="reading the journal"):
            await world.names()
    finally:
        await world.engine.stop()


# -- group commit -------------------------------------------------------------------------------------


async def test_commands_that_arrive_together_are_one_batch(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        await asyncio.gather(*(world.submit(create(n)) for n in range(20)))
    assert [len(batch.entries) for batch in batches_in(tmp_path / "db")] == [20]


async def test_commands_that_arrive_during_an_append_are_the_next_batch(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.hold()
        first = world.submit(create(0))
        await world.append_begun()
        others = [world.submit(create(n)) for n in range(1, 11)]
        await wait_all_tasks_blocked()
        world.journal.release()
        await asyncio.gather(first, *others)
    assert [len(batch.entries) for batch in batches_in(tmp_path / "db")] == [1, 10]
    assert world.observer.batches == [(1, 1), (2, 10)]


async def test_a_batch_takes_no_more_commands_than_it_may(tmp_path: Path) -> None:
    async with running(tmp_path / "db", batch_commands_max=4) as world:
        await asyncio.gather(*(world.submit(create(n)) for n in range(10)))
    assert [len(batch.entries) for batch in batches_in(tmp_path / "db")] == [4, 4, 2]


async def test_commands_of_one_batch_see_each_other_in_order(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        first, again, second = await asyncio.gather(
            world.submit(create(0)), world.submit(create(0)), world.submit(create(1))
        )
    assert first == {"host-0"}
    assert isinstance(again, ProviderExists)
    assert second == {"host-0", "host-1"}
    (batch,) = batches_in(tmp_path / "db")
    assert len(batch.entries) == 2, "a refused command leaves no entry"


async def test_what_changes_nothing_appends_nothing(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        await world.submit(create(0))
        assert isinstance(await world.submit(create(0)), ProviderExists)
    assert len(batches_in(tmp_path / "db")) == 1


# -- nothing is answered before it is durable -----------------------------------------------------------


async def test_neither_writer_nor_reader_is_answered_before_the_append_is_done(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.hold()
        write = world.submit(create(0))
        await world.append_begun()
        read = asyncio.ensure_future(world.names())
        await wait_all_tasks_blocked()
        assert not write.done()
        assert not read.done()
        world.journal.release()
        assert await write == {"host-0"}
        assert await read == {"host-0"}


async def test_a_reader_never_sees_what_did_not_get_in(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.hold()
        world.journal.before_append.append(fail)
        write = world.submit(create(0))
        await world.append_begun()
        read = asyncio.ensure_future(world.names())
        await wait_all_tasks_blocked()
        assert not read.done()
        world.journal.release()
        with pytest.raises(Unavailable):
            await write
        assert await read == set()
        assert await world.submit(create(0)) == {"host-0"}
    assert created_in(tmp_path / "db") == {"host-0": 1}


async def test_a_read_without_an_append_in_flight_does_not_wait(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.hold()
        assert await world.names() == set()


# -- failures of unknown outcome --------------------------------------------------------------------------


async def test_a_batch_that_got_in_though_its_append_failed_is_acknowledged(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.hold()
        world.journal.after_append.append(fail)
        write = world.submit(create(0))
        await world.append_begun()
        read = asyncio.ensure_future(world.names())
        await wait_all_tasks_blocked()
        world.journal.release()
        assert await write == {"host-0"}
        assert await read == {"host-0"}
        assert await world.names() == {"host-0"}
        assert world.ready() is None
        await world.submit(create(1))
        state = world.engine.view.state()
    assert state == replayed(tmp_path / "db").state()
    assert created_in(tmp_path / "db") == {"host-0": 1, "host-1": 1}


async def test_a_batch_that_did_not_get_in_is_refused_whole(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.before_append.append(fail)
        answers = await asyncio.gather(*(world.submit(create(n)) for n in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unavailable] * 3
        assert await world.names() == set()
        await world.submit(create(1))
    assert created_in(tmp_path / "db") == {"host-1": 1}


async def test_while_the_journal_cannot_be_read_nobody_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        await world.submit(create(0))
        # The append gets in, but neither its answer nor four attempts to look get back.
        world.journal.after_append.append(fail)
        world.journal.before_read.extend([fail] * 4)
        with pytest.raises(Unavailable):
            await world.submit(create(1))
        assert world.ready() is not None
        with pytest.raises(Unavailable):
            await world.names()
        with pytest.raises(Unavailable):
            await world.names()
        with pytest.raises(Unavailable):
            await world.submit(create(2))
        # Now it can be read again, and what was in doubt turns out to have happened.
        assert await world.names() == {"host-0", "host-1"}
        assert world.ready() is None
        assert isinstance(await world.submit(create(1)), ProviderExists)
        assert await world.submit(create(2)) == {"host-0", "host-1", "host-2"}
    assert created_in(tmp_path / "db") == {"host-0": 1, "host-1": 1, "host-2": 1}


async def test_a_write_too_finds_out_what_was_in_doubt(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.after_append.append(fail)
        world.journal.before_read.append(fail)
        with pytest.raises(Unavailable):
            await world.submit(create(0))
        assert isinstance(await world.submit(create(0)), ProviderExists)
        assert world.ready() is None
    assert created_in(tmp_path / "db") == {"host-0": 1}


# -- several writers ----------------------------------------------------------------------------------


async def test_two_engines_share_a_journal_without_overcommitting(tmp_path: Path) -> None:
    path, host = tmp_path / "db", create(0).id
    capacity = 50

    def claim(number: int) -> Command:
        consumer = ConsumerId(f"10000000-0000-0000-0000-{number:012}")
        return ReplaceAllocations((Claim(consumer, ((host, (("VCPU", 1),)),), "p", "u"),))

    async def claim_all(world: EngineWorld, numbers: range) -> list[Any]:
        answers = []
        for number in numbers:
            answers.append(world.submit(claim(number)))
            await asyncio.sleep(random.Random(number).random() * 0.002)
        return await asyncio.gather(*answers)

    async with (
        running(path, shared=True, seed=1) as one,
        running(path, shared=True, seed=2) as other,
    ):
        await one.submit(create(0))
        assert await other.names() == {"host-0"}
        await other.submit(SetInventories(host, 0, {"VCPU": Inventory(capacity)}))
        assert await one.names() == {"host-0"}
        by_one, by_other = await asyncio.gather(claim_all(one, range(40)), claim_all(other, range(40, 80)))
        states = [await world.engine.read(View.state) for world in (one, other)]
        assert states[0] == states[1] == replayed(path).state()
        assert one.engine.view.index == other.engine.view.index == len(batches_in(path))
    answers = [*by_one, *by_other]
    refused = [answer for answer in answers if isinstance(answer, Rejection)]
    assert all(isinstance(answer, CapacityExceeded) for answer in refused)
    assert len(answers) - len(refused) == capacity
    view = replayed(path)
    assert sum(view.providers[host].used.values()) == capacity == len(view.consumers)
    assert len({batch.id for batch in batches_in(path)}) == len(batches_in(path))


async def test_of_two_engines_that_want_the_same_name_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "db"
    async with (
        running(path, shared=True, seed=1) as one,
        running(path, shared=True, seed=2) as other,
    ):
        answers = await asyncio.gather(
            *(world.submit(create(n)) for n in range(30) for world in (one, other))
        )
    assert sum(isinstance(answer, ProviderExists) for answer in answers) == 30
    assert created_in(path) == {f"host-{n}": 1 for n in range(30)}


# -- proposals: functions that make a command out of the view of the moment -----------------------


def next_host(asked: list[int]) -> Callable[[View, int], CreateProvider]:
    """Proposes the first name that is free; ``asked`` notes each time it is asked."""

    def propose(view: View, now_s: int) -> CreateProvider:
        number = len(view.names)
        asked.append(number)
        return create(number)

    return propose


async def test_a_proposal_sees_the_view_that_it_is_judged_by(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        asked: list[int] = []
        proposed = [world.engine.submit(next_host(asked), ORIGIN, saw) for _ in range(5)]
        await asyncio.gather(*proposed)
        assert asked == [0, 1, 2, 3, 4]
    assert created_in(tmp_path / "db") == {f"host-{n}": 1 for n in range(5)}


async def test_a_proposal_with_nothing_to_do_is_answered_from_the_view_and_writes_nothing(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "db") as world:
        await world.submit(create(0))

        def propose(view: View, now_s: int) -> CreateProvider | None:
            return None if "host-0" in view.names else create(0)

        answered = await world.engine.submit(
            propose, ORIGIN, lambda view, changed: (set(view.names), changed)
        )
        assert answered == ({"host-0"}, False)
        assert not world.observer.rejections
        assert [commands for _, commands in world.observer.batches] == [1]


async def test_a_proposal_that_lost_the_race_is_asked_again_only_if_its_choice_is_taken(
    tmp_path: Path,
) -> None:
    """Otherwise one that takes long would lose every race against writers that do not."""
    path = tmp_path / "db"
    async with (
        running(path, shared=True, seed=1) as one,
        running(path, shared=True, seed=2) as other,
    ):
        for rival, times in ((create(77), 1), (create(2), 2)):
            asked: list[int] = []
            one.journal.hold()
            waiting = asyncio.ensure_future(one.engine.submit(next_host(asked), ORIGIN, saw))
            await one.append_begun()
            await other.submit(rival)
            one.journal.release()
            await waiting
            assert len(asked) == times
    assert created_in(path) == {"host-0": 1, "host-77": 1, "host-2": 1, "host-3": 1}


async def test_commands_that_take_long_do_not_hold_up_a_whole_batch(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.hold()
        first = world.submit(create(100))
        await world.append_begun()

        def slow(number: int) -> Callable[[View, int], CreateProvider]:
            def propose(view: View, now_s: int) -> CreateProvider:
                world.clock.pass_s(0.012)
                return create(number)

            return propose

        proposed = [world.engine.submit(slow(n), ORIGIN, saw) for n in range(6)]
        pending = asyncio.gather(first, *proposed)
        await wait_all_tasks_blocked()
        world.journal.release()
        await pending
        # Two of them pass the limit of a batch.
        assert [commands for _, commands in world.observer.batches] == [1, 2, 2, 2]
    assert created_in(tmp_path / "db") == {"host-100": 1, **{f"host-{n}": 1 for n in range(6)}}


async def test_a_shared_read_sees_what_another_process_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "db"
    async with (
        running(path, shared=True, seed=1) as one,
        running(path, shared=True, seed=2) as other,
    ):
        for number in range(10):
            await one.submit(create(number))
            assert len(await other.names()) == number + 1


async def test_a_refusal_is_as_fresh_as_a_read(tmp_path: Path) -> None:
    """A refusal appends nothing, so no conflict tells that it was decided on an old view."""
    path = tmp_path / "db"
    async with (
        running(path, shared=True, seed=1) as one,
        running(path, shared=True, seed=2) as other,
    ):
        await one.submit(create(0))
        inventory = SetInventories(create(0).id, 0, {"VCPU": Inventory(1)})
        assert not isinstance(await other.submit(inventory), Rejection)


async def test_after_a_conflict_the_batch_is_decided_anew(tmp_path: Path) -> None:
    """Another writer takes the index, and with it the name that this one was about to take."""
    path = tmp_path / "db"
    async with running(path, shared=True) as world:
        world.journal.before_append.append(lambda batch: intrude(world.journal.real, batch, create(0)))
        first, second = await asyncio.gather(world.submit(create(0)), world.submit(create(1)))
        assert isinstance(first, ProviderExists)
        assert second == {"host-0", "host-1"}
        assert world.engine.view.state() == replayed(path).state()
        # The index that was lost is not counted as an append of ours.
        assert world.observer.batches == [(2, 2)]
    assert created_in(path) == {"host-0": 1, "host-1": 1}


async def test_a_reader_of_a_batch_that_lost_the_race_looks_again(tmp_path: Path) -> None:
    path = tmp_path / "db"
    async with running(path) as world:
        world.journal.hold()
        world.journal.before_append.append(lambda batch: intrude(world.journal.real, batch, create(9)))
        write = world.submit(create(0))
        await world.append_begun()
        read = asyncio.ensure_future(world.names())
        await wait_all_tasks_blocked()
        world.journal.release()
        assert await write == {"host-0", "host-9"}
        # Either what was before the batch was decided anew or what was after it: never without host-9.
        assert (await read) >= {"host-9"}


def intrude(journal: Journal, batch: Batch, command: Command) -> None:
    """Be the other writer: carry a command out and append it at the index of the batch."""
    view = View()
    replay(journal, view)
    verdict = decide(view, command, 1)
    if isinstance(verdict, list) and verdict:
        entry = Entry(ORIGIN, tuple(verdict))
        journal.append(Batch(batch.index, f"intruder-{batch.index}", 1, (entry,)))


# -- bounds, life and bugs ------------------------------------------------------------------------------


async def test_a_full_queue_refuses_at_once(tmp_path: Path) -> None:
    async with running(tmp_path / "db", queue_commands_max=2) as world:
        world.journal.hold()
        taken = [world.submit(create(0))]
        await world.append_begun()
        taken += [world.submit(create(1)), world.submit(create(2))]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await world.submit(create(3))
        world.journal.release()
        await asyncio.gather(*taken)
        assert await world.submit(create(3)) == {f"host-{n}" for n in range(4)}


async def test_stopping_finishes_what_was_taken_and_takes_no_more(tmp_path: Path) -> None:
    world = EngineWorld(tmp_path / "db", batch_commands_max=2)
    await world.engine.start()
    world.journal.hold()
    taken = [world.submit(create(n)) for n in range(5)]
    await world.append_begun()
    stopping = asyncio.ensure_future(world.engine.stop())
    await wait_all_tasks_blocked()
    with pytest.raises(Unavailable):
        await world.submit(create(9))
    assert world.ready() is not None
    world.journal.release()
    await stopping
    assert all(answer >= {"host-0"} for answer in await asyncio.gather(*taken))
    assert created_in(tmp_path / "db") == {f"host-{n}": 1 for n in range(5)}


async def test_an_engine_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    async with running(tmp_path / "db", seed=0) as world:
        await world.submit(create(0))
    async with running(tmp_path / "db", seed=1) as world:
        assert await world.submit(create(1)) == {"host-0", "host-1"}


async def test_before_it_is_started_it_takes_nothing(tmp_path: Path) -> None:
    world = EngineWorld(tmp_path / "db")
    assert world.ready() is not None
    with pytest.raises(Unavailable):
        await world.submit(create(0))
    await world.engine.start()
    assert world.ready() is None
    await world.engine.stop()


async def test_a_command_whose_caller_is_gone_is_carried_out_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path / "db") as world:
        world.journal.hold()
        in_flight = asyncio.ensure_future(world.submit(create(0)))
        await world.append_begun()
        queued = asyncio.ensure_future(world.submit(create(1)))
        read = asyncio.ensure_future(world.names())
        await asyncio.sleep(0)
        for task in (in_flight, queued, read):
            task.cancel()
        world.journal.release()
        assert await world.submit(create(2)) == {"host-0", "host-1", "host-2"}
        gone = await asyncio.gather(in_flight, queued, read, return_exceptions=True)
        assert [type(answer) for answer in gone] == [asyncio.CancelledError] * 3
    assert created_in(tmp_path / "db") == {"host-0": 1, "host-1": 1, "host-2": 1}


async def test_a_bug_in_an_answer_concerns_its_caller_alone(tmp_path: Path) -> None:
    def fail_to_answer(view: View, changed: bool) -> None:
        raise ZeroDivisionError

    async with running(tmp_path / "db") as world:
        bad = asyncio.ensure_future(world.engine.submit(create(0), ORIGIN, fail_to_answer))
        good = world.submit(create(1))
        with pytest.raises(ZeroDivisionError):
            await bad
        assert await good == {"host-0", "host-1"}
        with pytest.raises(ZeroDivisionError):
            await world.engine.read(lambda view: 1 // 0)
        assert await world.names() == {"host-0", "host-1"}
    assert created_in(tmp_path / "db") == {"host-0": 1, "host-1": 1}


async def test_a_bug_in_applying_stops_the_writer_and_refuses_everyone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "db", batch_commands_max=2) as world:
        await world.submit(create(0))
        break_apply(world, monkeypatch, "host-2")
        answers = await asyncio.gather(
            *(world.submit(create(n)) for n in range(1, 6)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [Unavailable] * 5
        with pytest.raises(Unavailable):
            await world.submit(create(9))
        with pytest.raises(Unavailable):
            await world.names()
        assert "Restart this server" in (world.ready() or "")
    assert created_in(tmp_path / "db") == {"host-0": 1}


async def test_a_look_that_was_waiting_when_a_bug_stopped_the_writer_does_not_bring_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view is half changed, and reading the journal does not repair it."""
    async with running(tmp_path / "db", shared=True) as world:
        world.journal.hold()
        world.journal.before_append.append(lambda batch: intrude(world.journal.real, batch, create(7)))
        write = world.submit(create(0))
        await world.append_begun()
        # The append loses its race, and when it is decided anew the bug strikes.
        break_apply(world, monkeypatch, "host-0")
        read = asyncio.ensure_future(world.names())
        await wait_all_tasks_blocked()
        world.journal.release()
        with pytest.raises(Unavailable):
            await write
        with pytest.raises(Unavailable):
            await read
        with pytest.raises(Unavailable):
            await world.names()
        assert "Restart this server" in (world.ready() or "")


async def test_a_bug_in_applying_what_others_wrote_stops_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the view as half changed as one in applying what this process decided."""
    path = tmp_path / "db"
    async with (
        running(path, shared=True, seed=1) as one,
        running(path, shared=True, seed=2) as other,
    ):
        await other.submit(create(1))
        break_apply(one, monkeypatch, "host-1")
        with pytest.raises((Unavailable, AssertionError)):
            await one.names()
        monkeypatch.undo()
        with pytest.raises(Unavailable):
            await one.names()
        with pytest.raises(Unavailable):
            await one.submit(create(2))


def break_apply(world: EngineWorld, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the view fail at the creation of this provider, halfway: the event itself is applied."""
    apply = world.engine.view.apply

    def broken(event: Event) -> None:
        apply(event)
        if isinstance(event, ProviderChanged) and event.after is not None and event.after.name == name:
            raise AssertionError("an invariant does not hold")

    monkeypatch.setattr(world.engine.view, "apply", broken)


# -- everything at once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_happens_the_acknowledged_is_in_once_and_the_refused_is_not(
    tmp_path: Path, seed: int
) -> None:
    """Bursts of commands and reads while appends fail before, fail after, and lose races."""
    rng = random.Random(seed)
    path = tmp_path / "db"

    async def one_read(world: EngineWorld, acknowledged: set[str]) -> None:
        known = set(acknowledged)
        seen = await world.names()
        assert known <= seen, f"seed {seed}: an acknowledged write is not seen by a later read"

    async def one_write(world: EngineWorld, number: int, acknowledged: set[str], refused: set[str]) -> None:
        try:
            answer = await world.submit(create(number))
        except Unavailable:
            refused.add(f"host-{number}")
        else:
            assert isinstance(answer, ProviderExists) or f"host-{number}" in answer
            acknowledged.add(f"host-{number}")

    acknowledged: set[str] = set()
    refused: set[str] = set()
    async with running(path, shared=rng.random() < 0.7, seed=seed, batch_commands_max=5) as world:
        strangers = iter(range(1000, 2000))

        def lose(batch: Batch) -> None:
            intrude(world.journal.real, batch, create(next(strangers)))

        fates_before: list[Callable[[Batch], None]] = [fine, fine, fail, lose, lose]
        fates_after: list[Callable[[Batch], None]] = [fine, fine, fail]
        bursts: list[Awaitable[list[None]]] = []
        number = 0
        for _ in range(25):
            world.journal.before_append.append(rng.choice(fates_before))
            world.journal.after_append.append(rng.choice(fates_after))
            tasks = []
            for _ in range(rng.randint(0, 8)):
                tasks.append(one_write(world, number, acknowledged, refused))
                number += 1
            for _ in range(rng.randint(0, 3)):
                tasks.append(one_read(world, acknowledged))
            rng.shuffle(tasks)
            bursts.append(asyncio.gather(*tasks))
            # Sometimes the next burst begins while this one is still on its way.
            if rng.random() < 0.6:
                await asyncio.gather(*bursts)
            else:
                await asyncio.sleep(rng.random() * 0.003)
        await asyncio.gather(*bursts)
        state = await world.engine.read(View.state)
    assert state == replayed(path).state()
    created = created_in(path)
    assert set(created.values()) <= {1}, f"seed {seed}: something is in the journal twice"
    assert acknowledged <= set(created), f"seed {seed}: an acknowledged command is not in the journal"
    assert not refused & set(created), f"seed {seed}: a refused command is in the journal"


def test_a_conflict_is_not_a_failure() -> None:
    assert not issubclass(Conflict, JournalFailure)

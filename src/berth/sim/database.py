"""A database in memory that fails like a real one, and the journals in it.

The journals are real ones, over SQLite in memory: the key, the chain of checksums, snapshots and pruning are
those of production. What fails is the way to the database, which production's thread stands for:

* a call takes its time, now and then much of it;
* ``unknown``: an append fails, and is in or not;
* ``refused``: the database writes nothing for a while;
* ``away``: it answers nothing for a while;
* ``row_bytes_max``: it takes no row that is larger;
* ``hangs``: one call is carried out, but long after its caller has given up;
* ``unsent``: its caller dies before it leaves;
* a standby takes over, and all connections are lost: one that is in sync, or one that lacks the last rows,
  until the primary is back.

A process that dies while a call is on its way has made it, or has not.

No read may be stale: each looks for the journal's end first, and on databases with several hosts that look
is a causal one. So a host that lacks rows must be refused by everybody who has seen them. Whoever has not
seen them cannot tell, and would go on without them: that is what operators ask for when they restart all
servers on such a host. Here they do not, and keep such processes away from it.
"""

import asyncio
import contextlib
import functools
import itertools
import sqlite3
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeVar

import sqlalchemy as sa

from berth.engine.journal_thread import NoAnswer
from berth.journal import Journal, JournalFailure, JournalRow, NotWritten, RowRefused
from berth.journal.database import Dialect
from berth.journal.sqlite import meaning_of
from berth.model.events import Batch
from berth.model.ids import Index
from berth.sim.world import Process, World

T = TypeVar("T")

Trouble = Literal["unknown in", "unknown out", "hangs", "unsent"]
TROUBLES: Final[tuple[Trouble, ...]] = ("unknown in", "unknown out", "hangs")

_Settle = Callable[[Any], None]

_names = itertools.count(1)


@functools.cache
def _sqlite() -> sa.Engine:
    """What all journals have in common: to make it anew, and to compile the same statements for each, would
    take longer than what most of them do with it."""
    engine = sa.create_engine("sqlite://", execution_options={"compiled_cache": {}})
    engine.connect().close()
    return engine


def _make_dialect(connect: Callable[[], sqlite3.Connection]) -> Dialect:
    sqlite = _sqlite()
    pool = sa.pool.StaticPool(connect, dialect=sqlite.dialect)  # type: ignore[arg-type]
    engine = sa.Engine(pool, sqlite.dialect, sqlite.url, execution_options=sqlite.get_execution_options())
    return Dialect(engine, meaning_of)


class Condition(NamedTuple):
    """``troubles``: how likely one call goes wrong. ``delay_s``: the longest that one takes otherwise."""

    troubles: float = 0.0
    delay_s: float = 0.003


class Database:
    """``decide`` may choose what goes wrong with a call, in place of luck. ``appended`` is told of every row
    that has got in, by whom, and what it says as it lies there."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.rng = world.rng(f"database {name}")
        self.condition = Condition()
        self.is_away = False
        self.refuses = False
        self.row_bytes_max: int | None = None
        self.appended: list[Callable[[Process, JournalRow, Batch], None]] = []
        self.decide: Callable[[Process, str, tuple[Any, ...]], Trouble | None] | None = None
        self.happened: dict[str, int] = {}
        self.decoded: dict[bytes, Batch] = {}
        """Rows that somebody has read, by their content: they are decoded once for all processes."""
        self.host = _make_empty().copy()
        """The one in charge."""
        self.written = 0
        """How many rows have got in."""
        self.changes = 0
        """How often anything was changed in it, or another host has taken over."""
        self.busy_until_s = 0.0
        """When all calls that were made so far have been carried out."""
        self._is_written = asyncio.Event()
        self._opened: list[SimJournal] = []
        # While a standby that lacks rows has taken over: the primary, and the last row that the standby has.
        self._primary: _Host | None = None
        self._last_kept = 0

    def clear(self) -> None:
        """Begin with nothing in it, for somebody who may change the tables too."""
        self.host.kept.close()
        self.host = _make_empty().copy()
        self.host.is_prepared = False
        self.changes += 1

    def connect(self) -> sqlite3.Connection:
        """A connection of its own, which never fails."""
        return self.host.connect()

    def open_aside(self) -> Journal:
        """A way into the journal that never fails, and of which nothing is told."""
        return Journal(_make_dialect(self.connect))

    def open(self, process: Process) -> "SimJournal":
        """A process's way into the journal."""
        way = _WayToHost(self)
        journal = SimJournal(_make_dialect(way.connect), self, process, way)
        journal.prepare()
        self._opened.append(journal)
        return journal

    async def wait_beyond(self, written: int, within_s: float) -> None:
        """Return when more rows than that have got in, or after ``within_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.written <= written:
                    self._is_written.clear()
                    await self._is_written.wait()

    def note_written(self) -> None:
        self.written += 1
        self._is_written.set()

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.condition = Condition()
        self.is_away = self.refuses = False
        self.fail_back()

    # -- hosts ----------------------------------------------------------------------------------

    @property
    def is_lagging(self) -> bool:
        """Whether the host in charge lacks rows."""
        return self._primary is not None

    def fail_over(self, lacking: int = 0) -> None:
        """Have a standby take over. It has all that the primary has, but for the last ``lacking`` rows: then
        the primary will be back."""
        if self.is_lagging:
            return
        standby = self.host.copy()
        last = standby.kept.execute("SELECT coalesce(max(idx), 0) FROM journal").fetchone()[0]
        self.world.trace.note(self.name, f"a standby takes over, with all rows but the last {lacking}")
        if lacking:
            self._primary, self._last_kept = self.host, last - lacking
            for table in ("journal", "snapshot", "snapshot_part"):
                standby.kept.execute(f"DELETE FROM {table} WHERE idx > ?", (self._last_kept,))
        else:
            self.host.kept.close()
        self.host = standby
        self.changes += 1

    def fail_back(self) -> None:
        """The primary is back, if a standby that lacks rows has taken over."""
        if self._primary is not None:
            self.world.trace.note(self.name, "the primary is back")
            self.host.kept.close()
            self.host, self._primary = self._primary, None
            self.changes += 1

    def is_fenced(self, seen: int) -> bool:
        """Whether a process that has seen so much is kept away from the host in charge."""
        return self.is_lagging and seen <= self._last_kept

    def close(self) -> None:
        """Close everything, the journals of the dead too: SQLAlchemy keeps a pool for as long as one of its
        connections is in use, and with it all that the pool leads to."""
        for journal in self._opened:
            journal.close()
        for host in (self.host, self._primary):
            if host is not None:
                host.kept.close()


class _Host:
    """What holds the rows. In memory they last for as long as somebody has them open. ``is_prepared``: a
    process of this release has found or made its tables there."""

    def __init__(self) -> None:
        self._uri = f"file:sim{next(_names)}?mode=memory&cache=shared"
        self.kept = self.connect()
        self.is_prepared = False

    def copy(self) -> "_Host":
        """Another with the same in it."""
        copy = _Host()
        self.kept.backup(copy.kept)
        copy.is_prepared = self.is_prepared
        return copy

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._uri, uri=True, isolation_level=None, check_same_thread=False)


@functools.cache
def _make_empty() -> _Host:
    """One with the tables and nothing in them. To make them takes longer than to copy them."""
    host = _Host()
    journal = Journal(_make_dialect(host.connect))
    journal.prepare()
    journal.close()
    host.is_prepared = True
    return host


class _WayToHost:
    """The connection of a journal: it leads to one host, and is lost when another has taken over."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._host: _Host | None = None

    def connect(self) -> sqlite3.Connection:
        self._host = self._database.host
        return self._host.connect()

    def check(self) -> None:
        if self._host is not self._database.host:
            raise sqlite3.OperationalError("the connection was lost: another host has taken over")


class SimJournal(Journal):
    """A journal that tells its database who has written what. ``fails_after``: its connection is lost after
    so many statements."""

    def __init__(self, dialect: Dialect, database: Database, process: Process, way: _WayToHost) -> None:
        super().__init__(dialect)
        self._database = database
        self._process = process
        self._way = way
        self.fails_after: int | None = None
        # Behind which index there was nothing, and how much had changed in the database by then.
        self._nothing_behind: tuple[int, int] | None = None

    def prepare(self) -> None:
        """Look at the tables once for all processes, which are of one release: it takes SQLAlchemy long."""
        host = self._database.host
        if host.is_prepared:
            self._do(lambda connection: None, writes=True)
        else:
            super().prepare()
            host.is_prepared = True

    def read_some(self, after: Index) -> tuple[list[Batch], bool]:
        """Nothing is asked again of a database in which nothing has changed since there was nothing."""
        asked = (after, self._database.changes)
        if self.fails_after is None and self._nothing_behind == asked:
            return [], True
        batches, is_all = super().read_some(after)
        self._nothing_behind = None if batches else asked
        return batches, is_all

    def _do(self, work: Callable[[sa.Connection], Any], *, writes: bool) -> Any:
        if self._database.is_fenced(self._seen[0] if self._seen is not None else 0):
            raise JournalFailure("operators keep this process away from a standby that lacks rows")
        if self.fails_after is not None:
            if not self.fails_after:
                raise JournalFailure("the connection to the database was lost")
            self.fails_after -= 1

        self._database.changes += writes

        def on_its_way(connection: sa.Connection) -> Any:
            self._way.check()
            return work(connection)

        return super()._do(on_its_way, writes=writes)

    def _batch_of(self, row: JournalRow) -> Batch:
        decoded = self._database.decoded
        known = decoded.get(row.body)
        if known is None or known.format > self.program.format:
            known = decoded[row.body] = super()._batch_of(row)
        return Batch(row.index, row.batch_id, row.at_ns, known.entries, format=known.format)

    def append(self, batch: Batch) -> JournalRow:
        database, process = self._database, self._process
        size = 0 if batch.body is None else len(batch.body)
        if database.row_bytes_max is not None and size > database.row_bytes_max:
            raise RowRefused(f"a row of {size} bytes is too large")
        row = super().append(batch)
        database.world.trace.note(process.name, f"writes {database.name} {row.index} {row.digest}")
        database.note_written()
        written = self._batch_of(row)
        for told in database.appended:
            told(process, row, written)
        return row


class SimCalls:
    """Carries the calls of one process out, in place of a thread."""

    def __init__(self, database: Database, process: Process, answer_s: float = 30) -> None:
        self._database = database
        self._process = process
        self._answer_s = answer_s
        # Calls that have not returned and that nobody waits for any more.
        self._late: set[asyncio.Future[Any]] = set()
        # When the calls made so far have been carried out: one after the other, as by a thread.
        self._free_s = 0.0

    @property
    def is_silent(self) -> bool:
        return bool(self._late)

    async def call(self, function: Callable[..., T], *arguments: Any, answer_s: float | None = None) -> T:
        if self._late:
            raise NoAnswer("the database does not answer")
        limit_s = answer_s or self._answer_s
        database, process = self._database, self._process
        writes = function.__name__ in ("append", "probe", "take_snapshot")
        trouble = None
        if database.decide is not None:
            trouble = database.decide(process, function.__name__, arguments)
        if trouble is None and database.rng.random() < database.condition.troubles:
            trouble = database.rng.choice(TROUBLES)
        if trouble is not None:
            database.happened[trouble] = database.happened.get(trouble, 0) + 1
            database.world.trace.note(process.name, f"{function.__name__} in {database.name}: {trouble}")
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            """The database's part, which does not end with the process."""
            if not process.is_alive and database.rng.random() < 0.5:
                return
            try:
                if database.is_away:
                    raise JournalFailure("the database is away")
                if trouble == "unknown out":
                    raise JournalFailure("the connection to the database was lost")
                if database.refuses and writes:
                    raise NotWritten("the database is read-only")
                result = function(*arguments)
                if trouble == "unknown in":
                    raise JournalFailure("the connection to the database was lost")
            except BaseException as error:
                settle(outcome.set_exception, error)
            else:
                settle(outcome.set_result, result)

        def settle(how: _Settle, value: Any) -> None:
            if not outcome.done():
                how(value)
            elif outcome in self._late:
                self._late.remove(outcome)

        if trouble == "unsent":
            await asyncio.Event().wait()
        delay_s = database.rng.uniform(0, database.condition.delay_s)
        if trouble == "hangs":
            delay_s += limit_s * database.rng.uniform(0.5, 2)
        now_s = database.world.loop.time()
        self._free_s = max(self._free_s, now_s) + delay_s
        database.busy_until_s = max(database.busy_until_s, self._free_s)
        database.world.call_later(self._free_s - now_s, carry_out)
        if self._free_s - now_s <= limit_s:
            return await outcome
        await asyncio.sleep(limit_s)
        if outcome.done():
            # The process was frozen meanwhile.
            return outcome.result()
        self._late.add(outcome)
        outcome.cancel()
        raise NoAnswer(f"the database has not answered for {limit_s:g} s")

    def stop(self) -> None: ...

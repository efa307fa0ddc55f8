"""Work on a copy of this process: what takes long is done where nobody else waits for it.

A fork is a copy of the view as it is at that moment, for the price of its page tables: 1.3 ms with 10,000
hosts, 15 ms for a process of 1 GB. The child computes one result, writes it into a pipe and ends:

    waiting for a place --> running --> result, or the exception it ended with
             \\                  \\--> killed: at the deadline, or when nobody waits for it any more
              \\--> refused: too many wait already, or no place came free in time

The child uses memory and its pipe, and nothing else. This process has threads (the journal's), so a lock may
be held for ever in the child: it does not log, does not touch the loop, opens nothing. It begins by closing
the sockets and files that it has inherited, so that no connection stays open because of it, and it dies with
its parent. Nothing comes out of it but the result: whatever else it changes is lost.

Decision record 017 has the alternatives.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import gc
import io
import logging
import os
import pickle
import signal
import sys
import warnings
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec

from berth.runtime.ids import Ids

AT_ONCE_MAX: Final = 2
"""How many children run at once. They are for a machine's second core; more would wait for each other."""

OF_ONE_PROJECT_MAX: Final = 1
WAITING_MAX: Final = 64
WAITING_OF_ONE_PROJECT_MAX: Final = 16
SECONDS_MAX: Final = 30.0
"""How long a child may run, and how long a caller waits for a place."""

_NICENESS: Final = 5
"""Requests that are answered at once come first."""

PIECE_MAX: Final = 100
"""How many items of a long tuple are unpickled at once: a millisecond or two."""

_READ_BYTES: Final = 1 << 20
_FILES_MAX: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What is sent to a whole process group. The parent says when its children end."""

_log = logging.getLogger(__name__)
_libc: Final = ctypes.CDLL(None) if sys.platform == "linux" else None

T = TypeVar("T")


class NoPlace(Exception):
    """Too many are waiting for a child already, or none came free in time."""


class GaveUp(Exception):
    """The work took longer than it may, or its process ended without a result."""


class Forks:
    """Starts children, a few at a time and fewer for one project, and ends them."""

    def __init__(self, ids: Ids, seconds_max: float = SECONDS_MAX) -> None:
        self._ids = ids
        self._seconds_max = seconds_max
        self._running: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._children: set[Child[Any]] = set()

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [child.pid for child in self._children]

    @contextlib.asynccontextmanager
    async def place(self, project: str) -> AsyncIterator[None]:
        """Wait until a child may be started for a project, and keep the place while it runs."""
        await self._wait_for_place(project)
        try:
            yield
        finally:
            self._leave(project)

    def start(self, work: Callable[[], T]) -> "Child[T]":
        """Have work done in a copy of this process as it is now, by who has a place."""
        child = Child(work, self._ids, self._seconds_max, self._children.discard)
        self._children.add(child)
        return child

    def stop(self) -> None:
        """End all children now."""
        for child in list(self._children):
            child.kill()
            child.reap()

    async def _wait_for_place(self, project: str) -> None:
        of_project = sum(waiting == project for waiting, _ in self._waiting)
        if len(self._waiting) >= WAITING_MAX or of_project >= WAITING_OF_ONE_PROJECT_MAX:
            raise NoPlace(
                f"{of_project} long requests of this project and {len(self._waiting)} in all are queued"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((project, turn))
        self._admit()
        try:
            async with asyncio.timeout(self._seconds_max):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave(project)
            else:
                self._waiting.remove((project, turn))
                self._admit()
            if isinstance(error, TimeoutError):
                raise NoPlace(f"timeout: no slot was free within {self._seconds_max:g} s") from None
            raise

    def _leave(self, project: str) -> None:
        # Subtracting keeps only what is above zero: projects that have no child are not remembered.
        self._running -= Counter((project,))
        self._admit()

    def _admit(self) -> None:
        """Let in who waits, in order, but none whose project has its share."""
        for entry in list(self._waiting):
            project, turn = entry
            if self._running.total() >= AT_ONCE_MAX:
                return
            if self._running[project] < OF_ONE_PROJECT_MAX and not turn.done():
                self._waiting.remove(entry)
                self._running[project] += 1
                turn.set_result(None)


class Child(Generic[T]):
    """One forked process, and what it writes until it has ended."""

    def __init__(
        self, work: Callable[[], T], ids: Ids, seconds_max: float, on_end: Callable[["Child[T]"], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds_max = seconds_max
        self._on_end = on_end
        self._written: list[bytes] = []
        self._ended = asyncio.Event()
        try:
            self.pid, self._reading = _start(work, ids, seconds_max)
        except OSError as failure:
            # No memory, no process or no file descriptor is left: that may pass.
            _log.warning("cannot start a process for a long request: %s", failure)
            raise GaveUp("cannot start a process for it") from failure
        self._loop.add_reader(self._reading, self._read)

    async def result(self) -> T:
        """What the work has returned or raised. A caller that is cancelled meanwhile ends the process."""
        try:
            async with asyncio.timeout(self._seconds_max):
                await self._ended.wait()
        except TimeoutError:
            raise GaveUp(f"timeout: it took longer than {self._seconds_max:g} s") from None
        finally:
            self.kill()
        try:
            outcome = await _unpickled(b"".join(self._written))
        except (EOFError, pickle.UnpicklingError):
            raise GaveUp("its process ended without a result") from None
        if isinstance(outcome, _Raised):
            raise outcome.error
        result: T = outcome
        return result

    def kill(self) -> None:
        """End the process, if it runs. It is reaped when the pipe says that it is gone."""
        if not self._ended.is_set():
            os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for the process to be gone. Its pipe ends after its memory is freed, so that is at once."""
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        os.waitpid(self.pid, 0)
        self._ended.set()
        self._on_end(self)

    def _read(self) -> None:
        try:
            piece = os.read(self._reading, _READ_BYTES)
        except BlockingIOError:
            return
        if piece:
            self._written.append(piece)
        else:
            self.reap()


def _start(work: Callable[[], Any], ids: Ids, seconds_max: float) -> tuple[int, int]:
    """Fork a child that does the work: its process id, and the pipe that it writes to, to be read."""
    seed, parent = ids.seed_for_copy(), os.getpid()
    with contextlib.ExitStack() as on_failure:
        reading, writing = os.pipe()
        on_failure.callback(os.close, reading)
        # A signal that came between the fork and the child's own handlers would be told to this process.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            os.set_blocking(reading, False)
            pid = _fork()
            if pid == 0:
                _live(work, ids, seed, writing, parent, seconds_max)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(writing)
        on_failure.pop_all()
    return pid, reading


def _fork() -> int:
    with warnings.catch_warnings():
        # From Python 3.12 on a process with threads is warned of what the head of this file is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


async def _unpickled(content: bytes) -> Any:
    """What ``_pickled`` has made bytes of. Others have their turn between two pieces."""
    unpickler = pickle.Unpickler(io.BytesIO(content))
    for _ in range(unpickler.load()):
        unpickler.load()
        await asyncio.sleep(0)
    return unpickler.load()


# -- in the child -------------------------------------------------------------------------------


def _live(
    work: Callable[[], Any], ids: Ids, seed: int, writing: int, parent: int, seconds_max: float
) -> NoReturn:
    try:
        _keep_to_itself(writing, parent, seconds_max)
        ids.begin_anew(seed)
        try:
            outcome = work()
        except Exception as error:
            outcome = _Raised(error)
        _write_all(writing, _pickled(outcome))
    finally:
        os._exit(0)


def _keep_to_itself(writing: int, parent: int, seconds_max: float) -> None:
    """Leave the parent's signals, files and sockets alone, and end with it or at the deadline."""
    signal.set_wakeup_fd(-1)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # A second later than the parent, who says why it ends.
    signal.setitimer(signal.ITIMER_REAL, seconds_max + 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    os.closerange(0, writing)
    os.closerange(writing + 1, _FILES_MAX)
    os.nice(_NICENESS)
    # What was there before the fork is not for this process to collect: looking at it would copy it.
    gc.freeze()
    with contextlib.suppress(OSError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _READ_BYTES)


def _write_all(writing: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(writing, rest) :]


class _Raised:
    """What the work has ended with instead of a result."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Pickler(pickle.Pickler):
    """Exceptions keep their attributes: by default they are made again from what they were made of, which is
    not always what they take."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            return _exception, (type(value), value.args, value.__dict__)
        return NotImplemented


def _exception(kind: type[BaseException], arguments: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(fields)
    return error


def _pickled(outcome: Any) -> bytes:
    """The number of pieces, the pieces, and the outcome: it names what is in the pieces and does not repeat
    it, because a pickler remembers what it has written."""
    buffer = io.BytesIO()
    pieces = list(_pieces(outcome))
    pickler = _Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    try:
        for part in (len(pieces), *pieces, outcome):
            pickler.dump(part)
    except Exception as error:
        # A closure or a lock in the answer: a bug, which its caller is told.
        return _pickled(_Raised(RuntimeError(f"cannot encode the result: {error!r}")))
    return buffer.getvalue()


def _pieces(value: Any) -> Iterator[tuple[Any, ...]]:
    """The long tuples in a value, cut up: a command of a thousand servers has two of them."""
    if isinstance(value, tuple) and len(value) > PIECE_MAX:
        for start in range(0, len(value), PIECE_MAX):
            yield value[start : start + PIECE_MAX]
    elif isinstance(value, tuple):
        for item in value:
            yield from _pieces(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _pieces(getattr(value, name))

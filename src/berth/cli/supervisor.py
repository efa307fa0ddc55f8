"""The processes of ``berth up``: started, watched, restarted when they exit, and stopped in order.

    running --(ends by itself, or hangs and is killed)--> waiting --(after a pause)--> running ...
       |                                                          too often: the supervisor fails
       \\--(told to stop)--> stopping --(has ended, or was killed at the deadline)--> ended

A process that ends before all of them are up is not restarted: what is wrong then stays wrong. Each process
leads a session of its own, so that Ctrl-C in a terminal reaches the parent alone, which then stops them one
after the other; and each gets SIGTERM when the parent is gone, even if that was killed.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from berth.runtime.backoff import Backoff
from berth.serving import LOOK_S, Heartbeat, Watch, describe_exit

_PR_SET_PDEATHSIG: Final = 1
_STOP_WITHIN_S: Final = 15.0
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_LONGEST_S: Final = 8.0
_STEADY_S: Final = 60.0
"""After running this long, earlier exits are forgotten."""
_EXITS_MAX: Final = 6
_LOG_BYTES_MAX: Final = 16 << 20


class ChildProcess(msgspec.Struct, frozen=True, kw_only=True):
    """``words`` are its command line after ``berth``; ``log`` is the file of its output."""

    name: str
    words: tuple[str, ...]
    variables: dict[str, str]
    folder: Path
    log: Path


class ProcessFailed(Exception):
    """A process has ended and is not restarted. The message is for the operator."""


class Supervisor:
    """Keeps processes running, in the order in which they were started."""

    def __init__(self, say: Callable[[str], None], hung_after_s: float) -> None:
        self.is_up = False
        """Set once all are up: from then on a process that exits is restarted."""
        self._say = say
        self._hung_after_s = hung_after_s
        self._stages: list[list[tuple[ChildProcess, asyncio.Task[None]]]] = []
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_stopping = False

    def start(self, *children: ChildProcess) -> None:
        """Start processes that are also stopped together."""
        self._stages.append(
            [(child, asyncio.create_task(self._keep(child), name=child.name)) for child in children]
        )

    async def wait_for_failure(self) -> None:
        """Wait until a process has ended for good, and raise ProcessFailed."""
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """Stop all processes, the last started first."""
        self._is_stopping = True
        for stage in reversed(self._stages):
            await asyncio.gather(*(self._stop_one(child, task) for child, task in stage))
        # Retrieved, so that it is not logged as unhandled.
        if self._failed.done():
            self._failed.exception()

    async def _stop_one(self, child: ChildProcess, task: asyncio.Task[None]) -> None:
        process = self._processes.get(child.name)
        if process is None:
            task.cancel()
        elif not task.done():
            _send_signal(process, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), _STOP_WITHIN_S)
            if not task.done():
                self._say(f"{child.name} did not end within {_STOP_WITHIN_S:g} s, killing it")
                _send_signal(process, signal.SIGKILL)
        await asyncio.gather(task, return_exceptions=True)

    # -- one process ----------------------------------------------------------------------------

    async def _keep(self, child: ChildProcess) -> None:
        """Run a process until all are stopped, or it has exited too often."""
        exits = 0
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LONGEST_S)
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            ending = await self._run(child)
            if self._is_stopping:
                return
            if loop.time() - started_s > _STEADY_S:
                exits = 0
                backoff.reset()
            exits += 1
            if not self.is_up or exits >= _EXITS_MAX:
                self._fail(child, ending)
                return
            pause_s = backoff.next_s()
            self._say(f"{child.name} has ended ({ending}), restarting in {pause_s:g} s")
            await asyncio.sleep(pause_s)

    async def _run(self, child: ChildProcess) -> str:
        """Run a process until it has ended: how it did."""
        try:
            heartbeat = Heartbeat()
            process = await _start(child, heartbeat)
        except OSError as failure:
            # No memory, no process or no file descriptor is left: that may pass.
            return f"cannot be started: {failure.strerror}"
        self._processes[child.name] = process
        try:
            if self._is_stopping:
                _send_signal(process, signal.SIGTERM)
            return await self._wait_for_end(process, Watch(heartbeat, self._hung_after_s))
        finally:
            del self._processes[child.name]

    async def _wait_for_end(self, process: asyncio.subprocess.Process, watch: Watch) -> str:
        """Wait until a process has ended, and kill it when it hangs: how it ended."""
        ended = asyncio.ensure_future(process.wait())
        was_hung = False
        while not (await asyncio.wait((ended,), timeout=LOOK_S))[0]:
            # A process that was told to stop has another deadline.
            if not was_hung and not self._is_stopping and watch.is_hung():
                was_hung = True
                _send_signal(process, signal.SIGKILL)
        return describe_exit(ended.result()) + (f", after {watch.verdict}" if was_hung else "")

    def _fail(self, child: ChildProcess, ending: str) -> None:
        if not self._failed.done():
            words = _read_log_tail(child.log)
            self._failed.set_exception(
                ProcessFailed(f"{child.name} has ended ({ending}). {child.log} ends:\n{words}")
            )


async def _start(child: ChildProcess, heartbeat: Heartbeat) -> asyncio.subprocess.Process:
    _rotate_log(child.log)
    with child.log.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            # -P: the folder is not searched for modules.
            *(sys.executable, "-P", "-m", "berth.cli", *child.words),
            cwd=child.folder,
            env=_make_environment(child.variables) | heartbeat.variables,
            pass_fds=(heartbeat.file,),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()),
        )


def _make_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The settings of this process are not for its children: these are given all they need."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    return {**kept, **variables}


def _die_with(parent: int) -> Callable[[], None] | None:
    """Called in the child before its program starts: ask for SIGTERM when the parent is gone."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            # With all that it has started: nothing else would end those.
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _rotate_log(log: Path) -> None:
    """Rotate a log that has become long; one old log is kept."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_BYTES_MAX:
            log.replace(log.with_name(log.name + ".1"))


def _read_log_tail(log: Path) -> str:
    try:
        with log.open("rb") as opened:
            opened.seek(max(0, log.stat().st_size - 2000))
            return opened.read().decode(errors="replace").strip() or "(it is empty)"
    except OSError as error:
        return f"(it cannot be read: {error.strerror})"

"""Processes that belong together: started, watched, started again when they die, and stopped in order.

    running --(ends by itself)--> waiting --(after a pause)--> running ...   too often: all of it falls
       \\--(told to stop)--> stopping --(has ended, or was killed for want of time)--> ended

A part that ends before all of them are up is not started again: what is wrong then is wrong for good. Each
part leads a session of its own, so that Ctrl-C in a terminal reaches the parent alone, which then stops them
one after the other; and each hears SIGTERM when the parent is gone, even if that was killed.
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

_PR_SET_PDEATHSIG: Final = 1
_STOP_WITHIN_S: Final = 15.0
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_LONGEST_S: Final = 8.0
_STEADY_S: Final = 60.0
"""After so long the deaths before are forgotten."""
_DEATHS_MAX: Final = 6
_LOG_BYTES_MAX: Final = 16 << 20


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """``words``: of the command line, after ``berth``. ``log``: where its output goes."""

    name: str
    words: tuple[str, ...]
    variables: dict[str, str]
    folder: Path
    log: Path


class Fallen(Exception):
    """A part is dead, and stays so. The message is for the operator."""


class Parts:
    """Keeps parts running, in the order in which they were started."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.is_up = False
        """Set once all are there: from then on a part that dies is started again."""
        self._say = say
        self._stages: list[list[tuple[Part, asyncio.Task[None]]]] = []
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._fallen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_stopping = False

    def start(self, *parts: Part) -> None:
        """Start parts that are stopped together too."""
        self._stages.append([(part, asyncio.create_task(self._keep(part), name=part.name)) for part in parts])

    async def fall(self) -> None:
        """Wait until a part is dead for good, and raise Fallen."""
        await asyncio.shield(self._fallen)

    async def stop(self) -> None:
        """Stop them, those that were started last first."""
        self._is_stopping = True
        for stage in reversed(self._stages):
            await asyncio.gather(*(self._stop_one(part, task) for part, task in stage))
        # Nobody waits for it any more.
        if self._fallen.done():
            self._fallen.exception()

    async def _stop_one(self, part: Part, task: asyncio.Task[None]) -> None:
        process = self._processes.get(part.name)
        if process is None:
            task.cancel()
        elif not task.done():
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), _STOP_WITHIN_S)
            if not task.done():
                self._say(f"{part.name} did not end within {_STOP_WITHIN_S:g} s and is killed")
                _signal(process, signal.SIGKILL)
        await asyncio.gather(task, return_exceptions=True)

    # -- one part -------------------------------------------------------------------------------

    async def _keep(self, part: Part) -> None:
        """Run a part until all of it stops, or it has died too often."""
        deaths = 0
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            status = await self._run(part)
            if self._is_stopping:
                return
            deaths = 1 if loop.time() - started_s > _STEADY_S else deaths + 1
            if not self.is_up or deaths >= _DEATHS_MAX:
                self._fall(part, status)
                return
            pause_s = min(_PAUSE_FIRST_S * 2 ** (deaths - 1), _PAUSE_LONGEST_S)
            self._say(f"{part.name} has ended ({_ending(status)}) and is started again in {pause_s:g} s")
            await asyncio.sleep(pause_s)

    async def _run(self, part: Part) -> int:
        _make_room(part.log)
        with part.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                # -P: what lies in the folder is no module of ours.
                *(sys.executable, "-P", "-m", "berth.cli", *part.words),
                cwd=part.folder,
                env=_environment(part.variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_ending_with(os.getpid()),
            )
        self._processes[part.name] = process
        try:
            if self._is_stopping:
                _signal(process, signal.SIGTERM)
            return await process.wait()
        finally:
            del self._processes[part.name]

    def _fall(self, part: Part, status: int) -> None:
        if not self._fallen.done():
            words = _last_words(part.log)
            self._fallen.set_exception(
                Fallen(f"{part.name} has ended ({_ending(status)}). {part.log} ends:\n{words}")
            )


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Settings of whoever runs this are no settings of the parts, which are told all they need."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    return {**kept, **variables}


def _ending_with(parent: int) -> Callable[[], None] | None:
    """What a part does before its program begins: ask to be told when the parent is gone."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            # With all that it has started, which has no one else to end it.
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _ending(status: int) -> str:
    return f"status {status}" if status >= 0 else signal.Signals(-status).name


def _make_room(log: Path) -> None:
    """A log that has become long makes way for a new one; the one before it is kept."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_BYTES_MAX:
            log.replace(log.with_name(log.name + ".1"))


def _last_words(log: Path) -> str:
    try:
        with log.open("rb") as opened:
            opened.seek(max(0, log.stat().st_size - 2000))
            return opened.read().decode(errors="replace").strip() or "(it has said nothing)"
    except OSError as error:
        return f"(it cannot be read: {error.strerror})"

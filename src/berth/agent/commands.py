"""The commands that a host's agent is carrying out.

    handed out --> its turn --> being carried out --> result kept --> reported
         \\--(an earlier one, or known already)-------^

For each server, one command is carried out at a time. A later command (by its fence) stops an earlier one and
waits until that has ended; an earlier command that arrives after a later one is refused. A command is known
by its id for as long as its result is kept: if it is handed out again, only its result is reported again. The
conductor gives commands up that take too long; leftovers, which it does not wait for, the agent does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from berth.agent.drivers import Driver, DriverError
from berth.agent.metrics import AgentMetrics
from berth.agent.state import AgentState
from berth.cell.protocol import AgentCommand, Leftover
from berth.model.saga_runs import Spec
from berth.model.servers import Flavor
from berth.runtime import tracing
from berth.runtime.backoff import Backoff, retry
from berth.sagas.runner import ABORTED

SUPERSEDED: Final = "superseded by a later command"
ERROR_LENGTH_MAX: Final = 2_000

_SAVE_AGAIN_S: Final = 1.0
_LEFTOVER_S: Final = 60.0
"""How long a driver may take to destroy a leftover before that is given up, and begun again."""
_LEFTOVER_SPEC: Final = Spec("", "", "", Flavor(id="", name="", vcpus=0, memory_mb=0))

_log = logging.getLogger(__name__)

Report = Callable[[AgentCommand, str | None], Awaitable[None]]
"""Reports the result of a command to the conductor; returns when it has it, or need not have it any more."""


class _Job:
    """A command that is being carried out. ``stopped``: why it is given up. ``is_on``: the driver has it."""

    def __init__(self, command: AgentCommand, is_leftover: bool = False) -> None:
        self.command = command
        self.is_leftover = is_leftover
        self.stopped: str | None = None
        self.is_on = False

    @property
    def name(self) -> str:
        """What is done, for the log."""
        leftover = "leftover, " if self.is_leftover else ""
        return f"server {self.command.server}: {leftover}{self.command.verb}"

    def explain(self, error: DriverError) -> str:
        """Why it has failed."""
        return self.stopped or str(error)[:ERROR_LENGTH_MAX]


class CommandRunner:
    """``host`` is its name, for the log."""

    def __init__(
        self, host: str, driver: Driver, state: AgentState, report: Report, metrics: AgentMetrics
    ) -> None:
        self._host = host
        self._metrics = metrics
        self._driver = driver
        self._state = state
        self._report = report
        self._jobs: dict[str, _Job] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        """A lock for each server that has a job."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> tuple[str, ...]:
        """The commands that need not be handed out again."""
        return tuple(id for id, job in self._jobs.items() if not job.is_leftover)

    @property
    def being_destroyed(self) -> tuple[str, ...]:
        """Leftovers: they count as being here until it is durable that they are not."""
        return tuple(job.command.server for job in self._jobs.values() if job.is_leftover)

    def take(self, command: AgentCommand) -> bool:
        """Begin a command. False if it is being carried out already."""
        if command.id in self._jobs:
            return False
        job = _Job(command)
        if command.id not in self._state.results:
            self._supersede_earlier(job)
        self._start(job)
        return True

    def abort(self, id: str) -> bool:
        """Give a command up. False if it is not here, or is given up already."""
        job = self._jobs.get(id)
        if job is None or job.stopped is not None:
            return False
        self._stop(job, ABORTED)
        return True

    def destroy_leftover(self, leftover: Leftover) -> bool:
        """Destroy a server that should not be here, unless there was a later command for it. Whether that
        is begun."""
        id = f"leftover {leftover.server}"
        if id in self._jobs or self._state.fence_of(leftover.server) > leftover.fence:
            return False
        if not self._is_here(leftover.server):
            # Destroyed since the poll that this answers.
            return False
        command = AgentCommand(
            id=id, fence=leftover.fence, verb="destroy", server=leftover.server, spec=_LEFTOVER_SPEC
        )
        job = _Job(command, is_leftover=True)
        self._supersede_earlier(job)
        self._start(job)
        return True

    def _is_here(self, server: str) -> bool:
        """Whether a server is on this host, or a command may yet bring it."""
        return server in self._driver.servers() or any(
            job.command.server == server and id not in self._state.results for id, job in self._jobs.items()
        )

    async def end(self) -> None:
        """Stop everything as it is. A command without a result is handed out again to the next agent of
        this host."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- one command ----------------------------------------------------------------------------

    def _supersede_earlier(self, job: _Job) -> None:
        """Stop the server's earlier commands; or this one, if there was a later one."""
        command = job.command
        if command.fence < self._state.fence_of(command.server):
            job.stopped = SUPERSEDED
            return
        self._state.note_fence(command.server, command.fence)
        for other in self._jobs.values():
            if other.command.server == command.server and other.command.fence < command.fence:
                self._stop(other, SUPERSEDED)

    def _stop(self, job: _Job, reason: str) -> None:
        job.stopped = job.stopped or reason
        if job.is_on:
            self._driver.abort(job.command.server)

    def _start(self, job: _Job) -> None:
        self._jobs[job.command.id] = job
        task = asyncio.create_task(self._run(job), name=f"command {job.command.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, job: _Job) -> None:
        id = job.command.id
        try:
            if id in self._state.results:
                error = self._state.results[id]
            else:
                error = await self._carry_out(job)
                if not job.is_leftover:
                    self._state.note_result(id, error)
                await self._save()
            if not job.is_leftover:
                await self._report(job.command, error)
        finally:
            self._forget(job)

    def _forget(self, job: _Job) -> None:
        del self._jobs[job.command.id]
        server = job.command.server
        if not any(other.command.server == server for other in self._jobs.values()):
            self._turns.pop(server, None)

    async def _carry_out(self, job: _Job) -> str | None:
        """Why a command was not carried out; None when it was."""
        command = job.command
        async with self._turns.setdefault(command.server, asyncio.Lock()):
            if job.stopped is not None:
                return job.stopped
            with tracing.span(f"agent {command.verb}", self._note(job), within=command.traceparent) as span:
                error = await self._drive(job)
                if error is not None:
                    span.fail(error)
        return error

    async def _drive(self, job: _Job) -> str | None:
        """Have the driver carry a command out. Why it has not; None when it has."""
        command = job.command
        job.is_on = True
        began_s = self._log_begun(job)
        error: str | None = None
        # The conductor has a deadline for each of its commands; of this it does not know.
        deadline = self._limit(job) if job.is_leftover else None
        try:
            await self._driver.carry_out(command)
        except DriverError as failure:
            error = job.explain(failure)
        except Exception:
            _log.exception("command %s: the driver failed unexpectedly", command.id)
            error = "unexpected error of the driver: see the agent's log"
        finally:
            job.is_on = False
            if deadline is not None:
                deadline.cancel()
        self._log_ended(job, asyncio.get_running_loop().time() - began_s, error)
        return error

    def _note(self, job: _Job) -> tracing.Notes:
        """What a span tells of a command."""
        request_id = job.command.request_ids.partition(" ")[0]
        return {
            "berth.request_id": request_id,
            "berth.server": job.command.server,
            "berth.host": self._host,
        }

    def _log_begun(self, job: _Job) -> float:
        """Log that the driver begins; when that is, by the event loop's clock."""
        self._metrics.command_begun()
        _log.info("%s: %s begun", self._host, job.name, extra=self._about(job))
        return asyncio.get_running_loop().time()

    def _log_ended(self, job: _Job, took_s: float, error: str | None) -> None:
        self._metrics.command_ended(job.command.verb, took_s, error)
        extra = {**self._about(job), "seconds": took_s}
        if error is None:
            _log.info("%s: %s done in %.1f s", self._host, job.name, took_s, extra=extra)
        else:
            _log.warning("%s: %s failed after %.1f s: %s", self._host, job.name, took_s, error, extra=extra)

    def _about(self, job: _Job) -> dict[str, Any]:
        command = job.command
        return {"request_id": command.request_ids or None, "server": command.server, "host": self._host}

    def _limit(self, job: _Job) -> asyncio.TimerHandle:
        """Stop what is not done in time."""
        late = f"not done within {_LEFTOVER_S:g} seconds"
        return asyncio.get_running_loop().call_later(_LEFTOVER_S, self._stop, job, late)

    async def _save(self) -> None:
        """A result that is not durable is not reported, however long that takes."""

        def notice(error: Exception, pause_s: float) -> None:
            _log.error("cannot write the host's state, retrying in %g s: %s", pause_s, error)

        await retry(self._state.save, (OSError,), Backoff(_SAVE_AGAIN_S, _SAVE_AGAIN_S), notice=notice)

"""The agent of one host: it registers, polls, carries commands out, and reports.

    registering --(answered)--> polling --(the conductor does not know the host)--> registering

It never gives up: requests to an unreachable conductor are retried, a little later each time; refused
requests are retried slowly, because an operator has to change something first. What must survive is in the
host's state. A credential that is refused is read again from its file, where an operator may have changed it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec

from berth.agent.commands import CommandRunner
from berth.agent.conductor import (
    ConductorClient,
    ConductorRefuses,
    ConductorUnreachable,
    CredentialRefused,
    NotRegistered,
)
from berth.agent.credentials import Credential
from berth.agent.drivers import Driver
from berth.agent.metrics import AgentMetrics
from berth.agent.state import AgentState
from berth.cell.protocol import AgentCommand, Poll, PollAnswer, Register, Registered, Report, ReportedProvider
from berth.runtime.backoff import Backoff
from berth.runtime.dependency import Dependency

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Pace(NamedTuple):
    """How long an agent waits between attempts, in seconds."""

    first: float = 0.2
    longest: float = 5.0
    refused: float = 15.0
    report_within: float = 600.0
    """After so long a result is not reported any more, unless the command is handed out again."""
    poll_longest: float = 10.0
    restless_longest: float = 1.0
    """Between polls that are answered at once, with nothing new."""


def make_link(name: str, told: Callable[[bool], None] = lambda is_there: None) -> Dependency:
    """The way of a process's hosts to their conductor. Whole fleets lose it at once: that is logged once."""
    return Dependency(name, _log, lost_as="unreachable, retrying", back_as="reachable again", told=told)


class HostAgent:
    """``register`` says what the host is and has. ``turns`` bounds how many hosts register at once. ``link``:
    whether the conductor can be reached, and ``metrics``, for all hosts of this process."""

    def __init__(
        self,
        register: Register,
        driver: Driver,
        state: AgentState,
        credential: Credential,
        conductor: ConductorClient,
        rng: random.Random,
        turns: asyncio.Semaphore,
        pace: Pace,
        link: Dependency | None = None,
        metrics: AgentMetrics | None = None,
    ) -> None:
        self._register = register
        self._link = link or make_link("the conductor")
        self._driver = driver
        self._credential = credential
        self._conductor = conductor
        self._rng = rng
        self._turns = turns
        self._pace = pace
        self._must_register = False
        self._commands = CommandRunner(register.name, driver, state, self._report, metrics or AgentMetrics())
        self.registered = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            self._conductor.show(self._credential.header())
            while True:
                registered = await self._request("registration", self._ask_to_register)
                self.registered.set()
                _log.debug("%s: registered in cell %s", self._register.name, registered.cell)
                await self._poll_while_known(registered.heartbeat_timeout_seconds)
                _log.info("%s: the conductor does not know this host, registering again", self._register.name)
        finally:
            self._link.forget(self._register.name)
            await self._commands.end()
            await self._conductor.close()

    async def _ask_to_register(self) -> Registered:
        async with self._turns:
            report = msgspec.structs.replace(
                self._register, servers=self._list_servers(), units=self._driver.units()
            )
            return await self._conductor.register(report)

    def renew(self, providers: tuple[ReportedProvider, ...]) -> None:
        """Register again after the next poll: the host has something else now."""
        self._register = msgspec.structs.replace(self._register, providers=providers)
        self._must_register = True

    async def _register_once(self) -> None:
        """Register again because something has changed here, or at the conductor. It can wait: the host goes
        on polling."""
        register = self._register
        try:
            await self._ask_to_register()
            self._must_register = self._register is not register
        except (ConductorUnreachable, ConductorRefuses) as error:
            _log.info("%s: registering again failed, retrying later: %s", self._register.name, error)

    def _list_servers(self) -> tuple[str, ...]:
        return tuple({*self._driver.servers(), *self._commands.being_destroyed})

    async def _poll_while_known(self, heartbeat_timeout_s: float) -> None:
        wait_s = min(heartbeat_timeout_s / 3, self._pace.poll_longest)
        restless = Backoff(0.02, self._pace.restless_longest)
        while True:
            started_s = asyncio.get_running_loop().time()
            answer = await self._request("poll", lambda: self._poll(wait_s))
            if answer is None:
                return
            is_new = self._take(answer)
            if answer.must_register or self._must_register:
                await self._register_once()
            took_s = asyncio.get_running_loop().time() - started_s
            if is_new or took_s > wait_s / 2:
                restless.reset()
            else:
                # Answered at once with nothing new: polling faster would not help.
                await restless.pause()

    async def _poll(self, wait_s: float) -> PollAnswer | None:
        """The conductor's answer; None if the host must register first."""
        poll = Poll(
            host=self._register.host,
            servers=self._list_servers(),
            busy=self._commands.busy,
            wait_seconds=wait_s,
        )
        try:
            return await self._conductor.poll(poll)
        except NotRegistered:
            return None

    def _take(self, answer: PollAnswer) -> bool:
        """Begin what the conductor asks for. Whether anything of that is new."""
        taken = [self._commands.take(command) for command in answer.commands]
        aborted = [self._commands.abort(id) for id in answer.aborts]
        destroyed = [self._commands.destroy_leftover(leftover) for leftover in answer.leftovers]
        return any((*taken, *aborted, *destroyed))

    async def _report(self, command: AgentCommand, error: str | None) -> None:
        addresses = self._driver.addresses(command.server) if error is None else ()
        report = Report(host=self._register.host, command=command.id, error=error, addresses=addresses)
        try:
            async with asyncio.timeout(self._pace.report_within):
                await self._request("report", lambda: self._conductor.report(report))
        except TimeoutError:
            _log.warning(
                "%s: the result of command %s could not be reported within %g s and is kept",
                self._register.name,
                command.id,
                self._pace.report_within,
            )

    async def _request(self, does: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until the conductor answers it."""
        backoff = Backoff(self._pace.first, self._pace.longest, self._rng)
        has_switched = False
        began_s = asyncio.get_running_loop().time()
        while True:
            try:
                answer = await ask()
                self._link.regain(by=self._register.name)
                return answer
            except ConductorUnreachable as error:
                _log.debug("%s: %s failed, retrying: %s", self._register.name, does, error)
                if backoff.is_longest:
                    # One that restarts is back before that.
                    self._link.lose(str(error), by=self._register.name, since_s=began_s)
            except ConductorRefuses as refusal:
                self._link.regain(by=self._register.name)
                is_other = isinstance(refusal, CredentialRefused) and await self._take_other_credential()
                if not is_other or has_switched:
                    _log.warning("%s: %s refused: %s", self._register.name, does, refusal)
                    backoff = Backoff(self._pace.refused, self._pace.refused, self._rng)
                has_switched = is_other
            await backoff.pause()

    async def _take_other_credential(self) -> bool:
        """Show what the credential's file holds now, if that is something else. Whether it is."""
        if not await asyncio.to_thread(self._credential.take_other):
            return False
        self._conductor.show(self._credential.header())
        return True

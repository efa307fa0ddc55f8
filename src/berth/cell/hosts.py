"""The hosts of a cell: registering them, answering their polls, marking them down and up again, and leftovers
on hosts that come back.

Every poll and registration is a heartbeat. Heartbeats are kept in memory alone; that a host is down, or up
again, is in the journal. **A host is down when no heartbeat has come within the timeout, and for no other
reason.** After a start, and after the journal was unavailable, every host has one timeout to be heard of.

What a host reports and cannot be written is a complaint, which operators can see, and its agent is asked to
register again after a while; the host stays up. A host that comes back is up only when no leftover is on it:
what was evacuated is destroyed first, and then its migrations are released.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final, NamedTuple

from berth.cell import agents, assignments, saga_runs
from berth.cell.agents import AgentCaller
from berth.cell.mailbox import Mailbox
from berth.cell.placement import ClaimRefused, PlacementUnavailable
from berth.cell.protocol import WITH_CREDENTIALS, WITH_UNITS, Leftover, Poll, PollAnswer, Register
from berth.cell.providers import COMPLAINTS_MAX, HostTreeWriter, read_owned
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.rejections import RecordMoved, Rejection
from berth.model.saga_runs import Agent, Instance, OwnedProvider
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.sagas.release import release_evacuated
from berth.view import View

_log = logging.getLogger(__name__)
_ORIGIN: Final = Origin("", "conductor", None, "hosts")
_LAST: Final = 1 << 62
"""A fence later than every version of a run."""
_RETRY_LONGEST: Final = 16
"""How many heartbeat timeouts at most pass between attempts to write what could not be written."""
_CHECK_EVERY: Final = 10
"""After how many heartbeat timeouts the providers of all hosts have been checked once."""
_LEFTOVERS_MAX: Final = 100
"""Of one answer. An agent that has destroyed them polls again."""
_LOOK_SHARE: Final = 0.25
"""After how much of the heartbeat timeout hosts that are overdue are looked for again."""
_DEAF_SHARE: Final = 0.5
"""How much of the timeout may pass between two answers of the database before it was away."""
_TOO_LARGE: Final = "The report is too large for the cell's journal."
_STILL_WRITING: Final = "Placement is slow: the report is still being written."
_NOT_WRITTEN: Final = "The report was not written because of an internal error: see the conductor's log."
_OLD_AGENT: Final = "The agent is of an older release and has no credential of its own: upgrade it."

Enactment = Callable[[Callable[[View], Enact | Rejection | None]], Awaitable[object]]
"""Has a change made in the cell's journal, as long as this conductor's term lasts."""


class HostNotRegistered(Exception):
    """The host has not registered in this cell."""


class HostRefused(Exception):
    """The host cannot join this cell. The message is for the operator."""


class ConductorReplaced(Exception):
    """Another conductor has taken over the cell: nothing is written here any more."""


class _Retry(NamedTuple):
    """When a host is asked to register again, and the pause before that."""

    due_ns: int
    pause_ns: int


class _Known(NamedTuple):
    """What the journal says of a host that sends a heartbeat."""

    leftovers: tuple[Leftover, ...]
    is_down: bool
    was_evacuated: bool
    has_complaints: bool
    has_abandoned: bool
    ended: tuple[str, ...]
    """Commands that it is busy with, and that nobody waits for any more."""

    @property
    def needs_nothing(self) -> bool:
        """Whether there is nothing to be done about the host."""
        return not (self.leftovers or self.is_down or self.was_evacuated or self.has_abandoned or self.ended)


def _read_known(view: View, host: str, servers: tuple[str, ...], busy: tuple[str, ...]) -> _Known | None:
    """All that a poll needs of the journal, in one read; None for a host that has not registered."""
    agent = view.records.get(Agent, host)
    if agent is None:
        return None
    leftovers = _find_leftovers(view, host, servers)
    was_evacuated = bool(view.records.find(Instance, "evacuated", host))
    has_abandoned = bool(assignments.find_abandoned(view, host, servers, busy))
    ended = saga_runs.find_ended(view, busy)
    return _Known(leftovers, agent.is_down, was_evacuated, bool(agent.complaints), has_abandoned, ended)


def _find_leftovers(view: View, host: str, servers: tuple[str, ...]) -> tuple[Leftover, ...]:
    """Servers that the cell knows, and that should not be on a host. What it does not know is not its to
    destroy: its journal may have been restored from an older backup."""
    expected = saga_runs.expected_servers(view, host)
    found = (id for id in servers if id not in expected and view.records.get(Instance, id) is not None)
    return tuple(
        Leftover(server=id, fence=(saga_runs.last_number(view, id), _LAST))
        for id in islice(found, _LEFTOVERS_MAX)
    )


def _find_unknown(view: View, servers: tuple[str, ...]) -> tuple[str, ...]:
    """Complaints of servers on a host that the cell does not know."""
    return tuple(
        f"Server {id} is on the host and unknown to the cell, whose database may have been restored from an "
        "older backup. It is left alone."
        for id in servers
        if view.records.get(Instance, id) is None
    )


class HostRegistry:
    """``term``: the term of this process's conductor. Once another conductor has taken over, nothing is
    written."""

    def __init__(
        self,
        engine: Engine,
        providers: HostTreeWriter,
        mailbox: Mailbox,
        clock: Clock,
        ids: Ids,
        heartbeat_timeout_s: float,
        term: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._providers = providers
        self._mailbox = mailbox
        self._clock = clock
        self._ids = ids
        self._heartbeat_timeout_ns = int(heartbeat_timeout_s * 1e9)
        self._term = term
        self._heartbeats = Heartbeats(engine, mailbox, clock, heartbeat_timeout_s, self._enact)
        self._retries: dict[str, _Retry] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        # Hosts whose report is being written, until its outcome is about to be recorded.
        self._unwritten: set[str] = set()

    def check_caller(self, caller: AgentCaller) -> None:
        """Refuse a caller whose body need not be read (NotAllowed)."""
        agents.check_before_body(caller, None if caller.host is None else self._find_agent(caller.host))

    def check_host(self, caller: AgentCaller, host: str) -> None:
        """Refuse a caller that speaks for another host than its own (NotAllowed)."""
        agents.check_host(caller, host, self._find_agent(host))

    def check_joined(self, caller: AgentCaller, host: str) -> None:
        """HostNotRegistered, if a host must register first, so that its credential is known."""
        self.check_host(caller, host)
        agent = self._find_agent(host)
        if agent is None or (agent.credential is None and caller.secret is not None):
            raise HostNotRegistered(host)

    def _find_agent(self, host: str) -> Agent | None:
        # The view in memory will do: it follows the journal all the time.
        return self._engine.view.records.get(Agent, host)

    async def register(self, host: Register, caller: AgentCaller) -> None:
        """Register a host, or record what it has now. What takes long in Placement goes on after the
        answer: a host that waited for it would not poll."""
        if self._find_agent(host.host) is not None:
            self._heartbeats.hear(host.host)
        if host.host in self._writing:
            raise PlacementUnavailable(f"{host.name}: the last report is still being written, retry later")
        self._unwritten.add(host.host)
        writing = self._writing[host.host] = asyncio.create_task(self._register(host, caller))
        writing.add_done_callback(lambda task: self._forget_writing(host, task))
        await asyncio.wait((writing,), timeout=self._heartbeat_timeout_ns / 3e9)
        if writing.cancelled():
            raise PlacementUnavailable("the conductor is stopping")
        if writing.done():
            writing.result()
        elif self._find_agent(host.host) is None:
            raise PlacementUnavailable(f"{host.name}: the registration is still being written, retry later")
        else:
            # If the write never ends, this complaint makes the host register again. It is decided in the
            # writer's turn: it must not replace an outcome that was recorded meanwhile.
            await self._enact(
                lambda view: (
                    agents.record_report(view, host.host, (_STILL_WRITING,))
                    if host.host in self._unwritten
                    else None
                )
            )
        await self._hear(host.host, host.servers)

    def _forget_writing(self, host: Register, task: asyncio.Task[None]) -> None:
        self._writing.pop(host.host, None)
        self._unwritten.discard(host.host)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s: registration failed: %s", host.name, error)

    async def _register(self, host: Register, caller: AgentCaller) -> None:
        if not await self._record(host, caller):
            return
        try:
            await self._write(host, caller.version)
        except (PlacementUnavailable, ClaimRefused, ConductorReplaced, Unavailable, Overloaded):
            raise
        except Exception:
            # A fault of ours must not keep the host from being told what to do.
            _log.exception("%s: writing its report failed unexpectedly", host.name)
            await self._record_complaints(host, (_NOT_WRITTEN,))

    async def _record(self, host: Register, caller: AgentCaller) -> bool:
        """Record a host and its credential in the journal, before anything of it is written to Placement.
        Whether that could be done."""
        now_s = self._clock.now_ns() // 1_000_000_000
        agent = Agent(
            id=host.host,
            name=host.name,
            driver=host.driver,
            is_down=True,
            registered_at_s=now_s,
            changed_at_s=now_s,
            protocol=caller.version,
            credential=caller.digest,
        )
        known = await self._engine.read(lambda view: view.records.get(Agent, host.host))
        if known is None:
            why_not = await self._providers.explain_refusal(host)
            if why_not is not None:
                raise HostRefused(why_not)
        refusal = await self._enact(lambda view: agents.register_agent(view, agent, read_owned(host)))
        if isinstance(refusal, RecordMoved):
            why_not = await self._engine.read(lambda view: agents.explain_refusal(view, agent))
            raise HostRefused(why_not or "The host was registered by another request just now: retry.")
        if refusal is not None and known is None:
            raise HostRefused(_TOO_LARGE)
        if refusal is not None:
            await self._record_complaints(host, (_TOO_LARGE,))
        return refusal is None

    async def _write(self, host: Register, version: int) -> None:
        """Write a host's report to Placement, and record what of it cannot be written."""
        before = await self._engine.read(lambda view: agents.find_tree(view, host.host))
        providers, complaints = await self._providers.write(
            host,
            before,
            lambda provider: self._enact(lambda view: agents.record_withheld(view, host.host, provider)),
            lambda consumer: assignments.find_of_holder(self._engine.view, consumer, host.host),
        )
        unknown = await self._engine.read(lambda view: _find_unknown(view, host.servers))
        complaints = (*complaints, *unknown)[:COMPLAINTS_MAX]
        if version < WITH_CREDENTIALS:
            complaints = (*complaints, _OLD_AGENT)
        gone: tuple[str, ...] = ()
        if version >= WITH_UNITS:
            gone = await self._engine.read(lambda view: assignments.find_gone_units(view, host))
            wrong = await self._engine.read(
                lambda view: assignments.find_vanished(view, host) + assignments.find_differences(view, host)
            )
            complaints = (*complaints, *wrong)[:COMPLAINTS_MAX]
        await self._record_complaints(host, complaints, providers, gone)

    async def _record_complaints(
        self,
        host: Register,
        complaints: tuple[str, ...],
        providers: tuple[OwnedProvider, ...] | None = None,
        gone: tuple[str, ...] | None = None,
    ) -> None:
        """Record what could not be written for a host, what of its tree belongs to the agent now, and which
        units in use are gone."""
        self._unwritten.discard(host.host)
        await self._enact(lambda view: agents.record_report(view, host.host, complaints, providers, gone))
        for complaint in complaints:
            _log.warning("%s: %s", host.name, complaint)
        self._schedule_retry(host.host, bool(complaints))

    def _schedule_retry(self, host: str, is_needed: bool) -> None:
        last = self._retries.pop(host, None)
        if is_needed:
            pause_ns = self._heartbeat_timeout_ns if last is None else last.pause_ns * 2
            pause_ns = min(pause_ns, self._heartbeat_timeout_ns * _RETRY_LONGEST)
            self._retries[host] = _Retry(self._clock.monotonic_ns() + pause_ns, pause_ns)

    def _must_retry(self, host: str, known: _Known) -> bool:
        """Whether a host is to register again now. True once for each time that is due."""
        if not known.has_complaints:
            self._retries.pop(host, None)
            return False
        retry = self._retries.get(host)
        if retry is not None and self._clock.monotonic_ns() < retry.due_ns:
            return False
        self._schedule_retry(host, True)
        return retry is not None

    async def poll(self, poll: Poll, version: int) -> PollAnswer:
        """The commands for a host, as soon as there are any, or after the time that it waits."""
        host = poll.host
        # Before anything that may have to wait for the journal: the host has been heard of.
        self._heartbeats.hear(host)
        known = await self._hear(host, poll.servers, poll.busy)
        leftovers = known.leftovers
        must_register = version >= WITH_CREDENTIALS and self._must_retry(host, known)
        commands, aborts = self._mailbox.find_commands(host, poll.busy)
        fresh_aborts = (*(id for id in aborts if id in poll.busy), *known.ended)
        if not leftovers and not commands and not fresh_aborts and not must_register and poll.wait_seconds:
            await self._mailbox.wait(host, poll.wait_seconds)
            commands, aborts = self._mailbox.find_commands(host, poll.busy)
        self._heartbeats.hear(host)
        aborts = (*aborts, *known.ended)
        return PollAnswer(commands=commands, aborts=aborts, leftovers=leftovers, must_register=must_register)

    async def change_credential(self, host: str, digest: str) -> None:
        """Replace a host's credential."""
        await self._enact(lambda view: agents.rotate_credential(view, host, digest))
        _log.info("host %s: the credential was replaced", host)

    async def watch(self) -> None:
        """Mark hosts down whose heartbeats do not come, and look for providers that were deleted."""
        looking = asyncio.create_task(self._look_for_lost())
        try:
            await self._heartbeats.watch()
        finally:
            for task in (looking, *self._writing.values()):
                task.cancel()

    async def _look_for_lost(self) -> None:
        """Check in Placement that what hosts have reported is still there, one host after the other, for
        ever."""
        while not self._engine.stopping:
            up = [agent.id for agent in self._engine.view.records.all(Agent) if not agent.is_down]
            for host in up or (None,):
                await asyncio.sleep(self._heartbeat_timeout_ns * _CHECK_EVERY / 1e9 / max(len(up), 1))
                try:
                    if host is not None:
                        await self._check_providers(host)
                except ConductorReplaced:
                    return
                except (PlacementUnavailable, ClaimRefused, Unavailable, Overloaded) as error:
                    _log.debug("host %s: cannot check its providers: %s", host, error)
                except Exception:
                    _log.exception("host %s: checking its providers failed unexpectedly", host)

    async def _check_providers(self, host: str) -> None:
        """Make a host register again if something that it has reported is not in Placement any more."""
        tree = await self._engine.read_recent(lambda view: agents.find_tree(view, host))
        agent = self._find_agent(host)
        if agent is None or agent.complaints or host in self._writing:
            return
        lost = await self._providers.find_lost(host, tree)
        if lost is None:
            return

        def propose(view: View) -> Enact | None:
            is_same = view.records.get(Agent, host) == agent and agents.find_tree(view, host) == tree
            return (
                agents.record_report(view, host, (lost,)) if is_same and host not in self._writing else None
            )

        await self._enact(propose)
        self._retries.setdefault(host, _Retry(self._clock.monotonic_ns(), self._heartbeat_timeout_ns))
        _log.warning("%s: %s The agent is asked to register again.", agent.name, lost)

    async def _hear(self, host: str, servers: tuple[str, ...], busy: tuple[str, ...] = ()) -> _Known:
        """Take a heartbeat: the host is up, once no leftover is on it. Returns what the journal says."""
        self._heartbeats.hear(host)
        # Nearly every heartbeat needs nothing, and is no reason to ask the database.
        known = await self._engine.read_recent(lambda view: _read_known(view, host, servers, busy))
        if known is None or not known.needs_nothing:
            known = await self._engine.read(lambda view: _read_known(view, host, servers, busy))
        if known is None:
            raise HostNotRegistered(host)
        now_ns = self._clock.now_ns()
        if known.has_abandoned or (known.is_down and not known.leftovers):

            def propose(view: View) -> Enact | None:
                freed = assignments.free_abandoned(view, host, servers, busy)
                # A server may have become a leftover while this waited for its turn.
                if not _find_leftovers(view, host, servers):
                    now_s = now_ns // 1_000_000_000
                    marked = saga_runs.mark_host(view, host, False, now_s, freed, now_s)
                    if marked is not None:
                        return marked
                return Enact(freed) if freed else None

            before = self._find_agent(host)
            await self._enact(propose)
            self._log_up(before, now_ns)
        if known.was_evacuated and not known.leftovers:
            await self._enact(lambda view: release_evacuated(view, self._ids, host, servers, now_ns))
        return known

    def _log_up(self, before: Agent | None, now_ns: int) -> None:
        """Log that a host that was down is not any more."""
        now = None if before is None else self._find_agent(before.id)
        if before is None or now is None or not before.is_down or now.is_down:
            return
        if not before.heard_at_s:
            _log.info("%s: up for the first time", now.name, extra={"host": now.name})
            return
        seconds = now_ns / 1e9 - before.changed_at_s
        extra = {"host": now.name, "seconds": seconds}
        _log.info("%s: up again after %.0f s", now.name, seconds, extra=extra)

    async def _enact(self, make: Callable[[View], Enact | Rejection | None]) -> Rejection | None:
        """Make a change that may turn out not to be needed; the rejection, if it is rejected."""
        replaced = RecordMoved("Term", "")

        def propose(view: View, now_s: int) -> Enact | Rejection | None:
            return replaced if saga_runs.is_replaced(view, self._term()) else make(view)

        outcome = await self._engine.submit(propose, _ORIGIN, lambda view, changed: None)
        if outcome == replaced:
            raise ConductorReplaced("another conductor has taken over this cell")
        return outcome


class Heartbeats:
    """When each host was last heard of.

    While the cell's database is away, heartbeats wait for it and so does whoever looks for the hosts that
    are overdue. What was not heard then says nothing of a host: each has the whole timeout once the database
    has answered again, and as well after this process was stopped for a while."""

    def __init__(
        self, engine: Engine, mailbox: Mailbox, clock: Clock, timeout_s: float, enact: Enactment
    ) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._clock = clock
        self._timeout_s = timeout_s
        self._enact = enact
        self._heard_ns: dict[str, int] = {}
        # Since when heartbeats are heard without a pause, and when the database last answered here.
        self._hears_since_ns = self._answered_ns = clock.monotonic_ns()

    def hear(self, host: str) -> None:
        self._heard_ns[host] = self._clock.monotonic_ns()

    async def watch(self) -> None:
        """Mark hosts down, until another conductor has taken over."""
        self._begin()
        while not self._engine.stopping:
            await asyncio.sleep(self._timeout_s * _LOOK_SHARE)
            try:
                await self._mark_overdue()
            except ConductorReplaced:
                return
            except (Unavailable, Overloaded) as error:
                _log.warning("the cell's journal is unavailable, no host is marked down meanwhile: %s", error)
                self._begin()
            except Exception:
                _log.exception("checking heartbeats failed unexpectedly, retrying")

    def _begin(self) -> None:
        """Give every host the whole timeout from now on."""
        self._hears_since_ns = self._answered_ns = self._clock.monotonic_ns()

    def _note_answer(self) -> None:
        """The database has answered, or need not be asked. If that has taken long, nothing was heard."""
        now_ns = self._clock.monotonic_ns()
        if (now_ns - self._answered_ns) / 1e9 > self._timeout_s * _DEAF_SHARE:
            self._hears_since_ns = now_ns
        self._answered_ns = now_ns

    async def _mark_overdue(self) -> None:
        # What others have written a moment ago is judged with the change.
        known = await self._engine.read_recent(lambda view: list(view.records.all(Agent)))
        self._note_answer()
        for agent in known:
            if not agent.is_down and self._is_overdue(agent.id):
                await self._mark_down(agent)
                self._note_answer()

    def _is_overdue(self, host: str) -> bool:
        since_ns = max(self._heard_ns.get(host, 0), self._hears_since_ns)
        return (self._clock.monotonic_ns() - since_ns) / 1e9 > self._timeout_s

    def _find_last_s(self, host: str) -> int | None:
        """When the last heartbeat of a host came; None if this conductor has heard none."""
        heard_ns = self._heard_ns.get(host)
        if heard_ns is None:
            return None
        return (self._clock.now_ns() - self._clock.monotonic_ns() + heard_ns) // 1_000_000_000

    async def _mark_down(self, agent: Agent) -> None:
        now_s = self._clock.now_ns() // 1_000_000_000

        def propose(view: View) -> Enact | None:
            # While this waited for its turn, the host may have been heard of, or nobody could be.
            self._note_answer()
            if not self._is_overdue(agent.id):
                return None
            return saga_runs.mark_host(view, agent.id, True, now_s, heard_at_s=self._find_last_s(agent.id))

        await self._enact(propose)
        marked = self._engine.view.records.get(Agent, agent.id)
        if marked is not None and marked.is_down:
            self._mailbox.give_up(agent.id, f"the host {agent.name} is down")
            text = "%s: down, no heartbeat within %g s"
            _log.warning(text, agent.name, self._timeout_s, extra={"host": agent.name})

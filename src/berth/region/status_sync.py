"""The status sync: brings the progress of saga runs, the state of hosts, and the assignments of units up from
a cell's journal.

What follows from them for the region's records is said in ``cell_records``. A run stays in the cell until the
region has its end, so the sync can be stopped anywhere and start anew.

Two of them do no harm. A run is brought up by its version. Hosts and assignments have none: which index of
the cell's journal they are brought up from is written first (``SyncPosition``), and each change of them is
refused once a later index is there. Otherwise the slower of two could put an older state in place of a newer.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from berth.cell import saga_runs
from berth.engine import Engine, Planned, Unavailable
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.ids import Index, ProviderId
from berth.model.rejections import RecordMoved, Rejection
from berth.model.saga_runs import (
    Agent,
    Assignment,
    Instance,
    SagaRun,
)
from berth.model.servers import (
    Action,
    Host,
    Record,
    Server,
    UnknownServer,
)
from berth.region import discrepancies
from berth.region.cell_records import (
    advance_position,
    apply_assignments,
    apply_host,
    apply_progress,
    find_position,
    is_applied,
)
from berth.sagas.run_log import RunCounter, count_news, log_news
from berth.sagas.runner import (
    LOG_MAX,
    is_finished,
)
from berth.view import View
from berth.view.records import Records

_log = logging.getLogger(__name__)
WAIT_S: Final = 5.0
"""How long a loop waits for a journal to change before it looks again."""
_AT_ONCE: Final = 64
"""How many changes are submitted together. A claim that comes meanwhile waits for these, and not for all the
runs of a cluster of a thousand nodes."""
_COMPARED: Final = 500
"""How many servers, or servers of how many hosts, are compared with their cell in one go."""
_LOOK_EVERY_S: Final = 60.0
"""How often runs are looked for that their cell does not have, and unknown servers are compared with it."""
ACTION: Final = "status-sync"
_ORIGIN: Final = Origin("", ACTION, None, ACTION)


class _CellNews(NamedTuple):
    """What is to be brought up, and the index of the cell's journal that it is read at."""

    read_at: Index
    runs: list[SagaRun]
    agents: list[Agent]
    assigned: dict[str, list[Assignment]]
    servers: dict[str, discrepancies.CellKnows]


class _Before(NamedTuple):
    """What the region knew of a run: how many entries of its log; and how long ago it was asked for."""

    seen: int
    seconds: int | None


def _read_before(view: View, run: SagaRun, now_s: int) -> _Before:
    action = view.records.get(Action, run.id)
    if action is None:
        return _Before(0, None)
    # Of a log that is full the first entries are gone: what is new in it cannot be told from its length.
    return _Before(min(len(action.events), LOG_MAX - 1), now_s - action.started_at_s)


class StatusSync:
    """Brings up what changes in one cell. The cell's view says which records have changed, and only these are
    looked at: the cost of a change does not depend on the size of the cell. With a new view, all of them are.

        changed --(read)--> due --(brought up)--> nothing

    What was read may change again, or be taken back, before it is brought up: then it is changed once more.
    What could not be brought up stays due."""

    def __init__(self, region: Engine, cell: Engine, name: str, telemetry: RunCounter | None = None) -> None:
        self._telemetry = telemetry
        self._region = region
        self._cell = cell
        self._name = name
        self._index = Index(-1)
        self._view: View | None = None
        # By kind of record: ids of runs and agents, and of the hosts of assignments.
        self._changed: dict[tuple[type[Record], str], None] = {}
        self._due: dict[tuple[type[Record], str], None] = {}
        # Whether the view has not been searched yet for servers that the cell does not know.
        self._is_new = False
        self._looks_at_s = 0.0

    async def sync(self) -> None:
        """Wait until the cell has changed, and bring up what has."""
        index = await self._cell.wait_beyond(self._index, WAIT_S)
        due = await self._cell.read_recent(self._find_due)
        # Before the runs: a server that is not busy has the units that the region says. Where another sync is
        # ahead of this one, all of it stays due until this one has caught up.
        if await self._sync_state(due):
            await finish_all(self._sync_run(run) for run in due.runs)
        await self._compare_servers(due.servers)
        if self._is_new:
            await self._look_for_missing()
            self._is_new = False
        await self._look_again()
        self._index = index

    def _find_due(self, view: View) -> _CellNews:
        """The runs and agents that are due, all assignments of the hosts that are, and what the cell knows of
        the servers that are."""
        records = view.records
        if view is not self._view:
            self._view = view
            self._is_new = True
            self._note_all(records)
            records.follow(self._note_change)
        self._due |= self._changed
        self._changed = {}
        runs = [run for kind, id in self._due if kind is SagaRun and (run := records.get(SagaRun, id))]
        agents = [agent for kind, id in self._due if kind is Agent and (agent := records.get(Agent, id))]
        hosts = [host for kind, host in self._due if kind is Assignment]
        servers = [id for kind, id in self._due if kind is Instance]
        # Of what is gone there is nothing to bring up.
        self._due = {(type(record), record.id): None for record in (*runs, *agents)}
        self._due |= {(Assignment, host): None for host in hosts}
        self._due |= {(Instance, id): None for id in servers}
        assigned = {host: records.find(Assignment, "host", host) for host in hosts}
        known = {id: discrepancies.CellKnows(records.get(Instance, id)) for id in servers}
        return _CellNews(view.index, runs, agents, assigned, known)

    def _note_all(self, records: Records) -> None:
        for run in records.all(SagaRun):
            self._note_change(run)
        for agent in records.all(Agent):
            self._note_change(agent)
            # It may have none here, and some in the region.
            self._changed[Assignment, agent.id] = None
        for assignment in records.all(Assignment):
            self._note_change(assignment)
        for instance in records.all(Instance):
            self._note_change(instance)

    def _note_change(self, record: Record) -> None:
        if isinstance(record, Assignment):
            self._changed[Assignment, record.host] = None
        elif isinstance(record, SagaRun | Agent | Instance):
            self._changed[type(record), record.id] = None

    async def _sync_state(self, due: _CellNews) -> bool:
        """Bring up assignments and hosts; False where another sync has begun to do so from a later index."""
        if not due.agents and not due.assigned:
            return True
        if not await self._advance(due.read_at):
            return False
        await self._sync_assignments(due)
        await finish_all(self._sync_host(agent, due.read_at) for agent in due.agents)
        return await self._region.read(lambda view: find_position(view, self._name) <= due.read_at)

    async def _advance(self, index: Index) -> bool:
        """Have it written that what was read at this index is brought up; False where a later one is."""
        if not await self._submit(lambda view, now_s: advance_position(view, self._name, index)):
            return True
        position = await self._region.read(lambda view: find_position(view, self._name))
        last = await self._cell.read(lambda view: view.index)
        if last >= position:
            return False
        _log.warning(
            "%s: its journal ends at index %d, and the region has read it up to %d: it was replaced, or "
            "restored from an older copy. The region takes over what it says now",
            self._name,
            last,
            position,
        )
        return not await self._submit(
            lambda view, now_s: advance_position(view, self._name, index, instead_of=position)
        )

    async def _sync_assignments(self, due: _CellNews) -> None:
        by_host = due.assigned
        if not by_host:
            return
        different = await self._region.read(
            lambda view: [host for host, now in by_host.items() if apply_assignments(view, host, now)]
        )
        for host in by_host.keys() - set(different):
            del self._due[Assignment, host]
        await finish_all(self._sync_units(host, by_host[host], due.read_at) for host in different)

    async def _sync_units(self, host: str, current: list[Assignment], index: Index) -> None:
        """Bring up a host's assignments. Where that is refused, they stay due; the rest of the cell goes
        on."""
        refused = await self._submit_read_at(
            index, lambda view, now_s: apply_assignments(view, host, current)
        )
        if refused is None:
            del self._due[Assignment, host]
        elif not isinstance(refused, RecordMoved):
            _log.warning("the assignments of host %s could not be written, retrying: %s", host, refused)

    async def _sync_host(self, agent: Agent, index: Index) -> None:
        refused = await self._submit_read_at(
            index, lambda view, now_s: apply_host(view, agent, self._name, now_s)
        )
        # A host joins before its provider is written: it stays due until that is there.
        is_there = await self._region.read(lambda view: ProviderId(agent.id) in view.providers)
        if is_there and refused is None:
            del self._due[Agent, agent.id]

    async def _sync_run(self, run: SagaRun) -> None:
        def propose(view: View, now_s: int) -> Planned | None:
            command = apply_progress(view, run, now_s)
            return None if command is None else Planned(command, _read_before(view, run, now_s))

        def answer_unchanged(view: View, changed: bool) -> _Before | None:
            return None

        # Of all who follow this cell, the one that brings the progress up logs it.
        origin = msgspec.structs.replace(_ORIGIN, ids=run.request_id)
        before = await self._region.submit(propose, origin, answer_unchanged)
        if isinstance(before, _Before):
            log_news(_log, run, before.seen, before.seconds)
            if self._telemetry is not None:
                count_news(self._telemetry, run, before.seen, before.seconds)
        if not await self._region.read(lambda view: is_applied(view, run)):
            raise Unavailable(f"the progress of saga run {run.id} ({run.saga}) could not be written")
        if is_finished(run):
            await self._cell.submit(
                lambda view, _: saga_runs.remove_finished(view, run.id), _ORIGIN, lambda view, changed: None
            )
        del self._due[SagaRun, run.id]

    # -- records that are older than the cell ----------------------------------------------------

    async def _compare_servers(self, servers: dict[str, discrepancies.CellKnows]) -> None:
        """Write down what the cell knows of servers, and the region does not: it was restored."""
        remaining = iter(servers.items())
        while some := dict(itertools.islice(remaining, _COMPARED)):
            await self._compare(some)

    async def _compare(self, servers: dict[str, discrepancies.CellKnows]) -> None:
        different = await self._region.read(
            lambda view: [id for id, knows in servers.items() if self._is_older(view, id, knows)]
        )
        for id in servers.keys() - set(different):
            del self._due[Instance, id]
        if not different:
            return
        # Once more, after the region was read: only what does not fit then was not seen in between.
        known = await self._cell.read(lambda view: discrepancies.read_cell(view, different))
        for id, knows in known.items():
            # While a run is under way, what is known is not final: the server stays due.
            if not knows.is_busy and await self._correct(id, knows):
                del self._due[Instance, id]

    def _is_older(self, view: View, id: str, knows: discrepancies.CellKnows) -> bool:
        return discrepancies.correct_record(view, self._name, id, knows, 0) is not None

    async def _correct(self, id: str, knows: discrepancies.CellKnows) -> bool:
        """Write down what the cell knows of a server. Whether that could be done."""

        def propose(view: View, now_s: int) -> Enact | Rejection | None:
            if discrepancies.is_waiting(view, id):
                return RecordMoved("Server", id)
            return discrepancies.correct_record(view, self._name, id, knows, now_s)

        return await self._submit(propose) is None

    async def _look_for_missing(self) -> None:
        """Write down which servers the cell does not know."""
        hosts = await self._region.read(
            lambda view: [host.id for host in view.records.find(Host, "cell", self._name)]
        )
        for first in range(0, len(hosts), _COMPARED):
            await self._mark_missing(hosts[first : first + _COMPARED])

    async def _mark_missing(self, hosts: list[str]) -> None:
        servers = await self._region.read(lambda view: discrepancies.find_settled(view, hosts))
        known = await self._cell.read(
            lambda view: discrepancies.read_cell(view, (server.id for server in servers))
        )
        missing = [server for server in servers if known[server.id].instance is None]
        await finish_all(map(self._mark_one_missing, missing))

    async def _mark_one_missing(self, server: Server) -> None:
        await self._submit(lambda view, now_s: discrepancies.mark_missing(view, server, now_s))

    async def _look_again(self) -> None:
        """Look now and then for what no change of the cell's records shows."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._looks_at_s:
            return
        self._looks_at_s = now_s + _LOOK_EVERY_S
        # What is said of an unknown server depends on the region as well: on its hosts, and its format.
        unknown = await self._region.read(lambda view: view.records.find(UnknownServer, "cell", self._name))
        self._changed |= {(Instance, one.id): None for one in unknown}
        await self._look_for_lost()

    async def _look_for_lost(self) -> None:
        """End the runs that the region waits for, and the cell does not have any more."""
        waiting = await self._region.read(lambda view: discrepancies.find_waiting(view, self._name))
        if not waiting:
            return
        lost, known = await self._cell.read(
            lambda view: (
                [server for server in waiting if view.records.get(SagaRun, server.run or "") is None],
                discrepancies.read_cell(view, (server.id for server in waiting)),
            )
        )
        await finish_all(self._end_lost(server, known[server.id]) for server in lost)

    async def _end_lost(self, server: Server, knows: discrepancies.CellKnows) -> None:
        await self._submit(lambda view, now_s: discrepancies.end_lost_run(view, server, knows, now_s))

    async def _submit_read_at(
        self, index: Index, propose: Callable[[View, int], Enact | None]
    ) -> Rejection | None:
        """Have a change made of what was read at an index, unless something later is being brought up."""

        def judge(view: View, now_s: int) -> Enact | Rejection | None:
            if find_position(view, self._name) > index:
                return RecordMoved("SyncPosition", self._name)
            return propose(view, now_s)

        return await self._submit(judge)

    async def _submit(self, propose: Callable[[View, int], Enact | Rejection | None]) -> Rejection | None:
        """Have a change made that may turn out not to be needed; or why it was refused."""
        return await self._region.submit(propose, _ORIGIN, lambda view, changed: None)


async def finish_all(tasks: Iterable[Awaitable[None]]) -> None:
    """Finish all of them, some at a time, also if one fails; then raise the first failure."""
    failures: list[BaseException] = []
    remaining = iter(tasks)
    while some := list(itertools.islice(remaining, _AT_ONCE)):
        outcomes = await asyncio.gather(*some, return_exceptions=True)
        failures += (outcome for outcome in outcomes if isinstance(outcome, BaseException))
    if failures:
        raise failures[0]

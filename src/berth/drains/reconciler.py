"""What drives a drain: one server after the other leaves its host; members of a group that must share a host
leave together.

    on the host -> its move begins -> it has left
                                   -> stopped before: it is resized now, and confirmed -> it has left
                                   -> the move has failed: it is tried again later

A locked server, and one in a state that it cannot be moved in, stays until somebody does something about it:
the others go on. A server that is busy is waited for. The planned host is tried first, then any other. A
server that comes to the host later, by a revert for instance, leaves too.

A drain ends when its host is enabled: whoever does that wants the host back. It can be stopped by removing
its record; the move that is under way goes on.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.drains.plan import Word, find_awaited, find_company, find_obstacle, find_runs, propose_leaving
from berth.engine import Engine
from berth.model.commands import Enact
from berth.model.drains import MOVES_MAX, Drain, DrainMove
from berth.model.events import Origin, RecordChanged
from berth.model.ids import ProviderId
from berth.model.placement import HEALTHY
from berth.model.rejections import Rejection
from berth.model.saga_runs import SagaRun
from berth.model.servers import Action, Need, Server
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas import confirm
from berth.sagas.proposals import Context
from berth.sagas.reconciler import Reconciler, change_record
from berth.scheduler.plugins import SchedulerOptions
from berth.view import View

_log = logging.getLogger(__name__)
_AGAIN_S: Final = 10
_AGAIN_LONGEST_S: Final = 300
"""How long after a failure a move is tried again; each pause is twice the one before, up to the longest."""
_TEXT_MAX: Final = 500

ReadPorts = Callable[[Server], Awaitable[tuple[Need, ...] | str]]
"""What the ports of a server need now; or why that is not known."""


PortNeeds = Mapping[str, tuple[Need, ...]]
"""By server: what its ports need."""


class Due(NamedTuple):
    """What is next for a drain: its record as it is now, and the server that can be confirmed or moved, with
    those that leave together with it."""

    drain: Drain
    confirmed: DrainMove | None = None
    moved: DrainMove | None = None


def is_due(view: View, drain: Drain, now_s: int) -> bool:
    if not _is_wanted(view, drain):
        return True
    due = find_due(view, drain, now_s)
    return due.drain is not drain or due.confirmed is not None or due.moved is not None


def find_due(view: View, drain: Drain, now_s: int) -> Due:
    now = _bring_up_to_date(view, drain, now_s)
    if any(move.run is not None for move in now.moves):
        return Due(now)
    for move in now.moves:
        if move.again_at_s <= now_s:
            server = view.records.get(Server, move.server)
            if server is None or server.place is None or server.run is not None:
                continue
            if is_unconfirmed(server, move):
                return Due(now, confirmed=move)
            if find_obstacle(view, server) is None and find_awaited(view, server) is None:
                return Due(now, moved=move)
    return Due(now)


def propose_next(
    view: View, now_s: int, context: Context, word: Word, id: str, ports: PortNeeds | str
) -> Enact | None:
    """The next change of a drain; None if there is nothing to do, or not yet. ``ports``: what was read for
    the servers whose turn it was."""
    drain = view.records.get(Drain, id)
    if drain is None:
        return None
    if not _is_wanted(view, drain):
        return Enact((RecordChanged(drain, None),))
    due = find_due(view, drain, now_s)
    if due.confirmed is not None:
        begun = confirm.propose(view, now_s, context, due.confirmed.server)
        return _begin(drain, due.drain, (due.confirmed,), begun, now_s, word)
    if due.moved is None:
        return change_record(drain, due.drain)
    server = view.records.get(Server, due.moved.server)
    assert server is not None, "a server whose turn it is exists"
    company = find_company(view, server)
    ids = {one.id for one in company}
    moves = tuple(move for move in due.drain.moves if move.server in ids)
    if isinstance(ports, str):
        return change_record(drain, _put(due.drain, *(_note_failure(move, ports, now_s) for move in moves)))
    if any(one.ports and one.id not in ports for one in company):
        return change_record(drain, due.drain)

    def context_of(server: Server) -> Context:
        return context._replace(port_needs=ports.get(server.id, ()))

    begun = propose_leaving(view, now_s, context_of, company, due.moved.dest)
    if isinstance(begun, Rejection) and due.moved.dest is not None:
        begun = propose_leaving(view, now_s, context_of, company, None)
    return _begin(drain, due.drain, moves, begun, now_s, word)


def _begin(
    before: Drain, now: Drain, moves: Sequence[DrainMove], begun: Enact | Rejection, now_s: int, word: Word
) -> Enact | None:
    """The change that begins the runs of moves and notes them, or notes why they cannot begin."""
    refused = begun if isinstance(begun, Rejection) else begun.refused
    if refused is not None:
        why = word(refused)
        failed = change_record(before, _put(now, *(_note_failure(move, why, now_s) for move in moves)))
        if failed is None or isinstance(begun, Rejection):
            return failed
        # What others were found to have changed is recorded with it: the next attempt accepts it.
        return Enact((*begun.changes, *failed.changes), begun.commands)
    assert not isinstance(begun, Rejection), "it was not refused"
    runs = find_runs(begun)
    after = _put(now, *(_note_run(move, runs[move.server]) for move in moves))
    return msgspec.structs.replace(begun, changes=(*begun.changes, RecordChanged(before, after)))


def _note_run(move: DrainMove, run: SagaRun) -> DrainMove:
    return msgspec.structs.replace(move, run=run.id, migration=run.migration or move.migration)


# -- what has become of the servers -------------------------------------------------------------


def _is_wanted(view: View, drain: Drain) -> bool:
    return view.hosts.get(ProviderId(drain.id), HEALTHY).disabled


def _bring_up_to_date(view: View, drain: Drain, now_s: int) -> Drain:
    """The drain with what has happened since it was written; the same one if nothing has."""
    moves, moved, left = [], drain.moved, dict.fromkeys(drain.left)
    for move in drain.moves:
        server = view.records.get(Server, move.server)
        if server is None:
            continue
        if move.run is not None and server.run != move.run:
            move = _end_run(view, drain, server, move, now_s)
        is_here = server.place is not None and server.place.id == drain.id
        if is_here or move.run is not None or is_unconfirmed(server, move):
            moves.append(move)
        else:
            moved += 1
            left[server.id] = None
    known = {move.server for move in moves}
    here = view.records.find(Server, "host", drain.id) if len(moves) < MOVES_MAX else []
    come = [DrainMove(server=server.id) for server in here if server.id not in known]
    moves += come[: MOVES_MAX - len(moves)]
    for move in come:
        if move.server in left:
            # It has come back.
            moved -= 1
            del left[move.server]
    state = "draining" if moves else "done"
    if tuple(moves) == drain.moves and (moved, state) == (drain.moved, drain.state):
        return drain
    return msgspec.structs.replace(
        drain,
        moves=tuple(moves),
        moved=moved,
        left=tuple(left)[-MOVES_MAX:],
        state=state,
        updated_at_s=now_s,
    )


def is_unconfirmed(server: Server, move: DrainMove) -> bool:
    """Whether it has been moved while it was stopped, and that is to be confirmed."""
    return move.migration is not None and server.migration == move.migration


def _end_run(view: View, drain: Drain, server: Server, move: DrainMove, now_s: int) -> DrainMove:
    """The move after its run has ended: over, as far as it goes, or failed."""
    has_left = server.place is None or server.place.id != drain.id
    action = view.records.get(Action, move.run or "")
    has_failed = action is not None and action.message is not None
    if has_left and not has_failed:
        return msgspec.structs.replace(move, run=None, attempts=0, again_at_s=0, text=None)
    why = action.message if action is not None and action.message else "it is still there"
    return _note_failure(move, why, now_s)


def _note_failure(move: DrainMove, why: str, now_s: int) -> DrainMove:
    pause_s = min(_AGAIN_S << min(move.attempts, 10), _AGAIN_LONGEST_S)
    return msgspec.structs.replace(
        move, run=None, attempts=move.attempts + 1, again_at_s=now_s + pause_s, text=why[:_TEXT_MAX]
    )


def _put(drain: Drain, *moves: DrainMove) -> Drain:
    after = {move.server: move for move in (*drain.moves, *moves)}
    return msgspec.structs.replace(drain, moves=tuple(after.values()))


# -- the loop -----------------------------------------------------------------------------------


def reconcile_drains(
    engine: Engine,
    clock: Clock,
    ids: Ids,
    scheduler: SchedulerOptions,
    settings: Settings,
    word: Word,
    read_ports: ReadPorts,
) -> Reconciler[Drain]:
    """What drives all drains of a region."""

    async def advance(drain: Drain) -> bool:
        context = Context(
            ids.request_id(),
            drain.project,
            drain.user,
            ids,
            scheduler,
            attempts_max=settings.build_attempts_max,
            repeat=settings.conflict_repeat,
        )
        ports = await _read_ports(engine, clock, drain, read_ports)

        def propose(view: View, now_s: int) -> Enact | None:
            return propose_next(view, now_s, context, word, drain.id, ports)

        origin = Origin(context.request_id, drain.user, drain.project, "reconciler")
        outcome = await engine.submit(propose, origin, lambda view, changed: changed)
        if isinstance(outcome, Rejection):
            _log.error("drain of %s: refused, retrying later: %s", drain.name, outcome)
        return bool(outcome) and not isinstance(outcome, Rejection)

    return Reconciler(engine, clock, Drain, is_due, advance)


async def _read_ports(engine: Engine, clock: Clock, drain: Drain, read_ports: ReadPorts) -> PortNeeds | str:
    """What the ports of the servers whose turn it is need now; or why that is not known."""
    now_s = clock.now_ns() // 1_000_000_000

    def find_next(view: View) -> tuple[Server, ...]:
        known = view.records.get(Drain, drain.id)
        move = None if known is None else find_due(view, known, now_s).moved
        server = None if move is None else view.records.get(Server, move.server)
        return () if server is None else find_company(view, server)

    found: dict[str, tuple[Need, ...]] = {}
    for server in await engine.read_recent(find_next):
        if server.ports:
            needs = await read_ports(server)
            if isinstance(needs, str):
                return needs
            found[server.id] = needs
    return found

"""The plan of a drain: how each server can leave its host, and where to, all of them together.

A running server is migrated live, a stopped one is migrated, a shelved one is offloaded. The moves are
planned as they will be made, one after the other, each beside what the others will hold by then and under all
their policies. Where one finds no place after the others, it is planned before them, in a few attempts; the
attempt that moves the most is the plan.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

from berth.ledger import decide
from berth.model.commands import UNCHECKED, Claim, Enact, ReplaceAllocations
from berth.model.events import RecordChanged
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import HEALTHY, MIGRATION
from berth.model.rejections import Rejection
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import Migration, Record, Server, VmState
from berth.sagas import live_migrate, migrate, shelve_offload
from berth.sagas.proposals import Context
from berth.view import Trial, View

How = Literal["live", "cold", "offload"]
_HOW: Final[dict[VmState, How]] = {"active": "live", "stopped": "cold", "shelved": "offload"}

_ATTEMPTS_MAX: Final = 4

Word = Callable[[Rejection], str]
"""What a rejection says, for operators."""
R = TypeVar("R", bound=Record)


class PlannedMove(NamedTuple):
    """How a server would leave, and to which host; or what stands against it."""

    server: str
    how: How | None
    dest: str | None = None
    obstacle: str | None = None


def plan_drain(
    view: View, now_s: int, context: Context, word: Word, host: ProviderId
) -> tuple[PlannedMove, ...]:
    """A move for each server on a host, in the order in which they are to be made."""
    servers = sorted(view.records.find(Server, "host", host), key=_size, reverse=True)
    best = _attempt(view, now_s, context, word, servers)
    for _ in range(_ATTEMPTS_MAX - 1):
        behind = {move.server for move in best if _is_unplaced(move)}
        first = [server for server in servers if server.id in behind]
        order = first + [server for server in servers if server.id not in behind]
        if order == servers:
            break
        servers = order
        other = _attempt(view, now_s, context, word, servers)
        if sum(map(_is_unplaced, other)) < len(behind):
            best = other
    return best


def find_how(server: Server) -> How | None:
    """How a server leaves its host; None if it cannot in its state."""
    return _HOW.get(server.state)


def find_obstacle(view: View, server: Server) -> str | None:
    """What keeps a server from leaving until somebody does something about it."""
    assert server.place is not None, "a server that is to leave is on a host"
    if server.is_locked:
        by = "" if server.locked_by is None else f" by its {server.locked_by}"
        reason = f" ({server.locked_reason})" if server.locked_reason else ""
        return f"it is locked{by}{reason}: unlock it"
    if server.migration is not None and server.run is None:
        return f"its migration {server.migration} waits to be confirmed or reverted"
    if view.hosts.get(ProviderId(server.place.id), HEALTHY).down:
        return f"the host {server.place.name} is down: evacuate the server"
    if find_how(server) is None and server.run is None:
        return f"it is in state {server.state}: rebuild it, or delete it"
    return None


def propose_leaving(
    view: View, now_s: int, context: Context, server: Server, dest: str | None
) -> Enact | Rejection:
    """The change that begins to move a server away. ``dest``: the only host considered."""
    match find_how(server):
        case "live":
            return live_migrate.propose(view, now_s, context, server.id, dest)
        case "cold":
            return migrate.propose(view, now_s, context, server.id, dest)
        case _:
            return shelve_offload.propose(view, now_s, context, server.id)


def find_run(enact: Enact) -> SagaRun:
    """The saga run that a change begins."""
    runs = [record.run for record in _written(enact.changes, Outbox) if record.run is not None]
    assert len(runs) == 1, "a change that moves a server begins one run"
    return runs[0]


def _attempt(
    view: View, now_s: int, context: Context, word: Word, servers: Sequence[Server]
) -> tuple[PlannedMove, ...]:
    with Trial(view) as trial:
        return tuple(_try_move(view, trial, now_s, context, word, server) for server in servers)


def _try_move(
    view: View, trial: Trial, now_s: int, context: Context, word: Word, server: Server
) -> PlannedMove:
    how, obstacle = find_how(server), find_obstacle(view, server)
    if obstacle is not None or server.run is not None:
        return PlannedMove(server.id, None if obstacle is not None else how, obstacle=obstacle)
    enact = propose_leaving(view, now_s, context, server, None)
    events = enact if isinstance(enact, Rejection) else enact.refused or decide(view, enact, now_s)
    if isinstance(events, Rejection):
        return PlannedMove(server.id, how, obstacle=word(events))
    assert isinstance(enact, Enact), "it was not refused"
    trial.apply(events)
    # It has left before the next one begins to.
    for migration in _written(enact.changes, Migration):
        leave = Claim(ConsumerId(migration.id), (), migration.project, migration.user, UNCHECKED, MIGRATION)
        left = decide(view, ReplaceAllocations((leave,)), now_s)
        trial.apply([] if isinstance(left, Rejection) else left)
    run = find_run(enact)
    dest = None if how == "offload" or run.dest is None else run.dest.name
    return PlannedMove(server.id, how, dest)


def _written(changes: Sequence[RecordChanged], kind: type[R]) -> list[R]:
    return [change.after for change in changes if isinstance(change.after, kind)]


def _is_unplaced(move: PlannedMove) -> bool:
    return move.how is not None and move.obstacle is not None


def _size(server: Server) -> tuple[int, int, str]:
    return server.flavor.memory_mb, server.flavor.vcpus, server.id

"""The plan of a drain: how each server can leave its host, and where to, all of them together.

A running server is migrated live, a stopped one is migrated, a shelved one is offloaded. The moves are
planned as they will be made, one after the other, each beside what the others will hold by then and under all
their policies. Where one finds no place after the others, it is planned before them, in a few attempts; the
attempt that moves the most is the plan.

Members of a group that must share a host leave together (docs/decisions/033): each alone would break the
policy. One change claims for all of them on one host, and begins a run for each. Those that are shelved are
offloaded before.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from berth.ledger import decide
from berth.model.commands import UNCHECKED, Claim, Enact, ReplaceAllocations
from berth.model.events import GroupChanged, RecordChanged
from berth.model.groups import HOST, Group
from berth.model.ids import ConsumerId, GroupId, ProviderId
from berth.model.placement import HEALTHY, INSTANCE, MIGRATION
from berth.model.rejections import GroupFitsNowhere, Rejection
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import Record, Server, VmState
from berth.sagas import live_migrate, migrate, shelve_offload
from berth.sagas.proposals import Context
from berth.view import Trial, View
from berth.view.groups import GroupRecord

How = Literal["live", "cold", "offload"]
_HOW: Final[dict[VmState, How]] = {"active": "live", "stopped": "cold", "shelved": "offload"}

_ATTEMPTS_MAX: Final = 4
_COMPANY_MAX: Final = 50
"""How many members of a group can leave together: one change has the claims and the runs of all of them."""
_HOSTS_TRIED_MAX: Final = 8
"""On how many hosts all members of a group are tried."""

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
    servers = sorted(view.records.find(Server, "host", host), key=_rank, reverse=True)
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
    own = _find_own_obstacle(view, server)
    record = None if own is not None else _find_bond(view, server)
    if record is None:
        return own
    name, members = record.group.name, _list_standing(record)
    if len(members) > _COMPANY_MAX:
        return (
            f"the {record.group.policy} of the group {name} keeps {len(members)} members together, and "
            f"{_COMPANY_MAX} at most can be moved together: let some leave the group"
        )
    for id in members:
        other = view.records.get(Server, id)
        if other is None:
            return f"consumer {id} of the group {name} is no server of this region: let it leave the group"
        obstacle = _find_own_obstacle(view, other)
        if obstacle is not None:
            return f"it can only leave together with {other.name} of the group {name}, and {obstacle}"
    return None


def find_company(view: View, server: Server) -> tuple[Server, ...]:
    """The servers that leave together with a server that can leave, and itself: the largest first."""
    record = _find_bond(view, server)
    found = [] if record is None else [view.records.get(Server, id) for id in _list_standing(record)]
    return tuple(sorted((one for one in found if one is not None), key=_rank, reverse=True)) or (server,)


def find_awaited(view: View, server: Server) -> Server | None:
    """The server that a server waits for, itself among those: it is busy, or must be offloaded first."""
    for one in find_company(view, server):
        if one.run is not None or (one.id != server.id and find_how(one) == "offload"):
            return one
    return None


def _find_bond(view: View, server: Server) -> GroupRecord | None:
    """The group that lets a server leave its host with all other members alone: they are all there."""
    if server.group is None or server.place is None or find_how(server) == "offload":
        return None
    record = view.groups.records.get(GroupId(server.group))
    if record is None or not record.group.is_hard or record.group.is_apart or record.group.domain != HOST:
        return None
    is_here_alone = [host.id for host in record.hosts] == [server.place.id]
    return record if is_here_alone and len(_list_standing(record)) > 1 else None


def _list_standing(record: GroupRecord) -> list[ConsumerId]:
    """The members that are on any host."""
    return sorted({who for whose in record.hosts.values() for who in whose})


def _find_own_obstacle(view: View, server: Server) -> str | None:
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


ContextOf = Callable[[Server], Context]
"""What a move of a server is proposed with: the needs of ports are those of one server."""


def propose_leaving(
    view: View, now_s: int, context_of: ContextOf, servers: Sequence[Server], dest: str | None
) -> Enact | Rejection:
    """The change that begins to move servers away that leave together, or one that leaves alone. ``dest``:
    the only host considered."""
    if len(servers) == 1:
        return _propose_one(view, now_s, context_of(servers[0]), servers[0], dest)
    id = GroupId(servers[0].group or "")
    group = view.groups.records[id].group
    # Of one after the other the policy would refuse the first. They are proposed as if it were soft, and all
    # together are judged by it as it is.
    soften = GroupChanged(id, group, msgspec.structs.replace(group, policy="soft-affinity"))
    if dest is None:
        with Trial(view) as trial:
            trial.apply((soften,))
            context = context_of(servers[0])._replace(alternates=_HOSTS_TRIED_MAX - 1)
            first = _propose_one(view, now_s, context, servers[0], None)
        if isinstance(first, Rejection):
            return _refuse_all(id, group, servers, first)
        if first.refused is not None:
            return first
        run = find_runs(first)[servers[0].id]
        places = (run.dest, *(alternate.place for alternate in run.alternates))
        hosts = [place.name for place in places if place is not None]
    else:
        hosts = [dest]
    answers = (_propose_at(view, now_s, context_of, servers, host, soften) for host in hosts)
    refusals = []
    for answer in answers:
        if isinstance(answer, Enact):
            return answer
        refusals.append(answer)
    return _refuse_all(id, group, servers, refusals[0])


def _refuse_all(id: GroupId, group: Group, servers: Sequence[Server], why: Rejection) -> GroupFitsNowhere:
    return GroupFitsNowhere(id, group.name, group.policy, len(servers), why)


def _propose_at(
    view: View,
    now_s: int,
    context_of: ContextOf,
    servers: Sequence[Server],
    host: str,
    soften: GroupChanged,
) -> Enact | Rejection:
    """The change that begins to move all of them to a host, if that is granted."""
    with Trial(view) as trial:
        trial.apply((soften,))
        enact = _propose_each(view, trial, now_s, context_of, servers, host)
    if isinstance(enact, Rejection) or enact.refused is not None:
        return enact
    verdict = decide(view, enact, now_s)
    return verdict if isinstance(verdict, Rejection) else enact


def _propose_each(
    view: View, trial: Trial, now_s: int, context_of: ContextOf, servers: Sequence[Server], host: str
) -> Enact | Rejection:
    """One change that moves all of them, each proposed beside those before it; or the first refusal."""
    changes: dict[tuple[type[Record], str], RecordChanged] = {}
    claims: list[Claim] = []
    for server in servers:
        enact = _propose_one(view, now_s, context_of(server), server, host)
        if isinstance(enact, Rejection) or enact.refused is not None:
            return enact
        events = decide(view, enact, now_s)
        if isinstance(events, Rejection):
            return events
        trial.apply(events)
        for change in enact.changes:
            record = change.before or change.after
            assert record is not None, "a change is of something"
            first = changes.get((type(record), record.id), change)
            changes[type(record), record.id] = RecordChanged(first.before, change.after)
        for command in enact.commands:
            assert isinstance(command, ReplaceAllocations), "a move claims, and nothing else"
            claims += command.claims
    return Enact(tuple(changes.values()), (ReplaceAllocations(tuple(claims)),))


def _propose_one(
    view: View, now_s: int, context: Context, server: Server, dest: str | None
) -> Enact | Rejection:
    match find_how(server):
        case "live":
            return live_migrate.propose(view, now_s, context, server.id, dest)
        case "cold":
            return migrate.propose(view, now_s, context, server.id, dest)
        case _:
            return shelve_offload.propose(view, now_s, context, server.id)


def find_runs(enact: Enact) -> dict[str, SagaRun]:
    """The saga runs that a change begins, by their servers."""
    runs = [record.run for record in _written(enact.changes, Outbox) if record.run is not None]
    return {run.server: run for run in runs}


def _attempt(
    view: View, now_s: int, context: Context, word: Word, servers: Sequence[Server]
) -> tuple[PlannedMove, ...]:
    moves: dict[str, PlannedMove] = {}
    with Trial(view) as trial:
        for server in servers:
            if server.id not in moves:
                for move in _try_moves(view, trial, now_s, context, word, server):
                    moves[move.server] = move
    return tuple(moves.values())


def _try_moves(
    view: View, trial: Trial, now_s: int, context: Context, word: Word, server: Server
) -> Iterator[PlannedMove]:
    """The moves of a server and of those that leave together with it."""
    obstacle = find_obstacle(view, server)
    if obstacle is not None or find_awaited(view, server) is not None:
        how = None if obstacle is not None else find_how(server)
        yield PlannedMove(server.id, how, obstacle=obstacle)
        return
    company = find_company(view, server)
    enact = propose_leaving(view, now_s, lambda _: context, company, None)
    while isinstance(enact, Enact) and enact.refused is not None:
        # Others have changed what it holds. The first attempt records that, the next one accepts it.
        trial.apply(enact.changes)
        company = tuple(one for one in (view.records.get(Server, one.id) for one in company) if one)
        enact = propose_leaving(view, now_s, lambda _: context, company, None)
    events = enact if isinstance(enact, Rejection) else decide(view, enact, now_s)
    if isinstance(events, Rejection):
        for one in company:
            yield PlannedMove(one.id, find_how(one), obstacle=word(events))
        return
    assert isinstance(enact, Enact), "it was not refused"
    trial.apply(events)
    runs = find_runs(enact)
    for one in company:
        how, run = find_how(one), runs[one.id]
        _leave(view, trial, now_s, one, run, how)
        yield PlannedMove(one.id, how, None if how == "offload" or run.dest is None else run.dest.name)


def _leave(view: View, trial: Trial, now_s: int, server: Server, run: SagaRun, how: How | None) -> None:
    """Have a server left its host before the next one begins to."""
    consumer, type = (server.id, INSTANCE) if how == "offload" else (run.migration or "", MIGRATION)
    claim = Claim(ConsumerId(consumer), (), server.project, server.user, UNCHECKED, type)
    left = decide(view, ReplaceAllocations((claim,)), now_s)
    trial.apply([] if isinstance(left, Rejection) else left)


def _written(changes: Sequence[RecordChanged], kind: type[R]) -> list[R]:
    return [change.after for change in changes if isinstance(change.after, kind)]


def _is_unplaced(move: PlannedMove) -> bool:
    return move.how is not None and move.obstacle is not None


def _rank(server: Server) -> tuple[bool, int, int, str]:
    """What is offloaded comes first: others may wait for it. Then the largest."""
    return find_how(server) == "offload", server.flavor.memory_mb, server.flavor.vcpus, server.id

"""The reconciler: drives each cluster to what its record says it should be, one change after the other.

    leaving:    server there -> its deletion begins -> server gone -> the node goes
    replacing:  server there -> its deletion begins -> server gone -> a new one, in the same group -> wanted
    deleting:   no nodes left -> the server groups and the cluster's record go

Each step follows from the records alone. A busy server is waited for, and so is a locked one. What did not
work is tried again later.
"""

import logging
from typing import Final, NamedTuple

import msgspec

from berth.clusters.placement import place_nodes
from berth.engine import Engine
from berth.model.clusters import Cluster, Node
from berth.model.commands import DeleteGroup, Enact, LedgerCommand
from berth.model.counts import count
from berth.model.events import Origin, RecordChanged
from berth.model.ids import GroupId
from berth.model.rejections import NoFit, QuotaExceeded, Rejection
from berth.model.servers import Action, Server
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas import delete
from berth.sagas.proposals import Context, leave_group, read_quotas
from berth.sagas.reconciler import Reconciler, change_record
from berth.scheduler.plugins import SchedulerOptions
from berth.view import View

_log = logging.getLogger(__name__)
_STEPS_MAX: Final = 100
"""How many steps of one cluster are taken before the others have their turn."""

DELETE_AGAIN_S: Final = 2
REPLACE_AGAIN_S: Final = 10
"""How long after a failure it is tried again."""

_DELETE_PAUSES_MAX: Final = 30

_DELETIONS_MAX: Final = 50
"""How many deletions begin in one change."""


class _Due(NamedTuple):
    """What can be done for a cluster now."""

    deletable: tuple[Node, ...] = ()
    """Nodes whose servers exist, and are not busy."""
    gone: tuple[Node, ...] = ()
    """Nodes that were leaving, and whose servers are gone."""
    missing: tuple[Node, ...] = ()
    """Nodes that are being replaced, and whose servers are gone."""
    is_over: bool = False
    """Nothing is left of the cluster but its groups."""


def is_due(view: View, cluster: Cluster, now_s: int) -> bool:
    """Whether there is a next step that can be tried now."""
    return any(_find_due(view, cluster, now_s))


def propose_next(view: View, now_s: int, context: Context, cluster_id: str) -> Enact | None:
    """The next change of a cluster; None if there is nothing to do, or not yet."""
    cluster = view.records.get(Cluster, cluster_id)
    if cluster is None:
        return None
    due = _find_due(view, cluster, now_s)
    if due.deletable:
        deletions = _delete(view, now_s, context, due.deletable)
        if deletions is not None:
            return deletions
    if due.gone:
        names = {node.name for node in due.gone}
        staying = tuple(node for node in cluster.nodes if node.name not in names)
        return change_record(cluster, msgspec.structs.replace(cluster, nodes=staying, updated_at_s=now_s))
    if due.missing:
        return _replace(view, now_s, context, cluster, due.missing)
    return _end(view, cluster) if due.is_over else None


def _find_due(view: View, cluster: Cluster, now_s: int) -> _Due:
    if not cluster.nodes:
        return _Due(is_over=cluster.state == "deleting")
    leaving = [node for node in cluster.nodes if node.state == "leaving"]
    replacing = [node for node in cluster.nodes if node.state == "replacing"]
    return _Due(
        tuple(node for node in (*leaving, *replacing) if _is_deletable(view, node, now_s)),
        _find_droppable(view, leaving),
        () if _must_wait(cluster, now_s) else tuple(node for node in replacing if _is_gone(view, node)),
    )


def _is_gone(view: View, node: Node) -> bool:
    return view.records.get(Server, node.server) is None


def _must_wait(cluster: Cluster, now_s: int) -> bool:
    return cluster.fault is not None and now_s < cluster.updated_at_s + REPLACE_AGAIN_S


def _find_droppable(view: View, leaving: list[Node]) -> tuple[Node, ...]:
    """Nodes whose servers are gone, once they are half of those that leave: a cluster of a thousand nodes
    is then written ten times while it is deleted, not a thousand times."""
    gone = tuple(node for node in leaving if _is_gone(view, node))
    return gone if 2 * len(gone) >= len(leaving) else ()


# -- deletions ----------------------------------------------------------------------------------


def _is_deletable(view: View, node: Node, now_s: int) -> bool:
    server = view.records.get(Server, node.server)
    if server is None or server.run is not None or server.is_locked:
        return False
    tried = [
        action.updated_at_s
        for action in view.records.find(Action, "server", server.id)
        if action.name == delete.SAGA.action
    ]
    # The more often it has failed, the longer the pause.
    pause_s = DELETE_AGAIN_S * min(len(tried), _DELETE_PAUSES_MAX)
    return not tried or now_s >= max(tried) + pause_s


def _delete(view: View, now_s: int, context: Context, nodes: tuple[Node, ...]) -> Enact | None:
    changes: list[RecordChanged] = []
    commands: list[LedgerCommand] = []
    for node in nodes[:_DELETIONS_MAX]:
        begun = delete.propose(view, now_s, context, node.server, is_forced=True)
        if not isinstance(begun, Rejection):
            changes += begun.changes
            commands += begun.commands
    return Enact(tuple(changes), tuple(commands)) if changes else None


# -- replacements -------------------------------------------------------------------------------


def _replace(
    view: View, now_s: int, context: Context, cluster: Cluster, missing: tuple[Node, ...]
) -> Enact | None:
    """The command that creates a server for the first node that can be placed; if none can, the cluster's
    fault says why."""
    why = ""
    for node in missing:
        new = msgspec.structs.replace(node, server=context.ids.uuid(), state="wanted")
        nodes = tuple(new if one.name == node.name else one for one in cluster.nodes)
        after = msgspec.structs.replace(cluster, nodes=nodes, fault=None, updated_at_s=now_s)
        enact = place_nodes(view, now_s, context, after, (new,))
        if not isinstance(enact, Rejection):
            return Enact((RecordChanged(cluster, after), *enact.changes), enact.commands, quotas=enact.quotas)
        why = why or _describe_refusal(node, enact)
    # Written once: the same fault is not written again.
    return (
        None
        if cluster.fault == why
        else change_record(cluster, msgspec.structs.replace(cluster, fault=why, updated_at_s=now_s))
    )


def _describe_refusal(node: Node, refused: Rejection) -> str:
    if isinstance(refused, QuotaExceeded):
        names = ", ".join(name for name, *_ in refused.over)
        return f"the quota of {names} leaves no room for a replacement of {node.name}; retrying"
    if not isinstance(refused, NoFit):
        return f"{node.name} cannot be replaced ({type(refused).__name__}); retrying"
    narrowing = [f"{step.asked}: {count(step.left, 'host')} left" for step in refused.steps if step.removed]
    said = "; ".join(narrowing) or "no host has room for it"
    return f"no host fits a replacement of {node.name} ({said}); retrying"


# -- the end ------------------------------------------------------------------------------------


def _end(view: View, cluster: Cluster) -> Enact:
    """The command that removes a cluster and its groups. A server of others that was put into one of them
    stays, without a group."""
    groups = [GroupId(id) for id in cluster.groups if GroupId(id) in view.groups.records]
    commands = tuple(DeleteGroup(id, force=True, cluster=cluster.id) for id in groups)
    others = (change for id in groups for change in leave_group(view, id))
    return Enact((RecordChanged(cluster, None), *others), commands)


# -- the loop -----------------------------------------------------------------------------------


def reconcile_clusters(
    engine: Engine, clock: Clock, ids: Ids, scheduler: SchedulerOptions, settings: Settings
) -> Reconciler[Cluster]:
    """What drives all clusters of a region."""

    async def advance(cluster: Cluster) -> bool:
        context = Context(
            ids.request_id(),
            cluster.project,
            cluster.user,
            ids,
            scheduler,
            attempts_max=settings.build_attempts_max,
            quotas=read_quotas(settings),
        )

        def propose(view: View, now_s: int) -> Enact | Rejection | None:
            return propose_next(view, now_s, context, cluster.id)

        origin = Origin(context.request_id, cluster.user, cluster.project, "reconciler")
        for number in range(_STEPS_MAX):
            outcome = await engine.submit(propose, origin, lambda view, changed: changed)
            if isinstance(outcome, Rejection):
                _log.error("cluster %s: refused, retrying later: %s", cluster.id, outcome)
                return False
            if not outcome:
                return number > 0
        return True

    return Reconciler(engine, clock, Cluster, is_due, advance)

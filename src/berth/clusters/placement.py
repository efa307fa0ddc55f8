"""Places for the nodes of a cluster: all new nodes are planned jointly and claimed in one change.

A node's server is an ordinary server. Its metadata says that it is a node, and the group that the node is in
is its server group: so every move of it is judged as its creation was.
"""

from collections import Counter
from typing import Final

import msgspec

from berth.clusters.distribution import node_group_of
from berth.ledger import decide
from berth.ledger.quotas import find_exceeded
from berth.model.clusters import Cluster, Node
from berth.model.commands import CreateGroup, Enact, LedgerCommand, ReplaceAllocations
from berth.model.events import RecordChanged
from berth.model.groups import Group
from berth.model.ids import GroupId
from berth.model.quotas import amounts_of
from berth.model.rejections import Rejection
from berth.model.scheduling import ScheduleRequest
from berth.model.servers import Server
from berth.sagas import create
from berth.sagas.proposals import Context
from berth.sagas.requests import ask_resources as needed_by
from berth.sagas.requests import make_request
from berth.scheduler.flavors import FlavorAsk
from berth.scheduler.joint import fits_jointly, plan_jointly
from berth.scheduler.spec_table import read_properties
from berth.view import Trial, View

SERVER_NAME_MAX = 255
_STEPS_PER_NODE: Final = 10


def make_groups(cluster: Cluster) -> tuple[CreateGroup, ...]:
    """The commands that make the cluster's server groups: as many as the ratio, each with at most one member
    in a domain."""
    return tuple(
        CreateGroup(
            GroupId(id),
            Group(
                f"{cluster.name}-{number}",
                "anti-affinity",
                cluster.domain,
                1,
                None,
                cluster.project,
                cluster.user,
                0,
            ),
        )
        for number, id in enumerate(cluster.groups, 1)
    )


def place_nodes(
    view: View,
    now_s: int,
    context: Context,
    cluster: Cluster,
    nodes: tuple[Node, ...],
    groups: tuple[CreateGroup, ...] = (),
) -> Enact | Rejection:
    """The command that creates servers for these nodes, with ``groups`` made first; or why not all of them
    fit."""
    view.steps.take(_STEPS_PER_NODE * len(nodes))
    refused = check_quota(view, context, cluster, nodes)
    if refused is not None:
        return refused
    servers = {node.server: _make_server(cluster, node) for node in nodes}
    requests = _make_requests(context, servers)
    if isinstance(requests, Rejection):
        return requests
    with Trial(view) as trial:
        refused = _make_in_trial(view, now_s, trial, groups)
        if refused is not None:
            return refused
        plans = plan_jointly(view, requests, context.scheduler, context.ids.rng, now_s) if requests else ()
    if isinstance(plans, Rejection):
        return plans
    changes: list[RecordChanged] = []
    for planned in plans:
        for placement in planned.placements:
            changes += create.start_build(view, now_s, context, servers[placement.member], placement)
    claims = tuple(claim for planned in plans for claim in planned.claims)
    commands: tuple[LedgerCommand, ...] = groups
    if claims:
        commands = (*groups, ReplaceAllocations(claims))
    return Enact(tuple(changes), commands, quotas=context.quotas)


def check_quota(view: View, context: Context, cluster: Cluster, nodes: tuple[Node, ...]) -> Rejection | None:
    """The rejection, if these nodes exceed the quota of the project."""
    total: Counter[str] = Counter()
    counts = Counter(node.node_group for node in nodes)
    for name, node in {node.node_group: node for node in nodes}.items():
        # The nodes of a node group are all alike.
        _, amounts = amounts_of(_make_server(cluster, node))
        total.update({resource: amount * counts[name] for resource, amount in amounts.items()})
    return find_exceeded(view, context.quotas, cluster.project, total)


def fits(view: View, now_s: int, context: Context, cluster: Cluster) -> bool:
    """Whether all nodes of a cluster that does not exist yet could be placed."""
    view.steps.take(_STEPS_PER_NODE * len(cluster.nodes))
    requests = _make_requests(context, {node.server: _make_server(cluster, node) for node in cluster.nodes})
    if isinstance(requests, Rejection):
        return False
    with Trial(view) as trial:
        if _make_in_trial(view, now_s, trial, make_groups(cluster)) is not None:
            return False
        return fits_jointly(view, requests, context.scheduler, context.ids.rng, now_s)


def _make_in_trial(view: View, now_s: int, trial: Trial, groups: tuple[CreateGroup, ...]) -> Rejection | None:
    for command in groups:
        verdict = decide(view, command, now_s)
        if isinstance(verdict, Rejection):
            return verdict
        trial.apply(verdict)
    return None


def _make_server(cluster: Cluster, node: Node) -> Server:
    node_group = node_group_of(cluster, node.node_group)
    assert node_group is not None, f"{node.name} is of a node group of the cluster"
    image = node_group.image
    return Server(
        id=node.server,
        name=f"{cluster.name}-{node.name}"[-SERVER_NAME_MAX:],
        project=cluster.project,
        user=cluster.user,
        flavor=node_group.flavor,
        image=None if image is None else image.id,
        image_properties={} if image is None else read_properties(image.properties),
        group=node.group,
        metadata={"cluster": cluster.id, "node": node.name},
        needs=node_group.needs,
    )


def _make_requests(context: Context, servers: dict[str, Server]) -> list[ScheduleRequest] | Rejection:
    """One request for all servers that need the same and are in the same group; members of groups first."""
    alike: dict[tuple[str | None, bytes], list[Server]] = {}
    for server in servers.values():
        kind = msgspec.json.encode((server.flavor, sorted(server.image_properties.items()), server.needs))
        alike.setdefault((server.group, kind), []).append(server)
    requests = []
    asks: dict[bytes, FlavorAsk] = {}
    for (_, kind), some in sorted(alike.items(), key=lambda entry: entry[1][0].group is None):
        needed = asks.get(kind) or needed_by(some[0], context.scheduler.devices)
        if isinstance(needed, Rejection):
            return needed
        asks[kind] = needed
        members = tuple(server.id for server in some)
        requests.append(
            make_request(
                some[0], needed, members=members, at_least=len(members), alternates=context.alternates
            )
        )
    return requests

"""/berth/v1/clusters: many servers with roles, created, changed and deleted as one.

A request is recorded in one change, all of it or nothing. Servers are built and deleted afterwards; the
cluster's state shows how far that is. A cluster is visible to its project and to administrators; for
everybody else it does not exist.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.api.kernel.access import Access, make_host_id, show_failure
from berth.api.kernel.http import Response
from berth.api.kernel.images import fetch_images, find_images
from berth.api.kernel.needs import RULE, RULE_TO_SHOW, NeedDetail, describe_need, make_needs
from berth.api.kernel.paging import behind, render_keys, take_first
from berth.api.kernel.times import show_time
from berth.api.native.calls import (
    NativeCall,
    NativeHandler,
    NativeRoute,
    Reader,
    bad_body,
    change_found,
    respond,
    respond_fixed,
)
from berth.api.native.cluster_bodies import (
    CreateCluster,
    NewCluster,
    NewNodeGroup,
    ReplaceNode,
    ScaleCluster,
    objection,
    objection_to_scale,
)
from berth.api.native.fields import LIMIT_DEFAULT, KeyMarker, Limit, Next, Time, Uuid
from berth.clusters import proposals as operation
from berth.clusters.proposals import ClusterProgress, ClusterStatus, NodeProgress, summarize_cluster
from berth.model.clusters import Cluster, NodeGroup, NodeState
from berth.model.commands import Enact
from berth.model.rejections import (
    ClusterNotFound,
    NodeFlavorNotFound,
    NodeFlavorTooSmall,
    NodeImageAmbiguous,
    NodeImageNotActive,
    NodeImageNotFound,
    NodeSpecInvalid,
    Rejection,
    SpecInvalid,
)
from berth.model.servers import Flavor, Image, status_of
from berth.sagas.needs import find_wrong
from berth.sagas.requests import copy_flavor, flavor_sizes
from berth.scheduler.flavors import wrong_flavor, wrong_guest
from berth.scheduler.spec_table import keep_properties, wrong_image_property
from berth.view import View

# -- answers ------------------------------------------------------------------------------------

State = Annotated[
    ClusterStatus,
    Meta(
        description="`building`: servers are being built; `scaling`: nodes leave; `replacing`: a node gets "
        "another server; `error`: a node's server is in error, or gone; `degraded`: the host of a node is "
        "down; `active`: everything is there."
    ),
]


class Progress(msgspec.Struct):
    """How many nodes are wanted, how many of them are ready, and how many others are still to be deleted."""

    ready: int
    wanted: int
    leaving: int


class ClusterNodeGroup(msgspec.Struct):
    """``needs`` are shown to callers that may list the needs of servers; null to others."""

    name: str
    flavor: str
    image: str | None
    count: int
    processes: list[str]
    needs: list[NeedDetail] | None


class ClusterNode(msgspec.Struct):
    """``status`` is the server's, as the compute API has it; ``DELETED`` where there is none. ``host_name``
    is for administrators; by ``host_id`` everybody can tell which nodes share a host. A node whose host is
    down (``host_down``) is not ready, whatever its server's status."""

    name: str
    node_group: str
    index: int
    state: NodeState
    server_uuid: Uuid
    status: str
    task: str | None
    host_name: str | None
    host_id: str | None
    host_down: bool
    group_uuid: Uuid | None
    fault: str | None


class ClusterSummary(msgspec.Struct):
    """``fault``: why the last change of the cluster failed."""

    uuid: Uuid
    name: str
    state: State
    progress: Progress
    anti_affinity: list[str]
    anti_affinity_ratio: int
    anti_affinity_domain: str
    project_id: str
    user_id: str
    created_at: Time
    updated_at: Time
    fault: str | None


class Clusters(msgspec.Struct):
    """A page of clusters, in the order of their uuids."""

    clusters: list[ClusterSummary]
    next: Next = None


class ClusterDetail(ClusterSummary):
    """``groups`` are the server groups that nodes are distributed over in turn."""

    groups: list[Uuid]
    node_groups: list[ClusterNodeGroup]
    nodes: list[ClusterNode]


class OneCluster(msgspec.Struct):
    cluster: ClusterDetail


# -- queries ------------------------------------------------------------------------------------

OfName = Annotated[str, Meta(min_length=1, max_length=64, description="Only clusters of this name.")]


class ClustersQuery(msgspec.Struct, frozen=True, kw_only=True):
    name: OfName | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


# -- handlers -----------------------------------------------------------------------------------


def answer_for_caller(reader: Reader) -> NativeHandler:
    """The handler that answers with what a reader says of the view. The tag is of the answer itself: it is
    not the same for every caller."""

    async def handle(call: NativeCall) -> Response:
        return respond_fixed(call, await call.read(lambda view: respond(reader(view, call)).body))

    return handle


def list_clusters(view: View, call: NativeCall) -> Clusters:
    query: ClustersQuery = call.query
    found = {
        cluster.id: cluster
        for cluster in view.records.all(Cluster)
        if call.access.sees(cluster.project) and query.name in (None, cluster.name)
    }
    ids, more = take_first(behind(found, query.marker), query.limit)
    return Clusters(
        *render_keys(call.request, query, ids, more, lambda id: _summarize(call.access, view, found[id]))
    )


def show_cluster(view: View, call: NativeCall) -> OneCluster:
    return OneCluster(_describe(call.access, view, call.accept(_find_cluster(view, call))))


async def create_cluster(call: NativeCall) -> Response:
    asked: NewCluster = call.body.cluster
    _refuse_objection(objection(asked))
    _require_needs(call, asked.node_groups)
    if not call.project:
        raise bad_body("a cluster belongs to a project, and the token is of none")
    await _fetch_images(call, asked.node_groups)
    context, id = call.context(), call.services.ids.uuid()

    def propose(view: View, now_s: int) -> Enact | Rejection:
        cluster = _make_cluster(call, view, id, asked)
        if isinstance(cluster, Rejection):
            return cluster
        return operation.create(view, now_s, context, cluster)

    await call.submit(propose, lambda view: None)
    # Not in the writer's turn: a thousand nodes take a while to describe.
    response = await call.read(lambda view: respond(_show(view, call, id), 202))
    response.headers.append(("location", f"{call.request.path}/{id}"))
    return response


async def scale_cluster(call: NativeCall) -> Response:
    asked: ScaleCluster = call.body
    _refuse_objection(objection_to_scale(asked))
    _require_needs(call, asked.add)
    await _fetch_images(call, asked.add)
    context = call.context()

    def scale(view: View, now_s: int, cluster: Cluster) -> Enact | Rejection:
        add = _make_node_groups(call, view, asked.add)
        if isinstance(add, Rejection):
            return add
        return operation.scale(
            view, now_s, context, cluster.id, asked.counts, add, asked.remove, asked.anti_affinity_ratio
        )

    return await call.submit(
        change_found(call, _find_cluster, scale), lambda view: _respond_accepted(view, call)
    )


async def replace_node(call: NativeCall) -> Response:
    asked: ReplaceNode = call.body
    context, name = call.context(), call.params[1]

    def replace(view: View, now_s: int, cluster: Cluster) -> Enact | Rejection:
        return operation.replace(view, now_s, context, cluster.id, name, force=asked.force)

    return await call.submit(
        change_found(call, _find_cluster, replace), lambda view: _respond_accepted(view, call)
    )


async def delete_cluster(call: NativeCall) -> Response:
    context = call.context()

    def delete(view: View, now_s: int, cluster: Cluster) -> Enact | Rejection:
        return operation.delete(view, now_s, context, cluster.id)

    return await call.submit(
        change_found(call, _find_cluster, delete), lambda view: _respond_accepted(view, call)
    )


def _refuse_objection(objection: str | None) -> None:
    if objection is not None:
        raise bad_body(objection)


def _require_needs(call: NativeCall, asked: Iterable[NewNodeGroup]) -> None:
    if any(group.needs for group in asked):
        call.require(RULE)


def _find_cluster(view: View, call: NativeCall) -> Cluster | Rejection:
    """The cluster, if there is one for the caller."""
    id = call.params[0].lower()
    cluster = view.records.get(Cluster, id)
    if cluster is None or not call.access.sees(cluster.project):
        return ClusterNotFound(id)
    return call.find_forbidden(cluster.project) or cluster


def _show(view: View, call: NativeCall, id: str) -> OneCluster:
    cluster = view.records.get(Cluster, id)
    if cluster is None:
        raise call.problem_of(ClusterNotFound(id))
    return OneCluster(_describe(call.access, view, cluster))


def _respond_accepted(view: View, call: NativeCall) -> Response:
    return respond(_show(view, call, call.params[0].lower()), 202)


# -- from what is sent to the cluster that is asked for -----------------------------------------


def _make_cluster(call: NativeCall, view: View, id: str, asked: NewCluster) -> Cluster | Rejection:
    """The cluster, without its nodes."""
    groups = _make_node_groups(call, view, asked.node_groups)
    if isinstance(groups, Rejection):
        return groups
    return Cluster(
        id=id,
        name=asked.name,
        project=call.project,
        user=call.user,
        anti_affinity=asked.anti_affinity,
        ratio=asked.ratio,
        domain=asked.domain,
        node_groups=groups,
    )


def _make_node_groups(
    call: NativeCall, view: View, asked: Iterable[NewNodeGroup]
) -> tuple[NodeGroup, ...] | Rejection:
    groups = []
    for one in asked:
        group = _make_node_group(call, view, one)
        if isinstance(group, Rejection):
            return group
        groups.append(group)
    return tuple(groups)


def _make_node_group(call: NativeCall, view: View, asked: NewNodeGroup) -> NodeGroup | Rejection:
    flavor = _find_flavor(call, view, asked)
    if isinstance(flavor, Rejection):
        return flavor
    image = None if asked.image is None else _find_image(call, view, asked, asked.image)
    if isinstance(image, Rejection):
        return image
    needs = make_needs(asked.needs)
    wrong = (
        (None if image is None else _check_size(asked, flavor, image))
        or _check_guest(asked, flavor, image)
        or find_wrong(view, needs)
    )
    return wrong or NodeGroup(
        name=asked.name,
        flavor=flavor,
        image=image,
        processes=asked.processes,
        count=asked.count,
        needs=needs,
    )


def _find_flavor(call: NativeCall, view: View, asked: NewNodeGroup) -> Flavor | Rejection:
    by_id = view.records.get(Flavor, asked.flavor)
    called = view.records.find(Flavor, "name", asked.flavor)
    found = [by_id] if by_id is not None else called
    usable = [flavor for flavor in found if call.access.may_use_flavor(flavor)]
    if not usable:
        return NodeFlavorNotFound(asked.name, asked.flavor)
    wrong = wrong_flavor(flavor_sizes(usable[0]))
    if wrong is not None:
        return NodeSpecInvalid(asked.name, f"flavor {asked.flavor}", wrong.key, wrong.value, wrong.accepted)
    return copy_flavor(usable[0], call.services.scheduler.devices)


def _check_guest(asked: NewNodeGroup, flavor: Flavor, image: Image | None) -> NodeSpecInvalid | None:
    wrong = wrong_guest(flavor_sizes(flavor), {} if image is None else image.properties)
    if wrong is None:
        return None
    source = f"flavor {asked.flavor}" if image is None else f"flavor {asked.flavor} with image {asked.image}"
    return NodeSpecInvalid(asked.name, source, wrong.key, wrong.value, wrong.accepted)


async def _fetch_images(call: NativeCall, asked: Iterable[NewNodeGroup]) -> None:
    await fetch_images(call.services.glance, call, (one.image for one in asked), by_name=True)


def _find_image(call: NativeCall, view: View, asked: NewNodeGroup, ref: str) -> Image | Rejection:
    usable = find_images(call, view, ref, by_name=True)
    if not usable:
        return NodeImageNotFound(asked.name, ref)
    active = [image for image in usable if image.status == "active"]
    if len(active) > 1:
        return NodeImageAmbiguous(asked.name, ref, tuple(sorted(image.id for image in active)[:10]))
    if not active:
        return NodeImageNotActive(asked.name, ref, usable[0].status)
    wrong = wrong_image_property(active[0].properties)
    if wrong is not None:
        return NodeSpecInvalid(asked.name, f"image {ref}", wrong.key, wrong.value, wrong.accepted)
    kept = keep_properties(active[0].properties)
    if isinstance(kept, SpecInvalid):
        return kept
    return msgspec.structs.replace(active[0], properties=kept, tags=())


def _check_size(asked: NewNodeGroup, flavor: Flavor, image: Image) -> Rejection | None:
    """Whether the flavor has what the image needs. A disk of 0 is as large as the image."""
    for unit, has, needs in (
        ("MB of memory", flavor.memory_mb, image.min_memory_mb),
        ("GB of disk", flavor.disk_gb or image.min_disk_gb, image.min_disk_gb),
    ):
        if has < needs:
            return NodeFlavorTooSmall(asked.name, flavor.name, asked.image or image.id, unit, has, needs)
    return None


# -- from the cluster to what is shown ----------------------------------------------------------


def _summarize(access: Access, view: View, cluster: Cluster) -> ClusterSummary:
    return _describe_summary(access, cluster, summarize_cluster(view, cluster))


def _describe(access: Access, view: View, cluster: Cluster) -> ClusterDetail:
    """With the names of hosts for callers that may know them."""
    seen = summarize_cluster(view, cluster)
    above = _describe_summary(access, cluster, seen)
    return ClusterDetail(
        **{name: getattr(above, name) for name in above.__struct_fields__},
        groups=list(cluster.groups),
        node_groups=[_describe_node_group(access, cluster, group) for group in cluster.node_groups],
        nodes=[_describe_node(access, view, one) for one in seen.nodes],
    )


def _describe_summary(access: Access, cluster: Cluster, seen: ClusterProgress) -> ClusterSummary:
    return ClusterSummary(
        uuid=cluster.id,
        name=cluster.name,
        state=seen.status,
        progress=Progress(seen.ready, seen.wanted, seen.leaving),
        anti_affinity=list(cluster.anti_affinity),
        anti_affinity_ratio=cluster.ratio,
        anti_affinity_domain=cluster.domain,
        project_id=cluster.project,
        user_id=cluster.user,
        created_at=show_time(cluster.created_at_s),
        updated_at=show_time(cluster.updated_at_s),
        fault=_show_fault(access, cluster.fault),
    )


def _describe_node_group(access: Access, cluster: Cluster, group: NodeGroup) -> ClusterNodeGroup:
    image = None if group.image is None else group.image.name or group.image.id
    shown = access.allows(RULE_TO_SHOW, cluster.project)
    needs = [describe_need(need) for need in group.needs] if shown else None
    return ClusterNodeGroup(group.name, group.flavor.name, image, group.count, list(group.processes), needs)


def _show_fault(access: Access, fault: str | None) -> str | None:
    """The part in brackets names hosts."""
    return fault if fault is None or access.sees_hosts else fault.partition(" (")[0]


def _describe_node(access: Access, view: View, one: NodeProgress) -> ClusterNode:
    node, server = one.node, one.server
    return ClusterNode(
        name=node.name,
        node_group=node.node_group,
        index=node.index,
        state=node.state,
        server_uuid=node.server,
        status="DELETED" if server is None else status_of(server),
        task=None if server is None else server.task,
        host_name=one.host if access.sees_hosts else None,
        host_id=None if server is None or one.host is None else make_host_id(server.project, one.host),
        host_down=one.is_host_down,
        group_uuid=node.group,
        fault=_show_node_fault(access, view, one),
    )


def _show_node_fault(access: Access, view: View, one: NodeProgress) -> str | None:
    server = one.server
    if server is None:
        return None
    if server.is_locked and one.node.state != "wanted":
        return "The server is locked: it is deleted as soon as it is unlocked."
    return None if server.fault is None else show_failure(access, view, server, server.fault.message)


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/clusters",
        answer_for_caller(list_clusters),
        policy="berth:clusters:list",
        name="list_clusters",
        query=ClustersQuery,
        answer=Clusters,
        summary="List clusters",
        description="Those of the caller's project, and for an administrator all, in the order of their "
        "uuids.",
    ),
    NativeRoute(
        "POST",
        "/clusters",
        create_cluster,
        policy="berth:clusters:create",
        name="create_cluster",
        body=CreateCluster,
        example={
            "cluster": {
                "name": "hadoop",
                "node_groups": [
                    {"name": "worker", "flavor": "m1.small", "count": 3, "processes": ["datanode"]}
                ],
                "anti_affinity": ["datanode"],
            }
        },
        answer=OneCluster,
        status=202,
        summary="Create a cluster",
        description="All nodes are claimed in one change, or none. Nodes of the processes in `anti_affinity` "
        "are distributed in turn over as many server groups as the ratio says, each with at most one node on "
        "a host. Where they do not fit the answer is 409, `berth.no_fit`, and names the ratio that would "
        "fit, if there is one.",
    ),
    NativeRoute(
        "GET",
        "/clusters/{cluster}",
        answer_for_caller(show_cluster),
        policy="berth:clusters:show",
        name="show_cluster",
        answer=OneCluster,
        summary="Show a cluster",
        description="Its state, and each node with its server, its host and its server group.",
    ),
    NativeRoute(
        "DELETE",
        "/clusters/{cluster}",
        delete_cluster,
        policy="berth:clusters:delete",
        name="delete_cluster",
        answer=OneCluster,
        status=202,
        summary="Delete a cluster",
        description="Its servers are deleted one by one, then its groups and itself: it is shown as "
        "`deleting` until then.",
    ),
    NativeRoute(
        "POST",
        "/clusters/{cluster}/scale",
        scale_cluster,
        policy="berth:clusters:update",
        name="scale_cluster",
        body=ScaleCluster,
        example={"counts": {"worker": 5}},
        answer=OneCluster,
        status=202,
        summary="Give node groups more or fewer nodes, add and remove node groups",
        description="New nodes continue the distribution over the groups, and are claimed in one change, or "
        "none. Nodes are removed so that the groups stay even. Another ratio than the cluster's is refused "
        "with 409.",
    ),
    NativeRoute(
        "POST",
        "/clusters/{cluster}/nodes/{node}/replace",
        replace_node,
        policy="berth:clusters:update",
        name="replace_node",
        body=ReplaceNode,
        example={"force": False},
        answer=OneCluster,
        status=202,
        summary="Replace the server of a node",
        description="In the same group, under the same constraints; on another host if its own is down. "
        "Refused with 409 for a node that has not failed, unless forced.",
    ),
)

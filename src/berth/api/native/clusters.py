"""/berth/v1/clusters: many servers with roles, asked for, changed and taken away as one.

What is asked is written down in one act, all of it or nothing; what follows (servers that are built, and such
that go) takes its time, and is seen in the cluster's state. A cluster is its project's, and an
administrator's; to everybody else it is not there.
"""

from typing import Final

from berth.api.kernel.codes import BAD_BODY
from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, cut, shown_page
from berth.api.kernel.problem import Problem, answering
from berth.api.kernel.rejections import berth_problem
from berth.api.native import bodies_clusters as sent
from berth.api.native import wire_clusters as wire
from berth.api.native.asking_clusters import cluster_of, node_group_of
from berth.api.native.calls import NativeCall, NativeHandler, NativeRoute, Reader, encoded, fixed
from berth.api.native.clusters_shown import summary, whole
from berth.api.native.parameters import ClustersQuery
from berth.clusters import proposals as operation
from berth.model.clusters import Cluster
from berth.model.commands import Enact
from berth.model.rejections import ClusterNotFound, Rejection
from berth.view import View


def reading(reader: Reader) -> NativeHandler:
    """The handler that answers with what a reader says of the view. The tag is of the answer itself: it is
    not the same for every caller."""

    async def handle(call: NativeCall) -> Response:
        body = await call.read(answering(lambda view: encoded(reader(view, call)).body))
        if isinstance(body, Problem):
            raise body
        return fixed(call, body)

    return handle


def page(view: View, call: NativeCall) -> wire.Clusters:
    query: ClustersQuery = call.query
    found = {
        cluster.id: cluster
        for cluster in view.records.all(Cluster)
        if call.access.sees(cluster.project) and query.name in (None, cluster.name)
    }
    ids, more = cut(behind(found, query.marker), query.limit)
    return wire.Clusters(
        *shown_page(call.request, query, ids, more, lambda id: summary(call.access, view, found[id]))
    )


def show(view: View, call: NativeCall) -> wire.OneCluster:
    return _one(view, call, _visible(view, call).id)


async def create(call: NativeCall) -> Response:
    asked: sent.NewCluster = call.body.cluster
    _refuse(sent.objection(asked))
    id = call.services.ids.uuid()

    def propose(view: View, now_s: int) -> Enact | Rejection:
        return operation.create(view, now_s, call.context(), cluster_of(call, view, id, asked))

    response = await call.submit(propose, lambda view: encoded(_one(view, call, id), 202))
    response.headers.append(("location", f"{call.request.path}/{id}"))
    return response


async def scale(call: NativeCall) -> Response:
    asked: sent.ScaleCluster = call.body
    _refuse(sent.objection_to_scale(asked))

    def propose(view: View, now_s: int) -> Enact | Rejection:
        return operation.scale(
            view,
            now_s,
            call.context(),
            _visible(view, call).id,
            asked.counts,
            tuple(node_group_of(call, view, group) for group in asked.add),
            asked.remove,
            asked.anti_affinity_ratio,
        )

    return await call.submit(propose, lambda view: _accepted(view, call))


async def replace(call: NativeCall) -> Response:
    asked: sent.ReplaceNode = call.body

    def propose(view: View, now_s: int) -> Enact | Rejection:
        id, name = _visible(view, call).id, call.params[1]
        return operation.replace(view, now_s, call.context(), id, name, force=asked.force)

    return await call.submit(propose, lambda view: _accepted(view, call))


async def delete(call: NativeCall) -> Response:
    return await call.submit(
        lambda view, now_s: operation.delete(view, now_s, call.context(), _visible(view, call).id),
        lambda view: _accepted(view, call),
    )


# -- who, and what ------------------------------------------------------------------------------


def _refuse(objection: str | None) -> None:
    if objection is not None:
        raise Problem(400, f"The body is not what is expected here: {objection}.", BAD_BODY)


def _visible(view: View, call: NativeCall) -> Cluster:
    """The cluster, if there is one for the caller."""
    id = call.params[0].lower()
    cluster = view.records.get(Cluster, id)
    if cluster is None or not call.access.sees(cluster.project):
        raise berth_problem(ClusterNotFound(id))
    call.require_of(cluster.project)
    return cluster


def _one(view: View, call: NativeCall, id: str) -> wire.OneCluster:
    cluster = view.records.get(Cluster, id)
    if cluster is None:
        raise berth_problem(ClusterNotFound(id))
    return wire.OneCluster(whole(call.access, view, cluster))


def _accepted(view: View, call: NativeCall) -> Response:
    return encoded(_one(view, call, call.params[0].lower()), 202)


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/clusters",
        reading(page),
        policy="berth:clusters:list",
        name="list_clusters",
        query=ClustersQuery,
        answer=wire.Clusters,
        summary="List clusters",
        description="Those of the caller's project, and for an administrator all, in the order of their "
        "uuids.",
    ),
    NativeRoute(
        "POST",
        "/clusters",
        create,
        policy="berth:clusters:create",
        name="create_cluster",
        body=sent.CreateCluster,
        answer=wire.OneCluster,
        status=202,
        summary="Create a cluster",
        description="All nodes are claimed in one act, or none. Nodes of the processes in `anti_affinity` "
        "are dealt in turn to as many server groups as the ratio says, each with at most one node on a "
        "host. Where they do not fit the answer is 409, `berth.no_fit`, and says which ratio would "
        "do, if one would.",
    ),
    NativeRoute(
        "GET",
        "/clusters/{cluster}",
        reading(show),
        policy="berth:clusters:show",
        name="show_cluster",
        answer=wire.OneCluster,
        summary="Show a cluster",
        description="Its state, and each node with its server, its host and its server group.",
    ),
    NativeRoute(
        "DELETE",
        "/clusters/{cluster}",
        delete,
        policy="berth:clusters:delete",
        name="delete_cluster",
        answer=wire.OneCluster,
        status=202,
        summary="Delete a cluster",
        description="Its servers go one by one, then its groups and itself: it is shown as `deleting` until "
        "then.",
    ),
    NativeRoute(
        "POST",
        "/clusters/{cluster}/scale",
        scale,
        policy="berth:clusters:update",
        name="scale_cluster",
        body=sent.ScaleCluster,
        answer=wire.OneCluster,
        status=202,
        summary="Give node groups more or fewer nodes, add and remove node groups",
        description="New nodes go on where the dealing stopped, and are claimed in one act, or none. Nodes "
        "that go are chosen so that the groups stay even. Another ratio than the cluster's is "
        "refused with 409.",
    ),
    NativeRoute(
        "POST",
        "/clusters/{cluster}/nodes/{node}/replace",
        replace,
        policy="berth:clusters:update",
        name="replace_node",
        body=sent.ReplaceNode,
        answer=wire.OneCluster,
        status=202,
        summary="Give a node another server",
        description="In the same group, under the same constraints; on another host if its own is down. "
        "Refused with 409 for a node that nothing is wrong with, unless forced.",
    ),
)

"""/berth/v1/clusters: many servers with roles, asked for, changed and taken away as one.

What is asked is written down in one act, all of it or nothing; what follows (servers that are built, and such
that go) takes its time, and is seen in the cluster's state. A cluster is its project's, and an
administrator's; to everybody else it is not there.
"""

from berth.api.kernel.codes import BAD_BODY
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem, answering
from berth.api.kernel.rejections import berth_problem
from berth.api.native import bodies_clusters as sent
from berth.api.native import wire_clusters as wire
from berth.api.native.asking_clusters import cluster_of, node_group_of
from berth.api.native.calls import Call, Handler, Reader, encoded, fixed
from berth.api.native.clusters_shown import summary, whole
from berth.api.native.pages import behind, cut, shown_page
from berth.api.native.parameters import ClustersQuery
from berth.clusters import proposals as operation
from berth.model.clusters import Cluster
from berth.model.commands import Enact
from berth.model.rejections import ClusterNotFound, Rejection
from berth.sagas.proposals import Context
from berth.view import View


def reading(reader: Reader) -> Handler:
    """The handler that answers with what a reader says of the view. The tag is of the answer itself: it is
    not the same for every caller."""

    async def handle(call: Call) -> Response:
        body = await call.services.engine.read(answering(lambda view: encoded(reader(view, call)).body))
        if isinstance(body, Problem):
            raise body
        return fixed(call, body)

    return handle


def page(view: View, call: Call) -> wire.Clusters:
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


def show(view: View, call: Call) -> wire.OneCluster:
    return _one(view, call, _visible(view, call).id)


async def create(call: Call) -> Response:
    asked: sent.NewCluster = call.body.cluster
    _refuse(sent.objection(asked))
    id = call.services.ids.uuid()

    def propose(view: View, now_s: int) -> Enact | Rejection:
        return operation.create(view, now_s, _asked(call), cluster_of(call, view, id, asked))

    response = await call.submit(propose, lambda view: encoded(_one(view, call, id), 202))
    response.headers.append(("location", f"{call.request.path}/{id}"))
    return response


async def scale(call: Call) -> Response:
    asked: sent.ScaleCluster = call.body
    _refuse(sent.objection_to_scale(asked))

    def propose(view: View, now_s: int) -> Enact | Rejection:
        return operation.scale(
            view,
            now_s,
            _asked(call),
            _visible(view, call).id,
            asked.counts,
            tuple(node_group_of(call, view, group) for group in asked.add),
            asked.remove,
            asked.anti_affinity_ratio,
        )

    return await call.submit(propose, lambda view: _accepted(view, call))


async def replace(call: Call) -> Response:
    asked: sent.ReplaceNode = call.body

    def propose(view: View, now_s: int) -> Enact | Rejection:
        id, name = _visible(view, call).id, call.params[1]
        return operation.replace(view, now_s, _asked(call), id, name, force=asked.force)

    return await call.submit(propose, lambda view: _accepted(view, call))


async def delete(call: Call) -> Response:
    return await call.submit(
        lambda view, now_s: operation.delete(view, now_s, _asked(call), _visible(view, call).id),
        lambda view: _accepted(view, call),
    )


# -- who, and what ------------------------------------------------------------------------------


def _asked(call: Call) -> Context:
    services, caller = call.services, call.caller
    return Context(
        call.request.request_id,
        caller.project_id or "",
        caller.user_id or "",
        services.ids,
        services.scheduler,
        services.conflict_policy,
        services.build_attempts_max,
        quotas=services.quotas,
    )


def _refuse(objection: str | None) -> None:
    if objection is not None:
        raise Problem(400, f"The body is not what is expected here: {objection}.", BAD_BODY)


def _visible(view: View, call: Call) -> Cluster:
    """The cluster, if there is one for the caller."""
    id = call.params[0].lower()
    cluster = view.records.get(Cluster, id)
    if cluster is None or not call.access.sees(cluster.project):
        raise berth_problem(ClusterNotFound(id))
    call.require_of(cluster.project)
    return cluster


def _one(view: View, call: Call, id: str) -> wire.OneCluster:
    cluster = view.records.get(Cluster, id)
    if cluster is None:
        raise berth_problem(ClusterNotFound(id))
    return wire.OneCluster(whole(call.access, view, cluster))


def _accepted(view: View, call: Call) -> Response:
    return encoded(_one(view, call, call.params[0].lower()), 202)

"""The part of the table of routes that is about clusters."""

from berth.api.native import bodies_clusters, clusters, wire_clusters
from berth.api.native.calls import Route
from berth.api.native.parameters import ClustersQuery, Nothing


def table(prefix: str) -> dict[str, dict[str, Route]]:
    return {
        f"{prefix}/clusters": {
            "GET": Route(
                clusters.reading(clusters.page),
                "berth:clusters:list",
                ClustersQuery,
                wire_clusters.Clusters,
                "list_clusters",
                "List clusters",
                "Those of the caller's project, and for an administrator all, in the order of their uuids.",
            ),
            "POST": Route(
                clusters.create,
                "berth:clusters:create",
                Nothing,
                wire_clusters.OneCluster,
                "create_cluster",
                "Create a cluster",
                "All nodes are claimed in one act, or none. Nodes of the processes in `anti_affinity` are "
                "dealt in turn to as many server groups as the ratio says, each with at most one node on a "
                "host. Where they do not fit the answer is 409, `berth.no_fit`, and says which ratio would "
                "do, if one would.",
                body=bodies_clusters.CreateCluster,
                status=202,
            ),
        },
        f"{prefix}/clusters/{{cluster}}": {
            "GET": Route(
                clusters.reading(clusters.show),
                "berth:clusters:show",
                Nothing,
                wire_clusters.OneCluster,
                "show_cluster",
                "Show a cluster",
                "Its state, and each node with its server, its host and its server group.",
            ),
            "DELETE": Route(
                clusters.delete,
                "berth:clusters:delete",
                Nothing,
                wire_clusters.OneCluster,
                "delete_cluster",
                "Delete a cluster",
                "Its servers go one by one, then its groups and itself: it is shown as `deleting` until "
                "then.",
                status=202,
            ),
        },
        f"{prefix}/clusters/{{cluster}}/scale": {
            "POST": Route(
                clusters.scale,
                "berth:clusters:update",
                Nothing,
                wire_clusters.OneCluster,
                "scale_cluster",
                "Give node groups more or fewer nodes, add and remove node groups",
                "New nodes go on where the dealing stopped, and are claimed in one act, or none. Nodes "
                "that go are chosen so that the groups stay even. Another ratio than the cluster's is "
                "refused with 409.",
                body=bodies_clusters.ScaleCluster,
                status=202,
            ),
        },
        f"{prefix}/clusters/{{cluster}}/nodes/{{node}}/replace": {
            "POST": Route(
                clusters.replace,
                "berth:clusters:update",
                Nothing,
                wire_clusters.OneCluster,
                "replace_node",
                "Give a node another server",
                "In the same group, under the same constraints; on another host if its own is down. "
                "Refused with 409 for a node that nothing is wrong with, unless forced.",
                body=bodies_clusters.ReplaceNode,
                status=202,
            ),
        },
    }

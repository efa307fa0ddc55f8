"""What /berth/v1 answers with about clusters."""

from typing import Annotated

import msgspec
from msgspec import Meta

from berth.api.native.wire import Next, Time, Uuid
from berth.clusters.status import ClusterStatus
from berth.model.clusters import NodeState

State = Annotated[
    ClusterStatus,
    Meta(
        description="`building`: servers are being built; `scaling`: nodes leave; `replacing`: a node gets "
        "another server; `error`: a node's server is in error, or gone; `degraded`: the host of a node is "
        "down; `active`: everything is there."
    ),
]


class Progress(msgspec.Struct):
    """How many nodes are wanted, how many of them are there, and how many more are still to go."""

    ready: int
    wanted: int
    leaving: int


class ClusterNodeGroup(msgspec.Struct):
    name: str
    flavor: str
    image: str | None
    count: int
    processes: list[str]


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
    """``fault``: why the last thing that was tried did not work."""

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


class Cluster(ClusterSummary):
    """``groups`` are the server groups that nodes are dealt to in turn."""

    groups: list[Uuid]
    node_groups: list[ClusterNodeGroup]
    nodes: list[ClusterNode]


class OneCluster(msgspec.Struct):
    cluster: Cluster

"""Clusters: many servers with roles, of which some keep away from each other.

A node of an anti-affinity process is in one of the cluster's server groups, as many as the ratio says: each
group has at most one node on a host (or in a rack, a zone), so all of them together at most as many as the
ratio. What a cluster *is* stands here; how each of its servers is doing stands with the server.
"""

from typing import Final, Literal

import msgspec

from berth.model.servers import Flavor, Image, Need, Record

RATIO_MAX: Final = 100
NODES_MAX: Final = 1_000
NODE_GROUPS_MAX: Final = 50

ClusterState = Literal["active", "deleting"]
NodeState = Literal["wanted", "leaving", "replacing"]
"""``wanted``: its server is there, or was. ``leaving``: its server is to be deleted, and the node with it.
``replacing``: its server is to be deleted, and another made in its place."""


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Nodes of one kind. ``next_index`` is the index of the next node that comes into it. ``needs`` are those
    of each node's server, when it is created."""

    name: str
    flavor: Flavor
    image: Image | None = None
    processes: tuple[str, ...] = ()
    count: int = 0
    next_index: int = 0
    needs: tuple[Need, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``index`` counts the nodes of its node group; ``group`` is the server group that it is in, if its
    processes are kept apart."""

    name: str
    node_group: str
    index: int
    server: str
    group: str | None = None
    state: NodeState = "wanted"


class Cluster(Record, frozen=True, kw_only=True, tag="cluster"):
    """``dealt`` counts the nodes that were distributed over the groups, in turn. ``domain``: what nodes of a
    group do not share, a host or a kind of aggregate. ``fault`` says why the last attempt to change it
    failed."""

    name: str
    project: str
    user: str
    anti_affinity: tuple[str, ...] = ()
    ratio: int = 1
    domain: str = "host"
    groups: tuple[str, ...] = ()
    dealt: int = 0
    node_groups: tuple[NodeGroup, ...] = ()
    nodes: tuple[Node, ...] = ()
    state: ClusterState = "active"
    fault: str | None = None
    created_at_s: int = 0
    updated_at_s: int = 0

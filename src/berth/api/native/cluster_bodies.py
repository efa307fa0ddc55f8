"""The bodies of /berth/v1/clusters: clusters, changes of their size, and nodes to replace.

A struct says what each part may be; ``objection`` says what is wrong with parts that do not go together. Both
are judged before anything is planned. They stand apart from ``clusters`` for the command line: it refuses a
file before it is sent, and must not load the server for it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType, field

from berth.api.kernel.needs import NeedBodies, object_to_needs
from berth.api.native.fields import Kind, NativeBody
from berth.model.clusters import NODE_GROUPS_MAX, NODES_MAX, RATIO_MAX
from berth.model.groups import HOST

PROCESSES_MAX: Final = 50
_NAME: Final = "^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,49}\\Z"
NodeName = Annotated[
    str,
    Meta(
        pattern=_NAME,
        description="1 to 50 letters, digits, `_`, `.` or `-`, of which the names of servers are made.",
        examples=["database"],
    ),
]
Process = Annotated[str, Meta(pattern=_NAME, description="What runs on a node.", examples=["datanode"])]
Processes = Annotated[
    tuple[Process, ...], Meta(max_length=PROCESSES_MAX, description="Processes, by their names.")
]
Count = Annotated[int, Meta(ge=0, le=NODES_MAX, description="How many nodes.")]
Ratio = Annotated[
    int,
    Meta(
        ge=1,
        le=RATIO_MAX,
        description="How many nodes of the anti-affinity processes may share a host (or another domain).",
    ),
]
_Ref = Annotated[str, Meta(min_length=1, max_length=255)]
FlavorRef = Annotated[_Ref, Meta(description="A flavor, by its id or its name.")]
ImageRef = Annotated[_Ref, Meta(description="An image, by its id or its name.")]


class NewNodeGroup(NativeBody, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes of one kind, and what runs on them. ``needs``: what each of their servers needs beside its flavor
    (bandwidth, an accelerator), as PUT of a server's need takes it."""

    name: NodeName
    flavor: FlavorRef
    image: ImageRef | None = None
    count: Count
    processes: Processes = ()
    needs: NeedBodies = ()


class NewCluster(NativeBody, frozen=True, kw_only=True):
    """``anti_affinity``: the processes whose nodes keep away from each other. The ratio is 1 and the domain
    ``host``, unless given; both go with ``anti_affinity`` alone."""

    name: NodeName
    node_groups: Annotated[
        tuple[NewNodeGroup, ...],
        Meta(min_length=1, max_length=NODE_GROUPS_MAX, description="Its node groups."),
    ]
    anti_affinity: Processes = ()
    anti_affinity_ratio: Ratio | UnsetType = UNSET
    anti_affinity_domain: Kind | UnsetType = UNSET

    @property
    def ratio(self) -> int:
        return 1 if self.anti_affinity_ratio is UNSET else self.anti_affinity_ratio

    @property
    def domain(self) -> str:
        return HOST if self.anti_affinity_domain is UNSET else self.anti_affinity_domain


class CreateCluster(NativeBody, frozen=True, kw_only=True):
    cluster: NewCluster


class ScaleCluster(NativeBody, frozen=True, kw_only=True):
    """``counts``: how many nodes a node group is to have, by its name. The ratio cannot be changed: one that
    is given must be the cluster's."""

    counts: Annotated[dict[NodeName, Count], Meta(max_length=NODE_GROUPS_MAX)] = field(default_factory=dict)
    add: Annotated[
        tuple[NewNodeGroup, ...], Meta(max_length=NODE_GROUPS_MAX, description="New node groups.")
    ] = ()
    remove: Annotated[
        tuple[NodeName, ...],
        Meta(max_length=NODE_GROUPS_MAX, description="Node groups that go, with all their nodes."),
    ] = ()
    anti_affinity_ratio: Ratio | None = None


class ReplaceNode(NativeBody, frozen=True, kw_only=True):
    """``force``: replace the node even if it has not failed."""

    force: bool = False


def objection(asked: NewCluster) -> str | None:
    """What is wrong with a cluster as a whole, as a clause; None if nothing is."""
    if not asked.anti_affinity:
        for name in ("anti_affinity_ratio", "anti_affinity_domain"):
            if getattr(asked, name) is not UNSET:
                return (
                    f"{name} is given without anti_affinity: name the processes that it is for, or leave it "
                    "out"
                )
    known = {process for group in asked.node_groups for process in group.processes}
    for process in asked.anti_affinity:
        if process not in known:
            listed = ", ".join(sorted(known)) or "none"
            return f"anti_affinity names {process}, which is no process of a node group; there are: {listed}"
    count = sum(group.count for group in asked.node_groups)
    return (
        _twice("anti_affinity names", asked.anti_affinity)
        or objection_to_groups(asked.node_groups)
        or (None if count else "no node group has a node: give one of them a count of 1 or more")
        or (None if count <= NODES_MAX else f"there are {count} nodes; the limit is {NODES_MAX}")
    )


def objection_to_groups(groups: Iterable[NewNodeGroup]) -> str | None:
    """What is wrong with node groups that do not go together."""
    groups = tuple(groups)
    repeated = (_twice(f"node group {group.name} has the process", group.processes) for group in groups)
    return (
        _twice("node_groups has", [group.name for group in groups])
        or next(filter(None, repeated), None)
        or next(filter(None, map(_objection_to_needs, groups)), None)
    )


def _objection_to_needs(group: NewNodeGroup) -> str | None:
    wrong = object_to_needs(group.needs)
    return None if wrong is None else f"node group {group.name}: {wrong}"


def objection_to_scale(asked: ScaleCluster) -> str | None:
    if not (asked.counts or asked.add or asked.remove or asked.anti_affinity_ratio):
        return "nothing is asked for: give counts, add or remove"
    both = sorted(asked.counts.keys() & set(asked.remove))
    if both:
        return f"{both[0]} is in counts and in remove: leave it out of one of them"
    return _twice("remove names", asked.remove) or objection_to_groups(asked.add)


def _twice(where: str, names: Iterable[str]) -> str | None:
    for name, times in Counter(names).items():
        if times > 1:
            return f"{where} {name} more than once"
    return None

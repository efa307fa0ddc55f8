"""Rejections about clusters, node groups and nodes."""

from berth.model.rejections.rejection import Rejection


class ClusterNotFound(Rejection, frozen=True):
    id: str


class ClusterExists(Rejection, frozen=True):
    id: str


class ClusterBeingDeleted(Rejection, frozen=True):
    """The cluster is being deleted, and cannot be changed."""

    id: str
    asked: str


class ClusterRatioFixed(Rejection, frozen=True):
    """The groups of a cluster are as many as the ratio it was created with."""

    id: str
    ratio: int
    asked: int

    @property
    def sentence(self) -> str:
        return (
            f"This cluster was created with {self.ratio} ratio, but now the ratio is {self.asked}. "
            "You will need to recreate"
        )


class ClusterDoesNotFit(Rejection, frozen=True):
    """Not all ``nodes`` that a cluster is to have now can be placed together: ``why`` says it of the first
    that could not. ``fitting_ratio``: a larger ratio with which they could; None where there is none, or none
    that could be chosen."""

    name: str
    nodes: int
    ratio: int
    domain: str
    why: Rejection
    fitting_ratio: int | None = None


class TooManyNodes(Rejection, frozen=True):
    """Nodes of a cluster, those that are leaving included."""

    asked: int
    limit: int


class NodeGroupNotFound(Rejection, frozen=True):
    cluster: str
    name: str
    there: tuple[str, ...]


class NodeGroupExists(Rejection, frozen=True):
    """A node group of this name is in the cluster, or was, and nodes of it are still leaving."""

    cluster: str
    name: str


class TooManyNodeGroups(Rejection, frozen=True):
    asked: int
    limit: int


class NodeCountWrong(Rejection, frozen=True):
    """The number of nodes is below zero."""

    name: str
    asked: int


class NodeFlavorNotFound(Rejection, frozen=True):
    """A node group asks for a flavor that does not exist, or not for the caller."""

    node_group: str
    flavor: str


class NodeImageNotFound(Rejection, frozen=True):
    """A node group asks for an image that does not exist, or not for the caller."""

    node_group: str
    image: str


class NodeImageAmbiguous(Rejection, frozen=True):
    """Several images have the name that a node group asks for. ``ids`` are some of them."""

    node_group: str
    image: str
    ids: tuple[str, ...]


class NodeImageNotActive(Rejection, frozen=True):
    node_group: str
    image: str
    status: str


class NodeSpecInvalid(Rejection, frozen=True):
    """A flavor or an image has a key or value that no server can be built with. ``source`` says which of the
    two, and its name."""

    node_group: str
    source: str
    key: str
    value: str
    accepted: str


class NodeFlavorTooSmall(Rejection, frozen=True):
    """The image of a node group needs more of ``unit`` than the flavor has."""

    node_group: str
    flavor: str
    image: str
    unit: str
    has: int
    needs: int


class NodeNotFound(Rejection, frozen=True):
    cluster: str
    name: str


class NodeLeaving(Rejection, frozen=True):
    """A node that is leaving cannot be replaced."""

    cluster: str
    name: str


class NodeNotFailed(Rejection, frozen=True):
    """Only a node that has failed is replaced, unless it is forced: its server is in error or gone, or its
    host is down."""

    cluster: str
    name: str
    state: str

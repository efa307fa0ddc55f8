"""Rejections about servers, their migrations and needs, quotas and limits, and the doctor's repairs."""

from berth.model.rejections.rejection import Rejection

# -- quotas --------------------------------------------------------------------------------------


class QuotaExceeded(Rejection, frozen=True):
    """``over``: of each resource its name, how much more was asked for, how much there is, and the limit."""

    project: str
    over: tuple[tuple[str, int, int, int], ...]


class ServerGroupsExceeded(Rejection, frozen=True):
    project: str
    limit: int


class ServerGroupMembersExceeded(Rejection, frozen=True):
    group: str
    limit: int
    members: int
    asked: int


class MetadataQuotaExceeded(Rejection, frozen=True):
    """More items of metadata than a server may have."""

    limit: int
    asked: int


class MetadataTooLarge(Rejection, frozen=True):
    """In bytes, keys and values together."""

    size: int
    limit: int


class ImageQuotaExceeded(Rejection, frozen=True):
    """``resource`` is Glance's name; a size is in MiB."""

    project: str
    resource: str
    limit: int
    used: int
    asked: int


class QuotaBelowUse(Rejection, frozen=True):
    """A project has more than a new limit would let it have."""

    resource: str
    limit: int
    used: int


class RevocationsExceeded(Rejection, frozen=True):
    """A user has so many revoked tokens that have not expired."""

    user: str
    limit: int


# -- servers -------------------------------------------------------------------------------------


class RecordMoved(Rejection, frozen=True):
    """A record is not what the change was made from: another change was first."""

    kind: str
    id: str


class UnitTaken(Rejection, frozen=True):
    """A unit of a host would be in two assignments."""

    host: str
    unit: str
    server: str
    holder: str


class ServerNotFound(Rejection, frozen=True):
    id: str


class ServerLocked(Rejection, frozen=True):
    id: str


class ServerNotOffloaded(Rejection, frozen=True):
    """A shelved server that is still on its host cannot be unshelved to another."""

    id: str


class TagNotFound(Rejection, frozen=True):
    id: str
    tag: str


class TooManyTags(Rejection, frozen=True):
    id: str
    limit: int


class KeyPairNotFound(Rejection, frozen=True):
    name: str
    user: str


class KeyPairExists(Rejection, frozen=True):
    name: str


class KeyPairsExceeded(Rejection, frozen=True):
    user: str
    limit: int


class NamedKeyPairNotFound(Rejection, frozen=True):
    """A server is to be made with a key pair that its user does not have."""

    name: str


class MetadataItemNotFound(Rejection, frozen=True):
    key: str


class ServerBusy(Rejection, frozen=True):
    """Another operation on the server is in progress."""

    id: str
    asked: str
    task: str


class ServerStateWrong(Rejection, frozen=True):
    """The operation cannot begin in the state that the server is in."""

    id: str
    asked: str
    state: str
    allowed: tuple[str, ...]


class ServerChangedByOthers(Rejection, frozen=True):
    """The server's allocations, or its migration's, are not what was last written: another client has changed
    them. ``found`` says what differs. ``is_recorded``: the same request, repeated, proceeds."""

    id: str
    asked: str
    found: str
    is_recorded: bool = True


class ServerHoldsAlready(Rejection, frozen=True):
    """A server that is being created is a consumer already: a bug, or a uuid used twice."""

    id: str


class ConfirmBegun(Rejection, frozen=True):
    """An unfinished confirmation may have cleaned up the source: the move cannot be reverted."""

    id: str


class SourceUnitsGone(Rejection, frozen=True):
    """The source of a move does not have the units any more that the server had there: it cannot go back.
    ``units``: each with its resource class."""

    id: str
    host: str
    units: tuple[str, ...]


class RevertBegun(Rejection, frozen=True):
    """An unfinished revert or deletion may have destroyed the destination: the move cannot be confirmed."""

    id: str


class HostInAnotherCell(Rejection, frozen=True):
    """A move does not leave the cell of its server. ``why``: the cause, in words."""

    id: str
    asked: str
    cell: str
    host: str
    host_cell: str
    why: str


class HostNotDown(Rejection, frozen=True):
    """Only a server whose host is down can be evacuated."""

    host: str


class ServerOutdated(Rejection, frozen=True):
    """The cell of a server says that it is not where its record says. The record was restored from a backup
    that is older."""

    server: str
    asked: str
    found: str


class HostIsDown(Rejection, frozen=True):
    """The operation needs the host that the server is on."""

    host: str
    asked: str


class HostTooFull(Rejection, frozen=True):
    """A host has more servers than one drain can move."""

    host: str
    servers: int
    servers_max: int


class DrainNotFound(Rejection, frozen=True):
    """The host is not being drained."""

    host: str


class HostLacksTraits(Rejection, frozen=True):
    host: str
    traits: tuple[str, ...]


class HostUnfitForImage(Rejection, frozen=True):
    """``asked`` is what a filter wants for the image, ``found`` what the host has of it."""

    host: str
    asked: str
    found: str


class SameFlavor(Rejection, frozen=True):
    flavor: str


class MigrationNotFound(Rejection, frozen=True):
    id: str


class MigrationNotAbortable(Rejection, frozen=True):
    id: str
    type: str
    status: str


class NeedNotFound(Rejection, frozen=True):
    server: str
    name: str


class TooManyNeeds(Rejection, frozen=True):
    """A server would have more needs, or groups in them, than it may: ``what`` there are too many of."""

    what: str
    asked: int
    limit: int


class NeedDoesNotFit(Rejection, frozen=True):
    """The server's host does not have what is needed. ``refused`` is what the ledger said of the last way to
    meet it that seemed possible; ``group`` is the group that no provider has room for, where there are
    several."""

    server: str
    name: str
    host: str
    refused: Rejection | None = None
    group: str | None = None
    is_far: bool = False
    """There is a device, and not where the server's NUMA cells are."""


class NeedInUse(Rejection, frozen=True):
    """A need cannot be removed, or made smaller, because the server may be running and use the units of
    ``kind`` that it has for it."""

    server: str
    name: str
    kind: str
    state: str


class PortNotFound(Rejection, frozen=True):
    """A new server names a port that does not exist, or not in its project."""

    port: str


class PortGone(Rejection, frozen=True):
    """A port of a server that is to be moved does not exist any more, or not in its project."""

    port: str
    server: str


class PortInUse(Rejection, frozen=True):
    """Another server has the port."""

    port: str


class PortUnusable(Rejection, frozen=True):
    """The port is of a type that takes a device, and asks for none."""

    port: str
    vnic_type: str


class ServerUnsettled(Rejection, frozen=True):
    """A move of the server is not settled: its migration holds the other half of what is to be changed."""

    id: str
    asked: str
    migration: str


class FindingGone(Rejection, frozen=True):
    """The finding that is to be repaired does not exist, or not any more."""

    id: str


class RepairUnsafe(Rejection, frozen=True):
    """The doctor cannot repair this finding safely. The reason is a sentence."""

    id: str
    reason: str


class HostUnknown(Rejection, frozen=True):
    name: str

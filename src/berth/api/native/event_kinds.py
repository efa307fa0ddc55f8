"""What /berth/v1/events answers with.

Of records (servers, flavors, ...) the fields that are named here are shown, and no others. Whatever a record
gets in addition stays inside until it is named here: no secret is shown by default. Long values are cut, and
``left_out`` names the fields whose values are not whole.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from berth.api.native.fields import Amounts, JournalIndex, Time, Uuid

# -- the ledger ---------------------------------------------------------------------------------


class ClassName(msgspec.Struct):
    name: str


class PlaceState(msgspec.Struct):
    name: str
    parent_provider_uuid: str | None


class Version(msgspec.Struct):
    generation: int
    updated_at: Time


class InventoryState(msgspec.Struct):
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float


class ConsumerState(msgspec.Struct):
    """``allocations``: amounts by class name, by provider."""

    generation: int
    project_id: str
    user_id: str
    consumer_type: str
    allocations: dict[str, Amounts]


class _EventChange(msgspec.Struct, tag_field="kind"):
    """One thing and its value ``before`` and ``after``; null where it did not or does not exist."""


class ResourceClassChange(_EventChange, tag="resource_class"):
    """A custom class was created, renamed or deleted. ``number`` never changes."""

    number: int
    before: ClassName | None
    after: ClassName | None


class TraitChange(_EventChange, tag="trait"):
    """A custom trait was created (``after`` is when) or deleted."""

    trait: str
    before: Time | None
    after: Time | None


class ProviderChange(_EventChange, tag="provider"):
    """A provider was created, renamed, moved or deleted."""

    provider: Uuid
    before: PlaceState | None
    after: PlaceState | None


class VersionChange(_EventChange, tag="provider_version"):
    """A provider's generation advanced."""

    provider: Uuid
    before: Version
    after: Version


class InventoryChange(_EventChange, tag="inventory"):
    provider: Uuid
    resource_class: str
    before: InventoryState | None
    after: InventoryState | None


class TraitsChange(_EventChange, tag="provider_traits"):
    provider: Uuid
    before: tuple[str, ...]
    after: tuple[str, ...]


class AggregatesChange(_EventChange, tag="provider_aggregates"):
    provider: Uuid
    before: tuple[str, ...]
    after: tuple[str, ...]


class ConsumerChange(_EventChange, tag="consumer"):
    """A consumer and all that it holds."""

    consumer: Uuid
    before: ConsumerState | None
    after: ConsumerState | None


class AggregateState(msgspec.Struct):
    kind: str | None
    name: str | None
    metadata: dict[str, str]


class AggregateChange(_EventChange, tag="aggregate"):
    """The kind, the name or the metadata of an aggregate changed."""

    aggregate: str
    before: AggregateState | None
    after: AggregateState | None


class HostState(msgspec.Struct):
    disabled: bool
    down: bool
    build_failures: int
    reason: str | None


class HostChange(_EventChange, tag="host"):
    """The status of a host; null for a healthy host."""

    provider: Uuid
    before: HostState | None
    after: HostState | None


class GroupState(msgspec.Struct):
    name: str
    policy: str
    domain: str
    max_per_domain: int | None
    max_skew: int | None


class GroupChange(_EventChange, tag="group"):
    group: Uuid
    before: GroupState | None
    after: GroupState | None


class MemberState(msgspec.Struct):
    group: Uuid
    stands_for: Uuid


class MemberChange(_EventChange, tag="member"):
    """A consumer joined a group, or left it."""

    consumer: Uuid
    before: MemberState | None
    after: MemberState | None


# -- records ------------------------------------------------------------------------------------


class RecordValues(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``left_out``: fields whose values are too long to be shown whole."""

    left_out: tuple[str, ...] = ()


class ServerValues(RecordValues, kw_only=True):
    """``state`` and ``task`` are Nova's ``vm_state`` and ``task_state``; ``action`` is under way."""

    name: str
    project_id: str
    user_id: str
    state: str
    task: str | None = None
    power_state: int
    host: str | None = None
    cell: str | None = None
    flavor: str
    image: str | None = None
    availability_zone: str | None = None
    group: str | None = None
    migration: str | None = None
    action: str | None = None
    is_locked: bool = False
    fault: str | None = None
    metadata: dict[str, str] = {}
    updated_at: Time


class MigrationValues(RecordValues, kw_only=True):
    number: int
    server: Uuid
    migration_type: str
    status: str
    source_host: str
    dest_host: str
    flavor_before: str
    flavor_after: str
    project_id: str
    user_id: str
    updated_at: Time


class FlavorValues(RecordValues, kw_only=True):
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    ephemeral_gb: int
    swap_mb: int
    extra_specs: dict[str, str] = {}
    is_public: bool
    projects: tuple[str, ...] = ()


class ImageValues(RecordValues, kw_only=True):
    name: str | None
    status: str
    visibility: str
    owner: str
    size: int | None = None
    properties: dict[str, str] = {}
    is_protected: bool = False
    is_hidden: bool = False
    updated_at: Time


class ActionValues(RecordValues, kw_only=True):
    """``steps`` counts the steps that have begun; ``last_step`` is the last of them."""

    server: Uuid
    name: str
    request_id: str
    project_id: str
    user_id: str
    steps: int = 0
    last_step: str | None = None
    last_result: str | None = None
    message: str | None = None
    updated_at: Time


class ComputeHostValues(RecordValues, kw_only=True):
    """``is_silent``: no heartbeat of its agent has come in time."""

    name: str
    cell: str
    driver: str
    is_silent: bool
    is_forced_down: bool
    complaints: tuple[str, ...]
    updated_at: Time


class ComputeAggregateValues(RecordValues, kw_only=True):
    number: int
    name: str
    availability_zone: str | None = None
    metadata: dict[str, str] = {}
    updated_at: Time


class CellValues(RecordValues, kw_only=True):
    """``since``: since when the cell's database can, or cannot, be reached."""

    database_reachable: bool
    database_text: str | None = None
    since: Time
    conductor_heard: Time | None = None


class ClusterValues(RecordValues, kw_only=True):
    """``node_groups``: how many nodes each has."""

    name: str
    project_id: str
    user_id: str
    state: str
    ratio: int
    domain: str
    node_groups: dict[str, int] = {}
    nodes: int
    fault: str | None = None
    updated_at: Time


class DrainValues(RecordValues, kw_only=True):
    """``moved`` servers have left the host, ``left`` have not."""

    host_name: str
    state: str
    moved: int
    left: int
    user_id: str
    updated_at: Time


class QuotasValues(RecordValues, kw_only=True):
    limits: dict[str, int]


class AssignmentValues(RecordValues, kw_only=True):
    """``holder``: the server, or the migration that holds its other half."""

    server: Uuid
    host: Uuid
    holder: Uuid
    units: tuple[str, ...] = ()


class ServerChange(_EventChange, tag="server"):
    """A server. What it holds is in the changes of its consumer."""

    id: str
    before: ServerValues | None
    after: ServerValues | None


class MigrationChange(_EventChange, tag="migration"):
    """A move of a server."""

    id: str
    before: MigrationValues | None
    after: MigrationValues | None


class FlavorChange(_EventChange, tag="flavor"):
    id: str
    before: FlavorValues | None
    after: FlavorValues | None


class ImageChange(_EventChange, tag="image"):
    id: str
    before: ImageValues | None
    after: ImageValues | None


class ActionChange(_EventChange, tag="action"):
    """An operation on a server, and how far it is."""

    id: str
    before: ActionValues | None
    after: ActionValues | None


class ComputeHostChange(_EventChange, tag="compute_host"):
    """A host with an agent. Whether it is down or disabled is in changes of the kind ``host``."""

    id: str
    before: ComputeHostValues | None
    after: ComputeHostValues | None


class ComputeAggregateChange(_EventChange, tag="compute_aggregate"):
    """An aggregate of the compute API. Its members are in changes of the kind ``provider_aggregates``."""

    id: str
    before: ComputeAggregateValues | None
    after: ComputeAggregateValues | None


class CellChange(_EventChange, tag="cell"):
    """How a cell is reached: at once when that changes, and once a minute while its conductor is heard."""

    id: str
    before: CellValues | None
    after: CellValues | None


class ClusterChange(_EventChange, tag="cluster"):
    id: str
    before: ClusterValues | None
    after: ClusterValues | None


class DrainChange(_EventChange, tag="drain"):
    """A host that its servers are leaving; ``id`` is the host's."""

    id: str
    before: DrainValues | None
    after: DrainValues | None


class QuotasChange(_EventChange, tag="quotas"):
    """Limits of a project, or of the class of all; ``id`` is ``project:ID`` or ``class:default``."""

    id: str
    before: QuotasValues | None
    after: QuotasValues | None


class AssignmentChange(_EventChange, tag="assignment"):
    """Which units of a host a server has."""

    id: str
    before: AssignmentValues | None
    after: AssignmentValues | None


class InternalChange(_EventChange, tag="internal"):
    """An internal record was created, replaced or deleted. Its content is not shown."""

    record: str


class UnreadableChange(_EventChange, tag="unreadable"):
    """A change that cannot be shown; the log of the server says why."""

    event: str


# -- events -------------------------------------------------------------------------------------

Change = (
    ResourceClassChange
    | TraitChange
    | ProviderChange
    | VersionChange
    | InventoryChange
    | TraitsChange
    | AggregatesChange
    | ConsumerChange
    | AggregateChange
    | HostChange
    | GroupChange
    | MemberChange
    | ServerChange
    | MigrationChange
    | FlavorChange
    | ImageChange
    | ActionChange
    | ComputeHostChange
    | ComputeAggregateChange
    | CellChange
    | ClusterChange
    | DrainChange
    | QuotasChange
    | AssignmentChange
    | InternalChange
    | UnreadableChange
)


class Event(msgspec.Struct):
    """What one request changed. Requests that were written together share an ``index``.
    ``global_request_id`` is the id that the caller sent with the request, if it sent one. ``names`` are those
    that providers and servers have now which the changes have by their uuids: of the first 32 that are still
    there."""

    index: JournalIndex
    at: Time
    request_id: str
    user: str | None
    project: str | None
    action: Annotated[str, Meta(description="Method and path of the request.")]
    changes: list[Change]
    global_request_id: str | None = None
    names: dict[str, str] = {}


class Events(msgspec.Struct):
    """A page of events. Go on with ``after`` = ``next``, from the newest on with ``before`` = ``next``;
    ``index`` is where the journal ends now. ``complete``: there is nothing more to look at for now.
    ``looked_back_to`` is the oldest index that was looked at, ``looked_back_at`` when it was written; null if
    nothing was."""

    events: list[Event]
    next: JournalIndex
    index: JournalIndex
    complete: bool
    looked_back_to: JournalIndex | None
    looked_back_at: Time | None

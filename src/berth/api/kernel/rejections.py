"""The table of rejections: every reason for which a change is refused, in the words of every dialect.

A row has a column for each. ``placement`` is upstream's: clients and their tests match on its words, so
upstream's sentence comes first and unchanged, and where the ledger knows more (what was asked, what there
was), one sentence of ours follows. ``berth`` is /berth/v1's, ``nova`` the compute API's; the image and the
identity API speak as Nova does. A dialect without words of its own for a rejection uses those of the one
before: nova those of berth, berth those of placement, as they are for POST /allocations.

Nothing else decides a status for a rejection.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from berth.api.kernel import codes
from berth.api.kernel.access import NO_PLACE, is_no_place, no_place
from berth.api.kernel.problem import Problem
from berth.model import rejections as r
from berth.model.counts import count
from berth.model.rejections import NoFit, Rejection, SpecInvalid, TreeRule, UnknownConsumer, UnknownHost


class Attempt(Enum):
    """What was tried. The same rejection reads differently on different routes."""

    SHOW_CLASS = auto()
    CREATE_CLASS = auto()
    RENAME_CLASS = auto()
    DELETE_CLASS = auto()
    SHOW_TRAIT = auto()
    ENSURE_TRAIT = auto()
    DELETE_TRAIT = auto()
    FIND_PROVIDER = auto()
    LIST_PROVIDERS = auto()
    LIST_CANDIDATES = auto()
    CREATE_PROVIDER = auto()
    UPDATE_PROVIDER = auto()
    DELETE_PROVIDER = auto()
    ADD_INVENTORY = auto()
    PUT_INVENTORY = auto()
    SET_INVENTORIES = auto()
    DELETE_INVENTORY = auto()
    DELETE_INVENTORIES = auto()
    SET_TRAITS = auto()
    SET_AGGREGATES = auto()
    PUT_ALLOCATIONS = auto()
    POST_ALLOCATIONS = auto()
    DELETE_ALLOCATIONS = auto()
    RESHAPE = auto()


class Wording(NamedTuple):
    """How one dialect answers. ``text`` may name the rejection's sentence {says}, its fields {r.…} and what
    the caller knows beside it. A text that ``is_whole`` says everything there is to say. ``data``: fields of
    the rejection that programs are told as well, where a dialect has a place for them."""

    status: int
    text: str = "{says}"
    code: str | None = None
    bare: bool = False
    is_whole: bool = False
    data: tuple[str, ...] = ()


class Row(NamedTuple):
    """``says``: upstream's sentence, wherever it comes up. ``adds``: what we add to it. ``on_route``: what
    Placement answers where a route has words of its own. ``explained``: what an explanation says of it."""

    placement: Wording | None = None
    says: str = ""
    adds: str = ""
    on_route: Mapping[Attempt, Wording] = MappingProxyType({})
    berth: Wording | None = None
    nova: Wording | None = None
    explained: str = ""


_GENERATION_CHANGED: Final = (
    "Resource provider's generation already changed. Please update the generation and try again."
)
_CANNOT_ALLOCATE: Final = "Unable to allocate inventory: {says}"
_BAD_RESERVED: Final = "Unable to update inventory for resource provider {r.provider}: {says}"


def _bad_body(clause: str) -> Wording:
    """How /berth/v1 refuses what a body asks for."""
    return Wording(400, f"The body is not what is expected here: {clause}.", code=codes.BAD_BODY)


ROWS: Final[dict[type[Rejection], Row]] = {
    # what the journal cannot take
    r.CommandTooLarge: Row(
        says="This request makes {r.changes} changes of more than {r.limit} bytes together, the limit of one "
        "request: split it into smaller ones.",
        placement=Wording(413, code=codes.TOO_LARGE),
    ),
    r.RowTooLarge: Row(
        says="This request writes {r.size} bytes, more than the database accepts in one row: split it into "
        "smaller ones, or ask the operator to raise the limit of the database.",
        placement=Wording(413, code=codes.TOO_LARGE),
    ),
    r.FormatTooOld: Row(
        says="{r.part} needs format {r.needed} of the journal, which has format {r.format}: the upgrade of "
        "this Berth is not finished. Its operator runs 'berth db upgrade --finish' when every server is of "
        "the new release.",
        placement=Wording(409, code=codes.FORMAT_TOO_OLD),
    ),
    # policy
    r.Forbidden: Row(
        berth=Wording(403, "Policy doesn't allow {r.rule} to be performed.", code=codes.FORBIDDEN),
    ),
    # quotas
    r.QuotaExceeded: Row(
        berth=Wording(
            403,
            "Quota exceeded for {names}: Requested {asked}, but already used {used} of {limits} {names}",
            code=codes.QUOTA_EXCEEDED,
        ),
    ),
    r.ServerGroupsExceeded: Row(
        berth=Wording(
            403,
            "Quota exceeded, too many server groups. The project may have {r.limit}.",
            code=codes.QUOTA_EXCEEDED,
        ),
    ),
    r.ServerGroupMembersExceeded: Row(
        berth=Wording(
            403,
            "Quota exceeded, too many servers in group {r.group}: it has {r.members}, {r.asked} more were "
            "asked for, and it may have {r.limit}.",
            code=codes.QUOTA_EXCEEDED,
        ),
    ),
    r.MetadataQuotaExceeded: Row(
        berth=Wording(
            403,
            "Maximum number of metadata items exceeds {r.limit}: this would be {r.asked}.",
            code=codes.QUOTA_EXCEEDED,
        ),
    ),
    r.ImageQuotaExceeded: Row(
        berth=Wording(
            413,
            "Resource {r.resource} is over limit of {r.limit} due to current usage {r.used} and delta "
            "{r.asked}.",
            code=codes.QUOTA_EXCEEDED,
        ),
    ),
    r.MetadataTooLarge: Row(
        nova=Wording(
            403, "The metadata of a server has {r.limit} bytes at most, and this would be {r.size}."
        ),
    ),
    r.QuotaBelowUse: Row(
        nova=Wording(
            400,
            "Quota limit {r.limit} for {r.resource} must be greater than or equal to already used and "
            "reserved {r.used}.",
        ),
    ),
    r.RevocationsExceeded: Row(
        nova=Wording(
            403,
            "{r.limit} tokens of {r.user} are revoked and have not expired yet. Wait until some have, or "
            "take the user's entry out of the tokens file.",
        ),
    ),
    # vocabulary
    r.ResourceClassNotFound: Row(
        says="No such resource class {r.name}.",
        placement=Wording(404, bare=True),
        on_route={
            Attempt.LIST_PROVIDERS: Wording(400, "Invalid resource class in resources parameter: {says}"),
            Attempt.LIST_CANDIDATES: Wording(400, "Invalid resource class in resources parameter: {says}"),
            Attempt.ADD_INVENTORY: Wording(
                400, "Unable to create inventory for resource provider {provider}: {says}"
            ),
            Attempt.SET_INVENTORIES: Wording(
                400, "Unknown resource class in inventory for resource provider {provider}: {says}"
            ),
            Attempt.DELETE_INVENTORY: Wording(404, "No inventory of class {r.name} found for delete: {says}"),
            Attempt.RESHAPE: Wording(400, "malformed reshaper data: {says}"),
        },
        berth=Wording(400, "There is no resource class {r.name}.", code=codes.BAD_BODY),
    ),
    r.ResourceClassExists: Row(
        says="Resource class already exists: {r.name}",
        placement=Wording(409),
        on_route={Attempt.CREATE_CLASS: Wording(409, "Conflicting resource class already exists: {r.name}")},
    ),
    r.ResourceClassInUse: Row(
        says="Cannot delete resource class {r.name}. Class is in use in inventory.",
        placement=Wording(409, "Error in delete resource class: {says}"),
    ),
    r.ResourceClassIsStandard: Row(
        says="Cannot delete standard resource class {r.name}.",
        placement=Wording(400, "Error in delete resource class: {says}"),
        on_route={Attempt.RENAME_CLASS: Wording(400, "Cannot update standard resource class {r.name}")},
    ),
    r.TraitsNotFound: Row(
        says="No such trait(s): {names}.",
        placement=Wording(404),
        on_route={
            Attempt.LIST_PROVIDERS: Wording(400, 'Invalid trait(s) in "required" parameter: {says}'),
            Attempt.LIST_CANDIDATES: Wording(400),
            Attempt.SET_TRAITS: Wording(400, "No such trait {names}"),
        },
        berth=Wording(400, "There is no trait {names}.", code=codes.BAD_BODY),
    ),
    r.TraitInUse: Row(
        says="The trait {r.name} is in use by a resource provider.",
        placement=Wording(409),
    ),
    r.TraitIsStandard: Row(
        says="Cannot delete standard trait {r.name}.",
        placement=Wording(400),
    ),
    r.NameNotCustom: Row(
        says="'{r.name}' is not a custom name: it must start with CUSTOM_, go on with A-Z, 0-9 and _, "
        "and have no more than 255 characters.",
        placement=Wording(400),
    ),
    # providers
    r.ProviderNotFound: Row(
        says="No resource provider with uuid {r.provider} found",
        placement=Wording(404, bare=True),
        on_route={
            Attempt.DELETE_PROVIDER: Wording(404, "{says} for delete"),
            Attempt.RESHAPE: Wording(
                400,
                "Resource provider {r.provider} in inventories not found: {says}",
                code=codes.PROVIDER_NOT_FOUND,
            ),
        },
        berth=Wording(404, "There is no provider {r.provider}.", code=codes.NOT_FOUND),
    ),
    r.ProviderExists: Row(
        says="Conflicting resource provider {taken} already exists.",
        placement=Wording(409, code=codes.DUPLICATE_NAME),
        on_route={
            Attempt.UPDATE_PROVIDER: Wording(
                409, "Conflicting resource provider {r.name} already exists.", code=codes.DUPLICATE_NAME
            )
        },
    ),
    r.ProviderNameMissing: Row(
        says="Object action create failed because: name is required",
        placement=Wording(400, 'Unable to create resource provider "", {r.provider}: {says}'),
    ),
    r.TreeRuleBroken: Row(
        says="Object action {action} failed because: {reason}",
        placement=Wording(400, "Unable to save resource provider {r.provider}: {says}"),
        on_route={
            Attempt.CREATE_PROVIDER: Wording(
                400, 'Unable to create resource provider "{name}", {r.provider}: {says}'
            )
        },
    ),
    r.ProviderHasChildren: Row(
        says="It has child resource providers.",
        placement=Wording(
            409,
            "Unable to delete parent resource provider {r.provider}: {says}",
            code=codes.CANNOT_DELETE_PARENT,
        ),
    ),
    r.ProviderInUse: Row(
        says="Resource provider has allocations.",
        adds="It has {r.consumers} consumer(s): delete or move their allocations first.",
        placement=Wording(
            409, "Unable to delete resource provider {r.provider}: {says}", code=codes.PROVIDER_IN_USE
        ),
    ),
    r.AggregateNotForAgents: Row(
        says="An agent cannot put its host into the aggregate {r.aggregate}: {r.reason}.",
        placement=Wording(409),
    ),
    r.ProviderGenerationConflict: Row(
        says="resource provider generation conflict",
        adds="Resource provider {r.provider} is at generation {r.current}, the request named {r.given}: "
        "read it again and repeat the request.",
        placement=Wording(409, code=codes.CONCURRENT_UPDATE),
        on_route={
            Attempt.SET_TRAITS: Wording(409, _GENERATION_CHANGED, code=codes.CONCURRENT_UPDATE),
            Attempt.SET_AGGREGATES: Wording(409, _GENERATION_CHANGED, code=codes.CONCURRENT_UPDATE),
            Attempt.RESHAPE: Wording(
                409,
                "resource provider generation conflict for provider {r.provider}: "
                "actual: {r.current}, given: {r.given}",
                code=codes.CONCURRENT_UPDATE,
                is_whole=True,
            ),
        },
    ),
    r.InventoryExists: Row(
        says="Inventory of class {r.resource_class} already exists on resource provider {r.provider}.",
        adds="Use PUT to change it.",
        placement=Wording(409, "Update conflict: {says}", code=codes.CONCURRENT_UPDATE),
    ),
    r.InventoryNotFound: Row(
        says="No inventory of class {r.resource_class} found.",
        placement=Wording(
            400, "No inventory record with resource class for resource provider {r.provider}: {says}"
        ),
        on_route={
            Attempt.DELETE_INVENTORY: Wording(
                404,
                "No inventory of class {r.resource_class} found for delete: "
                "No inventory of class {r.resource_class} found for delete",
            ),
            Attempt.RESHAPE: Wording(400, "malformed reshaper data: {says}"),
        },
    ),
    r.InventoryInUse: Row(
        says="Inventory for '{classes}' on resource provider '{r.provider}' in use.",
        placement=Wording(409, "update conflict: {says}", code=codes.INVENTORY_IN_USE),
        on_route={
            Attempt.DELETE_INVENTORY: Wording(
                409, "Unable to delete inventory of class {classes}: {says}", code=codes.CONCURRENT_UPDATE
            ),
            Attempt.DELETE_INVENTORIES: Wording(409, code=codes.INVENTORY_IN_USE),
        },
    ),
    r.ReservedTooHigh: Row(
        says="Invalid inventory for '{r.resource_class}' on resource provider '{r.provider}'. "
        "The reserved value is greater than {limit}.",
        adds="Reserved is {r.reserved}, total is {r.total}.",
        placement=Wording(400, _BAD_RESERVED),
        on_route={
            Attempt.ADD_INVENTORY: Wording(
                400, "Unable to create inventory for resource provider {r.provider}: {says}"
            )
        },
    ),
    r.UnitsOvercommitted: Row(
        says="Invalid inventory for '{r.resource_class}' on resource provider '{r.provider}'. The host's "
        "agent names each unit of it, and a unit is given to one server: the allocation ratio cannot be "
        "{r.allocation_ratio:g}, it is 1 at most.",
        placement=Wording(400),
    ),
    r.UnitsMiscounted: Row(
        says="Invalid inventory for '{r.resource_class}' on resource provider '{r.provider}'. The host's "
        "agent names each unit of it: the total is {r.there}, and only the agent can make it {r.total}. To "
        "keep some of them free, reserve them.",
        placement=Wording(400),
    ),
    # allocations
    r.ConsumerGenerationConflict: Row(
        says="consumer generation conflict - expected {expected} but got {r.given}",
        adds="Read the consumer's allocations again and repeat the request.",
        placement=Wording(409, code=codes.CONCURRENT_UPDATE),
        berth=Wording(
            409,
            "Consumer {r.consumer} is there already: name one that is not, or name none.",
            code=codes.CONFLICT,
        ),
    ),
    r.ConsumerClaimsTwice: Row(
        says="Consumer '{r.consumer}' stands in the request twice.",
        placement=Wording(400),
    ),
    r.ClaimedProviderNotFound: Row(
        says="Allocation for resource provider '{r.provider}' that does not exist.",
        placement=Wording(400),
    ),
    r.ClaimedClassNotFound: Row(
        says="No such resource class {r.name}.",
        placement=Wording(400, "Unable to allocate inventory {says}"),
        on_route={
            Attempt.PUT_ALLOCATIONS: Wording(
                400, "Unable to allocate inventory for consumer {r.consumer}: {says}"
            ),
            Attempt.RESHAPE: Wording(400, "malformed reshaper data: {says}"),
        },
    ),
    r.NoInventory: Row(
        says="Inventory for '{classes}' on resource provider '{r.provider}' invalid.",
        adds="The resource provider has no such inventory.",
        placement=Wording(409, _CANNOT_ALLOCATE),
    ),
    r.UnitsViolated: Row(
        says="Unable to create allocation for '{r.resource_class}' on resource provider '{r.provider}'. "
        "The requested amount would violate inventory constraints.",
        adds="Asked for {r.asked}; min_unit is {r.min_unit}, max_unit is {r.max_unit}, step_size is "
        "{r.step_size}.",
        placement=Wording(409, _CANNOT_ALLOCATE),
        explained="{r.asked} {r.resource_class} on {r.provider} against min_unit {r.min_unit}, max_unit "
        "{r.max_unit}, step_size {r.step_size}",
    ),
    r.CapacityExceeded: Row(
        says="Unable to create allocation for '{r.resource_class}' on resource provider '{r.provider}'. "
        "The requested amount would exceed the capacity.",
        adds="Asked for {r.asked}; others use {r.used} of {r.capacity} on {r.name}.",
        placement=Wording(409, _CANNOT_ALLOCATE),
        explained="too little {r.resource_class} on {r.name}: {r.asked} asked for, {r.used} used of "
        "{r.capacity}",
    ),
    r.AllocationsNotFound: Row(
        says="No allocations for consumer '{r.consumer}'",
        placement=Wording(404),
    ),
    # flavors and images
    r.FlavorNotFound: Row(
        nova=Wording(404, "Flavor {r.id} could not be found."),
        berth=Wording(404, "There is no flavor {r.id}.", code=codes.NOT_FOUND),
    ),
    r.FlavorExists: Row(
        nova=Wording(409, "Flavor with {r.field} {r.value} already exists: choose another."),
    ),
    r.ExtraSpecNotFound: Row(
        nova=Wording(404, "Flavor {r.flavor} has no extra specs with key {r.key}."),
    ),
    r.ExtraSpecsTooLarge: Row(
        nova=Wording(
            400, "The extra specs would have {r.size} bytes together; they may have {r.limit} at most."
        ),
    ),
    r.FlavorIsPublic: Row(
        nova=Wording(409, "Flavor {r.flavor} is public: everybody has access to it already."),
    ),
    r.FlavorAccessExists: Row(
        nova=Wording(409, "Project {r.project} has access to flavor {r.flavor} already."),
    ),
    r.FlavorAccessNotFound: Row(
        nova=Wording(404, "Project {r.project} has no access to flavor {r.flavor}."),
    ),
    r.TooManyFlavorProjects: Row(
        nova=Wording(409, "Flavor {r.flavor} has {r.limit} projects, and may not have more."),
    ),
    r.ImageNotFound: Row(
        nova=Wording(404, "No image found with ID {r.id}."),
        berth=Wording(404, "There is no image {r.id}.", code=codes.NOT_FOUND),
    ),
    r.ImageExists: Row(
        nova=Wording(409, "Image ID {r.id} already exists: choose another, or give none."),
    ),
    r.ImageProtected: Row(
        nova=Wording(403, "Image {r.id} is protected: set protected to false first."),
    ),
    r.ImageHasContent: Row(
        nova=Wording(409, "Image {r.id} is {r.status}: its content cannot be uploaded again."),
    ),
    r.ImageFormatsMissing: Row(
        nova=Wording(400, "disk_format and container_format must be set before content is uploaded."),
    ),
    r.ImageFormatFixed: Row(
        nova=Wording(403, "{r.field} can only be changed while the image is queued; it is {r.status}."),
    ),
    r.ImageQueued: Row(
        nova=Wording(403, "Image {r.id} has no content yet: {r.reason}."),
    ),
    r.ImageGone: Row(
        nova=Wording(410, "Image {r.id} was deleted while its content was uploaded."),
    ),
    r.ImagesFull: Row(
        nova=Wording(
            413,
            "All images of the region may have {r.limit} bytes (images_bytes_max); they have {r.used}, and "
            "this one would add {r.asked}.",
        ),
    ),
    r.ImageNotShared: Row(
        nova=Wording(403, "Only shared images have members: image {r.id} is {r.visibility}."),
    ),
    r.ImageMemberExists: Row(
        nova=Wording(409, "Project {r.project} is a member of image {r.id} already."),
    ),
    r.ImageMemberNotFound: Row(
        nova=Wording(404, "Project {r.project} is not a member of image {r.id}."),
    ),
    r.TooManyImageMembers: Row(
        nova=Wording(413, "Image {r.id} has {r.limit} members, and may not have more."),
    ),
    r.ImageTagNotFound: Row(
        nova=Wording(404, "Image {r.id} has no tag {r.tag}."),
    ),
    r.ImageTagPlaceWrong: Row(
        nova=Wording(409, "There is no tag at {r.path}: there are {r.tags}."),
    ),
    r.ImagePropertyNotFound: Row(
        nova=Wording(409, "Property {r.name} does not exist: it cannot be {r.asked}d."),
    ),
    r.TooManyImageProperties: Row(
        nova=Wording(
            413,
            "The limit has been exceeded on the number of allowed image properties. Attempted: {r.asked}, "
            "Maximum: {r.limit}",
        ),
    ),
    r.ImagePropertiesTooLarge: Row(
        nova=Wording(
            413,
            "The properties of the image would have {r.size} bytes together, names and values; they may "
            "have {r.limit} at most.",
        ),
    ),
    r.BuildSourceNotFound: Row(
        nova=Wording(400, "{r.kind} {r.id} could not be found."),
    ),
    r.BuildSourceUnusable: Row(
        nova=Wording(400, "{r.kind} {r.id} cannot be used: {why}"),
    ),
    r.ImageNotActive: Row(
        nova=Wording(400, "Image {r.id} is {r.status}: it must be active."),
    ),
    r.FlavorTooSmall: Row(
        nova=Wording(
            400,
            "Flavor {r.flavor} has {size}, and image {r.image} needs at least {r.needed}: choose a larger "
            "flavor.",
        ),
    ),
    # hosts, aggregates and groups
    r.ComputeHostNotFound: Row(
        nova=Wording(404, "Compute host {r.name} could not be found."),
        berth=Wording(404, "No host has the name or uuid {r.name}.", code=codes.NOT_FOUND),
    ),
    r.ComputeHostUnregistered: Row(
        nova=Wording(404, "Compute host {r.name} is not a provider: wait until its agent has registered."),
    ),
    r.ServiceNotFound: Row(
        nova=Wording(404, "There is no {r.binary} on the host {r.host}."),
    ),
    r.AggregateNotFound: Row(
        nova=Wording(404, "Aggregate {r.id} could not be found."),
    ),
    r.AggregateNameTaken: Row(
        nova=Wording(409, "Aggregate {r.name} already exists: choose another name."),
    ),
    r.AggregateInUse: Row(
        nova=Wording(409, "Aggregate {r.number} has {hosts}: remove {them} from the aggregate first."),
    ),
    r.AggregateHasHost: Row(
        nova=Wording(409, "Aggregate {r.number} has the host {r.host} already."),
    ),
    r.AggregateLacksHost: Row(
        nova=Wording(404, "Aggregate {r.number} has no host {r.host}."),
    ),
    r.TooManyAggregateKeys: Row(
        nova=Wording(400, "There would be {r.asked} keys; an aggregate may have {r.limit} at most."),
    ),
    r.ZoneNotFound: Row(
        nova=Wording(400, "The requested availability zone {r.name} is not available: it does not exist."),
    ),
    r.ZoneOfServers: Row(
        nova=Wording(
            409,
            "The availability zone of host {r.host} cannot change: it has {servers}. Migrate or "
            "delete {them} first.",
        ),
    ),
    r.HostInAnotherZone: Row(
        nova=Wording(
            409,
            "Host {r.host} is in the availability zone {r.zone} already, and cannot be in {r.asked} too: "
            "remove it from the aggregate that puts it there first.",
        ),
    ),
    r.NotAHost: Row(
        berth=Wording(
            409,
            "Provider {r.provider} is not a host but below one: use {r.root}, the root of its tree.",
            code=codes.CONFLICT,
        ),
    ),
    r.PoolNotFound: Row(
        berth=Wording(404, "There is no pool {r.id}.", code=codes.NOT_FOUND),
    ),
    r.NotAPool: Row(
        berth=Wording(
            409,
            "Provider {r.name} ({r.provider}) is a host, or a part of one: not a pool.",
            code=codes.CONFLICT,
        ),
    ),
    r.PoolIsNoHost: Row(
        berth=Wording(
            409, "{r.name} ({r.provider}) is a pool, not a host: see /berth/v1/pools.", code=codes.CONFLICT
        ),
    ),
    r.LabelTaken: Row(
        berth=Wording(
            409,
            "The {r.kind} {r.name} is already aggregate {r.holder}: choose another name, or rename that "
            "aggregate first.",
            code=codes.CONFLICT,
        ),
    ),
    r.KindInUse: Row(
        berth=Wording(
            409,
            "This is the last {r.kind}, and groups use the kind: {groups}. Delete these first, or give "
            "another aggregate the kind.",
            code=codes.CONFLICT,
        ),
    ),
    r.GroupNotFound: Row(
        berth=Wording(404, "There is no group {r.group}.", code=codes.NOT_FOUND),
        nova=Wording(404, "Instance group {r.group} could not be found."),
    ),
    r.GroupExists: Row(
        berth=Wording(409, "Group {r.group} already exists: choose another uuid.", code=codes.CONFLICT),
    ),
    r.GroupOfCluster: Row(
        berth=Wording(
            409,
            "Group {r.group} belongs to cluster {r.cluster}: scale or delete the cluster instead.",
            code=codes.CONFLICT,
        ),
    ),
    r.GroupInUse: Row(
        berth=Wording(
            409,
            "Group {r.group} has {members}: remove {them} first, or delete it with force=true.",
            code=codes.CONFLICT,
        ),
    ),
    r.GroupFull: Row(
        says="Group {r.group} would have more than the {r.members_max} members it may have.",
        placement=Wording(409, _CANNOT_ALLOCATE),
        berth=Wording(
            409,
            "Group {r.group} would have more than the {r.members_max} members it may have.",
            code=codes.CONFLICT,
        ),
    ),
    r.KindNotFound: Row(
        berth=Wording(
            400,
            "No aggregate has the kind {r.kind}: set it with PUT /berth/v1/aggregates/{{uuid}} first, or use "
            "host.",
            code=codes.BAD_BODY,
        ),
    ),
    r.GroupRuleUnsound: Row(
        berth=Wording(400, "The rule is contradictory: {r.reason}.", code=codes.BAD_BODY),
    ),
    r.InAnotherGroup: Row(
        berth=Wording(
            409,
            "Consumer {r.consumer} is already a member of group {r.group}: remove it there first.",
            code=codes.CONFLICT,
        ),
    ),
    r.HintedGroupNotFound: Row(
        nova=Wording(400, "The hint group names {r.name}, which is not a server group."),
    ),
    r.GroupPolicyBroken: Row(
        says="The {r.policy} of group {r.name} ({r.group}) keeps consumer {r.consumer} from host {r.host}"
        "{domain}: {r.reason}.",
        adds="{standing}",
        placement=Wording(409, _CANNOT_ALLOCATE, code=codes.GROUP_POLICY),
        explained="the {r.policy} of the group {r.name} does not let a member come to {r.host}, because "
        "{r.reason}",
    ),
    r.GroupNameAmbiguous: Row(
        berth=_bad_body("several groups are called {r.name}: name one by its uuid, {ids}"),
    ),
    r.GroupFitsNowhere: Row(
        berth=Wording(
            409,
            "The {r.policy} of the group {r.name} ({r.group}) keeps its {members} on one host, and "
            "no other host was found that has room for all of them. {why} Make room on one host; or let "
            "members leave the group, or be apart: PATCH /berth/v1/groups/{r.group} with the policy "
            "soft-{r.policy}.",
            code=codes.GROUP_POLICY,
        ),
    ),
    # servers
    r.RecordMoved: Row(
        berth=Wording(
            409,
            "Conflict: {r.kind} {r.id} was changed by another request. Read it again and retry.",
            code=codes.CONFLICT,
        ),
    ),
    r.UnitTaken: Row(
        berth=Wording(
            409,
            "The unit {r.unit} of host {r.host} cannot be assigned to server {r.server}: server {r.holder} "
            "has it.",
            code=codes.CONFLICT,
        ),
    ),
    r.ServerNotFound: Row(
        berth=Wording(404, "There is no server {r.id}.", code=codes.NOT_FOUND),
        nova=Wording(404, "Instance {r.id} could not be found."),
    ),
    r.ServerLocked: Row(
        nova=Wording(409, "Instance {r.id} is locked: unlock it first."),
    ),
    r.ServerNotOffloaded: Row(
        nova=Wording(
            409,
            "Instance {r.id} is shelved and not offloaded: it is still on its host. Unshelve it without a "
            "host or an availability zone, or offload it first.",
        ),
    ),
    r.TagNotFound: Row(
        nova=Wording(404, "Server {r.id} has no tag '{r.tag}'"),
    ),
    r.TooManyTags: Row(
        nova=Wording(400, "The number of tags exceeded the per-server limit {r.limit}"),
    ),
    r.KeyPairNotFound: Row(
        nova=Wording(404, "Keypair {r.name} not found for user {r.user}"),
    ),
    r.KeyPairExists: Row(
        nova=Wording(409, "Key pair '{r.name}' already exists."),
    ),
    r.KeyPairsExceeded: Row(
        nova=Wording(403, "Quota exceeded, too many key pairs. A user may have {r.limit}."),
    ),
    r.NamedKeyPairNotFound: Row(
        nova=Wording(400, "Invalid key_name provided: there is no key pair {r.name}."),
    ),
    r.MetadataItemNotFound: Row(
        nova=Wording(404, "Metadata item {r.key} was not found."),
    ),
    r.ServerBusy: Row(
        says="Cannot {r.asked} of server {r.id} while it is {r.task}: retry when it has finished.",
        placement=Wording(409, code=codes.CONFLICT),
        berth=Wording(
            409,
            "Cannot {r.asked} of server {r.id} while it is {r.task}: retry when it has finished.",
            code=codes.CONFLICT,
        ),
        nova=Wording(
            409,
            "Cannot '{r.asked}' instance {r.id} while it is in task_state {r.task}: retry when it has "
            "finished.",
        ),
    ),
    r.ServerStateWrong: Row(
        nova=Wording(
            409,
            "Cannot '{r.asked}' instance {r.id} while it is in vm_state {r.state}: it must be in {allowed}.",
        ),
    ),
    r.ServerChangedByOthers: Row(
        berth=Wording(
            409,
            "Cannot {r.asked} of server {r.id}: another client has changed its allocations since they were "
            "last written ({r.found}). {then}",
            code=codes.CONFLICT,
        ),
        nova=Wording(
            409,
            "Cannot '{r.asked}' instance {r.id}: another client has changed its allocations since they were "
            "last written ({r.found}). {then}",
        ),
    ),
    r.ServerHoldsAlready: Row(
        nova=Wording(
            500,
            "Instance {r.id} is new, but a consumer of that id already holds resources. This is a bug: "
            "please report it with the request id.",
        ),
    ),
    r.ConfirmBegun: Row(
        nova=Wording(
            409,
            "Cannot 'revertResize' instance {r.id}: its confirmation has started to clean up the source and "
            "failed. Confirm it again.",
        ),
    ),
    r.SourceUnitsGone: Row(
        nova=Wording(
            409,
            "Cannot 'revertResize' instance {r.id}: its source{gone} any more. Confirm it, or give the "
            "source back what is missing and revert it then.",
        ),
    ),
    r.RevertBegun: Row(
        nova=Wording(
            409,
            "Cannot 'confirmResize' instance {r.id}: a revert or a deletion of it has failed. Revert or "
            "delete it again.",
        ),
    ),
    r.HostInAnotherCell: Row(
        nova=Wording(
            400,
            "Cannot '{r.asked}' instance {r.id} to {r.host}: the instance is in the cell {r.cell} and that "
            "host in the cell {r.host_cell}, and {r.why}. Shelve and unshelve the instance to move it to "
            "another cell.",
        ),
    ),
    r.HostNotDown: Row(
        nova=Wording(
            409, "The host{host} is not down: only servers of a host that is down can be evacuated."
        ),
    ),
    r.HostIsDown: Row(
        nova=Wording(409, "Cannot '{r.asked}': the host{host} is down. Wait until it is back, or evacuate."),
    ),
    r.HostTooFull: Row(
        berth=Wording(
            409,
            "The host {r.host} has {r.servers} servers, and a drain moves {r.servers_max} at most: disable "
            "it and move some of them first.",
            code=codes.CONFLICT,
        ),
    ),
    r.DrainNotFound: Row(
        berth=Wording(
            404,
            "The host {r.host} is not being drained. A drain begins with POST, and ends when its host is "
            "enabled.",
            code=codes.NOT_FOUND,
        ),
    ),
    r.HostLacksTraits: Row(
        nova=Wording(
            400,
            "The image requires traits that the host{host} does not have: {traits}. The server stays on its "
            "host in a rebuild: choose another image, or move the server first.",
        ),
    ),
    r.HostUnfitForImage: Row(
        nova=Wording(
            400,
            "The image needs {r.asked}, which the host{host} does not offer{found}. The server stays on its "
            "host in a rebuild: choose another image, or move the server first.",
        ),
    ),
    r.SameFlavor: Row(
        nova=Wording(400, "The server already has the flavor {r.flavor}: choose another one for the resize."),
    ),
    r.MigrationNotFound: Row(
        nova=Wording(404, "Migration {r.id} could not be found."),
    ),
    r.MigrationNotAbortable: Row(
        nova=Wording(
            409,
            "Migration {r.id} is a {r.type} and {r.status}: only a running live migration can be aborted.",
        ),
    ),
    r.NeedNotFound: Row(
        berth=Wording(404, "Server {r.server} has no need called {r.name}.", code=codes.NOT_FOUND),
    ),
    r.TooManyNeeds: Row(
        berth=Wording(
            409, "The server would have {r.asked} {r.what}; the maximum is {r.limit}.", code=codes.CONFLICT
        ),
        nova=Wording(400, "The server would have {r.asked} {r.what}; the maximum is {r.limit}."),
    ),
    r.NeedDoesNotFit: Row(
        berth=Wording(
            409,
            "The host {r.host} has no room for {group}the need {r.name} of server {r.server}. {refused}",
            code=codes.NO_FIT,
        ),
    ),
    r.NeedInUse: Row(
        berth=Wording(
            409,
            "Cannot take away {r.kind} of the need {r.name}: server {r.server} is {r.state} and may be using "
            "it. Stop the server first.",
            code=codes.CONFLICT,
        ),
    ),
    r.PortNotFound: Row(
        nova=Wording(400, "Port {r.port} could not be found."),
    ),
    r.PortGone: Row(
        nova=Wording(
            409,
            "Port {r.port} of server {r.server} could not be found. Create it again, or have its need "
            "port-{r.port} deleted from the server, then retry.",
        ),
    ),
    r.PortInUse: Row(
        nova=Wording(409, "Port {r.port} is in use by another server."),
    ),
    r.PortUnusable: Row(
        nova=Wording(
            409,
            "Port {r.port} has the binding:vnic_type {r.vnic_type}, and its resource_request names no "
            "device: use a port of the type normal, or one whose request has a device such as SRIOV_NET_VF.",
        ),
    ),
    r.ServerOutdated: Row(
        nova=Wording(
            409,
            "Cannot '{r.asked}' instance {r.server}: its record was restored from an older backup, and is "
            "wrong about where it is{found}. It can be deleted; ask the operator.",
        ),
    ),
    r.ServerUnsettled: Row(
        berth=Wording(
            409,
            "Cannot {r.asked} of server {r.id} while its migration {r.migration} holds the other half of "
            "what it has: confirm or revert the resize first.",
            code=codes.CONFLICT,
        ),
        nova=Wording(
            409,
            "Cannot '{r.asked}' instance {r.id} while its migration {r.migration} holds the other half of "
            "what it has: confirm or revert it, or delete the instance.",
        ),
    ),
    r.FindingGone: Row(
        berth=Wording(404, "The finding {r.id} no longer exists: examine again.", code=codes.NOT_FOUND),
    ),
    r.RepairUnsafe: Row(
        berth=Wording(409, "The doctor cannot repair {r.id}: {r.reason}.", code=codes.CONFLICT),
    ),
    r.HostUnknown: Row(
        nova=Wording(
            400,
            "There is no host {r.name} with an agent: servers are built on hosts that are registered with a "
            "cell.",
        ),
    ),
    # clusters
    r.ClusterNotFound: Row(
        berth=Wording(404, "There is no cluster {r.id}.", code=codes.NOT_FOUND),
    ),
    r.ClusterExists: Row(
        berth=Wording(409, "Cluster {r.id} already exists: retry.", code=codes.CONFLICT),
    ),
    r.ClusterBeingDeleted: Row(
        berth=Wording(
            409, "Cannot {r.asked} cluster {r.id}: it is being deleted. Create another.", code=codes.CONFLICT
        ),
    ),
    r.ClusterRatioFixed: Row(
        berth=Wording(409, "{r.sentence}", code=codes.CONFLICT),
    ),
    r.ClusterDoesNotFit: Row(
        berth=Wording(
            409,
            "The cluster {r.name} does not fit: there is no place for its {r.nodes} new nodes together, at "
            "an anti-affinity ratio of {r.ratio} per {r.domain}. {advice} {why}",
            code=codes.NO_FIT,
            data=("fitting_ratio",),
        ),
    ),
    r.TooManyNodes: Row(
        berth=Wording(
            409,
            "The cluster would have {r.asked} nodes, including those that are being removed; the limit is "
            "{r.limit}: ask for fewer, or retry when those are removed.",
            code=codes.CONFLICT,
        ),
    ),
    r.NodeGroupNotFound: Row(
        berth=Wording(
            404, "Cluster {r.cluster} has no node group {r.name}; it has: {there}.", code=codes.NOT_FOUND
        ),
    ),
    r.NodeGroupExists: Row(
        berth=Wording(
            409,
            "Cluster {r.cluster} already has a node group {r.name}, or its nodes are still being "
            "removed: choose another name, or retry when they are removed.",
            code=codes.CONFLICT,
        ),
    ),
    r.TooManyNodeGroups: Row(
        berth=Wording(
            409,
            "The cluster would have {r.asked} node groups; the limit is {r.limit}: remove some first.",
            code=codes.CONFLICT,
        ),
    ),
    r.NodeCountWrong: Row(
        berth=Wording(
            400, "The count of node group {r.name} is {r.asked}; it must be 0 or more.", code=codes.BAD_BODY
        ),
    ),
    r.NodeFlavorNotFound: Row(
        berth=_bad_body(
            "node group {r.node_group} asks for the flavor {r.flavor}, and there is none of that id or name"
        ),
    ),
    r.NodeImageNotFound: Row(
        berth=_bad_body(
            "node group {r.node_group} asks for the image {r.image}, and there is none of that id or name"
        ),
    ),
    r.NodeImageAmbiguous: Row(
        berth=_bad_body(
            "node group {r.node_group} asks for the image {r.image}, and several are called so: name one by "
            "its id, {ids}"
        ),
    ),
    r.NodeImageNotActive: Row(
        berth=_bad_body(
            "node group {r.node_group} asks for the image {r.image}, which is {r.status}: it must be active"
        ),
    ),
    r.NodeSpecInvalid: Row(
        berth=_bad_body(
            "node group {r.node_group} cannot use the {r.source}: {r.key} is {r.value!r}; it must be "
            "{r.accepted}"
        ),
    ),
    r.NodeFlavorTooSmall: Row(
        berth=_bad_body(
            "node group {r.node_group}: the flavor {r.flavor} has {r.has} {r.unit}, and the image {r.image} "
            "needs {r.needs}: choose a larger flavor"
        ),
    ),
    r.NodeNotFound: Row(
        berth=Wording(404, "Cluster {r.cluster} has no node {r.name}.", code=codes.NOT_FOUND),
    ),
    r.NodeLeaving: Row(
        berth=Wording(
            409,
            "Node {r.name} of cluster {r.cluster} is being removed and cannot be replaced: scale up instead.",
            code=codes.CONFLICT,
        ),
    ),
    r.NodeNotFailed: Row(
        berth=Wording(
            409,
            "Node {r.name} of cluster {r.cluster} has not failed: its server is {r.state}, and its host is "
            "up. Use force to replace it anyway.",
            code=codes.CONFLICT,
        ),
    ),
    # scheduling
    UnknownHost: Row(
        berth=Wording(
            400, "The hint {r.hint} names {r.name}, but no host has that name or uuid.", code=codes.BAD_BODY
        ),
    ),
    UnknownConsumer: Row(
        berth=Wording(
            400,
            "The hint {r.hint} names consumer {r.consumer}, which holds no allocations.",
            code=codes.BAD_BODY,
        ),
    ),
    SpecInvalid: Row(
        berth=Wording(400, "{r.key} is {r.value!r}; it must be {r.accepted}.", code=codes.BAD_BODY),
    ),
    r.PlanStale: Row(
        berth=Wording(
            409,
            "The plan is stale: it was made at index {r.index}. {r.why} Plan again.",
            code=codes.PLAN_MOVED,
        ),
    ),
    NoFit: Row(
        berth=Wording(409, "{r.needed} needed, {r.fitting} fit. {steps}", code=codes.NO_FIT),
    ),
}

_TREE_REASONS: Final = {
    TreeRule.PARENT_IS_SELF: (
        "create",
        "parent provider UUID cannot be same as UUID. "
        "Please set parent provider UUID to None if there is no parent.",
    ),
    TreeRule.PARENT_MISSING: ("create", "parent provider UUID does not exist."),
    TreeRule.LOOP: ("update", "creating loop in the provider tree is not allowed."),
    TreeRule.REPARENTING: ("update", "re-parenting a provider is not currently allowed."),
    TreeRule.UNPARENTING: ("update", "un-parenting a provider is not currently allowed."),
}

_STEPS_SHOWN_MAX: Final = 20
_WORDS_MAX: Final = 2000
"""A group's members may be many, and a refusal may name them all."""


# -- answers ------------------------------------------------------------------------------------


def placement_problem(rejection: Rejection, attempt: Attempt, **context: str) -> Problem:
    """What a client of Placement is told on a route. ``context``: what the rejection itself does not know."""
    row = ROWS[type(rejection)]
    cell = row.on_route.get(attempt) or row.placement
    assert cell is not None, "the ledger refuses a claim for nothing else"
    words = {**_words(rejection, names_hosts=True), **context}
    words["says"] = row.says.format(r=rejection, **words)
    text = cell.text.format(r=rejection, **words)
    if row.adds and not cell.is_whole:
        text = f"{text.removesuffix('.')}. {row.adds.format(r=rejection, **words)}"
    return Problem(cell.status, text, cell.code, bare=cell.bare)


def berth_problem(rejection: Rejection, *, names_hosts: bool = True) -> Problem:
    """What a client of /berth/v1 is told; without hosts for callers that are not told of them."""
    if not names_hosts and is_no_place(rejection):
        return Problem(409, no_place(), codes.NO_FIT)
    cell = ROWS[type(rejection)].berth
    if cell is None:
        known = placement_problem(rejection, Attempt.POST_ALLOCATIONS)
        is_ours = known.code is not None and known.code.startswith("berth.")
        return Problem(known.status, known.text, known.code if is_ours else codes.CONFLICT)
    return _problem(rejection, cell, names_hosts=names_hosts)


def nova_problem(rejection: Rejection, *, names_hosts: bool = True) -> Problem:
    """What a client of the compute API is told; without hosts for callers that are not told of them."""
    cell = ROWS[type(rejection)].nova
    if cell is None:
        return berth_problem(rejection, names_hosts=names_hosts)
    return _problem(rejection, cell, names_hosts=names_hosts)


def explain_rejection(rejection: Rejection) -> str:
    """What an explanation says of a refusal: a clause without a full stop."""
    text = ROWS[type(rejection)].explained
    return text.format(r=rejection) if text else berth_problem(rejection).text.removesuffix(".")


def why_no_place(rejection: Rejection) -> str:
    """Why there is no place for a server, for those who are told of hosts. Clients know how it begins."""
    text = f"{NO_PLACE} {berth_problem(rejection).text}"
    return text if len(text) <= _WORDS_MAX else f"{text[: _WORDS_MAX - 3]}..."


def _problem(rejection: Rejection, cell: Wording, *, names_hosts: bool) -> Problem:
    words = _words(rejection, names_hosts=names_hosts)
    data = {name: getattr(rejection, name) for name in cell.data}
    return Problem(cell.status, cell.text.format(r=rejection, **words).rstrip(), cell.code, more=data)


# -- parts of sentences that are more than a field ----------------------------------------------


def _words(rejection: Rejection, *, names_hosts: bool) -> dict[str, str]:
    words = _WORDS.get(type(rejection))
    return {} if words is None else words(rejection, names_hosts)


def _them(number: int) -> str:
    return "it" if number == 1 else "them"


def _quota_words(rejection: r.QuotaExceeded, _: bool) -> dict[str, str]:
    names, asked, used, limits = (
        ", ".join(str(part) for part in parts) for parts in zip(*rejection.over, strict=True)
    )
    return {"names": names, "asked": asked, "used": used, "limits": limits}


def _policy_words(rejection: r.GroupPolicyBroken, _: bool) -> dict[str, str]:
    is_host = rejection.domain in (None, rejection.host)
    stand = [f"{member} on {host}" for member, host in rejection.standing]
    return {
        "domain": "" if is_host else f" in {rejection.domain}",
        "standing": f"Hosts of the members: {', '.join(stand) or 'none'}. Try another host.",
    }


def _shortage_words(rejection: r.FlavorTooSmall, _: bool) -> dict[str, str]:
    is_memory = rejection.resource == "memory"
    return {"size": f"{rejection.size} MB of memory" if is_memory else f"a disk of {rejection.size} GB"}


def _need_words(rejection: r.NeedDoesNotFit, _: bool) -> dict[str, str]:
    group = "" if rejection.group is None else f"the group {rejection.group} of "
    if rejection.is_far:
        return {"group": group, "refused": "A device is free there, and not in a NUMA cell of the server."}
    if rejection.refused is None:
        return {"group": group, "refused": "None of its providers has enough free and the required traits."}
    return {"group": group, "refused": berth_problem(rejection.refused).text}


def _after_a_conflict(rejection: r.ServerChangedByOthers) -> str:
    """What can be done about allocations that another client has changed."""
    if rejection.is_recorded:
        return "The conflict is recorded. Send the request again to continue: what was added is kept."
    return (
        "The request is refused until an administrator repairs the server with berth doctor; or send it with "
        "the header X-Berth-Conflict-Policy: retry or merge."
    )


def _ratio_advice(rejection: r.ClusterDoesNotFit) -> str:
    if rejection.fitting_ratio is not None:
        return f"A ratio of {rejection.fitting_ratio} would fit."
    return "Ask for fewer nodes or smaller ones, or add hosts."


def _steps(nothing: NoFit) -> str:
    """What each constraint left, and what the ledger said, if it came to that."""
    removing = [step for step in nothing.steps if step.removed][:_STEPS_SHOWN_MAX]
    said = []
    for step in removing:
        said.append(f"{step.asked}: {count(step.left, 'host')} left, {step.removed:,} removed.")
        said += [pool.sentence for pool in step.pools]
        said += [step.nearest] if step.nearest else []
    if nothing.refused is not None:
        said.append(berth_problem(nothing.refused).text)
    if nothing.gave_up:
        said.append("The search was cut off at its limit: ask for fewer at once, or for fewer parts.")
    return " ".join(said) or "There are no hosts."


_WORDS: Final[dict[type[Rejection], Callable[[Any, bool], dict[str, str]]]] = {
    r.TraitsNotFound: lambda one, _: {"names": ", ".join(one.names)},
    r.InventoryInUse: lambda one, _: {"classes": ", ".join(one.resource_classes)},
    r.NoInventory: lambda one, _: {"classes": ", ".join(one.resource_classes)},
    r.TreeRuleBroken: lambda one, _: dict(zip(("action", "reason"), _TREE_REASONS[one.rule], strict=True)),
    r.ReservedTooHigh: lambda one, _: {"limit": "total" if one.may_reserve_all else "or equal to total"},
    r.ConsumerGenerationConflict: lambda one, _: {
        "expected": "null" if one.current is None else str(one.current)
    },
    r.GroupPolicyBroken: _policy_words,
    # Where both are taken the uuid is named, as by a database that stops at the first key.
    r.ProviderExists: lambda one, _: {"taken": f"name: {one.name}" if one.id is None else f"uuid: {one.id}"},
    r.QuotaExceeded: _quota_words,
    r.GroupNameAmbiguous: lambda one, _: {"ids": ", ".join(one.ids)},
    r.GroupFitsNowhere: lambda one, _: {
        "members": count(one.members, "member"),
        "why": nova_problem(one.why).text,
    },
    r.AggregateInUse: lambda one, _: {"hosts": count(one.hosts, "host"), "them": _them(one.hosts)},
    r.ZoneOfServers: lambda one, _: {"servers": count(one.servers, "server"), "them": _them(one.servers)},
    r.GroupInUse: lambda one, _: {"members": count(one.members, "member"), "them": _them(one.members)},
    r.BuildSourceUnusable: lambda one, _: {"why": nova_problem(one.why).text},
    r.FlavorTooSmall: _shortage_words,
    r.KindInUse: lambda one, _: {"groups": ", ".join(one.groups)},
    r.ServerStateWrong: lambda one, _: {"allowed": " or ".join(one.allowed) or "no state"},
    r.ServerChangedByOthers: lambda one, _: {"then": _after_a_conflict(one)},
    r.HostNotDown: lambda one, names_hosts: {"host": f" {one.host}" if names_hosts else ""},
    r.ServerOutdated: lambda one, names_hosts: {"found": f": {one.found}" if names_hosts else ""},
    r.SourceUnitsGone: lambda one, names_hosts: {
        "gone": f" {one.host} does not have {', '.join(one.units)}"
        if names_hosts
        else " does not have the devices that it had there"
    },
    r.HostIsDown: lambda one, names_hosts: {"host": f" {one.host}" if names_hosts else ""},
    r.HostLacksTraits: lambda one, names_hosts: {
        "host": f" {one.host}" if names_hosts else "",
        "traits": ", ".join(one.traits),
    },
    r.HostUnfitForImage: lambda one, names_hosts: {
        "host": f" {one.host}" if names_hosts else "",
        "found": f": {one.found}" if names_hosts else "",
    },
    r.NeedDoesNotFit: _need_words,
    r.NodeImageAmbiguous: lambda one, _: {"ids": ", ".join(one.ids)},
    r.NodeGroupNotFound: lambda one, _: {"there": ", ".join(one.there) or "none"},
    r.ClusterDoesNotFit: lambda one, names_hosts: {
        "advice": _ratio_advice(one),
        "why": berth_problem(one.why).text if names_hosts else "",
    },
    NoFit: lambda one, _: {"steps": _steps(one)},
}

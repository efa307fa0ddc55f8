"""The error table: every way a request can be refused, with its status, its code and its words.

Clients and their tests match on the words, so upstream's sentence comes first and unchanged. Where the
ledger knows more (what was asked, what there was), one sentence of ours follows. Nothing else in the
package decides a status for a Rejection.
"""

from enum import Enum, auto
from typing import Any, Final, NamedTuple

from berth.model import rejections as r
from berth.model.rejections import Rejection, TreeRule

# -- codes --------------------------------------------------------------------------------------

UNDEFINED: Final = "placement.undefined_code"
INVENTORY_IN_USE: Final = "placement.inventory.inuse"
CONCURRENT_UPDATE: Final = "placement.concurrent_update"
DUPLICATE_NAME: Final = "placement.duplicate_name"
PROVIDER_IN_USE: Final = "placement.resource_provider.inuse"
CANNOT_DELETE_PARENT: Final = "placement.resource_provider.cannot_delete_parent"
PROVIDER_NOT_FOUND: Final = "placement.resource_provider.not_found"
QUERY_DUPLICATE_KEY: Final = "placement.query.duplicate_key"
QUERY_BAD_VALUE: Final = "placement.query.bad_value"
QUERY_MISSING_VALUE: Final = "placement.query.missing_value"
GROUP_POLICY: Final = "berth.group_policy"
"""Ours: clients that know other codes only take any other 409 for "not here", which is what it means."""
TOO_LARGE: Final = "berth.too_large"


class Problem(Exception):
    """A refusal at the boundary of the API. Raised while a request is read, returned by handlers.

    ``bare`` problems carry no ``vary`` header: upstream answers those outside of its handlers.
    """

    def __init__(
        self,
        status: int,
        text: str = "",
        code: str = UNDEFINED,
        *,
        bare: bool = False,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.code = code
        self.bare = bare
        self.headers = headers


# -- rejections ---------------------------------------------------------------------------------


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


class _Row(NamedTuple):
    """``text`` may name the rejection's sentence {says}, its fields {r.…} and the caller's context.
    A text that ``is_whole`` says everything there is to say.
    """

    status: int
    text: str
    code: str = UNDEFINED
    bare: bool = False
    is_whole: bool = False


_SENTENCES: Final[dict[type[Rejection], str]] = {
    r.CommandTooLarge: (
        "This request makes {r.changes} changes of more than {r.limit} bytes together, the most that one "
        "request may write: split it into smaller ones."
    ),
    r.RowTooLarge: (
        "This request writes {r.size} bytes, more than the database takes in one row ({r.says}): split it "
        "into smaller ones, or have the operator raise the limit of the database."
    ),
    r.ResourceClassNotFound: "No such resource class {r.name}.",
    r.ResourceClassExists: "Resource class already exists: {r.name}",
    r.ResourceClassInUse: "Cannot delete resource class {r.name}. Class is in use in inventory.",
    r.ResourceClassIsStandard: "Cannot delete standard resource class {r.name}.",
    r.TraitsNotFound: "No such trait(s): {names}.",
    r.TraitInUse: "The trait {r.name} is in use by a resource provider.",
    r.TraitIsStandard: "Cannot delete standard trait {r.name}.",
    r.NameNotCustom: (
        "'{r.name}' is not a custom name: it must start with CUSTOM_, go on with A-Z, 0-9 and _, "
        "and have no more than 255 characters."
    ),
    r.ProviderNotFound: "No resource provider with uuid {r.provider} found",
    r.ProviderExists: "Conflicting resource provider {taken} already exists.",
    r.ProviderNameMissing: "Object action create failed because: name is required",
    r.TreeRuleBroken: "Object action {action} failed because: {reason}",
    r.ProviderHasChildren: "It has child resource providers.",
    r.ProviderInUse: "Resource provider has allocations.",
    r.AggregateNotForAgents: "An agent cannot put its host into the aggregate {r.aggregate}: {r.reason}.",
    r.ProviderGenerationConflict: "resource provider generation conflict",
    r.InventoryExists: (
        "Inventory of class {r.resource_class} already exists on resource provider {r.provider}."
    ),
    r.InventoryNotFound: "No inventory of class {r.resource_class} found.",
    r.InventoryInUse: "Inventory for '{classes}' on resource provider '{r.provider}' in use.",
    r.ReservedTooHigh: (
        "Invalid inventory for '{r.resource_class}' on resource provider '{r.provider}'. "
        "The reserved value is greater than {limit}."
    ),
    r.ConsumerGenerationConflict: "consumer generation conflict - expected {expected} but got {r.given}",
    r.ConsumerClaimsTwice: "Consumer '{r.consumer}' stands in the request twice.",
    r.ClaimedProviderNotFound: "Allocation for resource provider '{r.provider}' that does not exist.",
    r.ClaimedClassNotFound: "No such resource class {r.name}.",
    r.NoInventory: "Inventory for '{classes}' on resource provider '{r.provider}' invalid.",
    r.UnitsViolated: (
        "Unable to create allocation for '{r.resource_class}' on resource provider '{r.provider}'. "
        "The requested amount would violate inventory constraints."
    ),
    r.CapacityExceeded: (
        "Unable to create allocation for '{r.resource_class}' on resource provider '{r.provider}'. "
        "The requested amount would exceed the capacity."
    ),
    r.AllocationsNotFound: "No allocations for consumer '{r.consumer}'",
    r.GroupPolicyBroken: (
        "The {r.policy} of group {r.name} ({r.group}) keeps consumer {r.consumer} from host {r.host}"
        "{domain}: {r.reason}."
    ),
    r.GroupFull: "Group {r.group} would have more than the {r.members_max} members it may have.",
}
"""What each rejection says, wherever it comes up."""

_ADDITIONS: Final[dict[type[Rejection], str]] = {
    r.ProviderInUse: "It has {r.consumers} consumer(s): delete or move their allocations first.",
    r.ProviderGenerationConflict: (
        "Resource provider {r.provider} is at generation {r.current}, the request named {r.given}: "
        "read it again and repeat the request."
    ),
    r.InventoryExists: "Use PUT to change it.",
    r.ReservedTooHigh: "Reserved is {r.reserved}, total is {r.total}.",
    r.ConsumerGenerationConflict: "Read the consumer's allocations again and repeat the request.",
    r.NoInventory: "The resource provider has no such inventory.",
    r.UnitsViolated: (
        "Asked for {r.asked}; min_unit is {r.min_unit}, max_unit is {r.max_unit}, step_size is {r.step_size}."
    ),
    r.CapacityExceeded: "Asked for {r.asked}; others use {r.used} of {r.capacity}.",
    r.GroupPolicyBroken: "{standing}",
}
"""What we add to upstream's words."""

_GENERATION_CHANGED: Final = (
    "Resource provider's generation already changed. Please update the generation and try again."
)
_CANNOT_ALLOCATE: Final = "Unable to allocate inventory: {says}"
_BAD_RESERVED: Final = "Unable to update inventory for resource provider {r.provider}: {says}"

_ROWS: Final[dict[type[Rejection], _Row]] = {
    r.ResourceClassNotFound: _Row(404, "{says}", bare=True),
    r.ResourceClassExists: _Row(409, "{says}"),
    r.ResourceClassInUse: _Row(409, "Error in delete resource class: {says}"),
    r.ResourceClassIsStandard: _Row(400, "Error in delete resource class: {says}"),
    r.TraitsNotFound: _Row(404, "{says}"),
    r.TraitInUse: _Row(409, "{says}"),
    r.TraitIsStandard: _Row(400, "{says}"),
    r.NameNotCustom: _Row(400, "{says}"),
    r.ProviderNotFound: _Row(404, "{says}", bare=True),
    r.ProviderExists: _Row(409, "{says}", DUPLICATE_NAME),
    r.ProviderNameMissing: _Row(400, 'Unable to create resource provider "", {r.provider}: {says}'),
    r.TreeRuleBroken: _Row(400, "Unable to save resource provider {r.provider}: {says}"),
    r.ProviderHasChildren: _Row(
        409, "Unable to delete parent resource provider {r.provider}: {says}", CANNOT_DELETE_PARENT
    ),
    r.ProviderInUse: _Row(409, "Unable to delete resource provider {r.provider}: {says}", PROVIDER_IN_USE),
    r.AggregateNotForAgents: _Row(409, "{says}"),
    r.ProviderGenerationConflict: _Row(409, "{says}", CONCURRENT_UPDATE),
    r.InventoryExists: _Row(409, "Update conflict: {says}", CONCURRENT_UPDATE),
    r.InventoryNotFound: _Row(
        400, "No inventory record with resource class for resource provider {r.provider}: {says}"
    ),
    r.InventoryInUse: _Row(409, "update conflict: {says}", INVENTORY_IN_USE),
    r.ReservedTooHigh: _Row(400, _BAD_RESERVED),
    r.ConsumerGenerationConflict: _Row(409, "{says}", CONCURRENT_UPDATE),
    r.ConsumerClaimsTwice: _Row(400, "{says}"),
    r.ClaimedProviderNotFound: _Row(400, "{says}"),
    r.ClaimedClassNotFound: _Row(400, "Unable to allocate inventory {says}"),
    r.NoInventory: _Row(409, _CANNOT_ALLOCATE),
    r.UnitsViolated: _Row(409, _CANNOT_ALLOCATE),
    r.CapacityExceeded: _Row(409, _CANNOT_ALLOCATE),
    r.AllocationsNotFound: _Row(404, "{says}"),
    r.GroupPolicyBroken: _Row(409, _CANNOT_ALLOCATE, GROUP_POLICY),
    r.GroupFull: _Row(409, _CANNOT_ALLOCATE),
    r.CommandTooLarge: _Row(413, "{says}", TOO_LARGE),
    r.RowTooLarge: _Row(413, "{says}", TOO_LARGE),
}
"""How each rejection is answered, unless the route says it differently."""

_ROWS_BY_ROUTE: Final[dict[tuple[Attempt, type[Rejection]], _Row]] = {
    (Attempt.CREATE_CLASS, r.ResourceClassExists): _Row(
        409, "Conflicting resource class already exists: {r.name}"
    ),
    (Attempt.RENAME_CLASS, r.ResourceClassIsStandard): _Row(
        400, "Cannot update standard resource class {r.name}"
    ),
    (Attempt.LIST_PROVIDERS, r.ResourceClassNotFound): _Row(
        400, "Invalid resource class in resources parameter: {says}"
    ),
    (Attempt.LIST_PROVIDERS, r.TraitsNotFound): _Row(400, 'Invalid trait(s) in "required" parameter: {says}'),
    (Attempt.LIST_CANDIDATES, r.ResourceClassNotFound): _Row(
        400, "Invalid resource class in resources parameter: {says}"
    ),
    (Attempt.LIST_CANDIDATES, r.TraitsNotFound): _Row(400, "{says}"),
    (Attempt.CREATE_PROVIDER, r.TreeRuleBroken): _Row(
        400, 'Unable to create resource provider "{name}", {r.provider}: {says}'
    ),
    (Attempt.UPDATE_PROVIDER, r.ProviderExists): _Row(
        409, "Conflicting resource provider {r.name} already exists.", DUPLICATE_NAME
    ),
    (Attempt.DELETE_PROVIDER, r.ProviderNotFound): _Row(404, "{says} for delete"),
    (Attempt.ADD_INVENTORY, r.ResourceClassNotFound): _Row(
        400, "Unable to create inventory for resource provider {provider}: {says}"
    ),
    (Attempt.ADD_INVENTORY, r.ReservedTooHigh): _Row(
        400, "Unable to create inventory for resource provider {r.provider}: {says}"
    ),
    (Attempt.SET_INVENTORIES, r.ResourceClassNotFound): _Row(
        400, "Unknown resource class in inventory for resource provider {provider}: {says}"
    ),
    (Attempt.DELETE_INVENTORY, r.InventoryNotFound): _Row(
        404,
        "No inventory of class {r.resource_class} found for delete: "
        "No inventory of class {r.resource_class} found for delete",
    ),
    (Attempt.DELETE_INVENTORY, r.ResourceClassNotFound): _Row(
        404, "No inventory of class {r.name} found for delete: {says}"
    ),
    (Attempt.DELETE_INVENTORY, r.InventoryInUse): _Row(
        409, "Unable to delete inventory of class {classes}: {says}", CONCURRENT_UPDATE
    ),
    (Attempt.DELETE_INVENTORIES, r.InventoryInUse): _Row(409, "{says}", INVENTORY_IN_USE),
    (Attempt.SET_TRAITS, r.TraitsNotFound): _Row(400, "No such trait {names}"),
    (Attempt.SET_TRAITS, r.ProviderGenerationConflict): _Row(409, _GENERATION_CHANGED, CONCURRENT_UPDATE),
    (Attempt.SET_AGGREGATES, r.ProviderGenerationConflict): _Row(409, _GENERATION_CHANGED, CONCURRENT_UPDATE),
    (Attempt.PUT_ALLOCATIONS, r.ClaimedClassNotFound): _Row(
        400, "Unable to allocate inventory for consumer {r.consumer}: {says}"
    ),
    (Attempt.RESHAPE, r.ProviderNotFound): _Row(
        400, "Resource provider {r.provider} in inventories not found: {says}", PROVIDER_NOT_FOUND
    ),
    (Attempt.RESHAPE, r.ProviderGenerationConflict): _Row(
        409,
        "resource provider generation conflict for provider {r.provider}: "
        "actual: {r.current}, given: {r.given}",
        CONCURRENT_UPDATE,
        is_whole=True,
    ),
    (Attempt.RESHAPE, r.ResourceClassNotFound): _Row(400, "malformed reshaper data: {says}"),
    (Attempt.RESHAPE, r.ClaimedClassNotFound): _Row(400, "malformed reshaper data: {says}"),
    (Attempt.RESHAPE, r.InventoryNotFound): _Row(400, "malformed reshaper data: {says}"),
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


def problem_of(rejection: Rejection, attempt: Attempt, **context: str) -> Problem:
    """How a rejection is answered on a route. ``context`` is what the rejection itself does not know."""
    kind = type(rejection)
    row = _ROWS_BY_ROUTE.get((attempt, kind)) or _ROWS[kind]
    words = {**_words(rejection), **context}
    words["says"] = _SENTENCES[kind].format(r=rejection, **words)
    text = row.text.format(r=rejection, **words)
    if row.is_whole or kind not in _ADDITIONS:
        return Problem(row.status, text, row.code, bare=row.bare)
    addition = _ADDITIONS[kind].format(r=rejection, **words)
    text = f"{text.removesuffix('.')}. {addition}"
    return Problem(row.status, text, row.code, bare=row.bare)


def _words(rejection: Any) -> dict[str, str]:
    """The parts of sentences that are more than a field."""
    match rejection:
        case r.TraitsNotFound():
            return {"names": ", ".join(rejection.names)}
        case r.InventoryInUse() | r.NoInventory():
            return {"classes": ", ".join(rejection.resource_classes)}
        case r.TreeRuleBroken():
            action, reason = _TREE_REASONS[rejection.rule]
            return {"action": action, "reason": reason}
        case r.ReservedTooHigh():
            return {"limit": "total" if rejection.may_reserve_all else "or equal to total"}
        case r.ConsumerGenerationConflict():
            return {"expected": "null" if rejection.current is None else str(rejection.current)}
        case r.GroupPolicyBroken():
            is_host = rejection.domain in (None, rejection.host)
            stand = [f"{member} on {host}" for member, host in rejection.standing]
            return {
                "domain": "" if is_host else f" in {rejection.domain}",
                "standing": f"Members stand so: {', '.join(stand) or 'nobody anywhere'}. Try another host.",
            }
        case r.ProviderExists():
            # Where both are taken the uuid is named, as by a database that stops at the first key.
            taken = f"name: {rejection.name}" if rejection.id is None else f"uuid: {rejection.id}"
            return {"taken": taken}
        case _:
            return {}

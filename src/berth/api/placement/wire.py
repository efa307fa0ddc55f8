"""Bodies as they arrive: structs that decode and check in one pass, and the words for what they refuse.

A good body is decoded once and never seen by jsonschema. One that is refused is read again the slow way,
only to find upstream's sentence for it; what the schema accepts after all (``1.0`` is an integer there)
is brought into the form the structs know. Larger bodies are refused in the decoder's words, and very
large ones are not read a second time.
"""

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.kernel.problem import Problem
from berth.api.placement import schemas
from berth.api.placement.schemas import (
    CUSTOM_NAME_PATTERN,
    NAME_LENGTH_MAX,
    NAME_PATTERN,
    PROVIDER_NAME_LENGTH_MAX,
    UUID_PATTERN,
    VERBOSE_SUFFIX_PATTERN,
    Schema,
    is_uuid,
    normal,
)
from berth.api.placement.versions import LATEST
from berth.model.placement import AMOUNT_MAX, RATIO_MAX

EXPLAINED_BYTES_MAX: Final = 16 * 1024
"""A refused body up to this size is explained by its schema, which takes up to ten microseconds per byte."""

REREAD_BYTES_MAX: Final = 256 * 1024
"""A refused body up to this size is read again, for numbers that are integers in another spelling."""

DEPTH_MAX: Final = 32
"""How deep lists and objects may be nested. The deepest valid body has six levels."""

_NOT_UUIDS: Final = "a uuid was expected, each at most once"
_TOO_DEEP: Final = "Malformed JSON: nested too deeply"
_MAPPED_SUFFIX = re.compile(VERBOSE_SUFFIX_PATTERN)

T = TypeVar("T")


# -- structs ------------------------------------------------------------------------------------

_Key = Annotated[str, Meta(pattern=UUID_PATTERN)]
_ExternalId = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
_ProviderName = Annotated[str, Meta(max_length=PROVIDER_NAME_LENGTH_MAX)]
_AmountFrom0 = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
_AmountFrom1 = Annotated[int, Meta(ge=1, le=AMOUNT_MAX)]
# The schema has no lower bound. This one keeps every product of the two finite.
_Ratio = Annotated[float, Meta(ge=-RATIO_MAX, le=RATIO_MAX)]

Resources = Annotated[
    dict[Annotated[str, Meta(pattern=NAME_PATTERN)], Annotated[int, Meta(ge=1)]], Meta(min_length=1)
]


class _Wire(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    pass


class ResourceClass(_Wire, kw_only=True):
    name: Annotated[str, Meta(pattern=CUSTOM_NAME_PATTERN, max_length=NAME_LENGTH_MAX)]


class NewProvider(_Wire, kw_only=True):
    name: _ProviderName
    uuid: str | UnsetType = UNSET


class NewNestedProvider(NewProvider, kw_only=True):
    parent_provider_uuid: str | UnsetType | None = UNSET


class ChangedProvider(_Wire, kw_only=True):
    name: _ProviderName


class ChangedNestedProvider(ChangedProvider, kw_only=True):
    parent_provider_uuid: str | UnsetType | None = UNSET


class AggregatesBody(_Wire, kw_only=True):
    aggregates: list[str]
    resource_provider_generation: int


class ProviderTraits(_Wire, kw_only=True):
    traits: list[Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]]
    resource_provider_generation: int


class InventoryRecord(_Wire, kw_only=True):
    total: _AmountFrom1
    reserved: _AmountFrom0 = 0
    min_unit: _AmountFrom1 = 1
    max_unit: _AmountFrom1 = AMOUNT_MAX
    step_size: _AmountFrom1 = 1
    allocation_ratio: _Ratio = 1.0
    resource_provider_generation: int | UnsetType = UNSET


class NewInventory(InventoryRecord, kw_only=True):
    resource_class: Annotated[str, Meta(pattern=NAME_PATTERN)]


class ChangedInventory(InventoryRecord, kw_only=True):
    resource_provider_generation: int


class Inventories(_Wire, kw_only=True):
    resource_provider_generation: int
    # Keys are not held to a pattern, as in the schema: a name that breaks it is an unknown class.
    inventories: dict[str, InventoryRecord]


class _ProviderReference(_Wire, kw_only=True):
    uuid: str


class ListedAllocation(_Wire, kw_only=True):
    resource_provider: _ProviderReference
    resources: Resources


class AllocationBody(_Wire, kw_only=True):
    resources: Resources
    generation: int | UnsetType = UNSET


class ListClaim(_Wire, kw_only=True):
    """1.0 to 1.7."""

    allocations: Annotated[list[ListedAllocation], Meta(min_length=1)]


class OwnedListClaim(ListClaim, kw_only=True):
    """1.8 to 1.11."""

    project_id: _ExternalId
    user_id: _ExternalId


class FilledClaim(_Wire, kw_only=True):
    """PUT from 1.12 to 1.27: not empty."""

    allocations: Annotated[dict[_Key, AllocationBody], Meta(min_length=1)]
    project_id: _ExternalId
    user_id: _ExternalId


class PlainClaim(_Wire, kw_only=True):
    """POST from 1.13 to 1.27: empty takes everything away."""

    allocations: dict[_Key, AllocationBody]
    project_id: _ExternalId
    user_id: _ExternalId


class GenerationClaim(PlainClaim, kw_only=True):
    """1.28 to 1.33."""

    consumer_generation: int | None


class MappedClaim(GenerationClaim, kw_only=True):
    """1.34 to 1.37. The mappings are checked and not used."""

    mappings: Annotated[dict[str, Any], Meta(min_length=1)] | UnsetType = UNSET


class TypedClaim(MappedClaim, kw_only=True):
    """From 1.38."""

    consumer_type: Annotated[str, Meta(pattern=NAME_PATTERN, min_length=1, max_length=NAME_LENGTH_MAX)]


KeyedClaim = FilledClaim | PlainClaim
"""Any of the claims whose allocations are keyed by provider."""


class ReshapeBody(_Wire, Generic[T], kw_only=True):
    inventories: Annotated[dict[_Key, Inventories], Meta(min_length=1)]
    allocations: dict[_Key, T]


# -- what a struct cannot check -----------------------------------------------------------------


def _listed_uuids(claim: ListClaim) -> bool:
    return all(is_uuid(entry.resource_provider.uuid) for entry in claim.allocations)


def _mappings(claim: MappedClaim) -> bool:
    mappings = claim.mappings
    if mappings is UNSET:
        return True
    return all(_is_mapping(value) for suffix, value in mappings.items() if _MAPPED_SUFFIX.search(suffix))


def _is_mapping(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(id, str) and is_uuid(id) for id in value)
    )


def _all_mappings(claims: dict[str, Any]) -> bool:
    return all(_mappings(claim) for claim in claims.values())


def _reshape_mappings(reshape: ReshapeBody[Any]) -> bool:
    return _all_mappings(reshape.allocations)


def _provider_uuid(provider: NewProvider) -> bool:
    return provider.uuid is UNSET or is_uuid(provider.uuid)


def _parent_uuid(provider: NewNestedProvider | ChangedNestedProvider) -> bool:
    parent = provider.parent_provider_uuid
    return parent is UNSET or parent is None or is_uuid(parent)


def _both_uuids(provider: NewNestedProvider) -> bool:
    return _provider_uuid(provider) and _parent_uuid(provider)


def _unique_uuids(aggregates: list[str]) -> bool:
    return len(set(aggregates)) == len(aggregates) and all(map(is_uuid, aggregates))


def _aggregates(body: AggregatesBody) -> bool:
    return _unique_uuids(body.aggregates)


# -- bodies -------------------------------------------------------------------------------------


class VersionedBody(Generic[T]):
    """How one kind of body is read: its type, its schema, and what only code can check."""

    __slots__ = ("_check", "_decode", "_schema", "_type")

    def __init__(self, type: Any, schema: Schema, check: Callable[[Any], bool] | None = None) -> None:
        self._type = type
        self._decode: Callable[[bytes], T] = msgspec.json.Decoder(type).decode
        self._schema = schema
        self._check = check

    def decode(self, body: bytes) -> T:
        """The body's value, or a Problem in upstream's words."""
        try:
            value = self._decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return self._explain(body, str(error))
        if self._check is None or self._check(value):
            return value
        return self._explain(body, _NOT_UUIDS)

    def _explain(self, body: bytes, refusal: str) -> T:
        if len(body) > REREAD_BYTES_MAX:
            raise Problem(400, f"JSON does not validate: {refusal}")
        try:
            data = _loads(body)
            if len(body) <= EXPLAINED_BYTES_MAX:
                self._refuse_by_schema(data)
            return self._convert(normal(data))
        except RecursionError:
            raise Problem(400, _TOO_DEEP) from None

    def _refuse_by_schema(self, data: Any) -> None:
        complaint = schemas.body_complaint(self._schema, data)
        if complaint is not None:
            raise Problem(400, f"JSON does not validate: {complaint}")

    def _convert(self, data: Any) -> T:
        try:
            value: T = msgspec.convert(data, self._type)
        except msgspec.ValidationError as error:
            raise Problem(400, f"JSON does not validate: {error}") from None
        if self._check is None or self._check(value):
            return value
        raise Problem(400, f"JSON does not validate: {_NOT_UUIDS}")


def _loads(body: bytes) -> Any:
    try:
        data = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        # An escaped half of a surrogate pair is a string here but can never be written anywhere.
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except ValueError as error:
        raise Problem(400, f"Malformed JSON: {error}") from None
    if _is_deeper(data, DEPTH_MAX):
        raise Problem(400, _TOO_DEEP)
    return data


def _is_deeper(data: Any, depth_max: int) -> bool:
    """Whether lists and objects are nested deeper than this. Looks level by level."""
    level = [data]
    for _ in range(depth_max + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _by_version(
    body_of: Callable[[int], VersionedBody[Any]], since: tuple[int, ...]
) -> tuple[VersionedBody[Any], ...]:
    """A body for every version, made once for each version in which it changed."""
    bodies = {version: body_of(version) for version in since}
    return tuple(
        bodies[max((v for v in since if v <= version), default=since[0])] for version in range(LATEST + 1)
    )


def _new_provider(version: int) -> VersionedBody[NewProvider]:
    schema = schemas.new_provider(version)
    if version >= 14:
        return VersionedBody(NewNestedProvider, schema, _both_uuids)
    return VersionedBody(NewProvider, schema, _provider_uuid)


def _changed_provider(version: int) -> VersionedBody[ChangedProvider]:
    schema = schemas.changed_provider(version)
    if version >= 14:
        return VersionedBody(ChangedNestedProvider, schema, _parent_uuid)
    return VersionedBody(ChangedProvider, schema)


def _claim_type(version: int) -> type[PlainClaim]:
    if version >= 38:
        return TypedClaim
    if version >= 34:
        return MappedClaim
    return GenerationClaim if version >= 28 else PlainClaim


def _claim(version: int) -> VersionedBody[Any]:
    schema = schemas.claim(version)
    if version < 8:
        return VersionedBody(ListClaim, schema, _listed_uuids)
    if version < 12:
        return VersionedBody(OwnedListClaim, schema, _listed_uuids)
    if version < 28:
        return VersionedBody(FilledClaim, schema)
    return VersionedBody(_claim_type(version), schema, _mappings if version >= 34 else None)


def _claims(version: int) -> VersionedBody[Any]:
    keyed: Any = Annotated[dict[_Key, _claim_type(version)], Meta(min_length=1)]  # type: ignore[misc]
    return VersionedBody(keyed, schemas.claims(version), _all_mappings if version >= 34 else None)


def _reshape(version: int) -> VersionedBody[Any]:
    type_of: Any = ReshapeBody[_claim_type(version)]  # type: ignore[misc]
    return VersionedBody(type_of, schemas.reshape(version), _reshape_mappings if version >= 34 else None)


RESOURCE_CLASS: Final[VersionedBody[ResourceClass]] = VersionedBody(ResourceClass, schemas.RESOURCE_CLASS)
PROVIDER_TRAITS: Final[VersionedBody[ProviderTraits]] = VersionedBody(ProviderTraits, schemas.PROVIDER_TRAITS)
NEW_INVENTORY: Final[VersionedBody[NewInventory]] = VersionedBody(NewInventory, schemas.NEW_INVENTORY)
CHANGED_INVENTORY: Final[VersionedBody[ChangedInventory]] = VersionedBody(
    ChangedInventory, schemas.CHANGED_INVENTORY
)
INVENTORIES: Final[VersionedBody[Inventories]] = VersionedBody(Inventories, schemas.INVENTORIES)
AGGREGATES_LIST: Final[VersionedBody[list[str]]] = VersionedBody(
    list[str], schemas.aggregates(1), _unique_uuids
)
AGGREGATES: Final[VersionedBody[AggregatesBody]] = VersionedBody(
    AggregatesBody, schemas.aggregates(19), _aggregates
)

# One entry per version, so that a handler finds its body with an index.
NEW_PROVIDER: Final[tuple[VersionedBody[NewProvider], ...]] = _by_version(_new_provider, (0, 14))
CHANGED_PROVIDER: Final[tuple[VersionedBody[ChangedProvider], ...]] = _by_version(_changed_provider, (0, 14))
LIST_CLAIM: Final[tuple[VersionedBody[ListClaim], ...]] = _by_version(_claim, (0, 8))
CLAIM: Final[tuple[VersionedBody[KeyedClaim], ...]] = _by_version(_claim, (12, 28, 34, 38))
CLAIMS: Final[tuple[VersionedBody[dict[str, PlainClaim]], ...]] = _by_version(_claims, (13, 28, 34, 38))
RESHAPE: Final[tuple[VersionedBody[ReshapeBody[PlainClaim]], ...]] = _by_version(_reshape, (30, 34, 38))

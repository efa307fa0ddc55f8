"""/berth/v1/pools: what hosts share: storage, addresses of a segment.

A pool is a root provider with the trait ``MISC_SHARES_VIA_AGGREGATE`` that stands alone and runs nothing
(``View.is_pool``). It has no record of its own, so that a pool which another client of Placement has made is
a pool here too, and its generation is the provider's. A pool is written whole, in one change.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

from berth.api.kernel.codes import BAD_BODY, BAD_PARAMETER
from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, render_keys, take_first
from berth.api.kernel.problem import Problem
from berth.api.native.calls import NativeCall, NativeRoute, answer_from, change_found, respond
from berth.api.native.fields import LIMIT_DEFAULT, UUID, GivenUuid, KeyMarker, Limit, NativeBody, Next, Uuid
from berth.model import commands as c
from berth.model.ids import AggregateId, ProviderId, Row
from berth.model.placement import (
    AMOUNT_MAX,
    CLASSES_OF_HOSTS,
    RATIO_MAX,
    SHARES_VIA_AGGREGATE,
    STANDARD_CLASSES,
    STANDARD_TRAITS,
    Inventory,
    Label,
    is_custom_name,
)
from berth.model.rejections import NotAPool, PoolNotFound, ProviderGenerationConflict, Rejection
from berth.search.providers import roots_served
from berth.view import Mask, ProviderRecord, View

# -- answers ------------------------------------------------------------------------------------


class PoolInventory(msgspec.Struct):
    """``capacity`` is what can be used of ``total``; a pool that is over its capacity has nothing free."""

    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    capacity: int
    used: int
    free: int


class PoolAggregate(msgspec.Struct):
    """An aggregate whose hosts can use a pool."""

    uuid: str
    kind: str | None
    name: str | None


class PoolDetail(msgspec.Struct):
    """``consumers``: how many hold something of it. ``hosts``: how many can use it."""

    uuid: Uuid
    name: str
    generation: int
    inventories: dict[str, PoolInventory]
    traits: list[str]
    aggregates: list[PoolAggregate]
    consumers: int
    hosts: int


class OnePool(msgspec.Struct):
    pool: PoolDetail


class PoolsPage(msgspec.Struct):
    """A page of pools, in the order of their uuids."""

    pools: list[PoolDetail]
    next: Next = None


class PoolHost(msgspec.Struct):
    uuid: Uuid
    name: str


class PoolHostsPage(msgspec.Struct):
    """A page of the hosts that can use a pool, in the order of their uuids."""

    hosts: list[PoolHost]
    next: Next = None


# -- bodies and queries -------------------------------------------------------------------------

_NO_LABEL: Final = Label(None, None)
POOL_NAME_LENGTH_MAX: Final = 200
POOL_ENTRIES_MAX: Final = 100
_NAME_LENGTH_MAX: Final = 255

FromOne = Annotated[int, Meta(ge=1, le=AMOUNT_MAX)]
FromZero = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
VocabularyName = Annotated[str, Meta(min_length=1, max_length=_NAME_LENGTH_MAX)]


class NewPoolInventory(NativeBody, frozen=True, kw_only=True):
    """How much of a class a pool has: ``total``, of which ``reserved`` is not for consumers; how much a
    consumer may hold (from ``min_unit`` to ``max_unit``, in steps of ``step_size``); by which factor more may
    be claimed than there is (``allocation_ratio``)."""

    total: FromOne
    reserved: FromZero = 0
    min_unit: FromOne = 1
    max_unit: FromOne = AMOUNT_MAX
    step_size: FromOne = 1
    allocation_ratio: Annotated[float, Meta(gt=0, le=RATIO_MAX)] = 1.0


class NewPool(NativeBody, frozen=True, kw_only=True):
    """All of a pool. Custom classes and traits that are not there yet are created."""

    name: Annotated[
        str, Meta(min_length=1, max_length=POOL_NAME_LENGTH_MAX, description="What people call it.")
    ]
    inventories: Annotated[
        dict[VocabularyName, NewPoolInventory],
        Meta(min_length=1, max_length=POOL_ENTRIES_MAX, description="By the name of the resource class."),
    ]
    traits: Annotated[
        tuple[VocabularyName, ...],
        Meta(max_length=POOL_ENTRIES_MAX, description=f"Besides {SHARES_VIA_AGGREGATE}, which all have."),
    ] = ()
    aggregates: Annotated[
        tuple[GivenUuid, ...],
        Meta(max_length=POOL_ENTRIES_MAX, description="Whose hosts can use the pool."),
    ] = ()


class CreatedPool(NewPool, frozen=True, kw_only=True):
    uuid: GivenUuid | None = None


class ReplacedPool(NewPool, frozen=True, kw_only=True):
    generation: Annotated[
        Annotated[int, Meta(ge=0, le=2**63 - 1)] | None,
        Meta(description="The generation that was read; null: whatever it is."),
    ] = None


class CreatePoolBody(NativeBody, frozen=True, kw_only=True):
    pool: CreatedPool


class ReplacePoolBody(NativeBody, frozen=True, kw_only=True):
    pool: ReplacedPool


class PoolsQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


# -- handlers -----------------------------------------------------------------------------------


def list_pools(view: View, call: NativeCall) -> PoolsPage:
    query: PoolsQuery = call.query
    served = _ServedHosts(view)
    found, more = take_first(behind((record.id for record in served.pools), query.marker), query.limit)
    return PoolsPage(
        *render_keys(call.request, query, found, more, lambda id: _describe(view, view.providers[id], served))
    )


def show_pool(view: View, call: NativeCall) -> OnePool:
    return OnePool(_describe(view, call.accept(_find_pool(view, call)), _ServedHosts(view)))


def list_pool_hosts(view: View, call: NativeCall) -> PoolHostsPage:
    query: PoolsQuery = call.query
    record = call.accept(_find_pool(view, call))
    rows = _ServedHosts(view).list_rows(record)
    view.steps.take(len(rows))
    ids = (view.record(row).id for row in rows)
    found, more = take_first(behind(ids, query.marker), query.limit)
    return PoolHostsPage(
        *render_keys(call.request, query, found, more, lambda id: PoolHost(id, view.providers[id].name))
    )


async def create_pool(call: NativeCall) -> Response:
    asked: CreatedPool = call.body.pool
    _refuse_wrong(asked)
    id = ProviderId((asked.uuid or call.services.ids.uuid()).lower())
    response = await call.submit(
        lambda view, _: _create(view, id, asked), lambda view: _respond(view, id, 201)
    )
    response.headers.append(("location", f"{call.request.path}/{id}"))
    return response


async def replace_pool(call: NativeCall) -> Response:
    asked: ReplacedPool = call.body.pool
    _refuse_wrong(asked)
    id = _read_id(call)
    if not re.match(UUID, id):
        raise Problem(400, f"A pool is named by a uuid, with its dashes: {id!r} is none.", BAD_PARAMETER)
    return await call.submit(
        lambda view, _: _replace(view, id, asked),
        lambda view: _respond(view, id),
    )


async def delete_pool(call: NativeCall) -> Response:
    return await call.submit(
        change_found(call, _find_pool, lambda view, _, pool: c.DeleteProvider(pool.id)),
        lambda _: Response(204),
    )


def _read_id(call: NativeCall) -> ProviderId:
    return ProviderId(call.params[0].lower())


def _find_pool(view: View, call: NativeCall) -> ProviderRecord | Rejection:
    record = view.providers.get(_read_id(call))
    return record if record is not None and view.is_pool(record) else PoolNotFound(_read_id(call))


def _respond(view: View, id: ProviderId, status: int = 200) -> Response:
    return respond(OnePool(_describe(view, view.providers[id], _ServedHosts(view))), status)


class _ServedHosts:
    """The hosts that can use a pool. Pools are found once, and the hosts of equal aggregates counted once."""

    def __init__(self, view: View) -> None:
        sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
        view.steps.take(2 * len(sharing))
        self.pools = [record for row in sharing if view.is_pool(record := view.record(row))]
        self._view = view
        self._pool_rows = np.array([record.row for record in self.pools], np.intp)
        self._counts: dict[frozenset[AggregateId], int] = {}

    def count(self, pool: ProviderRecord) -> int:
        aggregates = frozenset(pool.aggregates)
        count = self._counts.get(aggregates)
        if count is None:
            count = self._counts[aggregates] = int(np.count_nonzero(self._find(pool)))
        return count

    def list_rows(self, pool: ProviderRecord) -> list[Row]:
        return [Row(row) for row in np.flatnonzero(self._find(pool)).tolist()]

    def _find(self, pool: ProviderRecord) -> Mask:
        self._view.steps.take(20 + self._view.row_end // 200)
        hosts = roots_served(self._view, pool.aggregates)
        hosts[self._pool_rows] = False
        return hosts


def _describe(view: View, record: ProviderRecord, served: _ServedHosts) -> PoolDetail:
    view.steps.take(10 + 3 * len(record.inventories) + len(record.traits) + len(record.aggregates))
    labels = ((id, view.groups.labels.get(id, _NO_LABEL)) for id in record.aggregates)
    return PoolDetail(
        record.id,
        record.name,
        record.generation,
        {
            view.classes.name_of(class_id): _describe_inventory(inventory, record.used.get(class_id, 0))
            for class_id, inventory in sorted(record.inventories.items())
        },
        [name for name in record.traits if name != SHARES_VIA_AGGREGATE],
        [PoolAggregate(id, label.kind, label.name) for id, label in labels],
        len(record.consumers),
        served.count(record),
    )


def _describe_inventory(inventory: Inventory, used: int) -> PoolInventory:
    return PoolInventory(
        inventory.total,
        inventory.reserved,
        inventory.min_unit,
        inventory.max_unit,
        inventory.step_size,
        inventory.allocation_ratio,
        inventory.capacity,
        used,
        max(inventory.capacity - used, 0),
    )


# -- changes ------------------------------------------------------------------------------------


def _refuse_wrong(asked: NewPool) -> None:
    """Problem if a pool cannot have what is asked for."""
    for name, inventory in asked.inventories.items():
        if name in CLASSES_OF_HOSTS:
            raise _bad_body(f"{name} is what hosts have: a pool cannot have it")
        if name not in STANDARD_CLASSES and not is_custom_name(name):
            raise _bad_body(f"{name} is no resource class: it is not standard, and not CUSTOM_...")
        if inventory.reserved > inventory.total:
            raise _bad_body(f"{name}: {inventory.reserved} cannot be reserved of {inventory.total}")
    for name in asked.traits:
        if name not in STANDARD_TRAITS and not is_custom_name(name):
            raise _bad_body(f"{name} is no trait: it is not standard, and not CUSTOM_...")


def _bad_body(words: str) -> Problem:
    return Problem(400, f"{words}.", BAD_BODY)


def _create(view: View, id: ProviderId, asked: NewPool) -> c.Enact:
    return c.Enact(
        (),
        (
            *_create_names(asked.inventories, asked.traits),
            c.CreateProvider(id, asked.name),
            c.SetAggregates(id, 0, _read_aggregates(view, id, asked)),
            c.SetInventories(id, None, _read_inventories(asked)),
            c.SetTraits(id, None, _read_traits(asked)),
        ),
    )


def _replace(view: View, id: ProviderId, asked: ReplacedPool) -> c.Enact | Rejection | None:
    """The change that makes a pool what is asked for; None if it is that already."""
    record = view.providers.get(id)
    if record is None:
        return _create(view, id, asked) if asked.generation is None else PoolNotFound(id)
    if not view.is_pool(record):
        return NotAPool(id, record.name)
    if asked.generation not in (None, record.generation):
        return ProviderGenerationConflict(id, record.generation, asked.generation)
    commands: list[c.LedgerCommand] = []
    aggregates, inventories = _read_aggregates(view, id, asked), _read_inventories(asked)
    traits, is_renamed = _read_traits(asked), record.name != asked.name
    # Each advances the generation by one, and names the one that it must find: if the pool is changed before
    # this is carried out, all of it is refused. A new name alone does not advance it.
    if is_renamed or set(record.aggregates) != set(aggregates):
        commands.append(c.SetAggregates(id, record.generation, aggregates))
    if _has_other_inventories(view, record, inventories):
        commands.append(c.SetInventories(id, record.generation + len(commands), inventories))
    if traits != set(record.traits):
        commands.append(c.SetTraits(id, record.generation + len(commands), traits))
    if is_renamed:
        commands.append(c.UpdateProvider(id, asked.name))
    return c.Enact((), (*_create_names(inventories, traits), *commands)) if commands else None


def _create_names(classes: Iterable[str], traits: Iterable[str]) -> Iterable[c.LedgerCommand]:
    """The commands that create custom names that are not there yet."""
    for name in classes:
        if name not in STANDARD_CLASSES:
            yield c.CreateResourceClass(name, exist_ok=True)
    for name in sorted(traits):
        if name not in STANDARD_TRAITS:
            yield c.CreateTrait(name)


def _read_inventories(asked: NewPool) -> dict[str, Inventory]:
    return {name: Inventory(**msgspec.structs.asdict(one)) for name, one in asked.inventories.items()}


def _read_traits(asked: NewPool) -> frozenset[str]:
    return frozenset((*asked.traits, SHARES_VIA_AGGREGATE))


def _read_aggregates(view: View, pool: ProviderId, asked: NewPool) -> tuple[AggregateId, ...]:
    """The aggregates in lower case, but for those that labels or other providers spell as they are given:
    Placement keeps the case."""
    given = map(AggregateId, asked.aggregates)
    return tuple(dict.fromkeys(id if _is_used(view, id, pool) else AggregateId(id.lower()) for id in given))


def _is_used(view: View, aggregate: AggregateId, pool: ProviderId) -> bool:
    is_labelled = aggregate in view.groups.labels
    return is_labelled or any(view.record(row).id != pool for row in view.rows_in_aggregate(aggregate))


def _has_other_inventories(view: View, record: ProviderRecord, wanted: dict[str, Inventory]) -> bool:
    there = {
        view.classes.name_of(class_id): msgspec.structs.replace(inventory, written_at_s=0)
        for class_id, inventory in record.inventories.items()
    }
    return there != wanted


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/pools",
        answer_from(list_pools),
        policy="berth:pools:list",
        name="list_pools",
        query=PoolsQuery,
        answer=PoolsPage,
        summary="List pools",
        description="What hosts share through aggregates, and how much of it is used, in the order of their "
        "uuids.",
    ),
    NativeRoute(
        "POST",
        "/pools",
        create_pool,
        policy="berth:pools:create",
        name="create_pool",
        body=CreatePoolBody,
        example={
            "pool": {
                "name": "nas",
                "inventories": {"DISK_GB": {"total": 50000}},
                "aggregates": ["5a8f6d1e-4c1b-4c57-9d2b-0f1c2d3e4f50"],
            }
        },
        answer=OnePool,
        status=201,
        summary="Create a pool",
        description="The hosts of its aggregates can use it from then on.",
    ),
    NativeRoute(
        "GET",
        "/pools/{pool}",
        answer_from(show_pool),
        policy="berth:pools:list",
        name="show_pool",
        answer=OnePool,
        summary="Show a pool",
        description="What it has, what is used, and how many hosts can use it.",
    ),
    NativeRoute(
        "PUT",
        "/pools/{pool}",
        replace_pool,
        policy="berth:pools:update",
        name="replace_pool",
        body=ReplacePoolBody,
        example={
            "pool": {
                "name": "nas",
                "inventories": {"DISK_GB": {"total": 60000}},
                "aggregates": ["5a8f6d1e-4c1b-4c57-9d2b-0f1c2d3e4f50"],
            }
        },
        answer=OnePool,
        summary="Make a pool what is described, or create it",
        description="The whole pool is replaced; one that is described already does not change. A class that "
        "is in use cannot be left out; a total may be less than what is used, and nothing new fits then. "
        "With a `generation` it is refused with 409 if the pool has changed since.",
    ),
    NativeRoute(
        "DELETE",
        "/pools/{pool}",
        delete_pool,
        policy="berth:pools:delete",
        name="delete_pool",
        status=204,
        summary="Delete a pool",
        description="Refused with 409 while something of it is in use.",
    ),
    NativeRoute(
        "GET",
        "/pools/{pool}/hosts",
        answer_from(list_pool_hosts),
        policy="berth:pools:list",
        name="list_pool_hosts",
        query=PoolsQuery,
        answer=PoolHostsPage,
        summary="List the hosts that can use a pool",
        description="Hosts that are in one of its aggregates, in the order of their uuids.",
    ),
)

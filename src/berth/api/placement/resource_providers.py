"""/resource_providers: list, create, show, rename and move, delete; and the aggregates that a provider is in.

A provider is rendered from a template per version: it is the most frequent answer, and a list may hold
thousands of them.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from berth.api.kernel.http import Response
from berth.api.kernel.rejections import Attempt, placement_problem
from berth.api.placement import query as q
from berth.api.placement import wire
from berth.api.placement.calls import Answer, PlacementCall, encode, no_content
from berth.api.placement.schemas import canonical_uuid
from berth.api.placement.versions import LATEST
from berth.model.commands import CreateProvider, DeleteProvider, SetAggregates, UpdateProvider
from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import AGENT_CELL_HEADER
from berth.model.rejections import Rejection
from berth.model.scheduling import ProviderQuery
from berth.search.providers import find_providers
from berth.view import ProviderRecord, View

AGGREGATES_GENERATION_SINCE: Final = 19
TREES_SINCE: Final = 14
BODY_ON_CREATE_SINCE: Final = 20
REPARENTING_SINCE: Final = 37
_STEPS_PER_PROVIDER: Final = 3

# -- rendering ----------------------------------------------------------------------------------


def _path(id: ProviderId) -> str:
    return f"/resource_providers/{id}"


def _template(version: int) -> str:
    related = ["inventories", "usages"]
    related += [
        name for since, name in ((1, "aggregates"), (6, "traits"), (11, "allocations")) if version >= since
    ]
    links = ",".join(f'{{"rel":"{name}","href":"/resource_providers/%(id)s/{name}"}}' for name in related)
    tree = (
        ',"parent_provider_uuid":%(parent)s,"root_provider_uuid":"%(root)s"' if version >= TREES_SINCE else ""
    )
    return (
        '{"uuid":"%(id)s","name":%(name)s,"generation":%(generation)d,'
        f'"links":[{{"rel":"self","href":"/resource_providers/%(id)s"}},{links}]{tree}}}'
    )


_TEMPLATES: Final = tuple(_template(version) for version in range(LATEST + 1))


def render(record: ProviderRecord, version: int) -> str:
    parent = record.parent
    return _TEMPLATES[version] % {
        "id": record.id,
        "name": encode(record.name).decode(),
        "generation": record.stamp.generation,
        "parent": "null" if parent is None else f'"{parent.id}"',
        "root": record.root.id,
    }


def _respond(call: PlacementCall, record: ProviderRecord) -> Response:
    return call.json(render(record, call.version).encode(), record.stamp.updated_at_s)


# -- handlers -----------------------------------------------------------------------------------


async def list_matching(call: PlacementCall) -> Answer:
    query = _parse(call)
    version = call.version

    def answer(view: View) -> Answer:
        found = find_providers(view, query)
        if isinstance(found, Rejection):
            return placement_problem(found, Attempt.LIST_PROVIDERS)
        view.steps.take(_STEPS_PER_PROVIDER * len(found))
        rendered = ",".join([render(record, version) for record in found])
        modified_s = max((record.stamp.updated_at_s for record in found), default=call.now_s)
        return call.json(f'{{"resource_providers":[{rendered}]}}'.encode(), modified_s)

    return await call.read(answer)


def _parse(call: PlacementCall) -> ProviderQuery:
    query, version = call.query, call.version
    q.validate_providers(query, version)
    q.limit_names("resources", query.all("resources"), q.CLASSES_MAX)
    q.limit_names("required", query.all("required"))
    q.limit_names("member_of", query.all("member_of"))
    member_of, not_member_of = q.parse_member_of(query.all("member_of"), version)
    required, forbidden = q.parse_required(query.all("required"), version)
    id, in_tree, resources = query.get("uuid"), query.get("in_tree"), query.get("resources")
    return ProviderQuery(
        # An empty name is no name.
        name=query.get("name") or None,
        id=None if id is None else ProviderId(id),
        resources=() if resources is None else q.parse_resources(resources),
        required=required,
        forbidden=forbidden,
        member_of=member_of,
        not_member_of=not_member_of,
        in_tree=None if in_tree is None else ProviderId(in_tree),
    )


async def show(call: PlacementCall) -> Answer:
    return await call.read_provider(lambda view, record: _respond(call, record))


async def create(call: PlacementCall) -> Answer:
    body = wire.NEW_PROVIDER[call.version].decode(call.request.body)
    id = ProviderId(call.services.ids.uuid() if body.uuid is UNSET else canonical_uuid(body.uuid))
    parent = body.parent_provider_uuid if isinstance(body, wire.NewNestedProvider) else None
    command = CreateProvider(id, body.name, None if parent is UNSET or parent is None else ProviderId(parent))

    def answer(view: View, changed: bool) -> Response:
        if call.version < BODY_ON_CREATE_SINCE:
            return call.located(Response(201), _path(id))
        return call.located(_respond(call, view.providers[id]), _path(id))

    return await call.carry_out(command, Attempt.CREATE_PROVIDER, answer, name=body.name)


async def update(call: PlacementCall) -> Answer:
    id = call.provider
    body = await call.decode_for_provider(wire.CHANGED_PROVIDER[call.version])
    parent = body.parent_provider_uuid if isinstance(body, wire.ChangedNestedProvider) else UNSET
    command = UpdateProvider(
        id,
        body.name,
        parent=parent if parent is UNSET or parent is None else ProviderId(parent),
        may_reparent=call.version >= REPARENTING_SINCE,
    )

    def answer(view: View, changed: bool) -> Response:
        return _respond(call, view.providers[id])

    return await call.carry_out(command, Attempt.UPDATE_PROVIDER, answer)


async def delete(call: PlacementCall) -> Answer:
    return await call.carry_out(DeleteProvider(call.provider), Attempt.DELETE_PROVIDER, no_content)


# -- aggregates ---------------------------------------------------------------------------------


async def show_aggregates(call: PlacementCall) -> Answer:
    return await call.read_provider(lambda view, record: _respond_aggregates(call, record, record.aggregates))


async def replace_aggregates(call: PlacementCall) -> Answer:
    id = call.provider
    generation: int | None = None
    if call.version >= AGGREGATES_GENERATION_SINCE:
        body = await call.decode_for_provider(wire.AGGREGATES)
        aggregates, generation = body.aggregates, body.resource_provider_generation
    else:
        aggregates = await call.decode_for_provider(wire.AGGREGATES_LIST)
    call.limit_list(len(aggregates), "aggregates")
    command = SetAggregates(
        id,
        generation,
        tuple(AggregateId(aggregate) for aggregate in aggregates),
        call.request.headers.get(AGENT_CELL_HEADER),
    )

    def answer(view: View, changed: bool) -> Response:
        # The caller gets its own order back.
        return _respond_aggregates(call, view.providers[id], aggregates)

    return await call.carry_out(command, Attempt.SET_AGGREGATES, answer)


def _respond_aggregates(call: PlacementCall, record: ProviderRecord, aggregates: Sequence[str]) -> Response:
    payload: dict[str, object] = {"aggregates": aggregates}
    if call.version >= AGGREGATES_GENERATION_SINCE:
        payload["resource_provider_generation"] = record.generation
    return call.json(encode(payload), call.now_s)

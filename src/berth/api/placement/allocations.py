"""/allocations, /resource_providers/{uuid}/allocations and /reshaper: who holds what.

The body of a claim has had six shapes. Each becomes the same Claim here; nothing behind this file knows
of them.
"""

from typing import Final

from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import Attempt
from berth.api.placement import wire
from berth.api.placement.calls import Answer, PlacementCall, encode, no_content
from berth.api.placement.inventories import inventory_of, is_by_cell
from berth.api.placement.schemas import canonical_uuid, is_uuid
from berth.model.commands import (
    UNCHECKED,
    Claim,
    DeleteAllocations,
    NewInventories,
    ReplaceAllocations,
    Reshape,
)
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import Wanted
from berth.sagas.reshape import propose_reshape
from berth.view import ConsumerRecord, ProviderRecord, View

KEYED_SINCE: Final = 12
CONSUMER_GENERATION_SINCE: Final = 28
CONSUMER_TYPE_SINCE: Final = 38

UNKNOWN_TYPE: Final = "unknown"
"""The type of a consumer that was last written before consumers had types."""


# -- reading ------------------------------------------------------------------------------------


async def show(call: PlacementCall) -> Answer:
    id = ConsumerId(call.params[0])

    def answer(view: View) -> Response:
        record = view.consumers.get(id)
        if record is None or not record.held:
            return call.json(b'{"allocations":{}}', call.now_s)
        return call.json(encode(_holdings(view, record, call.version)), record.consumer.updated_at_s)

    return await call.read(answer)


def _holdings(view: View, record: ConsumerRecord, version: int) -> dict[str, object]:
    name_of = view.classes.name_of
    payload: dict[str, object] = {
        "allocations": {
            provider: {
                "resources": {name_of(class_id): amount for class_id, amount in amounts},
                "generation": view.providers[provider].stamp.generation,
            }
            for provider, amounts in record.held
        }
    }
    consumer = record.consumer
    if version >= KEYED_SINCE:
        payload["project_id"] = consumer.project
        payload["user_id"] = consumer.user
    if version >= CONSUMER_GENERATION_SINCE:
        payload["consumer_generation"] = consumer.generation
    if version >= CONSUMER_TYPE_SINCE:
        payload["consumer_type"] = consumer.type or UNKNOWN_TYPE
    return payload


async def show_of_provider(call: PlacementCall) -> Answer:
    def render(view: View, record: ProviderRecord) -> Answer:
        # In order, so that every process answers with the same bytes and the same tag.
        consumers = {consumer: view.consumers[consumer] for consumer in sorted(record.consumers)}
        payload = {
            "allocations": {
                consumer: _held_on(view, record.id, holder, call.version)
                for consumer, holder in consumers.items()
            },
            "resource_provider_generation": record.generation,
        }
        modified_s = max((holder.consumer.updated_at_s for holder in consumers.values()), default=call.now_s)
        return call.json(encode(payload), modified_s)

    return await call.read_provider(render, missing="Resource provider '{id}' not found: {says}")


def _held_on(view: View, provider: ProviderId, holder: ConsumerRecord, version: int) -> dict[str, object]:
    resources = {
        view.classes.name_of(class_id): amount
        for held_provider, amounts in holder.held
        if held_provider == provider
        for class_id, amount in amounts
    }
    if version < CONSUMER_GENERATION_SINCE:
        return {"resources": resources}
    return {"resources": resources, "consumer_generation": holder.consumer.generation}


# -- claiming -----------------------------------------------------------------------------------


async def put(call: PlacementCall) -> Answer:
    consumer = _read_consumer(call.params[0])
    body = call.request.body
    if call.version >= KEYED_SINCE:
        claim = claim_of(consumer, wire.CLAIM[call.version].decode(body))
    else:
        claim = _claim_of_list(call, consumer, wire.LIST_CLAIM[call.version].decode(body))
    call.limit_claims((claim,))
    call.limit_providers((provider for provider, _ in claim.wanted))
    return await call.carry_out(ReplaceAllocations((claim,)), Attempt.PUT_ALLOCATIONS, no_content)


async def post(call: PlacementCall) -> Answer:
    body = wire.CLAIMS[call.version].decode(call.request.body)
    claims = claims_of(body)
    call.limit_claims(claims)
    call.limit_providers((provider for claim in claims for provider, _ in claim.wanted))
    return await call.carry_out(ReplaceAllocations(claims), Attempt.POST_ALLOCATIONS, no_content)


async def delete(call: PlacementCall) -> Answer:
    command = DeleteAllocations(ConsumerId(call.params[0]))
    return await call.carry_out(command, Attempt.DELETE_ALLOCATIONS, no_content)


def claims_of(body: dict[str, wire.PlainClaim]) -> tuple[Claim, ...]:
    """The claims of many consumers. They are called what the body calls them, as upstream has it."""
    return tuple(claim_of(ConsumerId(consumer), claim) for consumer, claim in body.items())


def claim_of(consumer: ConsumerId, body: wire.KeyedClaim) -> Claim:
    wanted: tuple[Wanted, ...] = tuple(
        (ProviderId(provider), tuple(allocation.resources.items()))
        for provider, allocation in body.allocations.items()
    )
    return Claim(
        consumer,
        wanted,
        body.project_id,
        body.user_id,
        body.consumer_generation if isinstance(body, wire.GenerationClaim) else UNCHECKED,
        body.consumer_type if isinstance(body, wire.TypedClaim) else None,
    )


def _claim_of_list(call: PlacementCall, consumer: ConsumerId, body: wire.ListClaim) -> Claim:
    # A provider listed twice counts as listed last.
    by_provider = {entry.resource_provider.uuid: entry.resources for entry in body.allocations}
    wanted = tuple((ProviderId(id), tuple(resources.items())) for id, resources in by_provider.items())
    if isinstance(body, wire.OwnedListClaim):
        return Claim(consumer, wanted, body.project_id, body.user_id)
    settings = call.services.settings
    return Claim(
        consumer, wanted, settings.incomplete_consumer_project_id, settings.incomplete_consumer_user_id
    )


def _read_consumer(text: str) -> ConsumerId:
    if not is_uuid(text):
        raise Problem(400, f"Malformed consumer_uuid: {text}")
    return ConsumerId(canonical_uuid(text))


# -- inventories and the allocations on them, in one change -----------------------------------------


async def reshape(call: PlacementCall) -> Answer:
    body = wire.RESHAPE[call.version].decode(call.request.body)
    inventories = tuple(
        NewInventories(
            ProviderId(provider),
            new.resource_provider_generation,
            {name: inventory_of(record) for name, record in new.inventories.items()},
        )
        for provider, new in body.inventories.items()
    )
    claims = claims_of(body.allocations)
    for new in inventories:
        call.limit_list(len(new.inventories), "inventories")
    call.limit_claims(claims, sum(len(new.inventories) for new in inventories))
    claimed = (provider for claim in claims for provider, _ in claim.wanted)
    call.limit_providers((*body.inventories, *claimed))
    command = Reshape(inventories, claims, is_by_cell(call))
    return await call.carry_out(
        lambda view, now_s: propose_reshape(view, command), Attempt.RESHAPE, no_content
    )

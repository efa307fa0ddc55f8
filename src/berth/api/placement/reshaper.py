"""/reshaper: inventories and the allocations on them, moved in one change."""

from berth.api.kernel.rejections import Attempt
from berth.api.placement import wire
from berth.api.placement.allocations import claims_of
from berth.api.placement.calls import Answer, PlacementCall, no_content
from berth.api.placement.inventories import inventory_of
from berth.api.placement.limits import limit_claims, limit_list, limit_providers
from berth.model.commands import NewInventories, Reshape
from berth.model.ids import ProviderId


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
        limit_list(call, len(new.inventories), "inventories")
    limit_claims(call, claims, sum(len(new.inventories) for new in inventories))
    claimed = (provider for claim in claims for provider, _ in claim.wanted)
    limit_providers(call, (*body.inventories, *claimed))
    return await call.carry_out(Reshape(inventories, claims), Attempt.RESHAPE, no_content)

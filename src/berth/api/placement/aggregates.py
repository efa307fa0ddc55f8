"""/resource_providers/{uuid}/aggregates. Generations take part from 1.19."""

from collections.abc import Sequence
from typing import Final

from berth.api.kernel.http import Response
from berth.api.kernel.rejections import Attempt
from berth.api.placement import wire
from berth.api.placement.calls import Answer, PlacementCall, encode
from berth.api.placement.limits import limit_list
from berth.model.commands import SetAggregates
from berth.model.ids import AggregateId
from berth.model.placement import AGENT_CELL_HEADER
from berth.view import ProviderRecord, View

GENERATION_SINCE: Final = 19


def _respond(call: PlacementCall, record: ProviderRecord, aggregates: Sequence[str]) -> Response:
    payload: dict[str, object] = {"aggregates": aggregates}
    if call.version >= GENERATION_SINCE:
        payload["resource_provider_generation"] = record.generation
    return call.json(encode(payload), call.now_s)


async def show(call: PlacementCall) -> Answer:
    return await call.read_provider(lambda view, record: _respond(call, record, record.aggregates))


async def replace(call: PlacementCall) -> Answer:
    id = call.provider
    generation: int | None = None
    if call.version >= GENERATION_SINCE:
        body = await call.decode_for_provider(wire.AGGREGATES)
        aggregates, generation = body.aggregates, body.resource_provider_generation
    else:
        aggregates = await call.decode_for_provider(wire.AGGREGATES_LIST)
    limit_list(call, len(aggregates), "aggregates")
    command = SetAggregates(
        id,
        generation,
        tuple(AggregateId(aggregate) for aggregate in aggregates),
        call.request.headers.get(AGENT_CELL_HEADER),
    )

    def answer(view: View, changed: bool) -> Response:
        # The caller gets its own order back.
        return _respond(call, view.providers[id], aggregates)

    return await call.carry_out(command, Attempt.SET_AGGREGATES, answer)

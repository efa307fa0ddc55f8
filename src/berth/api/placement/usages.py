"""/resource_providers/{uuid}/usages and /usages: how much is in use, of a provider and by a project."""

from collections.abc import Iterable
from typing import Final

from berth.api.placement import query as q
from berth.api.placement.allocations import CONSUMER_TYPE_SINCE, UNKNOWN_TYPE
from berth.api.placement.calls import Answer, PlacementCall, encode
from berth.view import ProviderRecord, View
from berth.view.consumers import Total

ALL_TYPES: Final = "all"

Totals = Iterable[tuple[str | None, Total]]


async def show_of_provider(call: PlacementCall) -> Answer:
    def render(view: View, record: ProviderRecord) -> Answer:
        payload = {
            "resource_provider_generation": record.generation,
            "usages": {
                view.classes.name_of(class_id): record.used.get(class_id, 0)
                for class_id in record.inventories
            },
        }
        return call.json(encode(payload), call.now_s)

    return await call.read_provider(render, missing="No resource provider with uuid {id} found: {says}")


async def show_total(call: PlacementCall) -> Answer:
    query = call.query
    q.validate_usages(query, call.version)
    project, user, consumer_type = query.get("project_id"), query.get("user_id"), query.get("consumer_type")
    assert project is not None, "the query was validated"

    def answer(view: View) -> Answer:
        totals = view.usage.of_project(project, user)
        if call.version >= CONSUMER_TYPE_SINCE:
            usages: object = _by_type(view, totals, consumer_type)
        else:
            usages = _sum(view, (total for _, total in totals))
        return call.json(encode({"usages": usages}), call.now_s)

    return await call.read(answer)


def _by_type(view: View, totals: Totals, wanted: str | None) -> dict[str, dict[str, int]]:
    """Usage by consumer type: of every type, of the one wanted, or of all together."""
    grouped: dict[str, list[Total]] = {}
    for consumer_type, total in totals:
        name = ALL_TYPES if wanted == ALL_TYPES else consumer_type or UNKNOWN_TYPE
        if wanted is None or name == wanted:
            grouped.setdefault(name, []).append(total)
    return {
        name: {**_sum(view, group), "consumer_count": sum(total.consumers for total in group)}
        for name, group in grouped.items()
    }


def _sum(view: View, totals: Iterable[Total]) -> dict[str, int]:
    usage: dict[str, int] = {}
    for total in totals:
        for class_id, amount in total.amounts.items():
            name = view.classes.name_of(class_id)
            usage[name] = usage.get(name, 0) + amount
    return usage

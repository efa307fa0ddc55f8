"""GET /berth/v1/allocations: who holds what, a row per consumer and provider."""

from collections.abc import Callable, Iterable, Iterator

from berth.api.http import Request
from berth.api.native import wire
from berth.api.native.classes import class_named
from berth.api.native.consumers import matching, places
from berth.api.native.pages import first_keys, next_link
from berth.api.native.parameters import AllocationsQuery
from berth.model.consumer import Holding, Holdings
from berth.model.ids import ConsumerId
from berth.view import View

Picks = Callable[[Holding], bool]


def page(view: View, request: Request, query: AllocationsQuery) -> wire.Allocations:
    """Whole consumers until the limit is reached; the first one whatever it holds."""
    picks = _picker(view, query)
    candidates, more = first_keys(_holders(view, query, picks), query.marker, query.limit)
    rows: list[wire.Allocation] = []
    last: ConsumerId | None = None
    for id in candidates:
        own = list(_rows(view, id, picks))
        if rows and len(rows) + len(own) > query.limit:
            more = True
            break
        rows += own
        last = id
    return wire.Allocations(rows, next_link(request, query, last) if more and last is not None else None)


def _holders(view: View, query: AllocationsQuery, picks: Picks | None) -> Iterable[ConsumerId]:
    """Who may have rows. Without a filter on holdings that is everybody; who holds nothing has none."""
    found = matching(view, query)
    if picks is None:
        return found
    marker, records = query.marker or "", view.consumers
    return (id for id in found if id > marker and _has_row(records[id].held, picks))


def _picker(view: View, query: AllocationsQuery) -> Picks | None:
    """Which of a consumer's holdings make a row; None if all do."""
    class_id = None if query.resource_class is None else class_named(view, query.resource_class)
    somewhere = query.provider is not None or query.tree is not None
    if class_id is None and not somewhere:
        return None
    ids = {record.id for record in places(view, query.provider, query.tree)}

    def picks(holding: Holding) -> bool:
        provider, amounts = holding
        if somewhere and provider not in ids:
            return False
        # A loop: it is asked for every holding there is, and any() would take three times as long.
        for held, _ in amounts:  # noqa: SIM110
            if class_id is None or held == class_id:
                return True
        return False

    return picks


def _has_row(held: Holdings, picks: Picks) -> bool:
    for holding in held:  # noqa: SIM110
        if picks(holding):
            return True
    return False


def _rows(view: View, id: ConsumerId, picks: Picks | None) -> Iterator[wire.Allocation]:
    record = view.consumers[id]
    consumer = record.consumer
    name_of = view.classes.name_of
    for provider_id, amounts in filter(picks, record.held) if picks else record.held:
        provider = view.providers[provider_id]
        yield wire.Allocation(
            id,
            provider_id,
            provider.name,
            provider.root.id,
            {name_of(class_id): amount for class_id, amount in amounts},
            consumer.project,
            consumer.user,
            consumer.type or wire.UNKNOWN_TYPE,
        )

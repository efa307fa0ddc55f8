"""Which providers meet a query."""

import numpy as np

from berth.model.ids import Row
from berth.model.rejections import Rejection, ResourceClassNotFound
from berth.model.requests import Constraints, ProviderQuery
from berth.search.masks import find_unknown_traits, in_all_aggregates, narrow, with_all_traits, with_room
from berth.view import Mask, ProviderRecord, View


def find_providers(view: View, query: ProviderQuery) -> list[ProviderRecord] | Rejection:
    """The providers that meet all of the query, by row.

    A name that does not exist is refused only while there is something left to find: the parts of the query
    are looked at in upstream's order, and one that nothing meets ends it.
    """
    if query.in_tree is not None and query.in_tree not in view.providers:
        return []
    unknown = find_unknown_traits(view, Constraints(required=query.required))
    if unknown is not None:
        return unknown
    if _is_empty(with_all_traits(view, query.required)):
        return []
    unknown = find_unknown_traits(view, Constraints(forbidden=query.forbidden))
    if unknown is not None:
        return unknown
    if _is_empty(in_all_aggregates(view, query.member_of)):
        return []
    mask = _named(view, query)
    for name, amount in query.resources:
        class_id = view.classes.id_of(name)
        if class_id is None:
            return ResourceClassNotFound(name)
        mask &= with_room(view, class_id, amount)
    narrow(view, mask, query)
    return [view.record(Row(row)) for row in np.flatnonzero(mask).tolist()]


def _is_empty(mask: Mask | None) -> bool:
    return mask is not None and not mask.any()


def _named(view: View, query: ProviderQuery) -> Mask:
    """All rows in use, or the one row of the provider named by id or name."""
    mask = np.zeros(view.row_end, np.bool_)
    if query.id is None and query.name is None:
        mask[[record.row for record in view.providers.values()]] = True
        return mask
    record = view.providers.get(query.id) if query.id is not None else view.names.get(query.name or "")
    if record is not None and query.name in (None, record.name):
        mask[record.row] = True
    return mask

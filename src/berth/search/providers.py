"""Which providers meet a query."""

import numpy as np

from berth.model.ids import Row
from berth.model.rejections import Rejection, ResourceClassNotFound
from berth.model.requests import ProviderQuery
from berth.search.masks import narrow, unknown_traits, with_room
from berth.view import ProviderRecord, View


def find_providers(view: View, query: ProviderQuery) -> list[ProviderRecord] | Rejection:
    """The providers that meet all of the query, by row."""
    unknown = unknown_traits(view, query)
    if unknown is not None:
        return unknown
    mask = _named(view, query)
    for name, amount in query.resources:
        class_id = view.classes.id_of(name)
        if class_id is None:
            return ResourceClassNotFound(name)
        mask &= with_room(view, class_id, amount)
    narrow(view, mask, query)
    return [view.record(Row(row)) for row in np.flatnonzero(mask).tolist()]


def _named(view: View, query: ProviderQuery) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """All rows in use, or the one row of the provider named by id or name."""
    mask = np.zeros(view.row_end, np.bool_)
    if query.id is None and query.name is None:
        mask[[record.row for record in view.providers.values()]] = True
        return mask
    record = view.providers.get(query.id) if query.id is not None else view.names.get(query.name or "")
    if record is not None and query.name in (None, record.name):
        mask[record.row] = True
    return mask

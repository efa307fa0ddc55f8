"""Cells: aggregates of a kind. A member is built in one, and its alternates must be there too."""

from typing import Final

from berth.model.ids import AggregateId
from berth.search.masks import any_of
from berth.view import ProviderRecord, View
from berth.view.rowset import Mask

KIND: Final = "cell"


def same_cell(view: View, host: ProviderRecord) -> Mask | None:
    """The hosts of a host's cell; None where that is all of them. Hosts without a cell are one cell."""
    cells = list(view.groups.of_kind(KIND))
    if not cells:
        return None
    own = [AggregateId(domain) for domain in view.groups.domains_of(host, KIND)]
    mask = any_of(view, [view.rows_in_aggregate(id) for id in own or cells])
    return mask if own else ~mask

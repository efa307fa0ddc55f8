"""Hosts in an aggregate of a kind, by the name that its label has."""

import numpy as np

from berth.model.ids import AggregateId
from berth.view import ProviderRecord, View
from berth.view.rowset import Mask


def hosts_in(view: View, kind: str, name: str | None) -> Mask:
    """The rows in the aggregate of a kind that is called so."""
    groups = view.groups
    # A name is had once among those of a kind.
    for id in groups.of_kind(kind):
        if groups.labels[id].name == name:
            return view.rows_in_aggregate(id).mask(view.row_end)
    return np.zeros(view.row_end, np.bool_)


def names_of(view: View, kind: str, host: ProviderRecord) -> list[str]:
    """What the aggregates of a kind that a host is in are called."""
    labels = view.groups.labels
    return sorted(labels[AggregateId(id)].name or id for id in view.groups.domains_of(host, kind))

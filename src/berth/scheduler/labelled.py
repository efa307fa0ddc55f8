"""Hosts by the labels of their aggregates: kind and name, and metadata."""

from collections.abc import Callable, Iterable

import numpy as np

from berth.model.ids import AggregateId
from berth.search.masks import any_of
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


def values_in(text: str) -> list[str]:
    """What a value of metadata lists, with commas."""
    return [value.strip() for value in text.split(",")]


def hosts_saying(view: View, keys: Iterable[str], is_met: Callable[[str], bool] = lambda value: True) -> Mask:
    """Rows in an aggregate whose metadata lists such a value under one of the keys."""
    said = [view.groups.keys.get(key, {}) for key in keys]
    saying = [id for texts in said for id, text in texts.items() if any(map(is_met, values_in(text)))]
    return any_of(view, [view.rows_in_aggregate(id) for id in saying])


def said_of(view: View, host: ProviderRecord, keys: Iterable[str]) -> list[str]:
    """The values that the host's aggregates list under the keys."""
    said = [view.groups.keys.get(key, {}) for key in keys]
    texts = [texts[id] for texts in said for id in host.aggregates if id in texts]
    return sorted({value for text in texts for value in values_in(text)})

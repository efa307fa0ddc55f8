"""Hosts by what requests and configurations call them: names, hints, labels of aggregates, cells."""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from berth.model.ids import AggregateId, ConsumerId, ProviderId
from berth.model.placement import CELL, SHARES_VIA_AGGREGATE
from berth.model.rejections import UnknownConsumer, UnknownHost
from berth.model.scheduling import Hints
from berth.search.providers import any_of
from berth.view import Mask, ProviderRecord, View

# -- hints --------------------------------------------------------------------------------------


def find_host(view: View, name: str) -> ProviderRecord | None:
    """The host of this name, or uuid."""
    record = view.names.get(name) or view.providers.get(ProviderId(name))
    return record if record is not None and record.parent is None else None


def find_unknown(view: View, hints: Hints) -> UnknownHost | UnknownConsumer | None:
    """The first thing that the hints name and that does not exist. It is refused, not ignored: the caller
    meant something else."""
    if hints.forced_host is not None and find_host(view, hints.forced_host) is None:
        return UnknownHost("forced_host", hints.forced_host)
    for name in sorted(hints.ignore_hosts):
        if find_host(view, name) is None:
            return UnknownHost("ignore_hosts", name)
    for hint, consumers in (("same_host", hints.same_host), ("different_host", hints.different_host)):
        for consumer in consumers:
            if consumer not in view.consumers:
                return UnknownConsumer(hint, consumer)
    return None


def hosts_of_consumers(view: View, consumers: Iterable[ConsumerId]) -> list[ProviderRecord]:
    """The hosts on which any of them holds something."""
    records = [view.consumers.get(consumer) for consumer in consumers]
    return [host for record in records if record is not None for host in view.hosts_held(record.held)]


# -- labels of aggregates: kind and name, and metadata ------------------------------------------


def hosts_in_aggregate(view: View, kind: str, name: str | None) -> Mask:
    """The rows in the aggregate of this kind and name."""
    groups = view.groups
    # Names are unique within a kind.
    for id in groups.of_kind(kind):
        if groups.labels[id].name == name:
            return view.rows_in_aggregate(id).mask(view.row_end)
    return np.zeros(view.row_end, np.bool_)


def aggregate_names(view: View, kind: str, host: ProviderRecord) -> list[str]:
    """The names of the aggregates of a kind that a host is in."""
    labels = view.groups.labels
    return sorted(labels[AggregateId(id)].name or id for id in view.groups.domains_of(host, kind))


def _split_values(text: str) -> list[str]:
    """The values in a comma-separated text of metadata."""
    return [value.strip() for value in text.split(",")]


def hosts_with_metadata(
    view: View, keys: Iterable[str], is_met: Callable[[str], bool] = lambda value: True
) -> Mask:
    """Rows in an aggregate whose metadata lists such a value under one of the keys."""
    said = [view.groups.keys.get(key, {}) for key in keys]
    saying = [id for texts in said for id, text in texts.items() if any(map(is_met, _split_values(text)))]
    return any_of(view, [view.rows_in_aggregate(id) for id in saying])


def metadata_values(view: View, host: ProviderRecord, keys: Iterable[str]) -> list[str]:
    """The values that the host's aggregates list under the keys."""
    said = [view.groups.keys.get(key, {}) for key in keys]
    texts = [texts[id] for texts in said for id in host.aggregates if id in texts]
    return sorted({value for text in texts for value in _split_values(text)})


# -- cells and pools ----------------------------------------------------------------------------


CELL_KIND: Final = CELL


def hosts_of_same_cell(view: View, host: ProviderRecord) -> Mask | None:
    """The hosts of a host's cell; None where that is all of them. Hosts without a cell are one cell. A member
    is built in one cell, and its alternates must be there too."""
    cells = list(view.groups.of_kind(CELL_KIND))
    if not cells:
        return None
    own = [AggregateId(domain) for domain in view.groups.domains_of(host, CELL_KIND)]
    mask = any_of(view, [view.rows_in_aggregate(id) for id in own or cells])
    return mask if own else ~mask


_OF_A_HOST: Final = ("VCPU", "PCPU")
"""A host that lets others use its disk is still a host."""


def is_pool(view: View, record: ProviderRecord) -> bool:
    """Whether it shares what it has through aggregates, stands alone, and runs nothing itself."""
    if record.parent is not None or record.children or SHARES_VIA_AGGREGATE not in record.traits:
        return False
    return not any(view.classes.name_of(id) in _OF_A_HOST for id in record.inventories)

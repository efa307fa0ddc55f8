"""Hosts as the scheduler finds them: by name, by the aggregates that they are in, by what is free on them.

A flavor requires a value of the metadata of an aggregate, or a comparison with one:

| written | met by a value that |
| --- | --- |
| ``text`` | is this text |
| ``s== a``, ``s!=``, ``s<``, ``s<=``, ``s>``, ``s>=`` | compares so with ``a``, as text |
| ``= 5``, ``>= 5``, ``<= 5``, ``== 5``, ``!= 5`` | compares so with 5, as a number (``=`` is ``>=``) |
| ``<in> a`` | has ``a`` in it |
| ``<all-in> a b`` | has ``a`` and ``b`` in it |
| ``<or> a <or> b`` | is ``a`` or ``b`` |

The words are those of Nova's filters. Where Nova would fail on text that is not a number, or ignore words, a
comparison is refused; a value that is not a number meets no comparison of numbers.
"""

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from berth.model.ids import AggregateId, ClassId, ConsumerId, ProviderId, Row
from berth.model.placement import CELL, SHARES_VIA_AGGREGATE
from berth.model.rejections import UnknownConsumer, UnknownHost
from berth.model.scheduling import CandidatesRequest, Hints
from berth.scheduler.plugins import Rows, Weights
from berth.search.providers import any_of
from berth.view import Mask, ProviderRecord, View

_FEW: Final = 8
"""Up to this many hosts are read one by one; for more a whole column is cheaper."""

_NUMBERS: Final[dict[str, Callable[[float, float], bool]]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_TEXTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
    "<in>": operator.contains,
}
_OR: Final = "<or>"
_ALL_IN: Final = "<all-in>"

# -- hints --------------------------------------------------------------------------------------


def find_host(view: View, name: str) -> ProviderRecord | None:
    """The host of this name, or uuid."""
    record = view.names.get(name) or view.providers.get(ProviderId(name))
    return record if record is not None and record.parent is None and not view.is_pool(record) else None


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


def wrong_comparison(wanted: str) -> str | None:
    """What is wrong with a comparison, in words."""
    operation, *operands = wanted.split() or [""]
    if operation in _NUMBERS and (len(operands) != 1 or _number(operands[0]) is None):
        return f"one number after {operation}"
    if operation in _TEXTS and len(operands) != 1:
        return f"one word after {operation}"
    if operation == _ALL_IN and not operands:
        return f"words after {_ALL_IN}"
    if operation == _OR and (len(operands) % 2 == 0 or any(word != _OR for word in operands[1::2])):
        return f"words with {_OR} before each"
    return None


def meets_comparison(wanted: str, value: str) -> bool:
    """Whether a value of an aggregate's metadata is what is wanted."""
    operation, *operands = wanted.split() or [""]
    if operation not in _NUMBERS and operation not in _TEXTS and operation not in (_OR, _ALL_IN):
        return value == wanted
    if wrong_comparison(wanted) is not None:
        return False
    if operation in _NUMBERS:
        number, limit = _number(value), _number(operands[0])
        return number is not None and limit is not None and _NUMBERS[operation](number, limit)
    if operation in _TEXTS:
        return _TEXTS[operation](value, operands[0])
    if operation == _ALL_IN:
        return all(word in value for word in operands)
    return value in operands[::2]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# -- cells and pools ----------------------------------------------------------------------------


def hosts_of_same_cell(view: View, host: ProviderRecord) -> Mask | None:
    """The hosts of a host's cell; None where that is all of them. Hosts without a cell are one cell. A member
    is built in one cell, and its alternates must be there too."""
    cells = list(view.groups.of_kind(CELL))
    if not cells:
        return None
    own = [AggregateId(domain) for domain in view.groups.domains_of(host, CELL)]
    mask = any_of(view, [view.rows_in_aggregate(id) for id in own or cells])
    return mask if own else ~mask


def drop_pools(view: View, hosts: Mask) -> Mask:
    """The mask without pools: nothing runs there, whatever else they have."""
    for row in view.rows_with_trait(SHARES_VIA_AGGREGATE):
        if hosts[row] and view.is_pool(view.record(row)):
            hosts[row] = False
    return hosts


# -- what is free, all providers of a host's tree together ------------------------------------------


def free_of_class(view: View, class_id: ClassId, hosts: Rows) -> Weights:
    """What is free of a class on each host. One that is over its capacity, or has none, has nothing."""
    if len(hosts) <= _FEW:
        return np.array([_free_of_tree(view, class_id, row) for row in hosts.tolist()], np.float64)
    by_row: NDArray[Any]
    rows, free = view.classes.column(class_id).free()
    if view.nested_count:
        by_row = np.bincount(view.root_rows[rows], free, view.row_end)
    elif len(rows) == view.row_end and np.array_equal(rows, np.arange(len(rows), dtype=np.int32)):
        # Hosts that all have the class, in the order in which they came: the usual fleet.
        by_row = free
    else:
        by_row = np.zeros(view.row_end)
        by_row[rows] = free
    return (by_row if len(hosts) == view.row_end else by_row[hosts]).astype(np.float64)


def free_of_classes(view: View, names: tuple[str, ...], hosts: Rows) -> Weights | None:
    """The same for classes by their names, all together; None if no host has any of them."""
    total: Weights | None = None
    for name in names:
        class_id = view.classes.id_of(name)
        if class_id is not None and len(view.classes.column(class_id)):
            free = free_of_class(view, class_id, hosts)
            total = free if total is None else total + free
    return total


def sum_by_name(ask: CandidatesRequest) -> dict[str, int]:
    """What a request takes of each class in all, over its groups."""
    amounts: dict[str, int] = {}
    for group in ask.groups:
        for name, amount in group.resources:
            amounts[name] = amounts.get(name, 0) + amount
    return amounts


def sum_amounts(view: View, ask: CandidatesRequest) -> dict[ClassId, int]:
    """The same, of classes that exist."""
    named = ((view.classes.id_of(name), amount) for name, amount in sum_by_name(ask).items())
    return {class_id: amount for class_id, amount in named if class_id is not None}


def _free_of_tree(view: View, class_id: ClassId, row: Row) -> int:
    return sum(
        max(inventory.capacity - record.used.get(class_id, 0), 0)
        for record in view.record(row).tree()
        if (inventory := record.inventories.get(class_id)) is not None
    )

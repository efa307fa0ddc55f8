"""How much is free on each host, all providers of its tree together."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from berth.model.ids import ClassId, Row
from berth.model.scheduling import CandidatesRequest
from berth.scheduler.plugins import Rows, Weights
from berth.view import View

_FEW: Final = 8
"""Up to this many hosts are read one by one; for more a whole column is cheaper."""


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


def sum_amounts(view: View, ask: CandidatesRequest) -> dict[ClassId, int]:
    """What a request takes of each class in all, over its groups."""
    amounts: dict[ClassId, int] = {}
    for group in ask.groups:
        for name, amount in group.resources:
            class_id = view.classes.id_of(name)
            if class_id is not None:
                amounts[class_id] = amounts.get(class_id, 0) + amount
    return amounts


def _free_of_tree(view: View, class_id: ClassId, row: Row) -> int:
    return sum(
        max(inventory.capacity - record.used.get(class_id, 0), 0)
        for record in view.record(row).tree()
        if (inventory := record.inventories.get(class_id)) is not None
    )

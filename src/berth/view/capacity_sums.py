"""Capacity and use, summed by groups of rows: a whole column of numbers at a time.

The sums are exact, however large the numbers of a column are: they are added in halves, each of which a
float64 holds exactly for up to two million rows.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.view.view import View


class CapacitySum(NamedTuple):
    capacity: int
    used: int


def sum_by_group(view: View, groups: NDArray[np.int64], count: int) -> list[dict[str, CapacitySum]]:
    """The sums of each of ``count`` groups, by the name of the resource class. ``groups`` says for every row
    which group its inventories count in; -1: in none. A group has sums of the classes that are in it."""
    sums: list[dict[str, CapacitySum]] = [{} for _ in range(count)]
    for id in sorted(view.classes.in_inventories()):
        rows, capacity, used = view.classes.column(id).amounts()
        group = groups[rows]
        is_counted = group >= 0
        if not is_counted.all():
            group, capacity, used = group[is_counted], capacity[is_counted], used[is_counted]
        if not len(group):
            continue
        name = view.classes.name_of(id)
        capacities, uses = _sum_exactly(group, capacity, count), _sum_exactly(group, used, count)
        for number in np.bincount(group, minlength=count).nonzero()[0].tolist():
            sums[number][name] = CapacitySum(capacities[number], uses[number])
    return sums


def _sum_exactly(group: NDArray[np.int64], numbers: NDArray[np.int64], count: int) -> list[int]:
    high = np.bincount(group, numbers >> 32, count).astype(np.int64).tolist()
    low = np.bincount(group, numbers & 0xFFFFFFFF, count).astype(np.int64).tolist()
    return [(above << 32) + below for above, below in zip(high, low, strict=True)]

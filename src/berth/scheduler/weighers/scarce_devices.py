"""Hosts with devices that the request does not ask for come last: they are kept for those who do.

A device is what any class of resources counts but cpus, memory and disk. The weight of a host is the number
of such classes that it has anything free of, negative. A class that all hosts have makes no difference, and a
host whose devices are all in use is a host like others.
"""

from typing import Final

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import sum_amounts
from berth.scheduler.plugins import Rows, Weights
from berth.view import View

_OF_EVERY_HOST: Final = frozenset(("VCPU", "PCPU", "MEMORY_MB", "DISK_GB"))


def weigh(view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
    name_of = view.classes.name_of
    scarce = [id for id in view.classes.in_inventories() if name_of(id) not in _OF_EVERY_HOST]
    asked = sum_amounts(view, request.ask) if scarce else {}
    scarce = [class_id for class_id in scarce if class_id not in asked]
    if not scarce:
        return None
    kept = np.zeros(view.row_end)
    for class_id in scarce:
        rows, free = view.classes.column(class_id).free()
        view.steps.take(1 + view.row_end // 2000 + len(rows) // 100)
        has_some = np.zeros(view.row_end, np.bool_)
        has_some[view.root_rows[rows[free > 0]]] = True
        kept -= has_some
    return kept[hosts]

"""Hosts on which little is stranded come first: room that is left of one class when another has run out.

A host that is filled with members of this size takes ``n = min(free[c] // amount[c])`` of them. What is left
of each class then, in members, is stranded: processors without memory, or half a member's worth of both.
"""

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import free_of_class, sum_amounts
from berth.scheduler.plugins import Rows, Weights
from berth.view import View


def weigh(view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
    fitting = [
        free_of_class(view, class_id, hosts) / amount
        for class_id, amount in sum_amounts(view, request.ask).items()
    ]
    if not fitting:
        return None
    whole = np.floor(np.minimum.reduce(fitting))
    stranded: Weights = np.add.reduce(fitting) - whole * len(fitting)
    return -stranded

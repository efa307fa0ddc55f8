"""Best fit: hosts that would have the least left of what is asked for come first. What is left is measured in
members of the same size, so that classes count alike, whatever their units."""

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import free_of_class, sum_amounts
from berth.scheduler.plugins import Rows, Weights
from berth.view import View


def weigh(view: View, request: ScheduleRequest, hosts: Rows) -> Weights:
    left = np.zeros(len(hosts))
    for class_id, amount in sum_amounts(view, request.ask).items():
        left += free_of_class(view, class_id, hosts) / amount - 1
    return -left

"""Hosts on which recent builds failed come last: the more failures in a row, the later."""

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.plugins import Rows, Weights
from berth.view import View


def weigh(view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
    if not view.hosts:
        return None
    failures = np.zeros(view.row_end)
    for id, status in view.hosts.items():
        failures[view.providers[id].row] = status.build_failures
    return -failures[hosts]

"""Hosts by the memory they have free: more first, so that members spread. With a negative multiplier the
fullest come first, so that members pack."""

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import free_of_classes
from berth.scheduler.plugins import Rows, Weights
from berth.view import View


def weigh(view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
    return free_of_classes(view, ("MEMORY_MB",), hosts)

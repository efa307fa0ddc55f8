"""Hosts that are up: their agents have sent heartbeats."""

from berth.model.scheduling import ScheduleRequest
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    return "a host that is up"


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    return ~view.down.mask(view.row_end)


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    status = view.hosts.get(host.id)
    if status is None or not status.down:
        return "up"
    return f"down: {status.reason}" if status.reason else "down"

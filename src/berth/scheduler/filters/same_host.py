"""Hosts that one of the named consumers stands on."""

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import hosts_of_consumers
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    consumers = request.hints.same_host
    return f"the host of {' or '.join(consumers)}" if consumers else None


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    mask = np.zeros(view.row_end, np.bool_)
    mask[[host.row for host in hosts_of_consumers(view, request.hints.same_host)]] = True
    return mask


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    names = sorted({other.name for other in hosts_of_consumers(view, request.hints.same_host)})
    return f"they are on {' and '.join(names)}" if names else "they are on no host"

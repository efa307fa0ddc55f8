"""Hosts that none of the named consumers stands on."""

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import hosts_of_consumers
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    consumers = request.hints.different_host
    return f"not the host of {' or '.join(consumers)}" if consumers else None


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    mask = np.ones(view.row_end, np.bool_)
    mask[[host.row for host in hosts_of_consumers(view, request.hints.different_host)]] = False
    return mask


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    there = [id for id in request.hints.different_host if host in hosts_of_consumers(view, (id,))]
    return f"{' and '.join(there)} {'is' if len(there) == 1 else 'are'} there" if there else "none is there"

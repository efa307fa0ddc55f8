"""All hosts but those that the request ignores, by name or uuid."""

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import find_host
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    hosts = ((name, find_host(view, name)) for name in request.hints.ignore_hosts)
    names = sorted(name if host is None else host.name for name, host in hosts)
    return f"not {' or '.join(names)}" if names else None


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    mask = np.ones(view.row_end, np.bool_)
    for name in request.hints.ignore_hosts:
        host = find_host(view, name)
        if host is not None:
            mask[host.row] = False
    return mask


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    return f"it is {host.name}"

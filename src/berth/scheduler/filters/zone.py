"""Hosts of the availability zone that the request names: an aggregate of the kind "zone". Hosts in no such
aggregate are in the default zone, which Nova calls "nova"."""

from typing import Final

from berth.model.placement import ZONE
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import aggregate_names, hosts_in_aggregate
from berth.search.providers import any_of
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False
KIND: Final = ZONE
NO_ZONE: Final = "nova"


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    return None if request.zone is None else f"the zone {request.zone}"


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    mask = hosts_in_aggregate(view, KIND, request.zone)
    if request.zone == NO_ZONE:
        mask |= ~any_of(view, [view.rows_in_aggregate(id) for id in view.groups.of_kind(KIND)])
    return mask


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    zones = aggregate_names(view, KIND, host)
    return f"in the zone {' and '.join(zones)}" if zones else "in no zone"

"""Hosts of the availability zone that the request names: an aggregate of the kind "zone"."""

from typing import Final

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.labelled import hosts_in, names_of
from berth.view import ProviderRecord, View
from berth.view.rowset import Mask

FOLLOWS_CLAIMS = False
KIND: Final = "zone"


def asked(view: View, request: ScheduleRequest) -> str | None:
    return None if request.zone is None else f"the zone {request.zone}"


def passing(view: View, request: ScheduleRequest) -> Mask:
    return hosts_in(view, KIND, request.zone)


def found(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    zones = names_of(view, KIND, host)
    return f"in the zone {' and '.join(zones)}" if zones else "in no zone"

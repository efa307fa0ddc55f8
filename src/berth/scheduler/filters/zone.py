"""Hosts of the availability zone that the request names: an aggregate of the kind "zone"."""

from typing import Final

import numpy as np

from berth.model.ids import AggregateId
from berth.model.scheduling import ScheduleRequest
from berth.view import ProviderRecord, View
from berth.view.rowset import Mask

FOLLOWS_CLAIMS = False
KIND: Final = "zone"


def asked(view: View, request: ScheduleRequest) -> str | None:
    return None if request.zone is None else f"the zone {request.zone}"


def passing(view: View, request: ScheduleRequest) -> Mask:
    groups = view.groups
    # A name is had once among those of a kind.
    for id in groups.of_kind(KIND):
        if groups.labels[id].name == request.zone:
            return view.rows_in_aggregate(id).mask(view.row_end)
    return np.zeros(view.row_end, np.bool_)


def found(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    zones = [view.groups.labels[AggregateId(id)].name or id for id in view.groups.domains_of(host, KIND)]
    return f"in the zone {' and '.join(sorted(zones))}" if zones else "in no zone"

"""Hosts in aggregates that say what the request wants: each key with its value, by one aggregate or another.

As in Nova, a value in an aggregate's metadata may be a list with commas, of which one is enough; and what is
wanted may be a comparison (``scheduler/hosts.py``).
"""

from functools import partial

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import hosts_with_metadata, meets_comparison, metadata_values
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    wanted = ", ".join(f"{key}={value}" for key, value in request.metadata)
    return f"an aggregate that says {wanted}" if wanted else None


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    mask = np.ones(view.row_end, np.bool_)
    for key, wanted in request.metadata:
        mask &= hosts_with_metadata(view, (key,), partial(meets_comparison, wanted))
    return mask


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    said = [
        f"{key}={'|'.join(values)}" if values else f"no {key}"
        for key in dict.fromkeys(key for key, _ in request.metadata)
        for values in [metadata_values(view, host, (key,))]
    ]
    return "its aggregates say " + ", ".join(said)

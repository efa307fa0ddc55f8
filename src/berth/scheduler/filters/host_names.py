"""Hosts whose name matches one of the patterns that the request gives (``*`` and ``?``)."""

import re
from fnmatch import translate

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    patterns = request.hints.host_names
    return f"a name like {' or '.join(patterns)}" if patterns else None


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    mask = np.zeros(view.row_end, np.bool_)
    # A name without a wildcard is looked up; only patterns cost a look at every host.
    patterns = []
    for pattern in request.hints.host_names:
        if "*" in pattern or "?" in pattern:
            # What stands in brackets is no wildcard here, but part of a name.
            patterns.append(translate(pattern.replace("[", "[[]")))
        elif (record := view.names.get(pattern)) is not None:
            mask[record.row] = True
    if patterns:
        matches = re.compile("|".join(patterns)).match
        mask[[record.row for name, record in view.names.items() if matches(name)]] = True
    return mask


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    return f"it is called {host.name}"

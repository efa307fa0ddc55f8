"""Hosts in aggregates that say what the request wants: each key with its value, by one aggregate or another.

As in Nova, a value in an aggregate's metadata may be a list with commas; one of them is enough.
"""

import numpy as np

from berth.model.aggregates import Label
from berth.model.scheduling import ScheduleRequest
from berth.search.masks import any_of
from berth.view import ProviderRecord, View
from berth.view.rowset import Mask

FOLLOWS_CLAIMS = False


def asked(view: View, request: ScheduleRequest) -> str | None:
    wanted = ", ".join(f"{key}={value}" for key, value in request.metadata)
    return f"an aggregate that says {wanted}" if wanted else None


def passing(view: View, request: ScheduleRequest) -> Mask:
    mask = np.ones(view.row_end, np.bool_)
    for key, value in request.metadata:
        labels = view.groups.labels.items()
        mask &= any_of(view, [view.rows_in_aggregate(id) for id, la in labels if value in _values(la, key)])
    return mask


def found(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    labels = [label for id in host.aggregates if (label := view.groups.labels.get(id)) is not None]
    said = [
        f"{key}={'|'.join(values)}" if values else f"no {key}"
        for key in dict.fromkeys(key for key, _ in request.metadata)
        for values in [sorted({value for label in labels for value in _values(label, key)})]
    ]
    return "its aggregates say " + ", ".join(said)


def _values(label: Label, key: str) -> list[str]:
    return [
        value.strip()
        for label_key, values in label.metadata
        if label_key == key
        for value in values.split(",")
    ]

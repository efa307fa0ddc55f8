"""Hosts whose aggregates allow what the image says.

    Where the host's aggregates list values under the name of an image property, an image that has the
    property must have one of these values. An image without the property may go there.

In Nova: AggregateImagePropertiesIsolation. An aggregate may call a property by its old name, too. Without
such a key on any aggregate the filter does not apply.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import hosts_with_metadata, metadata_values
from berth.scheduler.spec_table import OLD_NAMES
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False
_OLD: Final = {
    name: tuple(old for old, new in OLD_NAMES.items() if new == name) for name in OLD_NAMES.values()
}


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    words = ", ".join(f"{name}={value}" for name, value, _ in _compare(view, request))
    return f"aggregates that allow an image with {words}" if words else None


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    mask = np.ones(view.row_end, np.bool_)
    for _, value, keys in _compare(view, request):
        mask &= ~hosts_with_metadata(view, keys) | hosts_with_metadata(view, keys, partial(_is_same, value))
    return mask


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    said = [
        f"{name}={'|'.join(values)}" if values else f"any {name}"
        for name, _, keys in _compare(view, request)
        for values in [metadata_values(view, host, keys)]
    ]
    return "its aggregates allow " + ", ".join(said)


def _compare(view: View, request: ScheduleRequest) -> Iterable[tuple[str, str, list[str]]]:
    """The properties of which some aggregate says something: name, value, and the keys of metadata."""
    for name, value in request.image:
        keys = [key for key in (name, *_OLD.get(name, ())) if key in view.groups.keys]
        if keys:
            yield name, value, keys


def _is_same(value: str, said: str) -> bool:
    return value.lower() == said.lower()

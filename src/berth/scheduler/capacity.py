"""How many more members of a request the fleet takes now: in all, and in each place by itself.

Counted is what could be claimed one after the other, with nothing else changing: room by resources
(capacity_rooms.py), of that what the group's policy lets come (capacity_policies.py), of that what lenders
have enough for (capacity_fits.py). Each of these gives a way to place so many; where another choice might
place more, the answer says that it is a lower bound.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from berth.model.explanations import Capacity, PlaceCapacity
from berth.model.rejections import Rejection
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.capacity_fits import Fits, asked_of, filters_asked, one_each, open_hosts
from berth.scheduler.options import SchedulerOptions
from berth.view import View

_KINDS_FIRST: Final = ("cell", "zone")


def capacity(view: View, request: ScheduleRequest, options: SchedulerOptions) -> Capacity | Rejection:
    """How many more fit. How many members the request has does not matter."""
    filters = filters_asked(view, request, options)
    if isinstance(filters, Rejection):
        return filters
    asked = asked_of(view, request.ask)
    if isinstance(asked, Rejection):
        return asked
    rooms = asked.rooms(view, open_hosts(view, request, filters))
    fits = Fits(view, request, one_each(rooms, filters))
    whole = fits.among(np.flatnonzero(fits.rooms.each))
    places = sorted(_places(view, fits), key=lambda place: (_rank(place.kind), place.kind or "", place.name))
    return Capacity(view.index, whole.members, whole.exact, whole.hosts, tuple(places))


def _places(view: View, fits: Fits) -> Iterator[PlaceCapacity]:
    """Every aggregate that has been given a name."""
    has_room = fits.rooms.each > 0
    for id, label in view.groups.labels.items():
        if label.name is not None:
            rows = np.sort(view.rows_in_aggregate(id).rows())
            fitting = fits.among(rows[has_room[rows]])
            yield PlaceCapacity(label.kind, label.name, id, fitting.members, fitting.exact, fitting.hosts)


def _rank(kind: str | None) -> int:
    """Cells and zones before all else, and what is no domain at the end."""
    if kind is None:
        return len(_KINDS_FIRST) + 1
    return _KINDS_FIRST.index(kind) if kind in _KINDS_FIRST else len(_KINDS_FIRST)

"""A weigher for those who must all fit: hosts come first where the most members of the same size still would.

Where a group's members keep out of each other's rack, it is the rack's room that counts. It is not for a
configuration to name: it looks at resources alone, and not at what an operator prefers.
"""

from typing import Final

import numpy as np

from berth.model.groups import HOST
from berth.model.rejections import Rejection
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.capacity_fits import asked_of
from berth.scheduler.capacity_trees import COUNT_MAX, TreeEffort
from berth.scheduler.membership import group_of
from berth.scheduler.plugins import Rows, Weights
from berth.view import View

_EFFORT: Final = TreeEffort(members_max=500, each_max=100, hosts_max=COUNT_MAX)


def weigh(view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
    asked = asked_of(view, request.ask)
    if isinstance(asked, Rejection):
        return None
    mask = np.zeros(view.row_end, np.bool_)
    mask[hosts] = True
    rooms = asked.rooms(view, mask, _EFFORT).each.astype(np.float64)
    record = group_of(view, request)
    if record is not None and record.group.domain != HOST:
        rooms = _of_domains(view, record.group.domain, rooms)
    return rooms[hosts]


def _of_domains(view: View, kind: str, rooms: Weights) -> Weights:
    """For each host the room of its domain; of several, of the one with the most."""
    most = np.zeros(view.row_end)
    for domain in view.groups.of_kind(kind):
        inside = view.rows_in_aggregate(domain).mask(view.row_end)
        most[inside] = np.maximum(most[inside], rooms[inside].sum())
    return most

"""Hosts of the cell that the request names: a server that exists can move within its cell only."""

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.cells import KIND
from berth.scheduler.labelled import hosts_in, names_of
from berth.view import ProviderRecord, View
from berth.view.rowset import Mask

FOLLOWS_CLAIMS = False


def asked(view: View, request: ScheduleRequest) -> str | None:
    return None if request.cell is None else f"the cell {request.cell}"


def passing(view: View, request: ScheduleRequest) -> Mask:
    return hosts_in(view, KIND, request.cell)


def found(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    cells = names_of(view, KIND, host)
    return f"in the cell {' and '.join(cells)}" if cells else "in no cell"

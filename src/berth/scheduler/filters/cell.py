"""Hosts of the cell that the request names, or of any: a server is built where there is a conductor, and
moves within its cell, unless it may leave it."""

from berth.model.placement import CELL
from berth.model.scheduling import ANY_CELL, ScheduleRequest
from berth.scheduler.hosts import aggregate_names, hosts_in_aggregate
from berth.search.providers import any_of
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    if request.cell == ANY_CELL:
        return "a cell"
    return None if request.cell is None else f"the cell {request.cell}"


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    if request.cell == ANY_CELL:
        return any_of(view, [view.rows_in_aggregate(id) for id in view.groups.of_kind(CELL)])
    return hosts_in_aggregate(view, CELL, request.cell)


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    cells = aggregate_names(view, CELL, host)
    return f"in the cell {' and '.join(cells)}" if cells else "in no cell"

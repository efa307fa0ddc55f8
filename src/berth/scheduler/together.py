"""Where there is room for all of a batch whose members must stay together.

The first of them settles where the others go. If it took the host that is best for one, there might be no
room for the next; so it takes one of those that have room for the most of them.
"""

import numpy as np

from berth.model.groups import HOST
from berth.model.ids import AggregateId
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.membership import group_of
from berth.scheduler.plugins import Rows, Weights
from berth.scheduler.rooms import amounts_of, free_at
from berth.view import ProviderRecord, View
from berth.view.rowset import Mask


def stays_together(view: View, request: ScheduleRequest) -> bool:
    """Whether the request is for several members that must share a domain."""
    record = group_of(view, request)
    return (
        record is not None and len(request.members) > 1 and record.group.is_hard and not record.group.is_apart
    )


def with_most_room(view: View, request: ScheduleRequest, hosts: Rows) -> Rows:
    """The hosts in whose domain the most of the members fit, as far as counting tells."""
    if not len(hosts):
        return hosts
    record = group_of(view, request)
    assert record is not None
    fitting = _fitting(view, request, hosts)
    if record.group.domain != HOST:
        fitting = _fitting_in_domains(view, record.group.domain, hosts, fitting)
    fitting = np.minimum(fitting, len(request.members))
    most: Rows = hosts[fitting == fitting.max()]
    return most


def domain_of(view: View, request: ScheduleRequest, host: ProviderRecord) -> Mask:
    """The hosts that share a domain of the group's kind with a host."""
    record = group_of(view, request)
    assert record is not None
    mask = np.zeros(view.row_end, np.bool_)
    mask[host.row] = True
    if record.group.domain != HOST:
        for domain in view.groups.domains_of(host, record.group.domain):
            mask |= view.rows_in_aggregate(AggregateId(domain)).mask(view.row_end)
    return mask


def _fitting(view: View, request: ScheduleRequest, hosts: Rows) -> Weights:
    """How many members each host has room for. What it has nothing of comes from others, who are not
    asked."""
    fitting = np.full(len(hosts), float(len(request.members)))
    for class_id, amount in amounts_of(view, request.ask).items():
        free = free_at(view, class_id, hosts)
        np.minimum(fitting, np.where(free > 0, free // amount, np.inf), out=fitting)
    return fitting


def _fitting_in_domains(view: View, kind: str, hosts: Rows, fitting: Weights) -> Weights:
    """How many members the best domain of each host has room for."""
    by_row = np.zeros(view.row_end)
    by_row[hosts] = fitting
    most = np.zeros(view.row_end)
    for domain in view.groups.of_kind(kind):
        inside = view.rows_in_aggregate(domain).mask(view.row_end)
        most[inside] = np.maximum(most[inside], by_row[inside].sum())
    return most[hosts]

"""Whose group a request is about, and how many of the group stand near each host."""

import numpy as np

from berth.model.groups import HOST
from berth.model.ids import AggregateId, ConsumerId
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.plugins import Rows, Weights
from berth.view import View
from berth.view.groups import GroupRecord


def group_of(view: View, request: ScheduleRequest) -> GroupRecord | None:
    """The group that the member is judged by: the one it comes into, or is declared to be in."""
    if request.group is not None:
        return view.groups.records.get(request.group)
    membership = view.groups.memberships.get(request.members[0]) if request.members else None
    return view.groups.records[membership.group] if membership is not None else None


def stands_for(view: View, request: ScheduleRequest) -> ConsumerId | None:
    """Whom the member counts as in its group."""
    if not request.members:
        return None
    membership = view.groups.memberships.get(request.members[0])
    return membership.stands_for if membership is not None else request.members[0]


def members_near(view: View, record: GroupRecord, hosts: Rows) -> Weights:
    """For each host, how many members stand in its domain of the group's kind (of several: in each)."""
    end = view.row_end
    near = np.zeros(end)
    if record.group.domain == HOST:
        near[[host.row for host in record.hosts]] = [len(who) for who in record.hosts.values()]
        return near[hosts]
    sparse, counts = [], []
    for domain, members in view.groups.standing(record).items():
        inside = view.rows_in_aggregate(AggregateId(domain))
        if inside.is_sparse(end):
            sparse.append(inside.rows())
            counts.append(len(members))
        else:
            near += np.multiply(inside.mask(end), len(members), dtype=np.float64)
    if sparse:
        # A host may be in several of them, so they are counted and not set.
        each = np.repeat(counts, [len(rows) for rows in sparse])
        near += np.bincount(np.concatenate(sparse), each, end)
    return near[hosts]

"""The group of a request: which it is, how many of its members are near each host, and where all of a batch
have room that must stay together."""

import numpy as np

from berth.model.groups import HOST
from berth.model.ids import AggregateId, ConsumerId
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import free_of_class, sum_amounts
from berth.scheduler.plugins import Rows, Weights
from berth.view import Mask, ProviderRecord, View
from berth.view.groups import GroupRecord


def group_of(view: View, request: ScheduleRequest) -> GroupRecord | None:
    """The group that the member is judged by: the one it comes into, or is declared to be in."""
    if request.group is not None:
        return view.groups.records.get(request.group)
    membership = view.groups.memberships.get(request.members[0]) if request.members else None
    return view.groups.records[membership.group] if membership is not None else None


def stands_for(view: View, request: ScheduleRequest) -> ConsumerId | None:
    """The consumer that the member counts as in its group."""
    if not request.members:
        return None
    membership = view.groups.memberships.get(request.members[0])
    return membership.stands_for if membership is not None else request.members[0]


def count_members_near(view: View, record: GroupRecord, hosts: Rows) -> Weights:
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


# -- batches that stay together -----------------------------------------------------------------
#
# The first member settles where the others go. On the host that is best for one there might be no room for
# the next; so the first takes one of the hosts that have room for the most of them.


def stays_together(view: View, request: ScheduleRequest) -> bool:
    """Whether the request is for several members that must share a domain."""
    record = group_of(view, request)
    return (
        record is not None and len(request.members) > 1 and record.group.is_hard and not record.group.is_apart
    )


def keep_roomiest(view: View, request: ScheduleRequest, hosts: Rows) -> Rows:
    """The hosts in whose domain the most of the members fit, by counting alone."""
    if not len(hosts):
        return hosts
    record = group_of(view, request)
    assert record is not None
    fitting = _count_fitting(view, request, hosts)
    if record.group.domain != HOST:
        fitting = _sum_by_domain(view, record.group.domain, hosts, fitting)
    fitting = np.minimum(fitting, len(request.members))
    most: Rows = hosts[fitting == fitting.max()]
    return most


def hosts_of_same_domain(view: View, request: ScheduleRequest, host: ProviderRecord) -> Mask:
    """The hosts that share a domain of the group's kind with a host."""
    record = group_of(view, request)
    assert record is not None
    mask = np.zeros(view.row_end, np.bool_)
    mask[host.row] = True
    if record.group.domain != HOST:
        for domain in view.groups.domains_of(host, record.group.domain):
            mask |= view.rows_in_aggregate(AggregateId(domain)).mask(view.row_end)
    return mask


def _count_fitting(view: View, request: ScheduleRequest, hosts: Rows) -> Weights:
    """How many members each host has room for. Classes that it has nothing of come from sharing
    providers, which are not counted."""
    fitting = np.full(len(hosts), float(len(request.members)))
    for class_id, amount in sum_amounts(view, request.ask).items():
        free = free_of_class(view, class_id, hosts)
        np.minimum(fitting, np.where(free > 0, free // amount, np.inf), out=fitting)
    return fitting


def _sum_by_domain(view: View, kind: str, hosts: Rows, fitting: Weights) -> Weights:
    """How many members the best domain of each host has room for."""
    by_row = np.zeros(view.row_end)
    by_row[hosts] = fitting
    most = np.zeros(view.row_end)
    for domain in view.groups.of_kind(kind):
        inside = view.rows_in_aggregate(domain).mask(view.row_end)
        most[inside] = np.maximum(most[inside], by_row[inside].sum())
    return most[hosts]

"""What a group prefers and does not require: with soft-affinity hosts near many of its members come first,
with soft-anti-affinity those near few. Near is in the same domain of the group's kind."""

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.groups import count_members_near, group_of
from berth.scheduler.plugins import Rows, Weights
from berth.view import View


def weigh(view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
    record = group_of(view, request)
    if record is None or record.group.is_hard or not record.hosts:
        return None
    near = count_members_near(view, record, hosts)
    return -near if record.group.is_apart else near

"""Members of a group that must keep apart spread evenly over its domains, beyond what its policy insists on:
hosts of a domain with few members come first. What the policy leaves no choice about is not weighed."""

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.groups import count_members_near, group_of
from berth.scheduler.plugins import Rows, Weights
from berth.view import View


def weigh(view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
    record = group_of(view, request)
    if record is None or not record.hosts:
        return None
    group = record.group
    if not group.is_hard or not group.is_apart or group.max_per_domain == 1:
        return None
    return -count_members_near(view, record, hosts)

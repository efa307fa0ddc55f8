"""Rules for quotas: a change that names quotas must stay within them.

They are judged with the change, by the writer: of many requests at once as many succeed as the quota allows.
Only growth is judged: a project that is over a lowered quota may still release what it has.
"""

from collections import Counter
from collections.abc import Mapping

from berth.model.clusters import Cluster
from berth.model.commands import ChangeMembers, CreateGroup, Enact
from berth.model.events import RecordChanged
from berth.model.ids import ConsumerId, GroupId
from berth.model.quotas import (
    DEFAULT_CLASS,
    UNLIMITED,
    Quotas,
    amounts_of,
    is_counted,
    limits_in,
    project_key,
)
from berth.model.rejections import (
    ImageQuotaExceeded,
    MetadataQuotaExceeded,
    QuotaExceeded,
    Rejection,
    ServerGroupMembersExceeded,
    ServerGroupsExceeded,
)
from berth.model.servers import QuotaSet, Server
from berth.view import View

_MIB = 1 << 20
_OF_SERVERS = ("clusters", "cores", "instances", "ram")


def limits_of(view: View, quotas: Quotas, project: str) -> dict[str, int]:
    """The limits of a project, by resource."""
    sets = view.records
    return limits_in(quotas, sets.get(QuotaSet, project_key(project)), sets.get(QuotaSet, DEFAULT_CLASS))


def count_used(view: View, project: str) -> dict[str, int]:
    """How much a project has of what is counted, by resource."""
    counts = view.project_counts.of(project)
    used = {name: max(0, counts.get(name, 0)) for name in (*_OF_SERVERS, "images", "server_groups")}
    return used | {"image_size_total": -(-counts.get("image_bytes", 0) // _MIB)}


def find_exceeded(
    view: View, quotas: Quotas | None, project: str, more: Mapping[str, int]
) -> Rejection | None:
    """Why a project may not have this much more, if it may not."""
    if quotas is None or not any(amount > 0 for amount in more.values()):
        return None
    limits, counts = limits_of(view, quotas, project), view.project_counts.of(project)
    over = [
        (name, more[name], counts.get(name, 0), limits[name])
        for name in _OF_SERVERS
        if more.get(name, 0) > 0 and _is_over(limits[name], counts.get(name, 0), more[name])
    ]
    if over:
        return QuotaExceeded(project, tuple(over))
    groups, limit = more.get("server_groups", 0), limits["server_groups"]
    if groups > 0 and _is_over(limit, counts.get("server_groups", 0), groups):
        return ServerGroupsExceeded(project, limit)
    for name, resource, unit in (("images", "images", 1), ("image_bytes", "image_size_total", _MIB)):
        limit, used, delta = limits[resource], counts.get(name, 0), more.get(name, 0)
        if delta > 0 and limit != UNLIMITED and used + delta > limit * unit:
            called = "image_count_total" if name == "images" else resource
            return ImageQuotaExceeded(project, called, limit, -(-used // unit), -(-delta // unit))
    return None


def count_room(view: View, quotas: Quotas | None, project: str, each: Mapping[str, int], count: int) -> int:
    """How many more of ``count`` equal ones a project may have."""
    if quotas is None:
        return count
    limits, counts = limits_of(view, quotas, project), view.project_counts.of(project)
    left = [
        (limits[name] - counts.get(name, 0)) // amount
        for name, amount in each.items()
        if amount > 0 and limits[name] != UNLIMITED
    ]
    return max(0, min([count, *left]))


def judge(view: View, command: Enact) -> Rejection | None:
    """Why a change exceeds the quotas that it names, if it does."""
    if command.quotas is None:
        return None
    more: dict[str, dict[str, int]] = {}
    changes = [change for change in command.changes if is_counted(change.after or change.before)]
    for change in changes:
        _count(more, amounts_of(change.after), +1)
        _count(more, amounts_of(change.before), -1)
    for part in command.commands:
        if isinstance(part, CreateGroup):
            _count(more, amounts_of(part.group), +1)
    for project, amounts in more.items():
        refused = find_exceeded(view, command.quotas, project, amounts)
        if refused is not None:
            return refused
    return _too_much_metadata(view, changes, command.quotas) or _too_many_members(
        view, command, changes, command.quotas
    )


def _is_over(limit: int, used: int, more: int) -> bool:
    return limit != UNLIMITED and used + more > limit


def _count(more: dict[str, dict[str, int]], counted: tuple[str, Mapping[str, int]], sign: int) -> None:
    project, amounts = counted
    if amounts:
        sums = more.setdefault(project, {})
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + sign * amount


def _too_much_metadata(view: View, changes: list[RecordChanged], quotas: Quotas) -> Rejection | None:
    most: dict[str, int] = {}
    for change in changes:
        before, after = change.before, change.after
        if isinstance(after, Server) and after.metadata:
            has = len(before.metadata) if isinstance(before, Server) else 0
            if len(after.metadata) > max(has, most.get(after.project, 0)):
                most[after.project] = len(after.metadata)
    # Limits are looked up once for a project: a command may have a thousand servers.
    for project, count in most.items():
        limit = limits_of(view, quotas, project)["metadata_items"]
        if _is_over(limit, 0, count):
            return MetadataQuotaExceeded(limit, count)
    return None


def _too_many_members(
    view: View, command: Enact, changes: list[RecordChanged], quotas: Quotas
) -> Rejection | None:
    """The groups of a cluster have as many members as the cluster has nodes for them."""
    changed = [change.after for change in changes if isinstance(change.after, Cluster)]
    of_clusters = {group for cluster in changed for group in cluster.groups}
    for (project, group), count in _count_joining(view, command, changes).items():
        if count <= 0 or group in of_clusters or view.records.find(Cluster, "group", group):
            continue
        members = len(_members(view, group))
        limit = limits_of(view, quotas, project)["server_group_members"]
        if _is_over(limit, members, count):
            return ServerGroupMembersExceeded(group, limit, members, count)
    return None


def _count_joining(view: View, command: Enact, changes: list[RecordChanged]) -> Counter[tuple[str, str]]:
    """How many more are to be in a group of a project."""
    joining: Counter[tuple[str, str]] = Counter()
    for change in changes:
        server = change.after
        if change.before is None and isinstance(server, Server) and server.group is not None:
            joining[server.project, server.group] += 1
    for part in command.commands:
        if isinstance(part, CreateGroup):
            joining[part.group.project, part.id] += len(set(part.members))
        elif isinstance(part, ChangeMembers) and part.group in view.groups.records:
            before, gone = _members(view, part.group), set(part.remove)
            after = (before | set(part.add)) - gone
            joining[view.groups.records[part.group].group.project, part.group] += len(after) - len(before)
    return joining


def _members(view: View, group: str) -> set[ConsumerId]:
    """The members of a group, without those that stand for another."""
    record = view.groups.records.get(GroupId(group))
    return set() if record is None else {id for id, of in record.members.items() if id == of}

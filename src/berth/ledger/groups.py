"""Rules for groups themselves: what they may be, and which consumers may be in them."""

import msgspec

from berth.ledger.policies import Move, find_broken, find_broken_by_rule, full_group
from berth.model.clusters import Cluster
from berth.model.commands import ChangeGroup, ChangeMembers, CreateGroup, DeleteGroup
from berth.model.events import Event, GroupChanged, MemberChanged
from berth.model.groups import HOST, MEMBERS_MAX, Group, Membership
from berth.model.ids import ConsumerId, GroupId
from berth.model.rejections import (
    GroupExists,
    GroupFull,
    GroupInUse,
    GroupNotFound,
    GroupOfCluster,
    GroupRuleUnsound,
    InAnotherGroup,
    KindNotFound,
    Rejection,
)
from berth.view import ProviderRecord, View
from berth.view.groups import GroupRecord


def create(view: View, command: CreateGroup, now_s: int) -> list[Event] | Rejection:
    if command.id in view.groups.records:
        return GroupExists(command.id)
    unsound = _check_rule(view, command.group)
    if unsound is not None:
        return unsound
    group = msgspec.structs.replace(command.group, created_at_s=now_s)
    joining = _find_joining(view, command.id, command.members)
    if isinstance(joining, Rejection):
        return joining
    if len(joining) > MEMBERS_MAX:
        return GroupFull(command.id, MEMBERS_MAX)
    # The members are judged as if they came to their hosts now, into an empty group.
    record = GroupRecord(command.id, group)
    for event in joining:
        record.place(event.consumer, _hosts(view, event.consumer), +1)
    refused = find_broken_by_rule(view, record, group)
    return refused or [GroupChanged(command.id, None, group), *joining]


def change(view: View, command: ChangeGroup, now_s: int) -> list[Event] | Rejection:
    record = view.groups.records.get(command.id)
    if record is None:
        return GroupNotFound(command.id)
    fields = ("name", "policy", "max_per_domain", "max_skew")
    given = {name: value for name in fields if (value := getattr(command, name)) is not msgspec.UNSET}
    group = msgspec.structs.replace(record.group, **given)
    if group == record.group:
        return []
    owners = view.records.find(Cluster, "group", command.id)
    if owners and given.keys() - {"name"}:
        return GroupOfCluster(command.id, owners[0].id)
    refused = _check_rule(view, group)
    if refused is None and not _only_makes_room(record.group, group):
        refused = find_broken_by_rule(view, record, group)
    return refused or [GroupChanged(command.id, record.group, group)]


def delete(view: View, command: DeleteGroup, now_s: int) -> list[Event] | Rejection:
    record = view.groups.records.get(command.id)
    if record is None:
        return GroupNotFound(command.id)
    owners = [cluster.id for cluster in view.records.find(Cluster, "group", command.id)]
    if owners and owners != [command.cluster]:
        return GroupOfCluster(command.id, owners[0])
    if record.members and not command.force:
        return GroupInUse(command.id, len(record.members))
    leaving = [MemberChanged(id, view.groups.memberships[id], None) for id in record.members]
    return [*leaving, GroupChanged(command.id, record.group, None)]


def change_members(view: View, command: ChangeMembers, now_s: int) -> list[Event] | Rejection:
    record = view.groups.records.get(command.group)
    if record is None:
        return GroupNotFound(command.group)
    # A consumer that is both added and removed is removed, so that repeating the command changes nothing.
    gone = set(command.remove)
    owners = view.records.find(Cluster, "group", command.group)
    if owners and any(_hosts(view, id) for id in gone & record.members.keys()):
        return GroupOfCluster(command.group, owners[0].id)
    joining = _find_joining(view, command.group, tuple(id for id in command.add if id not in gone))
    if isinstance(joining, Rejection):
        return joining
    # With a member goes its migration.
    leaving = [
        MemberChanged(id, view.groups.memberships[id], None)
        for id, stands_for in record.members.items()
        if id in gone or stands_for in gone
    ]
    moves = [
        Move(event.consumer, event.after, [], _hosts(view, event.consumer))
        for event in joining
        if event.after is not None
    ]
    moves += [
        Move(event.consumer, event.before, _hosts(view, event.consumer), [])
        for event in leaving
        if event.before is not None
    ]
    events = [*leaving, *joining]
    return full_group(view, events) or find_broken(view, moves) or [*events]


def _find_joining(
    view: View, group: GroupId, consumers: tuple[ConsumerId, ...]
) -> list[MemberChanged] | InAnotherGroup:
    events = []
    for consumer in dict.fromkeys(consumers):
        before = view.groups.memberships.get(consumer)
        if before is None:
            events.append(MemberChanged(consumer, None, Membership(group, consumer)))
        elif before.group != group:
            return InAnotherGroup(consumer, before.group)
    return events


def _hosts(view: View, consumer: ConsumerId) -> list[ProviderRecord]:
    record = view.consumers.get(consumer)
    return view.hosts_held(record.held) if record is not None else []


def _only_makes_room(before: Group, after: Group) -> bool:
    """Whether a rule allows members wherever the one before it did."""
    limits = ((before.max_per_domain, after.max_per_domain), (before.max_skew, after.max_skew))
    return before.policy == after.policy and all(
        new is None or (old is not None and new >= old) for old, new in limits
    )


def _check_rule(view: View, group: Group) -> Rejection | None:
    if not view.groups.has_kind(group.domain):
        return KindNotFound(group.domain)
    if not group.is_apart and group.max_per_domain is not None:
        return GroupRuleUnsound("max_per_domain is for policies that keep members apart")
    if group.max_skew is None:
        return None
    if not group.is_apart:
        return GroupRuleUnsound("max_skew is for policies that keep members apart")
    if group.domain == HOST:
        return GroupRuleUnsound("max_skew is for domains of a kind of aggregate, not for hosts")
    return None

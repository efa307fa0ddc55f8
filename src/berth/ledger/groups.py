"""Rules for groups: what they may be, which consumers may be in them, and where their members may be. Labels
of aggregates are judged here too: a label makes an aggregate a domain of its kind.

Policies: no member is placed where a hard policy forbids it. What a command adds is judged: a member in a
domain in which it was not before, itself or through its migration. So a change that makes room is never
refused, and neither is a revert: the migration has held the place for its server. With ``before`` and
``after`` the sets of members in each domain:

* apart: ``after[d]`` has no more than ``max_per_domain``, and no more than ``max_skew`` beyond the emptiest
  domain of the kind, for every domain d that a member came to;
* together: all other members are in the domain that a member came to, and nowhere else; or all members came
  to it by this command, and their migrations are together, too (docs/decisions/033). For a host in several
  domains of the kind, one of them is enough.

A host that is in no domain of the kind can be judged by neither, and is refused.
"""

import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from berth.model.clusters import Cluster
from berth.model.commands import ChangeGroup, ChangeMembers, Claim, CreateGroup, DeleteGroup, LabelAggregate
from berth.model.events import AggregateLabelled, Event, GroupChanged, MemberChanged
from berth.model.groups import HOST, MEMBERS_MAX, Group, Membership
from berth.model.ids import ClassId, ConsumerId, GroupId, ProviderId
from berth.model.placement import SHARES_VIA_AGGREGATE, Holdings
from berth.model.rejections import (
    GroupExists,
    GroupFull,
    GroupInUse,
    GroupNotFound,
    GroupOfCluster,
    GroupPolicyBroken,
    GroupRuleUnsound,
    InAnotherGroup,
    KindInUse,
    KindNotFound,
    LabelTaken,
    Rejection,
)
from berth.view import ProviderRecord, View
from berth.view.groups import Domain, Domains, GroupRecord, Groups, Hosts, K, count
from berth.view.sets import RowSet

_STANDING_SHOWN_MAX: Final = 20


# -- groups and labels --------------------------------------------------------------------------------


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
    refused = _find_broken_by_rule(view, record, group)
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
        refused = _find_broken_by_rule(view, record, group)
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
        _Move(event.consumer, event.after, [], _hosts(view, event.consumer))
        for event in joining
        if event.after is not None
    ]
    moves += [
        _Move(event.consumer, event.before, _hosts(view, event.consumer), [])
        for event in leaving
        if event.before is not None
    ]
    events = [*leaving, *joining]
    return _full_group(view, events) or _find_broken(view, moves) or [*events]


def label_aggregate(view: View, command: LabelAggregate, now_s: int) -> list[Event] | Rejection:
    id, after = command.aggregate, command.label
    groups = view.groups
    before = groups.labels.get(id)
    if after is not None and after.kind is not None and after.name is not None:
        for other in groups.of_kind(after.kind):
            if other != id and groups.labels[other].name == after.name:
                return LabelTaken(after.kind, after.name, other)
    kind = before.kind if before is not None else None
    if (
        kind not in (None, HOST)
        and (after is None or after.kind != kind)
        and len(list(groups.of_kind(kind))) == 1
    ):
        judged_by = tuple(id for id, record in groups.records.items() if record.group.domain == kind)
        if judged_by:
            return KindInUse(kind, judged_by)
    return [] if before == after else [AggregateLabelled(id, before, after)]


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


class _Move(NamedTuple):
    """Where a member was, as the group knew it, and where it will be."""

    consumer: ConsumerId
    membership: Membership
    before: list[ProviderRecord]
    after: list[ProviderRecord]


# -- claims -------------------------------------------------------------------------------------

HeldAmounts = dict[ProviderId, dict[ClassId, int]]
"""What is held on each provider, in no order."""


def judge_claims(
    view: View, claims: tuple[Claim, ...], held_after: list[Holdings]
) -> list[Event] | Rejection:
    """The members that join and leave with the claims, if these break no policy."""
    memberships = view.groups.memberships
    if not memberships and not any(claim.group is not None for claim in claims):
        return []
    events: list[Event] = []
    moves: list[_Move] = []
    givers = [claim.consumer for claim in claims if claim.consumer in memberships]
    for claim, after in zip(claims, held_after, strict=True):
        before = memberships.get(claim.consumer)
        membership = _membership(view, claim, before, givers, after)
        if isinstance(membership, Rejection):
            return membership
        if membership is None:
            continue
        record = view.consumers.get(claim.consumer)
        stood = view.hosts_held(record.held) if before is not None and record is not None else []
        moves.append(_Move(claim.consumer, membership, stood, view.hosts_held(after)))
        if before is None:
            events.append(MemberChanged(claim.consumer, None, membership))
        elif not after and membership.stands_for != claim.consumer:
            # A migration that holds nothing any more is over.
            events.append(MemberChanged(claim.consumer, membership, None))
    return _full_group(view, events) or _find_broken(view, moves) or events


def _membership(
    view: View, claim: Claim, before: Membership | None, givers: list[ConsumerId], after: Holdings
) -> Membership | Rejection | None:
    """The membership that a claim is judged by."""
    if claim.group is not None:
        if claim.group not in view.groups.records:
            return GroupNotFound(claim.group)
        if before is None:
            return Membership(claim.group, claim.consumer)
        if before.group != claim.group:
            return InAnotherGroup(claim.consumer, before.group)
    if before is not None or not givers or not after or claim.consumer in view.consumers:
        return before
    return _stands_for(view, givers, after)


def _stands_for(view: View, givers: list[ConsumerId], after: Holdings) -> Membership | None:
    """A new consumer that is given all that a member of the same command held stands for that member: this
    is how the first half of a move looks, through any API. Of what the member held on sharing providers it
    may be given a part, or nothing: the member goes on using that. What one held is given once, so that of
    two members that hold the same each has its own migration."""
    taken = _amounts(after)
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    for is_given in (operator.eq, partial(_is_rest, view, sharing)) if sharing else (operator.eq,):
        for giver in givers:
            record = view.consumers.get(giver)
            if record is not None and is_given(taken, _amounts(record.held)):
                givers.remove(giver)
                return view.groups.memberships[giver]
    return None


def _is_rest(view: View, sharing: RowSet, taken: HeldAmounts, held: HeldAmounts) -> bool:
    """Whether this is all that is held on hosts, and no more than is held on sharing providers."""
    shared = {id for id in taken.keys() | held.keys() if view.providers[id].row in sharing}
    own = {id: amounts for id, amounts in held.items() if id not in shared}
    if not own or own != {id: amounts for id, amounts in taken.items() if id not in shared}:
        return False
    return all(
        amount <= held.get(id, {}).get(class_id, 0)
        for id in shared & taken.keys()
        for class_id, amount in taken[id].items()
    )


def _amounts(held: Holdings) -> HeldAmounts:
    """Holdings in a fixed order; a client's JSON may have any."""
    return {provider: dict(amounts) for provider, amounts in held}


def _full_group(view: View, events: Iterable[Event]) -> GroupFull | None:
    """The group that would have more members than it may; one and its migration are one."""
    joining: dict[GroupId, list[ConsumerId]] = {}
    leaving = set()
    for event in events:
        if isinstance(event, MemberChanged):
            if event.after is None:
                leaving.add(event.consumer)
            else:
                joining.setdefault(event.after.group, []).append(event.after.stands_for)
    for group, coming in joining.items():
        members = view.groups.records[group].members
        if len(members) + len(coming) <= MEMBERS_MAX:
            continue
        staying = {stands_for for id, stands_for in members.items() if id not in leaving}
        if len(staying.union(coming)) > max(MEMBERS_MAX, len(set(members.values()))):
            return GroupFull(group, MEMBERS_MAX)
    return None


# -- policies -----------------------------------------------------------------------------------


def _find_broken(view: View, moves: Iterable[_Move]) -> GroupPolicyBroken | None:
    """The first policy that the moves, all together, would break."""
    by_group: dict[GroupId, list[_Move]] = {}
    for move in moves:
        by_group.setdefault(move.membership.group, []).append(move)
    for id, concerned in by_group.items():
        record = view.groups.records[id]
        if record.group.is_hard:
            refused = _Judgement(view, record, record.group).of_moves(concerned)
            if refused is not None:
                return refused
    return None


def _find_broken_by_rule(view: View, record: GroupRecord, group: Group) -> GroupPolicyBroken | None:
    """Whether members are, now, where another rule would not allow them."""
    if not group.is_hard:
        return None
    judgement = _Judgement(view, record, group)
    moves = [
        _Move(who, Membership(record.id, who), [], [host])
        for host, whose in record.hosts.items()
        for who in whose
    ]
    return judgement.of_arrivals(
        moves, {}, lambda: record.hosts, {}, view.groups.by_domain(group.domain, record.hosts)
    )


class _Judgement:
    """One group's rule, applied to the members that come to hosts."""

    def __init__(self, view: View, record: GroupRecord, group: Group) -> None:
        self._view = view
        self._record = record
        self._group = group
        self._least: int | None = None
        self._together: _Together | None = None
        self._arrivals: dict[Domain, set[ConsumerId]] | None = None

    def of_moves(self, moves: list[_Move]) -> GroupPolicyBroken | None:
        groups, kind = self._view.groups, self._group.domain
        hosts, domains = self._record.hosts, groups.standing(self._record)
        come = [(move.membership.stands_for, move.after) for move in moves if move.after]
        gone = [(move.membership.stands_for, move.before) for move in moves if move.before]
        domains_after = _apply_moves(
            domains,
            [(who, groups.domains_of_all(places, kind)) for who, places in come],
            [(who, groups.domains_of_all(places, kind)) for who, places in gone],
        )
        # Where members keep apart, this is looked up only when one is refused.
        return self.of_arrivals(moves, hosts, lambda: _apply_moves(hosts, come, gone), domains, domains_after)

    def of_arrivals(
        self,
        moves: list[_Move],
        before: Hosts,
        after: Callable[[], Hosts],
        stood: Domains,
        standing: Domains,
    ) -> GroupPolicyBroken | None:
        """The refusal of members that come to a host where they were not; ``stood`` and ``standing`` are the
        members in each domain, before and after."""
        group, groups = self._group, self._view.groups
        is_apart = group.is_apart
        for move in moves:
            who = move.membership.stands_for
            for host in move.after:
                if who in before.get(host, ()):
                    continue
                domains = groups.domains_of(host, group.domain)
                if not domains:
                    return self._refusal(move, host, None, f"it is in no {group.domain}", after)
                new = [domain for domain in domains if who not in stood.get(domain, ())]
                for domain in new if is_apart else ():
                    reason = self._describe_crowded(len(standing[domain]), standing)
                    if reason is not None:
                        return self._refusal(move, host, domain, reason, after)
                if not new or is_apart or self._is_shared(who, domains, after):
                    continue
                if not self._all_come(domains, moves, before, standing):
                    return self._refusal(move, host, new[0], "other members stand elsewhere", after)
        return None

    def _describe_crowded(self, there: int, standing: Domains) -> str | None:
        """Why a domain has too many members, with those that come."""
        group = self._group
        if group.max_per_domain is not None and there > group.max_per_domain:
            return f"it would have {there} members, and at most {group.max_per_domain} may share one"
        if group.max_skew is not None:
            # The same for all that come: a command of a thousand asks once.
            if self._least is None:
                self._least = min(len(standing.get(domain, ())) for domain in self._populated_domains())
            least = self._least
            if there - least > group.max_skew:
                return (
                    f"it would have {there} members and another {group.domain} has {least}: "
                    f"the difference may be {group.max_skew} at most"
                )
        return None

    def _populated_domains(self) -> list[Domain]:
        """The domains of the kind that have any host: no member can be in another."""
        view = self._view
        return [
            id
            for id in view.groups.of_kind(self._group.domain)
            if any(view.record(row).parent is None for row in view.rows_in_aggregate(id))
        ]

    def _is_shared(self, who: ConsumerId, domains: tuple[Domain, ...], after: Callable[[], Hosts]) -> bool:
        """Whether one of these domains has all other members, and they are nowhere else."""
        if self._together is None:
            self._together = _Together(self._view.groups, self._group.domain, after())
        return any(self._together.has_all_but(who, domain) for domain in domains)

    def _all_come(
        self, domains: tuple[Domain, ...], moves: list[_Move], before: Hosts, standing: Domains
    ) -> bool:
        """Whether all members come to one of these domains together, and where one is, all are."""
        groups, kind = self._view.groups, self._group.domain
        if self._arrivals is None:
            self._arrivals = {}
            for move in moves:
                who = move.membership.stands_for
                for host in (host for host in move.after if who not in before.get(host, ())):
                    for domain in groups.domains_of(host, kind):
                        self._arrivals.setdefault(domain, set()).add(who)
        everybody = {who for whose in standing.values() for who in whose}
        if any(whose and len(whose) < len(everybody) for whose in standing.values()):
            return False
        return any(self._arrivals.get(domain, set()) >= everybody for domain in domains)

    def _refusal(
        self,
        move: _Move,
        host: ProviderRecord,
        domain: Domain | None,
        reason: str,
        after: Callable[[], Hosts],
    ) -> GroupPolicyBroken:
        record, group = self._record, self._group
        named = None if domain is None else self._view.groups.domain_name(domain, (host,))
        others = [
            (who, other.name)
            for other, whose in after().items()
            for who in whose
            if who != move.membership.stands_for
        ]
        return GroupPolicyBroken(
            record.id,
            group.name,
            group.policy,
            move.consumer,
            host.name,
            named,
            reason,
            tuple(others[:_STANDING_SHOWN_MAX]),
        )


class _Together:
    """On how many hosts members stand, and on how many of these in each domain: counted once for all that
    come."""

    def __init__(self, groups: Groups, kind: str, hosts: Hosts) -> None:
        self._total = 0
        self._in_domain: dict[Domain, int] = {}
        self._alone: dict[ConsumerId, list[tuple[Domain, ...]]] = {}
        for host, whose in hosts.items():
            if not whose:
                continue
            domains = groups.domains_of(host, kind)
            self._total += 1
            for domain in domains:
                self._in_domain[domain] = self._in_domain.get(domain, 0) + 1
            if len(whose) == 1:
                self._alone.setdefault(next(iter(whose)), []).append(domains)

    def has_all_but(self, who: ConsumerId, domain: Domain) -> bool:
        """Whether all hosts with other members are in a domain."""
        alone = self._alone.get(who, ())
        there = self._in_domain.get(domain, 0) - sum(domain in domains for domains in alone)
        return there == self._total - len(alone)


def _apply_moves(
    standing: dict[K, dict[ConsumerId, int]],
    come: list[tuple[ConsumerId, list[K]]],
    gone: list[tuple[ConsumerId, list[K]]],
) -> dict[K, dict[ConsumerId, int]]:
    """The members by place, after some have come and gone. What does not change is shared with what was."""
    after = dict(standing)
    for _, places in (*come, *gone):
        for place in places:
            if place in standing:
                after[place] = dict(standing[place])
    # Coming before going, so that a member that stays is counted throughout.
    for sign, moved in ((+1, come), (-1, gone)):
        for who, places in moved:
            count(after, who, places, sign)
    return after

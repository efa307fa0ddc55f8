"""Naive rules for hosts, aggregates and groups.

A policy is judged by two pictures, before and after: who stands where, worked out from what everybody holds.
A member *comes to* a host that it is on in the second and not in the first. Nothing is asked of a member that
comes to nothing new: that is why making room, and going back to where one's migration is, cannot be refused.
"""

from collections.abc import Iterable

import msgspec

from berth.model import commands as c
from berth.model.groups import HOST, MEMBERS_MAX, Group
from berth.model.ids import ClassId, ConsumerId, GroupId, ProviderId
from berth.model.placement import HEALTHY, SHARES_VIA_AGGREGATE
from berth.oracle.facts import ACCEPTED, Facts, GroupFact, HostFact, Kinds, LabelFact, MemberFact

Standing = set[tuple[ConsumerId, ProviderId]]
"""Pairs of a member and a host that it is on, itself or through its migration."""

# -- who stands where ---------------------------------------------------------------------------


def hosts_of(facts: Facts, consumer: ConsumerId) -> set[ProviderId]:
    """The hosts that a consumer holds something of. What is borrowed counts only where that is all."""
    providers = {provider for provider, _ in facts.held(consumer)}
    borrowed = {id for id in providers if _shares(facts, id)}
    return {facts.root(id) for id in (providers - borrowed or borrowed)}


def _shares(facts: Facts, id: ProviderId) -> bool:
    fact = facts.provider(id)
    return fact is not None and SHARES_VIA_AGGREGATE in fact.traits


def standing(facts: Facts, group: GroupId) -> Standing:
    return {
        (member.stands_for, host)
        for member in facts.members
        if member.group == group
        for host in hosts_of(facts, member.consumer)
    }


def domains_of(facts: Facts, host: ProviderId, kind: str) -> set[str]:
    if kind == HOST:
        return {host}
    fact = facts.provider(host)
    assert fact is not None
    return {it.aggregate for it in facts.labels if it.label.kind == kind and it.aggregate in fact.aggregates}


def kinds_of_domain(facts: Facts) -> set[str | None]:
    return {HOST, *(fact.label.kind for fact in facts.labels)}


# -- the policies -------------------------------------------------------------------------------


def breaks(facts: Facts, group: Group, before: Standing, after: Standing) -> bool:
    """Whether the rule of a group forbids that those who stand as in ``before`` come to stand as in
    ``after``."""
    if group.policy in ("soft-affinity", "soft-anti-affinity"):
        return False
    for member, host in after - before:
        domains = domains_of(facts, host, group.domain)
        if not domains:
            return True
        known = {
            domain
            for who, where in before
            if who == member
            for domain in domains_of(facts, where, group.domain)
        }
        if group.policy == "affinity":
            others = [domains_of(facts, where, group.domain) for who, where in after if who != member]
            is_shared = any(all(domain in there for there in others) for domain in domains)
            if domains - known and not is_shared and not _all_come(facts, group, domains, before, after):
                return True
        elif any(_is_crowded(facts, group, domain, after) for domain in domains - known):
            return True
    return False


def _all_come(facts: Facts, group: Group, domains: set[str], before: Standing, after: Standing) -> bool:
    """Whether everybody comes to one of the domains at once, and everybody is wherever one is."""
    everybody = {who for who, _ in after}
    everywhere = {domain for _, host in after for domain in domains_of(facts, host, group.domain)}
    for domain in everywhere:
        if {who for who, host in after if domain in domains_of(facts, host, group.domain)} != everybody:
            return False
    return any(
        {who for who, host in after - before if domain in domains_of(facts, host, group.domain)} == everybody
        for domain in domains
    )


def _is_crowded(facts: Facts, group: Group, domain: str, after: Standing) -> bool:
    def members_in(domain: str) -> int:
        return len({who for who, host in after if domain in domains_of(facts, host, group.domain)})

    if group.max_per_domain is not None and members_in(domain) > group.max_per_domain:
        return True
    if group.max_skew is None:
        return False
    # A domain without a host cannot have members, and keeps nobody from the others.
    hosts = [fact.id for fact in facts.providers if fact.parent is None]
    everywhere = {one for host in hosts for one in domains_of(facts, host, group.domain)}
    return members_in(domain) - min(members_in(one) for one in everywhere) > group.max_skew


def faults(before: Facts, after: Facts) -> set[str]:
    """What groups have against a change from one set of facts to the other."""
    kinds = set()
    for fact in after.groups:
        if breaks(after, fact.group, standing(before, fact.id), standing(after, fact.id)):
            kinds.add("GroupPolicyBroken")
        if _size(after, fact.id) > max(MEMBERS_MAX, _size(before, fact.id)):
            kinds.add("GroupFull")
    return kinds


def _size(facts: Facts, group: GroupId) -> int:
    """How many are in a group; one and its migration are one."""
    return len({fact.stands_for for fact in facts.members if fact.group == group})


# -- claims -------------------------------------------------------------------------------------


def wrongly_named(facts: Facts, claims: Iterable[c.Claim]) -> set[str]:
    kinds = set()
    for claim in claims:
        if claim.group is not None:
            if facts.group(claim.group) is None:
                kinds.add("GroupNotFound")
            member = facts.member(claim.consumer)
            if member is not None and member.group != claim.group:
                kinds.add("InAnotherGroup")
    return kinds


def members_with(facts: Facts, claims: Iterable[c.Claim]) -> list[MemberFact]:
    """Who is in which group when these claims have been granted."""
    members = list(facts.members)
    givers = [member for claim in claims if (member := facts.member(claim.consumer)) is not None]
    for claim in claims:
        if facts.member(claim.consumer) is not None:
            continue
        if claim.group is not None:
            members.append(MemberFact(claim.consumer, claim.group, claim.consumer))
        elif claim.wanted and facts.consumer(claim.consumer) is None:
            # Who is new and is given exactly what a member had is in the group for that member; so is who
            # is given less of what is borrowed. What one had can be given once.
            wanted = _wanted(facts, claim)
            same = [giver for giver in givers if facts.held(giver.consumer) == wanted]
            for giver in (same or [one for one in givers if _is_rest(facts, one.consumer, wanted)])[:1]:
                members.append(MemberFact(claim.consumer, giver.group, giver.stands_for))
                givers.remove(giver)
    empty = {claim.consumer for claim in claims if not claim.wanted}
    return [fact for fact in members if not (_is_migration(fact) and fact.consumer in empty)]


def _is_rest(facts: Facts, giver: ConsumerId, wanted: dict[tuple[ProviderId, ClassId | None], int]) -> bool:
    """Whether this is all of what a member had that is not borrowed, and no more than it had of the rest."""
    held: dict[object, int] = dict(facts.held(giver).items())
    own = {key: amount for key, amount in facts.held(giver).items() if not _shares(facts, key[0])}
    borrowed = {key: amount for key, amount in wanted.items() if _shares(facts, key[0])}
    if any(amount > held.get(key, 0) for key, amount in borrowed.items()):
        return False
    return bool(own) and own == {key: amount for key, amount in wanted.items() if key not in borrowed}


def _wanted(facts: Facts, claim: c.Claim) -> dict[tuple[ProviderId, ClassId | None], int]:
    return {
        (provider, facts.class_number(name)): amount
        for provider, amounts in claim.wanted
        for name, amount in amounts
    }


def end_migration(facts: Facts, consumer: ConsumerId) -> None:
    """A migration whose allocations are deleted is over; a server stays what it was declared to be."""
    facts.members = [
        fact for fact in facts.members if not (_is_migration(fact) and fact.consumer == consumer)
    ]


def _is_migration(fact: MemberFact) -> bool:
    return fact.stands_for != fact.consumer


# -- commands -----------------------------------------------------------------------------------


def set_host_status(facts: Facts, command: c.SetHostStatus) -> Kinds:
    provider = facts.provider(command.provider)
    if provider is None:
        return frozenset({"ProviderNotFound"})
    if provider.parent is not None:
        return frozenset({"NotAHost"})
    facts.hosts = [fact for fact in facts.hosts if fact.provider != command.provider]
    if command.status != HEALTHY:
        facts.hosts.append(HostFact(command.provider, command.status))
    return ACCEPTED


def label_aggregate(facts: Facts, command: c.LabelAggregate) -> Kinds:
    kinds = set()
    others = [fact for fact in facts.labels if fact.aggregate != command.aggregate]
    after = list(others)
    if command.label is not None:
        after.append(LabelFact(command.aggregate, command.label))
        kind, name = command.label.kind, command.label.name
        if None not in (kind, name) and any((it.label.kind, it.label.name) == (kind, name) for it in others):
            kinds.add("LabelTaken")
    trial = facts.copy()
    trial.labels = after
    if any(fact.group.domain not in kinds_of_domain(trial) for fact in facts.groups):
        kinds.add("KindInUse")
    if not kinds:
        facts.labels = after
    return frozenset(kinds)


def create_group(facts: Facts, command: c.CreateGroup, now_s: int) -> Kinds:
    kinds = _unsound(facts, command.group)
    if facts.group(command.id) is not None:
        kinds.add("GroupExists")
    if any((fact := facts.member(id)) is not None and fact.group != command.id for id in command.members):
        kinds.add("InAnotherGroup")
    if kinds:
        return frozenset(kinds)
    trial = facts.copy()
    dated = msgspec.structs.replace(command.group, created_at_s=now_s)
    trial.groups.append(GroupFact(command.id, dated))
    trial.members += [MemberFact(id, command.id, id) for id in dict.fromkeys(command.members)]
    kinds = faults(facts, trial)
    if not kinds:
        facts.groups, facts.members = trial.groups, trial.members
    return frozenset(kinds)


def change_group(facts: Facts, command: c.ChangeGroup) -> Kinds:
    old = facts.group(command.id)
    if old is None:
        return frozenset({"GroupNotFound"})
    new = Group(
        old.name if command.name is msgspec.UNSET else command.name,
        old.policy if command.policy is msgspec.UNSET else command.policy,
        old.domain,
        old.max_per_domain if command.max_per_domain is msgspec.UNSET else command.max_per_domain,
        old.max_skew if command.max_skew is msgspec.UNSET else command.max_skew,
        old.project,
        old.user,
        old.created_at_s,
    )
    kinds = _unsound(facts, new)
    # Another rule is one that everybody comes under where they are; one that only allows more is not.
    if not _allows_all_that(old, new) and breaks(facts, new, set(), standing(facts, command.id)):
        kinds.add("GroupPolicyBroken")
    if not kinds:
        facts.groups = [GroupFact(it.id, new) if it.id == command.id else it for it in facts.groups]
    return frozenset(kinds)


def _allows_all_that(old: Group, new: Group) -> bool:
    infinite = float("inf")
    limits = [
        (infinite if limit is None else limit)
        for limit in (old.max_per_domain, new.max_per_domain, old.max_skew, new.max_skew)
    ]
    return old.policy == new.policy and limits[0] <= limits[1] and limits[2] <= limits[3]


def delete_group(facts: Facts, command: c.DeleteGroup) -> Kinds:
    if facts.group(command.id) is None:
        return frozenset({"GroupNotFound"})
    if not command.force and any(fact.group == command.id for fact in facts.members):
        return frozenset({"GroupInUse"})
    facts.members = [fact for fact in facts.members if fact.group != command.id]
    facts.groups = [fact for fact in facts.groups if fact.id != command.id]
    return ACCEPTED


def change_members(facts: Facts, command: c.ChangeMembers) -> Kinds:
    if facts.group(command.group) is None:
        return frozenset({"GroupNotFound"})
    # Who is named both ways goes.
    joining = [id for id in dict.fromkeys(command.add) if id not in command.remove]
    if any((fact := facts.member(id)) is not None and fact.group != command.group for id in joining):
        return frozenset({"InAnotherGroup"})
    trial = facts.copy()
    trial.members += [MemberFact(id, command.group, id) for id in joining if facts.member(id) is None]
    trial.members = [
        fact
        for fact in trial.members
        if fact.group != command.group
        or (fact.consumer not in command.remove and fact.stands_for not in command.remove)
    ]
    kinds = faults(facts, trial)
    if not kinds:
        facts.members = trial.members
    return frozenset(kinds)


def _unsound(facts: Facts, group: Group) -> set[str]:
    kinds = set()
    if group.domain not in kinds_of_domain(facts):
        kinds.add("KindNotFound")
    if group.policy in ("affinity", "soft-affinity") and (group.max_per_domain, group.max_skew) != (
        None,
        None,
    ):
        kinds.add("GroupRuleUnsound")
    if group.max_skew is not None and group.domain == HOST:
        kinds.add("GroupRuleUnsound")
    return kinds

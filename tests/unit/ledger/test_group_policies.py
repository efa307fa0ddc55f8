"""Groups by example: what each rule lets happen, what it refuses, and in which words."""

from collections.abc import Iterable

import msgspec
import pytest

from berth.ledger import decide, groups
from berth.model import commands as c
from berth.model.events import MemberChanged
from berth.model.groups import HOST, Group, Membership, Policy
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import HEALTHY, SHARES_VIA_AGGREGATE, HostStatus, Inventory, Label
from berth.model.rejections import (
    GroupExists,
    GroupFull,
    GroupInUse,
    GroupNotFound,
    GroupPolicyBroken,
    GroupRuleUnsound,
    InAnotherGroup,
    KindInUse,
    KindNotFound,
    LabelTaken,
    NotAHost,
    ProviderNotFound,
    Rejection,
)
from berth.view import View

A, B, C, D, NUMA, STORAGE = (ProviderId(name) for name in ("a", "b", "c", "d", "a-numa", "storage"))
S1, S2, S3, S4, M, M2 = (ConsumerId(name) for name in ("s1", "s2", "s3", "s4", "migration", "migration-2"))
G, G2 = GroupId("g"), GroupId("g2")
RACK_1, RACK_2, ZONE_1, ZONE_2, ZONE_3 = (
    AggregateId(name) for name in ("rack-1", "rack-2", "zone-1", "zone-2", "zone-3")
)
NOW_S = 1_000

Place = dict[ProviderId, dict[str, int]]


def on(*providers: ProviderId) -> Place:
    """What a server holds of these providers."""
    return {provider: {"VCPU": 2, "MEMORY_MB": 4} for provider in providers}


def claim(consumer: ConsumerId, place: Place, group: GroupId | None = None) -> c.Claim:
    wanted = tuple((provider, tuple(amounts.items())) for provider, amounts in place.items())
    return c.Claim(consumer, wanted, "project", "user", group=group)


def rule(
    policy: Policy = "anti-affinity",
    domain: str = HOST,
    max_per_domain: int | None = None,
    max_skew: int | None = None,
    name: str = "web",
) -> Group:
    return Group(name, policy, domain, max_per_domain, max_skew, "project", "user", 0)


APART = rule(max_per_domain=1)
TOGETHER = rule("affinity")


class PolicyFleet:
    """Hosts a, b, c and d (a has a NUMA node below it), and storage that it shares with all."""

    def __init__(self) -> None:
        self.view = View()
        for id in (A, B, C, D, STORAGE):
            self.does(c.CreateProvider(id, f"host-{id}"))
        self.does(c.CreateProvider(NUMA, "numa", A))
        for id in (A, B, C, D, NUMA):
            self.does(c.SetInventories(id, None, {"VCPU": Inventory(64), "MEMORY_MB": Inventory(64)}))
        self.does(c.SetInventories(STORAGE, None, {"DISK_GB": Inventory(640)}))
        self.does(c.SetTraits(STORAGE, None, frozenset({SHARES_VIA_AGGREGATE})))

    def tries(self, command: c.Command) -> Rejection | None:
        """The reason why not; nothing has changed then."""
        before = self.view.state()
        verdict = decide(self.view, command, NOW_S)
        assert self.view.state() == before
        if isinstance(verdict, Rejection):
            return verdict
        for event in verdict:
            self.view.apply(event)
        return None

    def does(self, command: c.Command) -> None:
        assert self.tries(command) is None

    def tries_claims(self, *claims: c.Claim) -> Rejection | None:
        return self.tries(c.ReplaceAllocations(claims))

    def puts(self, consumer: ConsumerId, *providers: ProviderId, group: GroupId | None = None) -> None:
        assert self.tries_claims(claim(consumer, on(*providers), group)) is None

    def tries_to_put(self, consumer: ConsumerId, *providers: ProviderId) -> Rejection | None:
        return self.tries_claims(claim(consumer, on(*providers)))

    def groups(self, group: Group, *members: ConsumerId, id: GroupId = G) -> None:
        self.does(c.CreateGroup(id, group, members))

    def labels(self, kind: str, **places: Iterable[ProviderId]) -> None:
        """Aggregates of a kind, by the name they go by (with _ for -), and the hosts in each."""
        for name, hosts in places.items():
            id = AggregateId(name.replace("_", "-"))
            self.does(c.LabelAggregate(id, Label(kind, name)))
            for host in hosts:
                aggregates = (*self.view.providers[host].aggregates, id)
                self.does(c.SetAggregates(host, None, aggregates))

    def begins_move(self, server: ConsumerId, *source: ProviderId, migration: ConsumerId = M) -> None:
        """The first half of a move, as Nova makes it."""
        assert self.tries_claims(claim(migration, on(*source)), claim(server, {})) is None

    def members(self, id: GroupId = G) -> dict[ConsumerId, ConsumerId]:
        return self.view.groups.records[id].members

    def members_by_host(self, id: GroupId = G) -> dict[ProviderId, set[ConsumerId]]:
        return {host.id: set(who) for host, who in self.view.groups.records[id].hosts.items()}


@pytest.fixture
def fleet() -> PolicyFleet:
    return PolicyFleet()


def refusal(
    consumer: ConsumerId,
    host: ProviderId,
    reason: str,
    *members: tuple[ConsumerId, ProviderId],
    policy: Policy = "anti-affinity",
    domain: str | None = "",
) -> GroupPolicyBroken:
    """``domain`` is the host's name where nothing else is said."""
    where = f"host-{host}"
    stand = tuple((member, f"host-{there}") for member, there in members)
    named = where if domain == "" else domain
    return GroupPolicyBroken(G, "web", policy, consumer, where, named, reason, stand)


def too_many(there: int, most: int) -> str:
    return f"it would have {there} members, and at most {most} may share one"


ELSEWHERE = "other members stand elsewhere"


# -- anti-affinity ------------------------------------------------------------------------------------


def test_apart_means_that_a_host_has_one_member(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    refused = fleet.tries_to_put(S2, A)
    assert refused == refusal(S2, A, too_many(2, 1), (S1, A))
    assert isinstance(refused, GroupPolicyBroken)
    fleet.puts(S2, B)
    assert fleet.members_by_host() == {A: {S1}, B: {S2}}


def test_who_is_in_no_group_is_asked_for_nothing(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    fleet.puts(S1, A)
    fleet.puts(S2, A)


def test_three_may_share_a_host_where_three_may(fleet: PolicyFleet) -> None:
    fleet.groups(rule(max_per_domain=3), S1, S2, S3, S4)
    for server in (S1, S2, S3):
        fleet.puts(server, A)
    assert fleet.tries_to_put(S4, A) == refusal(S4, A, too_many(4, 3), (S1, A), (S2, A), (S3, A))


def test_any_number_may_share_a_host_where_no_number_is_given(fleet: PolicyFleet) -> None:
    fleet.groups(rule(max_per_domain=None), S1, S2)
    fleet.puts(S1, A)
    fleet.puts(S2, A)


def test_a_nested_provider_is_its_host(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, NUMA)
    assert fleet.members_by_host() == {A: {S1}}
    assert fleet.tries_to_put(S2, A) == refusal(S2, A, too_many(2, 1), (S1, A))


def test_a_soft_policy_refuses_nothing(fleet: PolicyFleet) -> None:
    fleet.groups(rule("soft-anti-affinity", max_per_domain=1), S1, S2)
    fleet.groups(rule("soft-affinity"), S3, S4, id=G2)
    for server in (S1, S2, S3):
        fleet.puts(server, A)
    fleet.puts(S4, B)
    assert fleet.members_by_host() == {A: {S1, S2}}
    assert fleet.members_by_host(G2) == {A: {S3}, B: {S4}}


def test_one_that_changes_what_it_holds_where_it_is_does_not_come_there(fleet: PolicyFleet) -> None:
    """Even where the policy is broken already: here by a host that became part of another."""
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.puts(S2, B)
    fleet.does(c.UpdateProvider(B, "host-b", A))
    assert fleet.members_by_host() == {A: {S1, S2}}
    assert fleet.tries_claims(claim(S2, {B: {"VCPU": 9}})) is None
    assert fleet.tries_claims(claim(S2, {NUMA: {"VCPU": 9}})) is None
    fleet.puts(S2, C)
    assert fleet.tries_to_put(S2, A) == refusal(S2, A, too_many(2, 1), (S1, A))


def test_the_members_of_one_command_see_each_other(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    refused = fleet.tries_claims(claim(S1, on(A)), claim(S2, on(A)))
    assert refused == refusal(S1, A, too_many(2, 1), (S2, A))
    assert fleet.tries_claims(claim(S1, on(A)), claim(S2, on(B))) is None


def test_two_may_change_places_in_one_command(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.puts(S2, B)
    assert fleet.tries_claims(claim(S1, on(B)), claim(S2, on(A))) is None
    assert fleet.members_by_host() == {A: {S2}, B: {S1}}


def test_a_reshape_is_held_to_policies(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.puts(S2, B)
    refused = fleet.tries(c.Reshape((), (claim(S2, on(A)),)))
    assert refused == refusal(S2, A, too_many(2, 1), (S1, A))
    assert fleet.tries(c.Reshape((), (claim(S1, on(NUMA)),))) is None


# -- storage that is shared ---------------------------------------------------------------------------


def test_shared_storage_does_not_put_a_member_on_its_host(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    for server, host in ((S1, A), (S2, B)):
        assert fleet.tries_claims(claim(server, {**on(host), STORAGE: {"DISK_GB": 10}})) is None
    assert fleet.members_by_host() == {A: {S1}, B: {S2}}


def test_one_that_holds_nothing_but_shared_storage_stands_there(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    assert fleet.tries_claims(claim(S1, {STORAGE: {"DISK_GB": 10}})) is None
    refused = fleet.tries_claims(claim(S2, {STORAGE: {"DISK_GB": 10}}))
    assert refused == refusal(S2, STORAGE, too_many(2, 1), (S1, STORAGE))


def test_storage_that_is_no_longer_shared_is_a_host_like_others(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    disk = claim(S1, {**on(A), STORAGE: {"DISK_GB": 10}})
    assert fleet.tries_claims(disk) is None
    fleet.does(c.SetTraits(STORAGE, None, frozenset()))
    assert fleet.members_by_host() == {A: {S1}, STORAGE: {S1}}


# -- affinity -----------------------------------------------------------------------------------------


def test_together_means_on_the_host_where_the_others_are(fleet: PolicyFleet) -> None:
    fleet.groups(TOGETHER, S1, S2)
    fleet.puts(S1, A)
    refused = fleet.tries_to_put(S2, B)
    assert refused == refusal(S2, B, ELSEWHERE, (S1, A), policy="affinity")
    fleet.puts(S2, NUMA)


def test_members_of_one_command_come_together(fleet: PolicyFleet) -> None:
    fleet.groups(TOGETHER, S1, S2)
    refused = fleet.tries_claims(claim(S1, on(A)), claim(S2, on(B)))
    assert refused == refusal(S1, A, ELSEWHERE, (S2, B), policy="affinity")
    assert fleet.tries_claims(claim(S1, on(A)), claim(S2, on(A))) is None
    assert fleet.tries_claims(claim(S1, on(B)), claim(S2, on(B))) is None


def test_one_that_is_alone_may_move_and_nobody_comes_to_it_meanwhile(fleet: PolicyFleet) -> None:
    """It may still go back: then whoever had followed it would be elsewhere."""
    fleet.groups(TOGETHER, S1, S2)
    fleet.puts(S1, A)
    fleet.begins_move(S1, A)
    fleet.puts(S1, B)
    for host in (A, B):
        refused = fleet.tries_to_put(S2, host)
        assert refused == refusal(S2, host, ELSEWHERE, (S1, A), (S1, B), policy="affinity")
    fleet.does(c.DeleteAllocations(M))
    assert isinstance(fleet.tries_to_put(S2, A), GroupPolicyBroken)
    fleet.puts(S2, B)


def test_all_of_them_may_move_together(fleet: PolicyFleet) -> None:
    """One that goes back is apart until it follows: nobody else comes meanwhile."""
    fleet.groups(TOGETHER, S1, S2, S3)
    fleet.puts(S1, A)
    fleet.puts(S2, A)
    moves = [claim(S1, on(B)), claim(M, on(A)), claim(S2, on(B)), claim(M2, on(A))]
    assert isinstance(fleet.tries_claims(*moves[:2]), GroupPolicyBroken), "one alone may not"
    assert isinstance(fleet.tries_claims(*moves[:2], claim(S2, on(C)), moves[3]), GroupPolicyBroken)
    assert fleet.tries_claims(*moves) is None
    assert fleet.members() == {S1: S1, S2: S2, S3: S3, M: S1, M2: S2}
    assert fleet.members_by_host() == {A: {S1, S2}, B: {S1, S2}}
    assert fleet.tries_claims(claim(S1, on(A)), claim(M, {})) is None
    fleet.does(c.DeleteAllocations(M2))
    assert fleet.members_by_host() == {A: {S1}, B: {S2}}
    for host in (A, B, C):
        assert isinstance(fleet.tries_to_put(S3, host), GroupPolicyBroken)
    assert isinstance(fleet.tries_claims(claim(S1, on(C)), claim(M, on(A))), GroupPolicyBroken)
    assert fleet.tries_claims(claim(S1, on(B)), claim(M, on(A))) is None
    fleet.does(c.DeleteAllocations(M))
    assert fleet.members_by_host() == {B: {S1, S2}}


def test_one_of_two_may_not_move_away(fleet: PolicyFleet) -> None:
    fleet.groups(TOGETHER, S1, S2)
    fleet.puts(S1, A)
    fleet.puts(S2, A)
    fleet.begins_move(S1, A)
    refused = fleet.tries_to_put(S1, B)
    assert refused == refusal(S1, B, ELSEWHERE, (S2, A), policy="affinity")
    assert fleet.tries_claims(claim(S1, on(A)), claim(M, {})) is None
    assert fleet.members() == {S1: S1, S2: S2}


def test_together_in_a_rack_is_on_any_host_of_it(fleet: PolicyFleet) -> None:
    fleet.labels("rack", rack_1=[A, B], rack_2=[C])
    fleet.groups(rule("affinity", "rack"), S1, S2)
    fleet.puts(S1, A)
    refused = fleet.tries_to_put(S2, C)
    assert refused == refusal(S2, C, ELSEWHERE, (S1, A), policy="affinity", domain="rack_2")
    fleet.puts(S2, B)


def test_within_its_rack_a_member_may_move_though_others_have_come_to_be_in_another(
    fleet: PolicyFleet,
) -> None:
    """It comes to no rack in which it did not stand."""
    fleet.labels("rack", rack_1=[A, B, C, D], rack_2=[])
    fleet.groups(rule("affinity", "rack"), S1, S2)
    fleet.puts(S1, A)
    fleet.puts(S2, C)
    fleet.does(c.SetAggregates(C, None, (RACK_2,)))
    fleet.puts(S1, B)
    assert fleet.members_by_host() == {B: {S1}, C: {S2}}


def test_together_is_in_one_rack_not_each_with_each_in_some(fleet: PolicyFleet) -> None:
    """A host may be in several racks: of these three any two share one, and all three none."""
    fleet.labels("rack", rack_1=[A, B], rack_2=[B, C], rack_3=[C, A])
    fleet.groups(rule("affinity", "rack"), S1, S2, S3)
    fleet.puts(S1, A)
    fleet.puts(S2, B)
    refused = fleet.tries_to_put(S3, C)
    assert refused == refusal(S3, C, ELSEWHERE, (S1, A), (S2, B), policy="affinity", domain="rack_2")


# -- domains ------------------------------------------------------------------------------------------


def test_members_stay_apart_by_rack(fleet: PolicyFleet) -> None:
    fleet.labels("rack", rack_1=[A, B], rack_2=[C])
    fleet.groups(rule(domain="rack", max_per_domain=1), S1, S2)
    fleet.puts(S1, A)
    refused = fleet.tries_to_put(S2, B)
    assert refused == refusal(S2, B, too_many(2, 1), (S1, A), domain="rack_1")
    fleet.puts(S2, C)
    # Within its rack a member may move.
    fleet.puts(S1, B)


def test_a_rack_without_a_name_goes_by_its_uuid(fleet: PolicyFleet) -> None:
    fleet.does(c.LabelAggregate(RACK_1, Label("rack", None)))
    fleet.does(c.SetAggregates(A, None, (RACK_1,)))
    fleet.groups(rule(domain="rack", max_per_domain=1), S1, S2)
    fleet.puts(S1, A)
    assert fleet.tries_to_put(S2, A) == refusal(S2, A, too_many(2, 1), (S1, A), domain=RACK_1)


@pytest.mark.parametrize("policy", ["affinity", "anti-affinity"])
def test_a_host_without_a_rack_cannot_be_judged(fleet: PolicyFleet, policy: Policy) -> None:
    fleet.labels("rack", rack_1=[A])
    fleet.labels("zone", zone_1=[D])
    fleet.groups(rule(policy, "rack"), S1)
    assert fleet.tries_to_put(S1, D) == refusal(S1, D, "it is in no rack", policy=policy, domain=None)


def test_a_rack_that_hosts_leave_is_a_fact_and_only_who_comes_later_is_refused(fleet: PolicyFleet) -> None:
    fleet.labels("rack", rack_1=[A], rack_2=[B])
    fleet.groups(rule(domain="rack", max_per_domain=1), S1, S2, S3)
    fleet.puts(S1, A)
    fleet.puts(S2, B)
    fleet.does(c.SetAggregates(B, None, (RACK_1,)))
    fleet.does(c.SetAggregates(C, None, (RACK_1,)))
    assert fleet.tries_claims(claim(S2, {B: {"VCPU": 1}})) is None
    refused = fleet.tries_to_put(S3, C)
    assert refused == refusal(S3, C, too_many(3, 1), (S1, A), (S2, B), domain="rack_1")


def skew(there: int, least: int, most: int) -> str:
    return f"it would have {there} members and another zone has {least}: the difference may be {most} at most"


def test_members_are_spread_over_three_zones(fleet: PolicyFleet) -> None:
    fleet.labels("zone", zone_1=[A, D], zone_2=[B], zone_3=[C])
    fleet.groups(rule(domain="zone", max_skew=1), S1, S2, S3, S4)
    fleet.puts(S1, A)
    assert fleet.tries_to_put(S2, D) == refusal(S2, D, skew(2, 0, 1), (S1, A), domain="zone_1")
    fleet.puts(S2, B)
    assert isinstance(fleet.tries_to_put(S3, D), GroupPolicyBroken)
    fleet.puts(S3, C)
    fleet.puts(S4, D)
    # Who goes is not refused, though it leaves the others uneven.
    fleet.does(c.DeleteAllocations(S2))
    assert fleet.members_by_host() == {A: {S1}, C: {S3}, D: {S4}}


def test_both_limits_hold(fleet: PolicyFleet) -> None:
    fleet.labels("zone", zone_1=[A], zone_2=[B])
    fleet.groups(rule(domain="zone", max_per_domain=1, max_skew=2), S1, S2)
    fleet.puts(S1, A)
    assert fleet.tries_to_put(S2, A) == refusal(S2, A, too_many(2, 1), (S1, A), domain="zone_1")


def test_a_zone_without_hosts_does_not_keep_the_others_empty(fleet: PolicyFleet) -> None:
    """Nobody can stand in one that has no host: that a nested provider is in it makes it none."""
    fleet.labels("zone", zone_1=[A], zone_2=[], zone_3=[NUMA])
    fleet.groups(rule(domain="zone", max_skew=1), S1, S2)
    fleet.puts(S1, A)
    fleet.puts(S2, A)


# -- moves --------------------------------------------------------------------------------------------


def test_a_migration_holds_the_place_for_its_server(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.begins_move(S1, A)
    assert fleet.members() == {S1: S1, S2: S2, M: S1}
    assert fleet.members_by_host() == {A: {S1}}
    fleet.puts(S1, B)
    assert fleet.members_by_host() == {A: {S1}, B: {S1}}
    for host in (A, B):
        members = ((S1, A), (S1, B))
        assert fleet.tries_to_put(S2, host) == refusal(S2, host, too_many(2, 1), *members)
    # Revert.
    assert fleet.tries_claims(claim(M, {}), claim(S1, on(A))) is None
    assert fleet.members() == {S1: S1, S2: S2}
    fleet.puts(S2, B)


def test_a_confirmed_move_leaves_the_source_to_others(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.begins_move(S1, A)
    fleet.puts(S1, B)
    fleet.does(c.DeleteAllocations(M))
    assert fleet.members() == {S1: S1, S2: S2}
    fleet.puts(S2, A)


def test_a_move_in_one_command(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    fleet.puts(S1, A)
    assert fleet.tries_claims(claim(M, on(A)), claim(S1, on(B))) is None
    assert fleet.members() == {S1: S1, M: S1}
    assert fleet.members_by_host() == {A: {S1}, B: {S1}}


def test_a_resize_on_the_same_host_counts_once(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    fleet.puts(S1, A)
    fleet.begins_move(S1, A)
    fleet.puts(S1, A)
    assert fleet.members_by_host() == {A: {S1}}
    assert len(fleet.view.groups.records[G].hosts[fleet.view.providers[A]]) == 1


def test_a_destination_that_another_member_has_is_refused(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.puts(S2, B)
    fleet.begins_move(S1, A)
    assert fleet.tries_to_put(S1, B) == refusal(S1, B, too_many(2, 1), (S2, B))


def test_a_migration_is_known_by_what_it_is_given_in_whatever_order(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    assert fleet.tries_claims(claim(S1, {**on(A), STORAGE: {"DISK_GB": 10}})) is None
    given: Place = {STORAGE: {"DISK_GB": 10}, A: {"MEMORY_MB": 4, "VCPU": 2}}
    assert fleet.tries_claims(claim(S1, {}), claim(M, given)) is None
    assert fleet.members() == {S1: S1, M: S1}


@pytest.mark.parametrize(
    "given", [{A: {"VCPU": 2}}, {A: {"VCPU": 2, "MEMORY_MB": 5}}, {B: {"VCPU": 2, "MEMORY_MB": 4}}]
)
def test_one_that_is_given_anything_else_is_no_migration(fleet: PolicyFleet, given: Place) -> None:
    fleet.groups(APART, S1)
    fleet.puts(S1, A)
    assert fleet.tries_claims(claim(M, given), claim(S1, {})) is None
    assert fleet.members() == {S1: S1}


def test_one_that_is_there_already_is_no_migration(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    fleet.puts(S1, A)
    fleet.puts(M, B)
    fleet.begins_move(S1, A)
    assert fleet.members() == {S1: S1}


def test_two_alike_that_move_in_one_command_have_a_migration_each(fleet: PolicyFleet) -> None:
    fleet.groups(rule(max_per_domain=2), S1, S2, S3)
    fleet.puts(S1, A)
    fleet.puts(S2, A)
    gone = (claim(S1, {}), claim(S2, {}))
    assert fleet.tries_claims(claim(M, on(A)), claim(M2, on(A)), *gone) is None
    assert fleet.members() == {S1: S1, S2: S2, S3: S3, M: S1, M2: S2}
    assert fleet.members_by_host() == {A: {S1, S2}}
    assert isinstance(fleet.tries_to_put(S3, A), GroupPolicyBroken)


def test_a_migration_of_a_migration_is_for_the_same_server(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    fleet.puts(S1, A)
    fleet.begins_move(S1, A)
    fleet.begins_move(M, A, migration=M2)
    assert fleet.members() == {S1: S1, M2: S1}
    assert fleet.members_by_host() == {A: {S1}}


def test_a_server_whose_allocations_are_deleted_stays_a_member(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.does(c.DeleteAllocations(S1))
    assert fleet.members() == {S1: S1, S2: S2}
    fleet.puts(S2, A)
    assert fleet.tries_to_put(S1, A) == refusal(S1, A, too_many(2, 1), (S2, A))


# -- claims that name a group -------------------------------------------------------------------------


def test_a_claim_makes_its_consumer_a_member(fleet: PolicyFleet) -> None:
    fleet.groups(APART)
    fleet.puts(S1, A, group=G)
    assert fleet.members() == {S1: S1}
    refused = fleet.tries_claims(claim(S2, on(A), G))
    assert refused == refusal(S2, A, too_many(2, 1), (S1, A))
    assert fleet.members() == {S1: S1}
    # Again, and then without: who is in stays in.
    fleet.puts(S1, B, group=G)
    fleet.puts(S1, C)
    assert fleet.members() == {S1: S1}


def test_claims_of_one_command_that_name_a_group_see_each_other(fleet: PolicyFleet) -> None:
    fleet.groups(APART)
    refused = fleet.tries_claims(claim(S1, on(A), G), claim(S2, on(A), G))
    assert refused == refusal(S1, A, too_many(2, 1), (S2, A))


def test_a_claim_that_names_no_group_that_there_is(fleet: PolicyFleet) -> None:
    assert fleet.tries_claims(claim(S1, on(A), G)) == GroupNotFound(G)


def test_a_claim_of_another_groups_member(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    fleet.groups(APART, id=G2)
    assert fleet.tries_claims(claim(S1, on(A), G2)) == InAnotherGroup(S1, G)
    fleet.puts(S1, A)
    fleet.begins_move(S1, A)
    assert fleet.tries_claims(claim(M, on(A), G2)) == InAnotherGroup(M, G)


# -- groups themselves --------------------------------------------------------------------------------


def test_a_new_group_is_dated_and_its_members_are_judged_where_they_stand(fleet: PolicyFleet) -> None:
    fleet.puts(S1, A)
    fleet.puts(S2, A)
    refused = fleet.tries(c.CreateGroup(G, APART, (S1, S2)))
    assert refused == refusal(S1, A, too_many(2, 1), (S2, A))
    assert G not in fleet.view.groups.records
    fleet.groups(TOGETHER, S1, S2, S1)
    assert fleet.view.groups.records[G].group == msgspec.structs.replace(TOGETHER, created_at_s=NOW_S)
    assert fleet.members() == {S1: S1, S2: S2}


def test_a_group_is_made_once_and_a_consumer_is_in_one(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    assert fleet.tries(c.CreateGroup(G, TOGETHER)) == GroupExists(G)
    assert fleet.tries(c.CreateGroup(G2, APART, (S2, S1))) == InAnotherGroup(S1, G)


@pytest.mark.parametrize(
    ("group", "refused"),
    [
        (rule(domain="rack"), KindNotFound("rack")),
        (
            rule("affinity", max_per_domain=1),
            GroupRuleUnsound("max_per_domain is for policies that keep members apart"),
        ),
        (
            rule("soft-affinity", "zone", max_skew=1),
            GroupRuleUnsound("max_skew is for policies that keep members apart"),
        ),
        (
            rule(max_skew=1),
            GroupRuleUnsound("max_skew is for domains of a kind of aggregate, not for hosts"),
        ),
    ],
)
def test_a_rule_whose_parts_do_not_go_together(fleet: PolicyFleet, group: Group, refused: Rejection) -> None:
    fleet.labels("zone", zone_1=[A])
    assert fleet.tries(c.CreateGroup(G, group)) == refused
    fleet.groups(rule(domain="zone" if group.domain == "zone" else HOST))
    if not isinstance(refused, KindNotFound):
        change = c.ChangeGroup(G, group.name, group.policy, group.max_per_domain, group.max_skew)
        assert fleet.tries(change) == refused


def test_another_rule_is_judged_by_where_members_stand(fleet: PolicyFleet) -> None:
    fleet.groups(rule(max_per_domain=2), S1, S2, S3)
    fleet.puts(S1, A)
    fleet.puts(S2, A)
    fleet.puts(S3, B)
    refused = fleet.tries(c.ChangeGroup(G, max_per_domain=1))
    assert refused == refusal(S1, A, too_many(2, 1), (S2, A), (S3, B))
    refused = fleet.tries(c.ChangeGroup(G, policy="affinity", max_per_domain=None))
    assert refused == refusal(S1, A, ELSEWHERE, (S2, A), (S3, B), policy="affinity")
    fleet.does(c.ChangeGroup(G, policy="soft-affinity", max_per_domain=None))
    assert isinstance(fleet.tries(c.ChangeGroup(G, policy="affinity")), GroupPolicyBroken)
    fleet.does(c.ChangeGroup(G, policy="anti-affinity", max_per_domain=3))
    assert fleet.tries(c.ChangeGroup(G2, name="other")) == GroupNotFound(G2)


def test_a_broken_group_may_be_renamed_and_given_more_room(fleet: PolicyFleet) -> None:
    """What only makes room is never refused, though it may not be room enough."""
    fleet.groups(APART, S1, S2, S3)
    for server, host in ((S1, A), (S2, B), (S3, C)):
        fleet.puts(server, host)
    for host in (B, C):
        fleet.does(c.UpdateProvider(host, f"host-{host}", A))
    assert fleet.members_by_host() == {A: {S1, S2, S3}}
    fleet.does(c.ChangeGroup(G, name="web"))
    fleet.does(c.ChangeGroup(G, name="other"))
    fleet.does(c.ChangeGroup(G, name="web", max_per_domain=2))
    assert isinstance(fleet.tries(c.ChangeGroup(G, max_per_domain=1)), GroupPolicyBroken)
    fleet.does(c.ChangeGroup(G, max_per_domain=None))
    assert isinstance(fleet.tries(c.ChangeGroup(G, max_per_domain=2)), GroupPolicyBroken)


def test_a_group_with_members_goes_by_force(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    assert fleet.tries(c.DeleteGroup(G)) == GroupInUse(G, 2)
    fleet.does(c.DeleteGroup(G, force=True))
    assert fleet.tries(c.DeleteGroup(G)) == GroupNotFound(G)
    fleet.puts(S2, A)
    fleet.groups(APART)
    fleet.does(c.DeleteGroup(G))


def test_members_come_and_go(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    fleet.groups(APART, S4, id=G2)
    for server in (S1, S2):
        fleet.puts(server, A)
    assert fleet.tries(c.ChangeMembers(G, (S2,))) == refusal(S2, A, too_many(2, 1), (S1, A))
    assert fleet.tries(c.ChangeMembers(G, (S4,))) == InAnotherGroup(S4, G2)
    assert fleet.tries(c.ChangeMembers(GroupId("none"), (S4,))) == GroupNotFound(GroupId("none"))
    # Who leaves makes room for who comes; who is in, or out, already stays so.
    fleet.does(c.ChangeMembers(G, (S2, S2), (S1, S3)))
    assert fleet.members() == {S2: S2}
    fleet.does(c.ChangeMembers(G, (S2,), (S1,)))
    assert fleet.members() == {S2: S2}
    assert fleet.members(G2) == {S4: S4}


def test_one_that_is_named_both_ways_goes_however_often_it_is_said(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1)
    for _ in range(2):
        fleet.does(c.ChangeMembers(G, (S1, S2), (S1, S2)))
        assert fleet.members() == {}


def test_with_a_member_goes_its_migration(fleet: PolicyFleet) -> None:
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.begins_move(S1, A)
    fleet.does(c.ChangeMembers(G, remove=(S1,)))
    assert fleet.members() == {S2: S2}
    assert fleet.members_by_host() == {}
    # What it holds, it goes on holding.
    assert fleet.view.consumers[M].held


@pytest.fixture
def two_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MEMBERS_MAX", 2)


@pytest.mark.usefixtures("two_at_most")
def test_a_group_has_no_more_members_than_it_may(fleet: PolicyFleet) -> None:
    full = GroupFull(G, 2)
    assert fleet.tries(c.CreateGroup(G, APART, (S1, S2, S3))) == full
    fleet.groups(APART, S1, S2)
    assert fleet.tries(c.ChangeMembers(G, (S3,))) == full
    assert fleet.tries_claims(claim(S3, on(A), G)) == full
    fleet.does(c.ChangeMembers(G, (S3,), (S1,)))
    assert fleet.members() == {S2: S2, S3: S3}


@pytest.mark.usefixtures("two_at_most")
def test_a_server_of_a_full_group_can_be_moved(fleet: PolicyFleet) -> None:
    """It and its migration count once."""
    fleet.groups(APART, S1, S2)
    fleet.puts(S1, A)
    fleet.begins_move(S1, A)
    assert fleet.members() == {S1: S1, S2: S2, M: S1}
    assert fleet.tries(c.ChangeMembers(G, (S3,))) == GroupFull(G, 2)


def test_what_a_claim_does_to_members_stands_in_its_events(fleet: PolicyFleet) -> None:
    fleet.groups(APART)
    verdict = decide(fleet.view, c.ReplaceAllocations((claim(S1, on(A), G),)), NOW_S)
    assert isinstance(verdict, list)
    members = [event for event in verdict if isinstance(event, MemberChanged)]
    assert members == [MemberChanged(S1, None, Membership(G, S1))]


# -- labels and hosts ---------------------------------------------------------------------------------


def test_a_name_is_taken_once_among_those_of_a_kind(fleet: PolicyFleet) -> None:
    fleet.does(c.LabelAggregate(RACK_1, Label("rack", "north")))
    assert fleet.tries(c.LabelAggregate(RACK_2, Label("rack", "north"))) == LabelTaken(
        "rack", "north", RACK_1
    )
    fleet.does(c.LabelAggregate(ZONE_1, Label("zone", "north")))
    for aggregate in (RACK_2, ZONE_2):
        fleet.does(c.LabelAggregate(aggregate, Label(None, "north", (("ssd", "true"),))))
    # One's own name is free, also for what it says anew.
    fleet.does(c.LabelAggregate(RACK_1, Label("rack", "north", (("ssd", "true"),))))
    fleet.does(c.LabelAggregate(RACK_1, None))
    fleet.does(c.LabelAggregate(RACK_2, Label("rack", "north")))


@pytest.mark.parametrize("label", [None, Label(None, "north"), Label("zone", None)])
def test_a_kind_that_groups_are_judged_by_keeps_an_aggregate(fleet: PolicyFleet, label: Label | None) -> None:
    fleet.labels("rack", rack_1=[A], rack_2=[B])
    fleet.groups(rule(domain="rack"))
    fleet.groups(rule("soft-affinity", "rack"), id=G2)
    fleet.does(c.LabelAggregate(RACK_1, label))
    assert fleet.tries(c.LabelAggregate(RACK_2, label)) == KindInUse("rack", (G, G2))
    fleet.does(c.LabelAggregate(RACK_2, Label("rack", "other")))
    fleet.does(c.DeleteGroup(G))
    fleet.does(c.DeleteGroup(G2))
    fleet.does(c.LabelAggregate(RACK_2, label))


def test_groups_that_are_judged_by_host_need_no_aggregate(fleet: PolicyFleet) -> None:
    fleet.does(c.LabelAggregate(RACK_1, Label(HOST, None)))
    fleet.groups(APART)
    fleet.does(c.LabelAggregate(RACK_1, None))


def test_the_status_of_a_host(fleet: PolicyFleet) -> None:
    broken = HostStatus(disabled=True, down=True, build_failures=3, reason="smoke")
    assert fleet.tries(c.SetHostStatus(ProviderId("none"), broken)) == ProviderNotFound(ProviderId("none"))
    assert fleet.tries(c.SetHostStatus(NUMA, broken)) == NotAHost(NUMA, A)
    fleet.does(c.SetHostStatus(B, broken))
    row = fleet.view.providers[B].row
    assert fleet.view.hosts == {B: broken}
    assert (set(fleet.view.disabled), set(fleet.view.down)) == ({row}, {row})
    assert decide(fleet.view, c.SetHostStatus(B, broken), NOW_S) == []
    fleet.does(c.SetHostStatus(B, HEALTHY))
    assert (fleet.view.hosts, set(fleet.view.disabled), set(fleet.view.down)) == ({}, set(), set())
    assert decide(fleet.view, c.SetHostStatus(B, HEALTHY), NOW_S) == []


def test_a_host_that_goes_takes_its_status_along(fleet: PolicyFleet) -> None:
    fleet.does(c.SetHostStatus(B, HostStatus(disabled=True)))
    row = fleet.view.providers[B].row
    fleet.does(c.DeleteProvider(B))
    assert (fleet.view.hosts, set(fleet.view.disabled)) == ({}, set())
    fleet.does(c.CreateProvider(B, "host-b"))
    assert fleet.view.providers[B].row == row
    assert B not in fleet.view.hosts

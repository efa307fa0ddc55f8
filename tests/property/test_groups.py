"""Groups in a quiet world: hosts stay where they are, so no policy is ever broken and every move can go back.

The machine in ``test_ledger_machine`` changes everything, the forest and the aggregates too, and can then ask
little of groups whose hosts were moved under them. Here room is ample and places are fixed: six hosts in
three racks and two zones, two of them with a nested provider, and storage that all of them share. What is
refused is refused for its group.
"""

import os
import random

import pytest

from berth.ledger import decide
from berth.model import commands as c
from berth.model.groups import HOST, Group, Policy
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import SHARES_VIA_AGGREGATE, Inventory, Label, Wanted
from berth.model.rejections import (
    AllocationsNotFound,
    GroupInUse,
    GroupPolicyBroken,
    InAnotherGroup,
    Rejection,
)
from tests.property.agreement import domains_by_member
from tests.property.test_ledger_machine import LedgerMachine

SOAK = os.environ.get("BERTH_SOAK") == "1"

HOSTS = [ProviderId(f"host-{n}") for n in range(6)]
NESTED = {ProviderId(f"numa-{n}"): HOSTS[n] for n in range(2)}
STORAGE = ProviderId("storage")
RACKS = [AggregateId(f"rack-{n}") for n in range(3)]
ZONES = [AggregateId(f"zone-{n}") for n in range(2)]
SERVERS = [ConsumerId(f"server-{n}") for n in range(6)]
MIGRATIONS = [ConsumerId(f"migration-{n}") for n in range(3)]
GROUPS = [GroupId(f"group-{n}") for n in range(2)]
HARD: list[Policy] = ["anti-affinity", "affinity"]
SOFT: list[Policy] = ["soft-anti-affinity", "soft-affinity"]


class QuietWalk:
    """Servers come, move and go, and groups with them. A failing walk is found again by its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = LedgerMachine()
        self.view = self.machine.view
        self.refused: list[Rejection] = []
        for number, id in enumerate(HOSTS):
            self.furnish(id, None)
            self.does(c.SetAggregates(id, None, (RACKS[number // 2], ZONES[number // 3])))
        for id, parent in NESTED.items():
            self.furnish(id, parent)
        self.does(c.CreateProvider(STORAGE, STORAGE))
        self.does(c.SetInventories(STORAGE, None, {"DISK_GB": Inventory(1_000)}))
        self.does(c.SetTraits(STORAGE, None, frozenset({SHARES_VIA_AGGREGATE})))
        for kind, aggregates in (("rack", RACKS), ("zone", ZONES)):
            for aggregate in aggregates:
                self.does(c.LabelAggregate(aggregate, Label(kind, aggregate)))
        for group in GROUPS:
            self.does(c.CreateGroup(group, self.group(self.rng.choice([HOST, "rack", "zone"]))))

    def furnish(self, id: ProviderId, parent: ProviderId | None) -> None:
        self.does(c.CreateProvider(id, id, parent))
        self.does(c.SetInventories(id, None, {"VCPU": Inventory(1_000), "MEMORY_MB": Inventory(1_000)}))

    # -- doing ----------------------------------------------------------------------------------

    def does(self, command: c.LedgerCommand) -> bool:
        """Carry a command out, on both sides; whether it was accepted."""
        verdict = decide(self.view, command, 0)
        self.machine.carry_out(command)
        if isinstance(verdict, Rejection):
            self.refused.append(verdict)
        return not isinstance(verdict, Rejection)

    def step(self) -> None:
        choices = [
            (30, self.place),
            (6, self.place_several),
            (14, self.begin_move),
            (20, self.go_on_with_move),
            (6, self.begin_two_moves),
            (8, self.remove),
            (4, self.reshape),
            (10, self.change_members),
            (5, self.change_group),
            (2, self.replace_group),
        ]
        weights, doers = zip(*choices, strict=True)
        self.rng.choices(doers, weights)[0]()

    # -- servers --------------------------------------------------------------------------------

    def claim(self, id: ConsumerId) -> c.Claim:
        rng = self.rng
        wanted = [(rng.choice([*HOSTS, *NESTED]), (("VCPU", rng.randint(1, 2)), ("MEMORY_MB", 4)))]
        if rng.random() < 0.1:
            other = rng.choice([id for id in HOSTS if id != wanted[0][0]])
            wanted.append((other, (("VCPU", 1), ("MEMORY_MB", 1))))
        claimed: list[Wanted] = [*wanted]
        if rng.random() < 0.5:
            claimed.append((STORAGE, (("DISK_GB", 1),)))
        member = self.view.groups.memberships.get(id)
        group = rng.choice(GROUPS) if member is None or rng.random() < 0.1 else None
        return c.Claim(id, tuple(claimed), "p1", "u1", group=group)

    def place(self) -> None:
        stood = {id: domains_by_member(self.view, id) for id in self.view.groups.records}
        claim = self.claim(self.rng.choice(SERVERS))
        if self.does(c.ReplaceAllocations((claim,))) and claim.consumer in self.view.groups.memberships:
            group = self.view.groups.memberships[claim.consumer].group
            self.check_skew(claim.consumer, group, stood[group].get(claim.consumer, []))

    def place_several(self) -> None:
        ids = self.rng.sample(SERVERS, self.rng.randint(2, 3))
        self.does(c.ReplaceAllocations(tuple(self.claim(id) for id in ids)))

    def remove(self) -> None:
        id = self.rng.choice(SERVERS + MIGRATIONS)
        nothing = c.ReplaceAllocations((c.Claim(id, (), "p1", "u1"),))
        self.does(nothing if self.rng.random() < 0.5 else c.DeleteAllocations(id))

    def reshape(self) -> None:
        """All that is held of a nested provider goes to its host, or to any host."""
        rng = self.rng
        source, host = rng.choice(list(NESTED.items()))
        destination = rng.choice([host, host, *HOSTS])
        moving = []
        for consumer in sorted(self.view.providers[source].consumers):
            held = dict(self.machine.wanted(self.view.consumers[consumer].held))
            # Who holds of both already would hold twice of one.
            if destination in held:
                return
            held[destination] = held.pop(source)
            moving.append(c.Claim(consumer, tuple(held.items()), "p1", "u1"))
        self.does(c.Reshape((), tuple(moving)))

    # -- moves ----------------------------------------------------------------------------------

    def begin_move(self) -> None:
        """The first half as Nova makes it; or the whole in one command."""
        rng = self.rng
        servers = [id for id in SERVERS if id in self.view.consumers and self.view.consumers[id].held]
        free = [id for id in MIGRATIONS if id not in self.view.consumers]
        if not servers or not free:
            return
        server, migration = rng.choice(servers), rng.choice(free)
        if rng.random() < 0.2:
            if rng.random() < 0.3:
                # It is there already, so it is no migration, whatever it is given.
                self.does(c.ReplaceAllocations((c.Claim(migration, (), "p1", "u1"),)))
            held = self.machine.wanted(self.view.consumers[server].held)
            if rng.random() < 0.5:
                # What the server goes on using stays with it.
                held = tuple(part for part in held if part[0] != STORAGE) or held
            self.does(c.ReplaceAllocations((c.Claim(migration, held, "p1", "u1"), self.claim(server))))
            return
        assert self.does(self.machine.first_half(server, migration)), "nobody comes to anything by this"
        if server in self.view.groups.memberships:
            assert self.view.groups.memberships[migration].stands_for == server
        verdict = decide(self.view, self.machine.revert(server, migration), 0)
        assert not isinstance(verdict, Rejection), f"it cannot go back: {verdict}"

    def begin_two_moves(self) -> None:
        """Of servers that hold the same, where there are any, in one command."""
        rng = self.rng
        ids = rng.sample(SERVERS, 2)
        free = [id for id in MIGRATIONS if id not in self.view.consumers]
        if len(free) < 2 or rng.random() < 0.5:
            wanted = self.claim(ids[0]).wanted
            self.does(c.ReplaceAllocations(tuple(c.Claim(id, wanted, "p1", "u1") for id in ids)))
            return
        held = [self.view.consumers[id].held for id in ids if id in self.view.consumers]
        if len(held) == 2 and all(held):
            takers = [
                c.Claim(migration, self.machine.wanted(it), "p1", "u1")
                for migration, it in zip(free, held, strict=False)
            ]
            givers = [c.Claim(id, (), "p1", "u1") for id in ids]
            assert self.does(c.ReplaceAllocations((*takers, *givers))), "nobody comes to anything by this"

    def go_on_with_move(self) -> None:
        rng = self.rng
        under_way = [
            (it.stands_for, id) for id, it in self.view.groups.memberships.items() if it.stands_for != id
        ]
        if not under_way:
            return
        server, migration = rng.choice(under_way)
        match rng.choice(["put", "put", "confirm", "let go", "revert"]):
            case "put":
                self.does(c.ReplaceAllocations((self.claim(server),)))
            case "confirm":
                assert self.does(c.DeleteAllocations(migration))
            case "let go":
                assert self.does(c.ReplaceAllocations((c.Claim(migration, (), "p1", "u1"),)))
            case "revert":
                assert self.does(self.machine.revert(server, migration))
        if migration not in self.view.consumers:
            assert migration not in self.view.groups.memberships

    # -- groups ---------------------------------------------------------------------------------

    def group(self, domain: str) -> Group:
        rng = self.rng
        policy = rng.choice(HARD * 5 + SOFT)
        if not policy.endswith("anti-affinity"):
            return Group("web", policy, domain, None, None, "p1", "u1", 0)
        skew = rng.choice([None, 1, 2]) if domain != HOST else None
        most = rng.choice([1, 1, 1, 2, None]) if skew is None else rng.choice([None, None, 3])
        return Group("web", policy, domain, most, skew, "p1", "u1", 0)

    def change_members(self) -> None:
        rng, group = self.rng, self.rng.choice(GROUPS)
        add = tuple(rng.sample(SERVERS, rng.randint(0, 2)))
        remove = tuple(rng.sample([*SERVERS, *MIGRATIONS], rng.choice([0, 0, 1, 2])))
        self.does(c.ChangeMembers(group, add, remove))

    def change_group(self) -> None:
        id = self.rng.choice(GROUPS)
        new = self.group(self.view.groups.records[id].group.domain)
        self.does(c.ChangeGroup(id, "other", new.policy, new.max_per_domain, new.max_skew))

    def replace_group(self) -> None:
        rng, id = self.rng, self.rng.choice(GROUPS)
        self.does(c.DeleteGroup(id))
        self.does(c.DeleteGroup(id, force=True))
        group = self.group(rng.choice([HOST, "rack", "zone"]))
        if not self.does(c.CreateGroup(id, group, tuple(rng.sample(SERVERS, rng.randint(0, 3))))):
            self.does(c.CreateGroup(id, group))

    # -- what holds -----------------------------------------------------------------------------

    def check_skew(self, who: ConsumerId, id: GroupId, stood: list[tuple[str, ...]]) -> None:
        """A member that came to a domain has not made it the most crowded by more than may be."""
        group = self.view.groups.records[id].group
        if group.policy != "anti-affinity" or group.max_skew is None:
            return
        by_member = domains_by_member(self.view, id)
        counts = dict.fromkeys(RACKS if group.domain == "rack" else ZONES, 0)
        for hosts in by_member.values():
            for domain in {domain for domains in hosts for domain in domains}:
                counts[AggregateId(domain)] += 1
        for (domain,) in by_member[who]:
            if (domain,) not in stood:
                assert counts[AggregateId(domain)] - min(counts.values()) <= group.max_skew


@pytest.mark.parametrize("seed", range(3_000 if SOAK else 30))
def test_a_walk_of_claims_keeps_every_policy(seed: int) -> None:
    walk = walked(seed)
    walk.machine.teardown()
    assert not walk.machine.disturbed, "nobody was moved but by a claim"


def walked(seed: int) -> QuietWalk:
    walk = QuietWalk(seed)
    for _ in range(120):
        walk.step()
    return walk


def test_walks_meet_what_they_are_for() -> None:
    """Every reason of every policy, and servers that are on their way."""
    refused = [it for seed in range(10) for it in walked(seed).refused]
    reasons = [it.reason for it in refused if isinstance(it, GroupPolicyBroken)]
    for words in ("may share one", "the difference may be", "other members stand elsewhere"):
        assert sum(words in reason for reason in reasons) > 10
    assert {type(it) for it in refused} >= {
        GroupPolicyBroken,
        InAnotherGroup,
        GroupInUse,
        AllocationsNotFound,
    }

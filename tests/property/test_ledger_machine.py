"""The ledger and the view against the naive oracle, over random sequences of all commands.

Domains are small, so that commands collide: five providers, five names, four consumers, two migrations and
three groups. After every command both sides must have said the same and hold the same; what is kept twice in
the view (columns, masks, totals, roots, where members stand) must agree with what it is kept about; no hard
policy may be broken unless the world was changed under it, and every move must be free to go back; and the
events must do what events promise: survive the journal and an image, be taken back exactly, and replay to the
same view.
"""

import os
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from berth.ledger import decide
from berth.model import commands as c
from berth.model.events import (
    Entry,
    Event,
    Origin,
    inverse,
)
from berth.model.groups import HOST, Group, Policy
from berth.model.ids import AggregateId, ClassId, ConsumerId, GroupId, ProviderId
from berth.model.placement import Holdings, HostStatus, Inventory, Label, Wanted
from berth.model.rejections import GroupPolicyBroken, Rejection
from berth.oracle.ledger import Oracle
from berth.view import View
from berth.view.snapshot import dump, load
from tests.property.agreement import (
    AGGREGATES,
    KINDS,
    OF_THE_WORLD,
    TRAITS,
    Domains,
    check_columns,
    check_forest,
    check_masks,
    check_order,
    check_policy,
    domains_by_member,
    expected,
    observed,
)

SOAK = os.environ.get("BERTH_SOAK") == "1"

PROVIDERS = [ProviderId(f"00000000-0000-0000-0000-00000000000{n}") for n in range(5)]
NAMES = [f"host-{n}" for n in range(5)]
CONSUMERS = [ConsumerId(f"10000000-0000-0000-0000-00000000000{n}") for n in range(4)]
MIGRATIONS = [ConsumerId(f"11000000-0000-0000-0000-00000000000{n}") for n in range(2)]
GROUPS = [GroupId(f"30000000-0000-0000-0000-00000000000{n}") for n in range(3)]
POLICIES: list[Policy] = ["anti-affinity", "affinity", "soft-anti-affinity", "soft-affinity"]
CLASSES = ["VCPU", "MEMORY_MB", "CUSTOM_A", "CUSTOM_B", "CUSTOM_C"]
ODD_NAMES = ["CUSTOM_", "custom_a", "NOT_THERE", "CUSTOM_\u00c4", "CUSTOM_A\n"]
ORIGIN = Origin("req-1", "someone", None, "test")

providers = st.sampled_from(PROVIDERS)
parents = st.none() | providers
names = st.sampled_from(NAMES)
consumers = st.sampled_from(CONSUMERS)
# Mostly classes and traits that exist: what is refused for its name teaches little.
classes = st.sampled_from(CLASSES[:3] * 4 + CLASSES[3:] + ODD_NAMES[:3])
class_names = st.sampled_from(CLASSES * 3 + ODD_NAMES)
trait_names = st.sampled_from(TRAITS * 3 + ODD_NAMES)
trait_sets = st.frozensets(st.sampled_from(TRAITS * 3 + ["CUSTOM_UNKNOWN"]), max_size=3)
aggregate_sets = st.lists(st.sampled_from(AGGREGATES), max_size=3, unique=True).map(tuple)
lags = st.sampled_from([0] * 8 + [1, -1])
"""How far a named generation is off. Mostly not at all."""

inventories = st.builds(
    Inventory,
    total=st.integers(1, 12),
    reserved=st.sampled_from([0, 0, 0, 1, 2, 8, 12]),
    min_unit=st.sampled_from([1, 1, 1, 2]),
    max_unit=st.sampled_from([12, 12, 4, 3]),
    step_size=st.sampled_from([1, 1, 1, 2]),
    allocation_ratio=st.sampled_from([1.0, 1.0, 1.5, 0.5, 4.0, 3.4e38]),
)
inventory_maps = st.dictionaries(st.sampled_from(CLASSES[:3] * 3 + CLASSES[3:]), inventories, max_size=3)
wants = st.dictionaries(
    providers, st.dictionaries(classes, st.integers(1, 7), min_size=1, max_size=2), max_size=3
).map(lambda wanted: tuple((id, tuple(amounts.items())) for id, amounts in wanted.items()))
generation_lags = st.sampled_from(["unchecked"] * 3 + [0] * 6 + [1, -1, None])
people = st.tuples(st.sampled_from(["p1", "p2"]), st.sampled_from(["u1", "u2"]))
types = st.sampled_from([None, None, "INSTANCE", "MIGRATION"])
group_ids = st.sampled_from(GROUPS)
groups_named = st.sampled_from([None] * 6 + GROUPS)
claims = st.dictionaries(
    consumers, st.tuples(wants, generation_lags, people, types, groups_named), min_size=1, max_size=3
)
ClaimParts = dict[
    ConsumerId,
    tuple[tuple[Wanted, ...], str | int | None, tuple[str, str], str | None, GroupId | None],
]
statuses = st.builds(
    HostStatus, st.booleans(), st.booleans(), st.integers(0, 2), st.sampled_from([None, "repair"])
)
labels = st.none() | st.builds(
    Label,
    st.sampled_from([*KINDS * 3, None, HOST]),
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from([(), (("ssd", "true"),)]),
)
limits = st.sampled_from([None, 1, 1, 2])
policies = st.sampled_from(POLICIES[:2] * 3 + POLICIES[2:])
rules = st.builds(
    Group,
    name=st.sampled_from(["web", "db"]),
    policy=policies,
    domain=st.sampled_from([HOST, HOST, HOST, *KINDS * 2, "nowhere"]),
    max_per_domain=limits,
    max_skew=st.sampled_from([None, None, 1]),
    project=st.just("p1"),
    user=st.just("u1"),
    created_at_s=st.just(0),
).map(lambda group: msgspec.structs.replace(group, **_without_limits(group)))
some_members = st.lists(st.sampled_from(CONSUMERS + MIGRATIONS), max_size=3).map(tuple)


def _without_limits(group: Group) -> dict[str, None]:
    """What is unsound of a rule is mostly left out; a name of its own keeps it in."""
    return {} if group.is_apart or group.name == "db" else {"max_per_domain": None, "max_skew": None}


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.view = View()
        self.follower = View()
        self.oracle = Oracle()
        self.events: list[Event] = []
        self.disturbed: set[GroupId] = set()
        self.now_s = 1_000
        self.encoder = msgspec.msgpack.Encoder()
        self.decoder = msgspec.msgpack.Decoder(Entry)

    # -- every command --------------------------------------------------------------------------

    @initialize(records=st.lists(inventory_maps, min_size=2, max_size=3), nest=st.booleans())
    def begin(self, records: list[dict[str, Inventory]], nest: bool) -> None:
        self.carry_out(c.CreateResourceClass("CUSTOM_A"))
        self.carry_out(c.CreateTrait("CUSTOM_FAST"))
        for id, name, record in zip(PROVIDERS, NAMES, records, strict=False):
            parent = PROVIDERS[0] if nest and id != PROVIDERS[0] else None
            self.carry_out(c.CreateProvider(id, name, parent))
            self.carry_out(c.SetInventories(id, 0, record))
        for id, aggregate in zip(PROVIDERS, AGGREGATES, strict=False):
            self.carry_out(c.SetAggregates(id, None, (aggregate,)))
        for aggregate, kind in zip(AGGREGATES, ["rack", "rack", "zone"], strict=False):
            self.carry_out(c.LabelAggregate(aggregate, Label(kind, None)))

    @rule(name=class_names, exist_ok=st.booleans())
    def create_class(self, name: str, exist_ok: bool) -> None:
        self.carry_out(c.CreateResourceClass(name, exist_ok))

    @rule(name=class_names, new_name=class_names)
    def rename_class(self, name: str, new_name: str) -> None:
        self.carry_out(c.RenameResourceClass(name, new_name))

    @rule(name=class_names)
    def delete_class(self, name: str) -> None:
        self.carry_out(c.DeleteResourceClass(name))

    @rule(name=trait_names)
    def create_trait(self, name: str) -> None:
        self.carry_out(c.CreateTrait(name))

    @rule(name=trait_names)
    def delete_trait(self, name: str) -> None:
        self.carry_out(c.DeleteTrait(name))

    @rule(id=providers, name=names | st.just(""), parent=parents)
    def create_provider(self, id: ProviderId, name: str, parent: ProviderId | None) -> None:
        self.carry_out(c.CreateProvider(id, name, parent))

    @rule(id=providers, name=names, parent=parents | st.just(msgspec.UNSET), may_reparent=st.booleans())
    def update_provider(
        self, id: ProviderId, name: str, parent: ProviderId | msgspec.UnsetType | None, may_reparent: bool
    ) -> None:
        self.carry_out(c.UpdateProvider(id, name, parent, may_reparent))

    @rule(id=providers, parent=parents)
    def reparent(self, id: ProviderId, parent: ProviderId | None) -> None:
        record = self.view.providers.get(id)
        name = record.name if record is not None else NAMES[0]
        self.carry_out(c.UpdateProvider(id, name, parent, may_reparent=True))

    @rule(id=providers)
    def delete_provider(self, id: ProviderId) -> None:
        self.carry_out(c.DeleteProvider(id))

    @rule(id=providers, name=classes, inventory=inventories, may_reserve_all=st.booleans())
    def add_inventory(self, id: ProviderId, name: str, inventory: Inventory, may_reserve_all: bool) -> None:
        self.carry_out(c.AddInventory(id, name, inventory, may_reserve_all))

    @rule(id=providers, lag=lags, name=classes, inventory=inventories, may_reserve_all=st.booleans())
    def put_inventory(
        self, id: ProviderId, lag: int, name: str, inventory: Inventory, may_reserve_all: bool
    ) -> None:
        self.carry_out(c.PutInventory(id, self.generation(id) + lag, name, inventory, may_reserve_all))

    @rule(id=providers, lag=lags | st.none(), records=inventory_maps, may_reserve_all=st.booleans())
    def set_inventories(
        self, id: ProviderId, lag: int | None, records: dict[str, Inventory], may_reserve_all: bool
    ) -> None:
        generation = self.generation(id) + lag if lag is not None else None
        self.carry_out(c.SetInventories(id, generation, records, may_reserve_all))

    @rule(id=providers, name=classes)
    def delete_inventory(self, id: ProviderId, name: str) -> None:
        self.carry_out(c.DeleteInventory(id, name))

    @rule(id=providers, lag=lags | st.none(), traits=trait_sets)
    def set_traits(self, id: ProviderId, lag: int | None, traits: frozenset[str]) -> None:
        generation = self.generation(id) + lag if lag is not None else None
        self.carry_out(c.SetTraits(id, generation, traits))

    @rule(id=providers, lag=lags | st.none(), aggregates=aggregate_sets)
    def set_aggregates(self, id: ProviderId, lag: int | None, aggregates: tuple[AggregateId, ...]) -> None:
        generation = self.generation(id) + lag if lag is not None else None
        self.carry_out(c.SetAggregates(id, generation, aggregates))

    @rule(parts=claims)
    def replace_allocations(self, parts: ClaimParts) -> None:
        self.carry_out(c.ReplaceAllocations(self.claims(parts)))

    @rule(id=consumers, provider=providers, name=st.sampled_from(CLASSES[:3]), amount=st.integers(1, 4))
    def claim_a_little(self, id: ConsumerId, provider: ProviderId, name: str, amount: int) -> None:
        """A claim that is likely to be granted, so that there is something to collide with."""
        self.carry_out(c.ReplaceAllocations((c.Claim(id, ((provider, ((name, amount),)),), "p1", "u1"),)))

    @rule(giver=consumers, taker=consumers)
    def hand_over(self, giver: ConsumerId, taker: ConsumerId) -> None:
        """All that one holds goes to another, as when a server's allocations become a migration's."""
        record = self.view.consumers.get(giver)
        if giver == taker or record is None:
            return
        wanted = self.wanted(record.held)
        self.carry_out(
            c.ReplaceAllocations((c.Claim(giver, (), "p1", "u1"), c.Claim(taker, wanted, "p2", "u1")))
        )

    @rule(
        server=consumers,
        migration=st.sampled_from(MIGRATIONS),
        destination=providers,
        end=st.sampled_from(["confirm", "revert", "delete", "later"]),
    )
    def move_server(
        self, server: ConsumerId, migration: ConsumerId, destination: ProviderId, end: str
    ) -> None:
        """A move as Nova makes it, from begin to end, or left open."""
        record = self.view.consumers.get(server)
        if record is not None and record.held:
            self.carry_out(self.first_half(server, migration))
        root = self.view.providers.get(destination)
        if root is not None and root.inventories:
            name = self.view.classes.name_of(next(iter(root.inventories)))
            self.carry_out(
                c.ReplaceAllocations((c.Claim(server, ((destination, ((name, 1),)),), "p1", "u1"),))
            )
        if end == "revert" and migration in self.view.consumers:
            self.carry_out(self.revert(server, migration))
        elif end == "confirm":
            self.carry_out(c.DeleteAllocations(migration))
        elif end == "delete":
            self.carry_out(c.ReplaceAllocations((c.Claim(migration, (), "p1", "u1"),)))

    @rule(id=providers, status=statuses)
    def set_host_status(self, id: ProviderId, status: HostStatus) -> None:
        self.carry_out(c.SetHostStatus(id, status))

    @rule(id=st.sampled_from(AGGREGATES), label=labels)
    def label_aggregate(self, id: AggregateId, label: Label | None) -> None:
        self.carry_out(c.LabelAggregate(id, label))

    @rule(id=group_ids, group=rules, members=some_members)
    def create_group(self, id: GroupId, group: Group, members: tuple[ConsumerId, ...]) -> None:
        self.carry_out(c.CreateGroup(id, group, members))

    @rule(
        id=group_ids,
        name=st.sampled_from([msgspec.UNSET, "other"]),
        policy=policies | st.just(msgspec.UNSET),
        most=limits | st.just(msgspec.UNSET),
        skew=limits | st.just(msgspec.UNSET),
    )
    def change_group(
        self,
        id: GroupId,
        name: str | msgspec.UnsetType,
        policy: Policy | msgspec.UnsetType,
        most: int | msgspec.UnsetType | None,
        skew: int | msgspec.UnsetType | None,
    ) -> None:
        self.carry_out(c.ChangeGroup(id, name, policy, most, skew))

    @rule(id=group_ids, force=st.booleans())
    def delete_group(self, id: GroupId, force: bool) -> None:
        self.carry_out(c.DeleteGroup(id, force))

    @rule(id=group_ids, add=some_members, remove=some_members)
    def change_members(
        self, id: GroupId, add: tuple[ConsumerId, ...], remove: tuple[ConsumerId, ...]
    ) -> None:
        self.carry_out(c.ChangeMembers(id, add, remove))

    @rule(id=consumers, total=st.integers(1, 3), more=st.integers(-2, 1))
    def shrink_below_what_is_held(self, id: ConsumerId, total: int, more: int) -> None:
        """A provider comes to be over its capacity; then what is held there is lowered, kept or raised."""
        record = self.view.consumers.get(id)
        if record is None or not record.held:
            return
        (provider, ((class_id, amount), *_)), *_ = record.held
        name = self.view.classes.name_of(class_id)
        self.carry_out(c.PutInventory(provider, self.generation(provider), name, Inventory(total)))
        wanted = ((provider, ((name, max(1, amount + more)),)),)
        self.carry_out(c.ReplaceAllocations((c.Claim(id, wanted, "p1", "u2"),)))

    @rule(id=consumers)
    def delete_allocations(self, id: ConsumerId) -> None:
        self.carry_out(c.DeleteAllocations(id))

    @rule(
        news=st.dictionaries(providers, st.tuples(lags, inventory_maps), max_size=2),
        parts=st.just({}) | claims,
    )
    def reshape(self, news: dict[ProviderId, tuple[int, dict[str, Inventory]]], parts: ClaimParts) -> None:
        self.carry_out(
            c.Reshape(
                tuple(
                    c.NewInventories(id, self.generation(id) + lag, records)
                    for id, (lag, records) in news.items()
                ),
                self.claims(parts),
            )
        )

    @rule(source=providers, destination=providers)
    def reshape_away(self, source: ProviderId, destination: ProviderId) -> None:
        """Everything of one provider, inventories and what stands on them, moves to another."""
        record = self.view.providers.get(source)
        if record is None or destination not in self.view.providers or source == destination:
            return
        name_of = self.view.classes.name_of
        moved = {name_of(id): inventory for id, inventory in record.inventories.items()}
        moving = []
        for consumer in sorted(record.consumers):
            held = self.view.consumers[consumer].held
            wanted: dict[ProviderId, dict[str, int]] = {}
            for provider, amounts in held:
                on = wanted.setdefault(destination if provider == source else provider, {})
                for id, amount in amounts:
                    on[name_of(id)] = on.get(name_of(id), 0) + amount
            moving.append(
                c.Claim(
                    consumer,
                    tuple((id, tuple(amounts.items())) for id, amounts in wanted.items()),
                    "p1",
                    "u1",
                )
            )
        news = (
            c.NewInventories(source, self.generation(source), {}),
            c.NewInventories(destination, self.generation(destination), moved),
        )
        self.carry_out(c.Reshape(news, tuple(moving)))

    # -- what holds after each ------------------------------------------------------------------

    def carry_out(self, command: c.LedgerCommand) -> None:
        self.now_s += 1
        before = self.view.state()
        stood = {id: domains_by_member(self.view, id) for id in self.view.groups.records}
        verdict = decide(self.view, command, self.now_s)
        assert self.view.state() == before, "deciding changed the view"
        kinds = self.oracle.carry_out(command, self.now_s)
        if isinstance(verdict, Rejection):
            kind = type(verdict).__name__
            assert kind in kinds, (
                f"{command} was refused as {kind}; right would be {set(kinds) or 'to accept'}"
            )
            return
        assert not kinds, f"{command} was accepted; right would be to refuse it as one of {set(kinds)}"
        for event in verdict:
            self.view.apply(event)
        self.check_events(before, verdict)
        assert observed(self.view) == expected(self.oracle)
        check_columns(self.view)
        check_forest(self.view, self.oracle)
        check_masks(self.view)
        check_order(self.view)
        self.check_policies(stood, verdict)
        self.check_reverts()

    def check_policies(self, stood: dict[GroupId, Domains], events: list[Event]) -> None:
        """No hard policy is broken, but where somebody stands elsewhere without having gone there."""
        if any(isinstance(event, OF_THE_WORLD) for event in events):
            now = {id: domains_by_member(self.view, id) for id in stood}
            self.disturbed |= {id for id in stood if now[id] != stood[id]}
        self.disturbed &= {id for id, record in self.view.groups.records.items() if record.hosts}
        for id in self.view.groups.records.keys() - self.disturbed:
            check_policy(self.view, id)

    def check_reverts(self) -> None:
        """Whatever has happened: a migration that is in a group can give back what it holds."""
        for id, membership in self.view.groups.memberships.items():
            if membership.stands_for != id:
                verdict = decide(self.view, self.revert(membership.stands_for, id), self.now_s)
                assert not isinstance(verdict, GroupPolicyBroken), f"{id} cannot go back: {verdict}"

    def check_events(self, before: dict[str, object], events: list[Event]) -> None:
        after = self.view.state()
        for event in reversed(events):
            self.view.apply(inverse(event))
        assert self.view.state() == before, "taking the events back does not restore the state"
        for event in events:
            self.view.apply(event)
        assert self.view.state() == after, "doing it again gives something else"
        entry = Entry(ORIGIN, tuple(events))
        decoded = self.decoder.decode(self.encoder.encode(entry))
        assert decoded == entry
        for event in decoded.events:
            self.follower.apply(event)
        assert self.follower.state() == after, "following the events gives something else"
        assert load(dump(self.view)).state() == after, "an image gives something else"
        self.events.extend(decoded.events)

    def teardown(self) -> None:
        replayed = View()
        for event in self.events:
            replayed.apply(event)
        assert replayed.state() == self.view.state(), "replaying all events gives something else"

    # -- the state of the moment, for commands that must know it ----------------------------------

    def generation(self, id: ProviderId) -> int:
        fact = self.oracle.provider(id)
        return fact.generation if fact is not None else 0

    def wanted(self, held: Holdings) -> tuple[Wanted, ...]:
        """Holdings as they are claimed, in another order than they are kept in."""
        name_of = self.view.classes.name_of
        return tuple(
            (provider, tuple((name_of(id), amount) for id, amount in reversed(amounts)))
            for provider, amounts in reversed(held)
        )

    def first_half(self, server: ConsumerId, migration: ConsumerId) -> c.LedgerCommand:
        """What the server holds goes to its migration."""
        held = self.view.consumers[server].held
        return c.ReplaceAllocations(
            (c.Claim(migration, self.wanted(held), "p1", "u1"), c.Claim(server, (), "p1", "u1"))
        )

    def revert(self, server: ConsumerId, migration: ConsumerId) -> c.LedgerCommand:
        held = self.view.consumers[migration].held
        return c.ReplaceAllocations(
            (c.Claim(migration, (), "p1", "u1"), c.Claim(server, self.wanted(held), "p1", "u1"))
        )

    def claims(self, parts: ClaimParts) -> tuple[c.Claim, ...]:
        found = []
        for id, (wanted, lag, (project, user), consumer_type, group) in parts.items():
            fact = self.oracle.consumer(id)
            generation: Any = c.UNCHECKED
            if lag is None:
                generation = None
            elif isinstance(lag, int):
                generation = fact.generation + lag if fact is not None else (lag or None)
            found.append(c.Claim(id, wanted, project, user, generation, consumer_type, group))
        return tuple(found)


# -- walks through busy ledgers -----------------------------------------------------------------------


class Walk:
    """Commands that are mostly granted, so that there is always much to collide with.

    What the machine above draws is small, and mostly refused; what is drawn here looks at the state
    first. A failing walk is found again by its seed.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = LedgerMachine()
        self.machine.carry_out(c.CreateResourceClass("CUSTOM_A"))
        self.machine.carry_out(c.CreateTrait("CUSTOM_FAST"))
        for number, (id, name) in enumerate(zip(PROVIDERS, NAMES, strict=True)):
            parent = self.rng.choice([None, *PROVIDERS[:number]])
            self.machine.carry_out(c.CreateProvider(id, name, parent))
            self.machine.carry_out(c.SetInventories(id, 0, self.inventories()))
            self.machine.carry_out(c.SetAggregates(id, None, tuple(self.rng.sample(AGGREGATES, 2))))
        for aggregate, label in zip(AGGREGATES, self.labels(), strict=True):
            self.machine.carry_out(c.LabelAggregate(aggregate, label))
        for group, domain in zip(GROUPS, [HOST, *KINDS], strict=True):
            self.machine.carry_out(c.CreateGroup(group, self.group(domain), ()))

    def step(self) -> None:
        choices = [
            (30, self.claims),
            (12, self.shrink),
            (6, self.release),
            (10, self.reshape),
            (6, self.furnish),
            (6, self.move),
            (4, self.come_or_go),
            (4, self.label),
            (2, self.rename),
            (12, self.move_server),
            (12, self.regroup),
            (3, self.label_aggregate),
            (1, self.set_host_status),
        ]
        weights, makers = zip(*choices, strict=True)
        self.machine.carry_out(self.rng.choices(makers, weights)[0]())

    def provider(self) -> ProviderId:
        return self.rng.choice(PROVIDERS)

    def generation(self, id: ProviderId) -> int:
        return self.machine.generation(id) + self.rng.choice([0] * 12 + [1])

    def inventory(self) -> Inventory:
        rng = self.rng
        return Inventory(
            total=rng.randint(2, 12),
            reserved=rng.choice([0, 0, 0, 1]),
            min_unit=rng.choice([1, 1, 1, 1, 2]),
            max_unit=rng.choice([12, 12, 12, 3]),
            step_size=rng.choice([1, 1, 1, 1, 2]),
            allocation_ratio=rng.choice([1.0, 1.0, 1.5, 0.5]),
        )

    def inventories(self) -> dict[str, Inventory]:
        return {name: self.inventory() for name in self.class_names() if self.rng.random() < 0.8}

    def class_names(self) -> list[str]:
        return ["VCPU", "MEMORY_MB", *(fact.name for fact in self.machine.oracle.classes)]

    def claim(self, id: ConsumerId) -> c.Claim:
        """Some of what there is, on providers that have it."""
        rng, view = self.rng, self.machine.view
        record = view.consumers.get(id)
        current = record.consumer.generation if record is not None else None
        wanted = []
        having = [r for r in view.providers.values() if r.inventories]
        for host in rng.sample(having, min(len(having), rng.choice([0, 1, 1, 1, 2]))):
            numbers = rng.sample(sorted(host.inventories), rng.randint(1, min(2, len(host.inventories))))
            amounts = tuple((view.classes.name_of(k), rng.choice([1, 1, 2, 2, 3, 4])) for k in numbers)
            wanted.append((host.id, amounts))
        generation: Any = rng.choice([c.UNCHECKED, current, current, current, current, 1])
        project, user = rng.choice(["p1", "p2"]), rng.choice(["u1", "u2"])
        consumer_type = rng.choice([None, None, "INSTANCE"])
        group = rng.choice([None, None, None, *view.groups.records])
        return c.Claim(id, tuple(wanted), project, user, generation, consumer_type, group)

    def claims(self) -> c.LedgerCommand:
        ids = self.rng.sample(CONSUMERS, self.rng.choice([1, 1, 1, 2, 3]))
        return c.ReplaceAllocations(tuple(self.claim(id) for id in ids))

    def move_server(self) -> c.LedgerCommand:
        """One step of a move as Nova makes it: begin, go on, or end."""
        rng, view = self.rng, self.machine.view
        under_way = [
            (membership.stands_for, id)
            for id, membership in view.groups.memberships.items()
            if membership.stands_for != id
        ]
        servers = [id for id in CONSUMERS if id in view.consumers and view.consumers[id].held]
        free = [id for id in MIGRATIONS if id not in view.consumers]
        if servers and free and (not under_way or rng.random() < 0.3):
            return self.machine.first_half(rng.choice(servers), rng.choice(free))
        if not under_way:
            return self.release()
        server, migration = rng.choice(under_way)
        commands: list[c.LedgerCommand] = [
            c.ReplaceAllocations((self.claim(server),)),
            c.ReplaceAllocations((self.claim(server),)),
            self.machine.revert(server, migration),
            c.DeleteAllocations(migration),
            c.ReplaceAllocations((c.Claim(migration, (), "p1", "u1"),)),
        ]
        return rng.choice(commands)

    def group(self, domain: str) -> Group:
        rng = self.rng
        policy = rng.choice(POLICIES[:2] * 4 + POLICIES[2:])
        apart = policy.endswith("anti-affinity")
        most = rng.choice([1, 1, 2, None]) if apart else None
        skew = rng.choice([None, 1, 2]) if apart and domain != HOST else None
        return Group("web", policy, domain, most, skew, "p1", "u1", 0)

    def regroup(self) -> c.LedgerCommand:
        rng, id = self.rng, self.rng.choice(GROUPS)
        fact = self.machine.oracle.group(id)
        ids = CONSUMERS + MIGRATIONS[:1]
        if fact is None:
            domain = rng.choice([HOST, *KINDS])
            return c.CreateGroup(id, self.group(domain), tuple(rng.sample(ids, rng.randint(0, 2))))
        other = self.group(fact.domain)
        commands: list[c.LedgerCommand] = [
            c.ChangeGroup(id, "other", other.policy, other.max_per_domain, other.max_skew),
            c.ChangeGroup(id, max_per_domain=other.max_per_domain),
            c.DeleteGroup(id, rng.random() < 0.5),
            *[
                c.ChangeMembers(
                    id,
                    tuple(rng.sample(ids, rng.randint(0, 3))),
                    tuple(rng.sample(ids, rng.choice([0, 0, 2]))),
                )
                for _ in range(4)
            ],
        ]
        return rng.choice(commands)

    def labels(self) -> list[Label]:
        return [Label(kind, name) for kind in self.rng.sample(KINDS, 2) for name in ("a", "b")]

    def label_aggregate(self) -> c.LedgerCommand:
        rng = self.rng
        return c.LabelAggregate(rng.choice(AGGREGATES), rng.choice([None, None, *self.labels()]))

    def set_host_status(self) -> c.LedgerCommand:
        rng = self.rng
        return c.SetHostStatus(
            self.provider(), HostStatus(rng.random() < 0.5, build_failures=rng.randrange(2))
        )

    def shrink(self) -> c.LedgerCommand:
        """Less inventory than is used, or a smaller claim where it is so."""
        rng, view = self.rng, self.machine.view
        over = [
            (id, provider, k, amount)
            for id, record in view.consumers.items()
            for provider, amounts in record.held
            for k, amount in amounts
            if view.providers[provider].used[k] > view.providers[provider].inventories[k].capacity
        ]
        if over and rng.random() < 0.7:
            id, provider, class_id, amount = rng.choice(over)
            name = view.classes.name_of(class_id)
            wanted = ((provider, ((name, max(1, amount + rng.choice([-2, -1, -1, 0, 1]))),)),)
            return c.ReplaceAllocations((c.Claim(id, wanted, "p1", "u1"),))
        used = [(r.id, k) for r in view.providers.values() for k in r.used] or [(self.provider(), ClassId(0))]
        host, class_id = rng.choice(used)
        few = Inventory(rng.randint(1, 3))
        return c.PutInventory(host, self.generation(host), view.classes.name_of(class_id), few)

    def release(self) -> c.LedgerCommand:
        id = self.rng.choice(CONSUMERS)
        if self.rng.random() < 0.5:
            return c.DeleteAllocations(id)
        return c.ReplaceAllocations((c.Claim(id, (), "p1", "u1"),))

    def reshape(self) -> c.LedgerCommand:
        rng = self.rng
        news = []
        for id in rng.sample(PROVIDERS, rng.choice([0, 1, 1, 2])):
            record = self.machine.view.providers.get(id)
            name_of = self.machine.view.classes.name_of
            keep = {name_of(k): v for k, v in record.inventories.items()} if record is not None else {}
            # Mostly something is added to what there is; sometimes what is used has to go.
            records = rng.choice([{**keep, **self.inventories()}, self.inventories(), {}])
            news.append(c.NewInventories(id, self.generation(id), records))
        ids = rng.sample(CONSUMERS, rng.choice([0, 1, 2]))
        return c.Reshape(tuple(news), tuple(self.claim(id) for id in ids))

    def furnish(self) -> c.LedgerCommand:
        rng, id = self.rng, self.provider()
        name = rng.choice(self.class_names())
        commands: list[c.LedgerCommand] = [
            c.AddInventory(id, name, self.inventory()),
            c.PutInventory(id, self.generation(id), name, self.inventory()),
            c.SetInventories(id, rng.choice([None, self.generation(id)]), self.inventories()),
            c.DeleteInventory(id, name),
        ]
        return rng.choice(commands)

    def move(self) -> c.LedgerCommand:
        id = self.provider()
        fact = self.machine.oracle.provider(id)
        name = fact.name if fact is not None else NAMES[0]
        return c.UpdateProvider(id, name, self.rng.choice([None, *PROVIDERS]), self.rng.random() < 0.8)

    def come_or_go(self) -> c.LedgerCommand:
        rng, id = self.rng, self.provider()
        if self.machine.oracle.provider(id) is not None:
            return c.DeleteProvider(id)
        return c.CreateProvider(id, rng.choice(NAMES), rng.choice([None, *PROVIDERS]))

    def label(self) -> c.LedgerCommand:
        rng, id = self.rng, self.provider()
        generation = rng.choice([None, self.generation(id)])
        commands: list[c.LedgerCommand] = [
            c.SetTraits(id, generation, frozenset(rng.sample(TRAITS[:3], rng.randint(0, 3)))),
            c.SetAggregates(id, generation, tuple(rng.sample(AGGREGATES, rng.randint(0, 3)))),
            c.DeleteTrait("CUSTOM_FAST"),
            c.CreateTrait("CUSTOM_FAST"),
        ]
        return rng.choice(commands)

    def rename(self) -> c.LedgerCommand:
        rng = self.rng
        commands: list[c.LedgerCommand] = [
            c.RenameResourceClass(rng.choice(CLASSES), rng.choice(CLASSES)),
            c.CreateResourceClass(rng.choice(CLASSES)),
            c.DeleteResourceClass(rng.choice(CLASSES)),
            c.UpdateProvider(self.provider(), rng.choice(NAMES)),
        ]
        return rng.choice(commands)


@pytest.mark.parametrize("seed", range(5_000 if SOAK else 80))
def test_a_random_walk_agrees_with_the_oracle(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(150):
        walk.step()
    walk.machine.teardown()


TestLedger = pytest.mark.timeout(3600 if SOAK else 300)(LedgerMachine.TestCase)
TestLedger.settings = settings(
    max_examples=5000 if SOAK else 150,
    stateful_step_count=100 if SOAK else 50,
    derandomize=not SOAK,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

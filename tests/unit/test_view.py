"""The parts of a view that keep things twice for speed, against the plain things they stand for."""

import random
import uuid
from typing import Final

import pytest
from msgspec import UNSET

from berth.model.clusters import Cluster
from berth.model.events import (
    AggregateLabelled,
    AggregatesChanged,
    ConsumerChanged,
    Event,
    GroupChanged,
    HostChanged,
    InventoryChanged,
    MemberChanged,
    Named,
    Placed,
    ProviderChanged,
    ResourceClassChanged,
    TraitsChanged,
    inverse,
)
from berth.model.groups import HOST, Group, Membership
from berth.model.ids import AggregateId, ClassId, ConsumerId, GroupId, ProviderId, Row
from berth.model.placement import SHARES_VIA_AGGREGATE, Consumer, Holdings, HostStatus, Inventory, Label
from berth.view import View, consumers, sets
from berth.view.consumers import ConsumerFilter, ConsumerIndex
from berth.view.records import Records
from berth.view.resource_classes import Column
from berth.view.sets import OrderedIds, RowSet

ROWS: Final = 80


def some_inventory(rng: random.Random) -> Inventory:
    return Inventory(
        total=rng.randint(1, 40),
        reserved=rng.choice([0, 0, 5]),
        min_unit=rng.choice([1, 1, 3]),
        max_unit=rng.choice([4, 40]),
        step_size=rng.choice([1, 1, 1, 2, 5]),
        allocation_ratio=rng.choice([1.0, 1.5, 16.0, 3.4e38]),
    )


class PlainColumn:
    """What a column is: inventories and what is used of them, by row."""

    def __init__(self) -> None:
        self.inventories: dict[Row, Inventory] = {}
        self.used: dict[Row, int] = {}

    def fitting(self, amount: int) -> list[Row]:
        return sorted(
            row
            for row, inventory in self.inventories.items()
            if inventory.min_unit <= amount <= inventory.max_unit
            and amount % inventory.step_size == 0
            and self.used[row] + amount <= inventory.capacity
        )

    def sums(self) -> tuple[int, int, int]:
        capacities = {row: max(-(2**62), min(it.capacity, 2**62)) for row, it in self.inventories.items()}
        free = sum(max(capacity - self.used[row], 0) for row, capacity in capacities.items())
        return sum(capacities.values()), sum(self.used.values()), free


@pytest.mark.parametrize("seed", range(20))
def test_a_column_agrees_with_a_plain_list(seed: int) -> None:
    rng = random.Random(seed)
    column, plain = Column(), PlainColumn()
    for _ in range(600):
        row = Row(rng.randrange(ROWS))
        do = rng.random()
        if do < 0.4:
            inventory = some_inventory(rng)
            used = plain.used.setdefault(row, rng.choice([0, 0, 7, 60]))
            plain.inventories[row] = inventory
            column.put(row, inventory, used)
        elif row in plain.inventories and do < 0.6:
            del plain.inventories[row], plain.used[row]
            column.remove(row)
        elif row in plain.inventories:
            amount = rng.randint(-plain.used[row], 5)
            plain.used[row] += amount
            column.take(row, amount)
        assert len(column) == len(plain.inventories)
        asked = rng.randint(1, 12)
        assert sorted(column.fitting(asked).tolist()) == plain.fitting(asked)
        assert sorted(column.rows().tolist()) == sorted(plain.inventories)
        assert sorted(column.rows_in_use().tolist()) == sorted(
            row for row, used in plain.used.items() if used
        )
        assert column.sums() == plain.sums()
    assert list(column.by_row()) == sorted(plain.inventories)


def test_a_column_without_steps_after_one_with_steps() -> None:
    """Counting odd steps must survive the slot that moves into a gap."""
    column = Column()
    column.put(Row(0), Inventory(10, step_size=5), 0)
    column.put(Row(1), Inventory(10), 0)
    column.put(Row(2), Inventory(10, step_size=2), 0)
    assert sorted(column.fitting(4).tolist()) == [1, 2]
    column.remove(Row(0))
    assert sorted(column.fitting(3).tolist()) == [1]
    column.put(Row(2), Inventory(10), 0)
    assert sorted(column.fitting(3).tolist()) == [1, 2]


def test_a_vast_capacity_is_no_overflow() -> None:
    column = Column()
    vast = Inventory(2**31 - 1, allocation_ratio=3.40282e38)
    column.put(Row(0), vast, 0)
    column.take(Row(0), 2**31 - 1)
    assert column.fitting(2**31 - 1).tolist() == [0]
    column.take(Row(0), -(2**31 - 1))
    fresh = Column()
    fresh.put(Row(0), vast, 0)
    assert column.by_row() == fresh.by_row()


@pytest.mark.parametrize("seed", range(20))
def test_a_row_set_agrees_with_a_set_while_the_fleet_grows(seed: int) -> None:
    rng = random.Random(seed)
    rows, plain = RowSet(), set[Row]()
    size = 1
    for _ in range(800):
        do = rng.random()
        row = Row(rng.randrange(size))
        if do < 0.35:
            rows.add(row)
            plain.add(row)
        elif do < 0.6:
            rows.discard(row)
            plain.discard(row)
        elif do < 0.75:
            size += rng.choice([1, 1, 1, 40])
        else:
            mask = rows.mask(size)
            assert len(mask) == size
            assert set(mask.nonzero()[0].tolist()) == plain
        assert set(rows) == plain
        assert len(rows) == len(plain)
        assert sorted(rows.rows().tolist()) == sorted(plain)
        assert (row in rows) == (row in plain)


# -- providers ----------------------------------------------------------------------------------------


def provider(number: int) -> ProviderId:
    return ProviderId(f"00000000-0000-0000-0000-{number:012}")


def grown(view: View, count: int, parents: dict[int, int] | None = None) -> None:
    for number in range(count):
        parent = (parents or {}).get(number)
        placed = Placed(f"host-{number}", provider(parent) if parent is not None else None)
        view.apply(ProviderChanged(provider(number), view.free_row(), None, placed))


def test_rows_that_come_free_are_taken_again_smallest_first() -> None:
    view = View()
    grown(view, 40)
    for number in (30, 7, 12):
        placed = Placed(f"host-{number}", None)
        view.apply(ProviderChanged(provider(number), Row(number), placed, None))
    taken = []
    for number in range(100, 104):
        taken.append(view.free_row())
        view.apply(ProviderChanged(provider(number), taken[-1], None, Placed(f"new-{number}", None)))
    assert taken == [7, 12, 30, 40]


def test_rows_that_a_view_has_skipped_are_free() -> None:
    """As when it is made from an image of one whose providers have partly gone."""
    view = View()
    for number in (3, 1):
        view.apply(ProviderChanged(provider(number), Row(number), None, Placed(f"host-{number}", None)))
    taken = []
    for number in range(10, 13):
        taken.append(view.free_row())
        view.apply(ProviderChanged(provider(number), taken[-1], None, Placed(f"new-{number}", None)))
    assert taken == [0, 2, 4]


def test_a_moved_subtree_brings_all_its_roots_along() -> None:
    view = View()
    grown(view, 6, {1: 0, 2: 1, 4: 3, 5: 4})
    trees = [[r.id for r in view.providers[provider(n)].tree()] for n in (0, 3)]
    assert trees == [[provider(n) for n in (0, 1, 2)], [provider(n) for n in (3, 4, 5)]]
    move = ProviderChanged(provider(1), Row(1), Placed("host-1", provider(0)), Placed("host-1", provider(5)))
    before = view.state()
    view.apply(move)
    assert view.root_rows.tolist() == [0, 3, 3, 3, 3, 3]
    assert [r.id for r in view.providers[provider(2)].tree()] == [provider(n) for n in (3, 4, 5, 1, 2)]
    assert [r.id for r in view.providers[provider(0)].tree()] == [provider(0)]
    view.apply(inverse(move))
    assert view.state() == before


def test_a_change_of_a_tree_changes_the_revision_of_its_root() -> None:
    """Names, places, inventories, usages and traits are in every rendering of a provider."""
    view = View()
    grown(view, 4, {1: 0, 2: 1})
    moved = ProviderChanged(provider(1), Row(1), Placed("host-1", provider(0)), Placed("host-1", provider(3)))
    freed = ProviderChanged(provider(1), Row(1), Placed("host-1", provider(3)), Placed("host-1", None))
    changes: list[tuple[Event, tuple[int, ...]]] = [
        (ProviderChanged(provider(0), Row(0), Placed("host-0", None), Placed("other", None)), (0,)),
        (InventoryChanged(provider(1), ClassId(0), None, Inventory(4)), (0,)),
        (TraitsChanged(provider(2), (), ("HW_CPU_X86_AVX",)), (0,)),
        (moved, (0, 3)),
        (TraitsChanged(provider(2), ("HW_CPU_X86_AVX",), ()), (3,)),
        (freed, (1, 3)),
        (inverse(freed), (3,)),
    ]
    for change, concerned in changes:
        revisions = {n: view.providers[provider(n)].revision for n in range(4)}
        view.apply(change)
        for number in concerned:
            assert view.providers[provider(number)].revision != revisions[number], (change, number)


def test_a_renamed_class_changes_the_revision_of_the_classes() -> None:
    """It is in the rendering of every provider that has it, and no provider has changed."""
    view = View()
    made = ResourceClassChanged(ClassId(10000), None, Named("CUSTOM_A", 1))
    renamed = ResourceClassChanged(ClassId(10000), Named("CUSTOM_A", 1), Named("CUSTOM_B", 1))
    revisions = [view.classes.revision]
    for event in (made, renamed, inverse(renamed)):
        view.apply(event)
        revisions.append(view.classes.revision)
    assert len(set(revisions)) == 4


def test_aggregates_come_and_go() -> None:
    view = View()
    grown(view, 2)
    rack, zone = AggregateId("rack"), AggregateId("zone")
    view.apply(AggregatesChanged(provider(0), (), (rack, zone)))
    view.apply(AggregatesChanged(provider(1), (), (rack,)))
    assert set(view.rows_in_aggregate(rack)) == {0, 1}
    view.apply(AggregatesChanged(provider(0), (rack, zone), (zone,)))
    assert set(view.rows_in_aggregate(rack)) == {1}
    view.apply(AggregatesChanged(provider(1), (rack,), ()))
    assert not view.rows_in_aggregate(rack)
    assert set(view.rows_in_aggregate(zone)) == {0}


# -- hosts, aggregates and groups ---------------------------------------------------------------------

S1, S2, MIGRATION = (ConsumerId(name) for name in ("s1", "s2", "migration"))
GROUP = GroupId("group")
APART = Group("web", "anti-affinity", HOST, 1, None, "p", "u", 0)


def test_labels_make_domains_of_aggregates() -> None:
    view = View()
    grown(view, 2)
    groups = view.groups
    first, second = AggregateId("first"), AggregateId("second")
    view.apply(AggregatesChanged(provider(0), (), (first, second)))
    rack = Label("rack", "north", (("ssd", "true"),))
    events = [
        AggregateLabelled(first, None, rack),
        AggregateLabelled(second, None, Label("rack", "south")),
        AggregateLabelled(second, Label("rack", "south"), Label("zone", None)),
        AggregateLabelled(first, rack, None),
    ]
    host, other = view.providers[provider(0)], view.providers[provider(1)]
    seen = []
    for event in events:
        view.apply(event)
        seen.append((list(groups.of_kind("rack")), groups.domains_of(host, "rack"), groups.has_kind("zone")))
    assert seen == [
        ([first], (first,), False),
        ([first, second], (first, second), False),
        ([first], (first,), True),
        ([], (), True),
    ]
    assert groups.has_kind(HOST)
    assert not groups.has_kind("rack")
    assert groups.domains_of(host, HOST) == (provider(0),)
    assert groups.domains_of(other, "zone") == ()
    for event in reversed(events):
        view.apply(inverse(event))
    assert groups.labels == {}
    assert not groups.has_kind("zone")


def test_a_domain_goes_by_its_name_or_that_of_its_host_or_its_uuid() -> None:
    view = View()
    grown(view, 1)
    hosts = list(view.providers.values())
    view.apply(AggregateLabelled(AggregateId("named"), None, Label("rack", "north")))
    view.apply(AggregateLabelled(AggregateId("unnamed"), None, Label("rack", None)))
    named = [view.groups.domain_name(domain, hosts) for domain in ("named", "unnamed", provider(0))]
    assert named == ["north", "unnamed", "host-0"]


def test_the_status_of_a_host_is_found_in_masks() -> None:
    view = View()
    grown(view, 3)
    before = view.state()
    disabled, down = HostStatus(disabled=True, reason="repair"), HostStatus(down=True, build_failures=2)
    events = [
        HostChanged(provider(1), None, disabled),
        HostChanged(provider(2), None, down),
        HostChanged(provider(1), disabled, down),
        HostChanged(provider(2), down, None),
    ]
    seen = []
    for event in events:
        view.apply(event)
        seen.append((set(view.disabled), set(view.down)))
    assert seen == [({1}, set()), ({1}, {2}), (set(), {1, 2}), (set(), {1})]
    assert view.hosts == {provider(1): down}
    for event in reversed(events):
        view.apply(inverse(event))
    assert view.state() == before


def held(*numbers: int) -> Holdings:
    return tuple((provider(number), ((ClassId(0), 1),)) for number in numbers)


def come(id: ConsumerId, where: Holdings) -> Event:
    return ConsumerChanged(id, None, Consumer(1, "p", "u", None, 0, 0), (), where)


def with_servers(parents: dict[int, int], **where: Holdings) -> View:
    """Four providers with something to hold, and consumers in a group that hold it."""
    view = View()
    grown(view, 4, parents)
    for number in range(4):
        view.apply(InventoryChanged(provider(number), ClassId(0), None, Inventory(9)))
    view.apply(GroupChanged(GROUP, None, APART))
    for name, holdings in where.items():
        view.apply(come(ConsumerId(name), holdings))
        view.apply(MemberChanged(ConsumerId(name), None, Membership(GROUP, ConsumerId(name))))
    return view


def members_by_provider(view: View) -> dict[ProviderId, dict[ConsumerId, int]]:
    return {host.id: who for host, who in view.groups.records[GROUP].hosts.items()}


def test_members_stand_on_the_hosts_of_what_they_hold_before_and_after_they_join() -> None:
    view = with_servers({1: 0}, s1=held(1))
    view.apply(MemberChanged(S2, None, Membership(GROUP, S2)))
    assert members_by_provider(view) == {provider(0): {S1: 1}}
    view.apply(come(S2, held(2, 3)))
    assert members_by_provider(view) == {provider(0): {S1: 1}, provider(2): {S2: 1}, provider(3): {S2: 1}}
    before = view.state()
    leaves = MemberChanged(S2, Membership(GROUP, S2), None)
    view.apply(leaves)
    assert members_by_provider(view) == {provider(0): {S1: 1}}
    view.apply(inverse(leaves))
    assert view.state() == before


def test_a_server_and_its_migration_are_one_through_two() -> None:
    view = with_servers({}, s1=held(0))
    view.apply(come(MIGRATION, held(0, 1)))
    view.apply(MemberChanged(MIGRATION, None, Membership(GROUP, S1)))
    assert members_by_provider(view) == {provider(0): {S1: 2}, provider(1): {S1: 1}}
    assert view.groups.records[GROUP].members == {S1: S1, MIGRATION: S1}
    gone: list[Event] = [
        ConsumerChanged(MIGRATION, Consumer(1, "p", "u", None, 0, 0), None, held(0, 1), ()),
        MemberChanged(MIGRATION, Membership(GROUP, S1), None),
    ]
    before = view.state()
    for event in gone:
        view.apply(event)
    assert members_by_provider(view) == {provider(0): {S1: 1}}
    for event in reversed(gone):
        view.apply(inverse(event))
    assert view.state() == before


def test_members_move_with_their_hosts() -> None:
    """A tree becomes part of another; a provider begins to share, and lends then."""
    view = with_servers({1: 0}, s1=held(1), s2=held(2, 3))
    shares = TraitsChanged(provider(3), (), (SHARES_VIA_AGGREGATE,))
    nested = ProviderChanged(provider(0), Row(0), Placed("host-0", None), Placed("host-0", provider(2)))
    before = view.state()
    view.apply(shares)
    assert members_by_provider(view) == {provider(0): {S1: 1}, provider(2): {S2: 1}}
    view.apply(nested)
    assert members_by_provider(view) == {provider(2): {S1: 1, S2: 1}}
    view.apply(inverse(nested))
    view.apply(inverse(shares))
    assert view.state() == before


def test_members_are_counted_by_domain() -> None:
    view = with_servers({}, s1=held(0), s2=held(1))
    rack = AggregateId("rack")
    view.apply(AggregateLabelled(rack, None, Label("rack", None)))
    for number in (0, 1):
        view.apply(AggregatesChanged(provider(number), (), (rack,)))
    hosts = view.groups.records[GROUP].hosts
    assert view.groups.by_domain("rack", hosts) == {rack: {S1: 1, S2: 1}}
    assert view.groups.by_domain(HOST, hosts) == {provider(0): {S1: 1}, provider(1): {S2: 1}}
    assert view.groups.by_domain("zone", hosts) == {}


# -- what is kept in order ----------------------------------------------------------------------------


def some_id(rng: random.Random, *, spread: bool) -> ConsumerId:
    """All over the place, as most are, or of a narrow range."""
    return ConsumerId(str(uuid.UUID(int=rng.getrandbits(128) if spread else rng.randrange(300))))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that are divided and emptied all the time."""
    for module in (sets, consumers):
        monkeypatch.setattr(module, "BLOCK_MAX", 8)
        monkeypatch.setattr(module, "_BLOCK_FIRST", 4)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(10))
def test_ordered_ids_agree_with_a_sorted_list(seed: int) -> None:
    rng = random.Random(seed)
    plain = {some_id(rng, spread=seed % 2 == 0) for _ in range(rng.choice([0, 1, 50]))}
    ids = OrderedIds(plain)
    for step in range(600):
        # First more come than go, then fewer.
        if plain and rng.random() < (0.3 if step < 300 else 0.7):
            gone = rng.choice(sorted(plain))
            plain.remove(gone)
            ids.remove(gone)
        elif (new := some_id(rng, spread=seed % 2 == 0)) not in plain:
            plain.add(new)
            ids.add(new)
        assert list(ids) == sorted(plain)
        marker = some_id(rng, spread=seed % 2 == 0)
        assert list(ids.behind(marker)) == sorted(id for id in plain if id > marker)


def some_consumer(rng: random.Random) -> Consumer:
    return Consumer(1, rng.choice("pqr"), rng.choice("uv"), rng.choice(["INSTANCE", "MIGRATION", None]), 0, 0)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(20))
def test_the_roll_agrees_with_a_look_at_everybody(seed: int) -> None:
    rng = random.Random(seed)
    view, done = View(), list[ConsumerChanged]()
    for step in range(500):
        id = some_id(rng, spread=seed % 2 == 0)
        if view.consumers and rng.random() < 0.7:
            id = rng.choice(list(view.consumers))
        record = view.consumers.get(id)
        before = None if record is None else record.consumer
        goes = before is not None and rng.random() < (0.3 if step < 250 else 0.9)
        event = ConsumerChanged(id, before, None if goes else some_consumer(rng), (), ())
        view.apply(event)
        done.append(event)
        if rng.random() < 0.1:
            for _ in range(min(len(done), rng.randint(1, 20))):
                view.apply(inverse(done.pop()))
        assert_roll_is_right(view, rng, spread=seed % 2 == 0)
        # What is out of date is never much more than what is not.
        assert len(view.consumer_index) <= 2 * len(view.consumers) + 9
    while done:
        view.apply(inverse(done.pop()))
    assert view.state() == View().state()


def assert_roll_is_right(view: View, rng: random.Random, *, spread: bool) -> None:
    whose = ConsumerFilter(
        rng.choice([None, "p", "q"]),
        rng.choice([None, "u"]),
        rng.choice([UNSET, UNSET, None, "INSTANCE", "X"]),
    )
    marker = rng.choice([None, some_id(rng, spread=spread)])
    expected = [
        id
        for id, record in sorted(view.consumers.items())
        if (marker is None or id > marker)
        and whose.project in (None, record.consumer.project)
        and whose.user in (None, record.consumer.user)
        and (whose.type is UNSET or whose.type == record.consumer.type)
    ]
    assert list(view.consumer_index.behind(marker, whose)) == expected
    assert list(ConsumerIndex(view.consumers).behind(marker, whose)) == expected


# -- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_records_are_found_under_the_keys_that_they_have_now(seed: int) -> None:
    rng = random.Random(seed)
    records, done = Records(), list[tuple[Cluster | None, Cluster | None]]()
    plain: dict[str, Cluster] = {}
    for _ in range(300):
        if done and rng.random() < 0.3:
            after, before = done.pop()
        else:
            before = plain.get(id := str(rng.randrange(8)))
            groups = tuple(rng.sample("abc", rng.randint(0, 3)))
            fresh = Cluster(id=id, name=rng.choice("xy"), project="p", user="u", groups=groups)
            after = None if before is not None and rng.random() < 0.2 else fresh
            done.append((before, after))
        records.change(before, after)
        if after is not None:
            plain[after.id] = after
        elif before is not None:
            del plain[before.id]
        for group in "abc":
            found = {cluster.id for cluster in records.find(Cluster, "group", group)}
            assert found == {cluster.id for cluster in plain.values() if group in cluster.groups}
        for name in "xy":
            found = {cluster.id for cluster in records.find(Cluster, "name", name)}
            assert found == {cluster.id for cluster in plain.values() if cluster.name == name}

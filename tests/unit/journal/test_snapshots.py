"""Images of the view: whole, stored, damaged, and a start that gets by with what is left."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from berth.engine import replay, start_view
from berth.engine.snapshots import apply_batch
from berth.journal import DamagedSnapshot, Journal, JournalError, Snapshots, SqliteAddress, open_journal
from berth.journal.schema import SNAPSHOT, SNAPSHOT_PART
from berth.ledger import decide
from berth.model import commands as c
from berth.model.events import Batch, Entry, Origin
from berth.model.groups import Group
from berth.model.ids import AggregateId, ConsumerId, GroupId, Index, ProviderId
from berth.model.placement import HostStatus, Inventory, Label
from berth.view import View
from berth.view.snapshot import SnapshotInvalid, dump, load

ORIGIN = Origin("req-1", "u", "p", "test")
GROUPS = (
    Group("apart", "anti-affinity", "host", 3, None, "p", "u", 0),
    Group("near", "soft-affinity", "rack", None, None, "p", "u", 0),
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = open_journal(SqliteAddress(tmp_path / "berth.db"), shared=False)
    yield journal
    journal.close()


def random_commands(seed: int, count: int) -> Iterator[c.Command]:
    rng = random.Random(seed)
    providers = [ProviderId(f"p{n}") for n in range(12)]
    yield c.CreateResourceClass("CUSTOM_A")
    yield c.CreateTrait("CUSTOM_T")
    for n, provider in enumerate(providers):
        yield c.CreateProvider(provider, f"host-{n}", providers[n // 3] if n % 3 else None)
    yield c.LabelAggregate(AggregateId("a0"), Label("rack", "north", (("ssd", "true"),)))
    for n, group in enumerate(GROUPS):
        yield c.CreateGroup(GroupId(f"g{n}"), group, tuple(ConsumerId(f"c{m}") for m in range(n, 30, 3)))
    for _ in range(count):
        provider = rng.choice(providers)
        match rng.randrange(10):
            case 0:
                inventories = {name: Inventory(rng.randint(5, 50)) for name in ("VCPU", "CUSTOM_A")}
                yield c.SetInventories(provider, None, inventories)
            case 1:
                names = rng.sample(
                    ["CUSTOM_T", "HW_CPU_X86_AVX", "MISC_SHARES_VIA_AGGREGATE"], rng.randint(0, 3)
                )
                yield c.SetTraits(provider, None, frozenset(names))
            case 2:
                yield c.SetAggregates(
                    provider, None, tuple(AggregateId(f"a{n}") for n in range(rng.randint(0, 3)))
                )
            case 3:
                yield c.DeleteAllocations(ConsumerId(f"c{rng.randrange(30)}"))
            case 4:
                yield c.UpdateProvider(provider, f"renamed-{rng.randrange(99)}", may_reparent=True)
            case 5:
                yield c.DeleteProvider(provider)
                yield c.CreateProvider(provider, f"again-{rng.randrange(99)}")
                yield c.SetHostStatus(
                    provider, HostStatus(rng.random() < 0.5, build_failures=rng.randrange(2))
                )
            case 6:
                yield c.LabelAggregate(
                    AggregateId("a1"), rng.choice([None, Label(None, None), Label("rack", None)])
                )
                id = GroupId(f"g{rng.randrange(2)}")
                yield c.ChangeMembers(id, (ConsumerId(f"c{rng.randrange(30)}"),))
                yield c.ChangeMembers(id, remove=(ConsumerId(f"c{rng.randrange(30)}"),))
            case _:
                wanted = (("VCPU", rng.randint(1, 3)), ("CUSTOM_A", 1))[: rng.randint(1, 2)]
                owner = f"project-{rng.randrange(3)}"
                kind = rng.choice([None, "INSTANCE"])
                claim = c.Claim(
                    ConsumerId(f"c{rng.randrange(30)}"), ((provider, wanted),), owner, "u", consumer_type=kind
                )
                yield c.ReplaceAllocations((claim,))


def write(journal: Journal, view: View, seed: int = 0, count: int = 300) -> None:
    """Carry out what is accepted, a batch each."""
    for number, command in enumerate(random_commands(seed, count)):
        verdict = decide(view, command, number)
        if isinstance(verdict, list) and verdict:
            batch = Batch(
                Index(view.index + 1), f"b{seed}-{number}", number, (Entry(ORIGIN, tuple(verdict)),)
            )
            journal.append(batch)
            apply_batch(view, batch)


def carry_out(view: View, *commands: c.Command) -> None:
    for command in commands:
        verdict = decide(view, command, 7)
        assert isinstance(verdict, list)
        for event in verdict:
            view.apply(event)


def take(journal: Journal, view: View) -> None:
    Snapshots(journal).write(view.index, view.format, 0, dump(view))


@pytest.mark.parametrize("seed", range(20))
def test_an_image_is_the_view(journal: Journal, seed: int) -> None:
    view = View()
    write(journal, view, seed)
    assert len(view.consumers) > 3
    copy = load(dump(view))
    assert copy.state() == view.state()
    assert copy.index == view.index
    # It goes on like the original, also where values are shared.
    write(journal, view, seed + 1000, 100)
    replay(journal, copy)
    assert copy.state() == view.state()


def test_an_image_has_what_is_known_of_hosts_aggregates_and_groups() -> None:
    view = View()
    host, server, migration, group = ProviderId("p"), ConsumerId("c"), ConsumerId("m"), GroupId("g")
    rule = Group("web", "anti-affinity", "rack", 1, 2, "p", "u", 0)
    label = Label("rack", "north", (("ssd", "true"),))
    status = HostStatus(True, True, 3, "smoke")
    held = ((host, (("VCPU", 1),)),)
    carry_out(
        view,
        c.CreateProvider(host, "host"),
        c.SetInventories(host, None, {"VCPU": Inventory(4)}),
        c.SetAggregates(host, None, (AggregateId("a"),)),
        c.LabelAggregate(AggregateId("a"), label),
        c.SetHostStatus(host, status),
        c.CreateGroup(group, rule, (ConsumerId("not there"),)),
        c.ReplaceAllocations((c.Claim(server, held, "p", "u", group=group),)),
        c.ReplaceAllocations((c.Claim(migration, held, "p", "u"), c.Claim(server, (), "p", "u"))),
    )
    copy = load(dump(view))
    assert copy.state() == view.state()
    assert copy.hosts == {host: status}
    assert copy.groups.labels == {AggregateId("a"): label}
    record = copy.groups.records[group]
    assert record.group == Group("web", "anti-affinity", "rack", 1, 2, "p", "u", 7)
    assert record.members == {ConsumerId("not there"): "not there", server: server, migration: server}
    assert record.hosts == {copy.providers[host]: {server: 1}}


def test_an_image_from_before_there_were_groups_is_read() -> None:
    view = View()
    *older, facts = dump(view)
    assert b"facts" in facts
    assert load(older).state() == view.state()


def test_rows_that_have_come_free_are_free_in_an_image() -> None:
    view = View()
    carry_out(view, *(c.CreateProvider(ProviderId(f"p{n}"), f"host-{n}") for n in range(4)))
    carry_out(view, c.DeleteProvider(ProviderId("p1")))
    assert load(dump(view)).free_row() == view.free_row() == 1


def test_equal_values_are_one_in_memory(journal: Journal) -> None:
    view = View()
    write(journal, view)
    for one in (view, load(dump(view))):
        held = {amounts: amounts for record in one.consumers.values() for _, amounts in record.held}
        assert all(amounts is held[amounts] for r in one.consumers.values() for _, amounts in r.held)
        assert all(id is one.providers[id].id for r in one.consumers.values() for id, _ in r.held)


def test_bytes_that_are_no_image_are_refused() -> None:
    with pytest.raises(SnapshotInvalid, match="cannot be read"):
        load([b"nonsense"])


def test_a_start_reads_the_snapshot_and_what_is_behind_it(journal: Journal) -> None:
    view = View()
    write(journal, view, 1)
    take(journal, view)
    write(journal, view, 2, 50)
    journal.prune(Index(view.index - 60))
    assert start_view(journal).state() == view.state()


def test_a_pruned_journal_without_a_snapshot_cannot_be_started(journal: Journal) -> None:
    view = View()
    write(journal, view)
    journal.prune(Index(5))
    with pytest.raises(JournalError, match="restore the database from a backup"):
        start_view(journal)


def two_snapshots(journal: Journal) -> View:
    view = View()
    for seed in (1, 2):
        write(journal, view, seed, 80)
        take(journal, view)
    return view


@pytest.mark.parametrize(
    "damage",
    [
        sa.update(SNAPSHOT_PART).values(body=b"x").where(SNAPSHOT_PART.c.part == 2),
        sa.delete(SNAPSHOT_PART).where(SNAPSHOT_PART.c.part == 1),
        sa.update(SNAPSHOT).values(format=99),
    ],
    ids=["changed", "part missing", "another format"],
)
def test_a_damaged_snapshot_is_passed_over(
    journal: Journal, damage: sa.Update | sa.Delete, caplog: pytest.LogCaptureFixture
) -> None:
    view = two_snapshots(journal)
    newest, older = Snapshots(journal).all()
    table = damage.table
    assert isinstance(table, sa.Table)
    journal.execute(damage.where(table.c.idx == newest.index))
    assert start_view(journal).state() == view.state()
    assert f"snapshot {newest.index}" in caplog.text
    assert f"snapshot {older.index}" not in caplog.text


def test_an_unfinished_snapshot_is_not_found_and_not_in_the_way(journal: Journal) -> None:
    view = two_snapshots(journal)
    write(journal, view, 3, 20)

    def interrupted() -> Iterator[bytes]:
        yield next(dump(view))
        raise KeyboardInterrupt

    snapshots = Snapshots(journal)
    with pytest.raises(KeyboardInterrupt):
        snapshots.write(view.index, view.format, 0, interrupted())
    assert [snapshot.index for snapshot in snapshots.all()] != [view.index]
    assert start_view(journal).state() == view.state()
    take(journal, view)
    assert snapshots.all()[0].index == view.index
    assert load(snapshots.read(snapshots.all()[0])).state() == view.state()


def test_a_damaged_part_is_found_while_reading(journal: Journal) -> None:
    two_snapshots(journal)
    snapshots = Snapshots(journal)
    newest = snapshots.all()[0]
    journal.execute(sa.update(SNAPSHOT_PART).values(checksum="0"))
    with pytest.raises(DamagedSnapshot, match=f"part 1 of snapshot {newest.index}"):
        list(snapshots.read(newest))


def test_only_the_newest_are_kept(journal: Journal) -> None:
    view = View()
    for seed in range(4):
        write(journal, view, seed, 30)
        take(journal, view)
    snapshots = Snapshots(journal)
    before = [snapshot.index for snapshot in snapshots.all()]
    snapshots.drop_old()
    assert [snapshot.index for snapshot in snapshots.all()] == before[:2]
    parts = journal.execute(sa.select(SNAPSHOT_PART.c.idx).distinct()).scalars().all()
    assert set(parts) == set(before[:2])

"""The journal does the same in every database: what its users rely on, on real servers."""

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from berth.engine import replay, start_view
from berth.engine.snapshots import problems
from berth.journal import (
    Address,
    AttachedProgram,
    Conflict,
    Journal,
    JournalError,
    JournalFailure,
    Programs,
    Pruned,
    RowRefused,
    Snapshots,
    connect,
    open_journal,
    parse_address,
)
from berth.journal.schema import JOURNAL, VERSION
from berth.model.events import Batch, Entry, Origin, Placed, ProviderChanged, ProviderStamped, Stamp
from berth.model.formats import FORMAT, THIS_PROGRAM, Program
from berth.model.ids import Index, ProviderId, Row
from berth.view import View
from berth.view.snapshot import dump
from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.databases.statements import execute

ORIGIN = Origin("req-1", "u", "p", "test")
START = Index(0)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb", "galera"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'berth.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def address(url: str) -> Address:
    return parse_address(url)


@pytest.fixture
def journal(address: Address) -> Iterator[Journal]:
    journal = open_journal(address, shared=True)
    yield journal
    journal.close()


def batch(index: int, id: str = "", size: int = 1) -> Batch:
    """A provider of its own for every index, with a name of some length."""
    provider, name = ProviderId(f"p{index}"), f"host-{index}-" + "é" * size
    events = (
        ProviderChanged(provider, Row(index - 1), None, Placed(name, None)),
        ProviderStamped(provider, Stamp(0, 0, 0), Stamp(0, 5, 5)),
    )
    return Batch(Index(index), id or f"batch-{index}", index * 1_000_000_007, (Entry(ORIGIN, events),))


def test_what_is_appended_is_read_in_order(journal: Journal) -> None:
    batches = [batch(number) for number in range(1, 6)]
    for one in batches:
        journal.append(one)
    assert list(journal.read(START)) == batches
    assert list(journal.read(Index(3))) == batches[3:]
    assert list(journal.read(START, 2)) == batches[:2]
    assert journal.tail() == 5


def test_a_format_is_raised_while_another_writes(journal: Journal, address: Address) -> None:
    journal.append(batch(1))
    other = open_journal(address, shared=True)
    assert (journal.format(), other.raise_format(ORIGIN, "raise", 2).format) == (1, 1)
    with pytest.raises(Conflict):
        journal.append(batch(2, "late"))
    assert journal.signature() == (FORMAT, THIS_PROGRAM.version)
    assert [one.format for one in journal.read(START)] == [1, FORMAT]
    other.close()


def test_programs_are_listed_while_they_say_so(journal: Journal) -> None:
    programs, later_ns = Programs(journal), 10**18
    for seen_at_ns in (later_ns, later_ns + 1):
        programs.announce(AttachedProgram("1", THIS_PROGRAM, "worker 1", "machine-é pid 7", seen_at_ns))
    old = AttachedProgram("2", Program("0.1.9", 1), "conductor of cell1", "machine-b pid 8", later_ns)
    programs.announce(old)
    assert [(one.id, one.seen_at_ns) for one in programs.attached(later_ns)] == [
        ("2", later_ns),
        ("1", later_ns + 1),
    ]
    assert programs.attached(later_ns)[0] == old
    programs.withdraw("2")
    assert [one.id for one in programs.attached(later_ns)] == ["1"]
    assert programs.attached(later_ns + 121 * 10**9) == []


def test_an_index_is_given_once(journal: Journal, address: Address) -> None:
    other = open_journal(address, shared=True)
    journal.append(batch(1, "mine"))
    with pytest.raises(Conflict):
        other.append(batch(1, "theirs"))
    assert [one.id for one in other.read(START)] == ["mine"]
    other.append(batch(2, "next"))
    assert [one.id for one in journal.read(START)] == ["mine", "next"]
    other.close()


def test_an_index_that_was_pruned_is_not_given_again(journal: Journal) -> None:
    """To a worker that has slept through it."""
    for index in range(1, 6):
        journal.append(batch(index))
    journal.prune(Index(3))
    for index in (2, 3, 4, 5):
        with pytest.raises(Conflict):
            journal.append(batch(index, "late"))
    journal.append(batch(6))
    assert [one.index for one in journal.read(Index(3))] == [4, 5, 6]
    with pytest.raises(Pruned):
        list(journal.read(Index(1)))


def test_a_batch_may_be_megabytes(journal: Journal) -> None:
    large = batch(1, size=3 << 20)
    journal.append(large)
    assert list(journal.read(START)) == [large]


def test_a_batch_larger_than_mariadb_takes_is_refused_and_not_written(
    mariadb: MariaDB, mariadb_url: str
) -> None:
    [(before,)] = execute(mariadb.admin_url, "SELECT @@GLOBAL.max_allowed_packet")
    execute(mariadb.admin_url, f"SET GLOBAL max_allowed_packet = {1 << 20}")
    try:
        journal = open_journal(parse_address(mariadb_url), shared=True)
        for size in (1 << 20, 6 << 20):
            with pytest.raises(RowRefused):
                journal.append(batch(1, size=size))
        journal.append(batch(1, "small"))
        assert [one.id for one in journal.read(START)] == ["small"]
        journal.close()
    finally:
        execute(mariadb.admin_url, f"SET GLOBAL max_allowed_packet = {before}")


def test_a_value_larger_than_postgresql_takes_is_refused_and_not_written(postgresql_url: str) -> None:
    journal = open_journal(parse_address(postgresql_url), shared=True)
    body = sa.func.decode(sa.func.repeat("00", 1 << 30), "hex")
    with pytest.raises(RowRefused):
        journal.execute(sa.insert(JOURNAL).values(idx=1, batch_id="large", at_ns=1, entries=body))
    journal.append(batch(1, "small"))
    assert [one.id for one in journal.read(START)] == ["small"]
    journal.close()


def test_writers_that_race_leave_no_gap_and_no_double(address: Address) -> None:
    open_journal(address, shared=True).close()
    wins: list[tuple[int, str]] = []

    def write(name: str) -> None:
        journal = open_journal(address, shared=True)
        index = 0
        while index < 40:
            index += 1
            try:
                journal.append(batch(index, f"{name}-{index}"))
                wins.append((index, f"{name}-{index}"))
            except Conflict:
                pass
        journal.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal = open_journal(address, shared=True)
    found = [(int(one.index), one.id) for one in journal.read(START)]
    journal.close()
    assert [index for index, _ in found] == list(range(1, 41))
    assert sorted(wins) == found


def test_processes_that_start_together_prepare_it_together(address: Address) -> None:
    problems: list[JournalError] = []

    def prepare() -> None:
        try:
            open_journal(address, shared=True).close()
        except JournalError as error:
            problems.append(error)

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_an_empty_database_and_a_newer_one_are_told_apart(address: Address) -> None:
    fresh = connect(address, shared=None)
    with pytest.raises(JournalError, match="the database is empty"):
        fresh.check()
    fresh.prepare()
    fresh.check()
    fresh.execute(sa.text(f"UPDATE journal_schema SET version = {VERSION + 1}"))
    with pytest.raises(JournalError, match="use the newer release"):
        fresh.check()
    with pytest.raises(JournalError, match="nothing was changed"):
        fresh.prepare()
    fresh.close()


def test_snapshots_are_written_and_the_journal_is_pruned(journal: Journal) -> None:
    view = View()
    for number in range(1, 21):
        journal.append(batch(number))
    replay(journal, view)
    Snapshots(journal).write(view.index, view.format, 1, dump(view))
    for number in range(21, 26):
        journal.append(batch(number))
    journal.prune(Index(18))
    with pytest.raises(Pruned) as pruned:
        list(journal.read(Index(5)))
    assert pruned.value.oldest == 19
    replay(journal, view)
    assert start_view(journal).state() == view.state()
    assert len(view.providers) == 25


def test_a_row_that_was_changed_is_named(address: Address, journal: Journal) -> None:
    for number in range(1, 6):
        journal.append(batch(number))
    assert problems(journal) == []
    changed = msgspec.msgpack.encode(batch(4).entries)
    journal.execute(sa.update(JOURNAL).where(JOURNAL.c.idx == 3).values(entries=changed))
    fresh = connect(address, shared=None)
    assert all("journal entry 3 is damaged" in problem for problem in problems(fresh))
    assert len(problems(fresh)) == 2, "the entry, and that no server can start"
    fresh.close()


def test_a_database_of_schema_1_is_upgraded_by_all_who_start_together(address: Address) -> None:
    old = connect(address, shared=None)
    old.prepare()
    for number in (1, 2):
        old.append(batch(number))
    for table in ("journal", "snapshot"):
        old.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN digest"))
    old.execute(sa.text("ALTER TABLE journal RENAME COLUMN entries TO body"))
    old.execute(sa.text("DROP TABLE journal_anchor"))
    old.execute(sa.text("UPDATE journal_schema SET version = 1"))
    with pytest.raises(JournalError, match="schema 1, this release needs 2"):
        old.check()
    old.close()
    test_processes_that_start_together_prepare_it_together(address)
    journal = open_journal(address, shared=True)
    journal.append(batch(3))
    assert list(journal.read(START)) == [batch(1), batch(2), batch(3)]
    assert problems(journal) == []
    assert journal.unverified() == 2
    old_append = sa.text("INSERT INTO journal (idx, batch_id, at_ns, body) SELECT 4, 'x', 1, 'y'")
    with pytest.raises(JournalError):
        journal.execute(old_append)
    journal.append(batch(4))
    assert problems(journal) == [], "what an older program tries to write does no harm"
    journal.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_server_that_was_away_is_found_again(kind: str, request: pytest.FixtureRequest) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    server = request.getfixturevalue(kind)
    assert isinstance(server, PostgreSQL | MariaDB)
    journal = open_journal(parse_address(url), shared=True)
    journal.append(batch(1))
    server.kill()
    with pytest.raises(JournalFailure):
        journal.append(batch(2))
    with pytest.raises(JournalFailure):
        journal.tail()
    server.start()
    assert journal.tail() == 1
    journal.append(batch(2))
    assert journal.tail() == 2
    journal.close()

"""``berth import`` from databases made by hand: what is refused, what is left out, and what is reported."""

import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from berth.cli import main
from berth.engine import start_view
from berth.importing import placement_address
from berth.journal import (
    AddressError,
    Conflict,
    Journal,
    JournalError,
    JournalRow,
    open_journal,
    parse_address,
)
from berth.model.events import Batch, Stamp
from berth.model.ids import ClassId, ConsumerId, ProviderId
from berth.model.placement import Consumer, Inventory
from berth.runtime.settings import TABLE
from berth.view import View
from tests.unit.importing.sources import AGGREGATE, CELL, CONSUMER, HOST, IDLE, SOUND, make_source

pytestmark = pytest.mark.fast

DAY_S = 86400
FIRST_S = 1577836800
"""The first day of 2020."""

ZEBRA = ClassId(10000)


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in TABLE:
        monkeypatch.delenv(setting.variable, raising=False)
    for variable in ("BERTH_CONFIG", "BERTH_TEST_SERVER", "OS_PLACEMENT_DATABASE__CONNECTION"):
        monkeypatch.delenv(variable, raising=False)


class ImportResult(NamedTuple):
    status: int
    out: str
    err: str

    def counts(self, table: str) -> list[int]:
        """Of a line of the report: in Placement, read, left out, unused, in Berth."""
        (line,) = (line for line in self.out.splitlines() if line.startswith(f"{table} "))
        return [int(cell.replace(",", "")) for cell in line.split()[1:] if cell not in ("-", "DIFFERS")]


class Importer:
    """Imports from a source that is made of scripts, into a file beside it."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = directory / "berth.db"
        self._directory = directory
        self._capsys = capsys

    @property
    def target(self) -> str:
        return f"sqlite:///{self.path}"

    def run(self, *scripts: str, flags: tuple[str, ...] = ()) -> ImportResult:
        source = self._directory / "placement.db"
        source.unlink(missing_ok=True)
        return self.run_from(make_source(source, *scripts), *flags)

    def run_from(self, url: str, *flags: str) -> ImportResult:
        status = main(["import", "--from", url, "--database", self.target, *flags])
        return ImportResult(status, *self._capsys.readouterr())

    def journal(self) -> Journal:
        return open_journal(parse_address(self.target), shared=None)

    def view(self) -> View:
        journal = self.journal()
        try:
            return start_view(journal)
        finally:
            journal.close()


@pytest.fixture
def importer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Importer:
    return Importer(tmp_path, capsys)


# -- what is brought over -----------------------------------------------------------------------


def test_everything_is_imported_as_it_is(importer: Importer) -> None:
    result = importer.run(SOUND)
    assert result.status == 0, result
    assert "the import is complete" in result.out
    view = importer.view()
    assert [view.classes.name_of(id) for id in view.classes.ids()][-2:] == ["CUSTOM_Z", "CUSTOM_A"]
    assert view.classes.id_of("CUSTOM_Z") == ZEBRA
    assert view.custom_traits == {"CUSTOM_T": FIRST_S}
    host, cell = view.providers[ProviderId(HOST)], view.providers[ProviderId(CELL)]
    assert cell.parent is cell.root is host
    assert host.stamp == Stamp(7, FIRST_S, FIRST_S)
    assert cell.stamp == Stamp(5, FIRST_S, FIRST_S + DAY_S)
    assert host.inventories == {0: Inventory(8, 1, 1, 8, 1, 4.0, FIRST_S + 2 * DAY_S)}
    assert host.traits == ("COMPUTE_NODE", "HW_CPU_X86_AVX2", "CUSTOM_T")
    assert host.aggregates == (AGGREGATE,)
    held = ((HOST, ((0, 2),)), (CELL, ((ZEBRA, 4),)))
    record = view.consumers[ConsumerId(CONSUMER)]
    # It was last written when its youngest allocation was.
    assert record.consumer == Consumer(3, "project", "user", "INSTANCE", FIRST_S, FIRST_S + 4 * DAY_S)
    assert record.held == held
    idle = view.consumers[ConsumerId(IDLE)]
    assert (idle.consumer, idle.held) == (Consumer(0, "project", "user", None, FIRST_S, FIRST_S), ())


def test_the_journal_says_that_it_was_an_import(importer: Importer) -> None:
    importer.run(SOUND)
    journal = importer.journal()
    (batch,) = journal.read(View().index)
    journal.close()
    assert [entry.origin.action for entry in batch.entries] == ["berth:import"]


def test_many_rows_come_in_chunks_and_batches_none_lost(importer: Importer, tmp_path: Path) -> None:
    count = 5003
    traits = "INSERT INTO traits (id, name) VALUES (1, 'COMPUTE_NODE'), (2, 'CUSTOM_A'), (3, 'CUSTOM_B');"
    url = make_source(tmp_path / "many.db", traits)
    numbers = range(1, count + 1)
    source = sqlite3.connect(tmp_path / "many.db")
    source.executemany(
        "INSERT INTO resource_providers (id, root_provider_id, generation, name, uuid) VALUES (?,?,?,?,?)",
        ((n, n, n, f"host-{n}", f"{n:08x}-0000-4000-8000-000000000000") for n in numbers),
    )
    # A chunk ends within the traits of one provider.
    source.executemany(
        "INSERT INTO resource_provider_traits (resource_provider_id, trait_id) VALUES (?, ?)",
        ((n, trait) for n in numbers for trait in (1, 2, 3)),
    )
    source.commit()
    source.close()
    result = importer.run_from(url)
    assert result.status == 0, result
    assert result.counts("resource_providers") == [count, count, 0, 0, count]
    assert result.counts("resource_provider_traits") == [3 * count, 3 * count, 0, 0, 3 * count]
    view = importer.view()
    assert view.index > 1
    for record in view.providers.values():
        assert record.name == f"host-{record.generation}"
        assert record.traits == ("COMPUTE_NODE", "CUSTOM_A", "CUSTOM_B")


def test_what_is_over_capacity_is_imported_and_reported(importer: Importer) -> None:
    result = importer.run(SOUND, "UPDATE inventories SET total = 2, allocation_ratio = 1.0 WHERE id = 1;")
    assert result.status == 0
    assert "1 inventories with more used than their capacity" in result.out
    assert f"provider {HOST} (host), VCPU: 2 of 1" in result.out
    assert importer.view().providers[ProviderId(HOST)].used == {0: 2}


def test_a_root_that_the_parents_do_not_lead_to_is_reported(importer: Importer) -> None:
    result = importer.run(SOUND, "UPDATE resource_providers SET root_provider_id = 1 WHERE id = 1;")
    assert result.status == 0
    assert "1 resource_providers whose root does not match their parents" in result.out


def test_what_nothing_refers_to_is_counted_as_unused(importer: Importer) -> None:
    result = importer.run(
        SOUND,
        "INSERT INTO projects (id, external_id) VALUES (2, 'p');"
        "INSERT INTO users (id, external_id) VALUES (2, 'u');"
        "INSERT INTO consumer_types (id, name) VALUES (2, 'T');"
        "INSERT INTO placement_aggregates (id, uuid) VALUES (2, 'a');",
    )
    assert result.status == 0, result
    for table in ("projects", "users", "consumer_types", "placement_aggregates"):
        assert result.counts(table) == [2, 2, 0, 1, 1]


# -- what cannot be brought over ----------------------------------------------------------------

BROKEN: tuple[tuple[str, str, dict[str, int]], ...] = (
    (
        "INSERT INTO resource_classes (id, name) VALUES (77, 'FUTURE_CLASS');",
        "resource_classes whose name is neither custom nor in the installed os-resource-classes",
        {"resource_classes": 1},
    ),
    (
        "INSERT INTO resource_classes (id, name) VALUES (77, 'CUSTOM_Z');",
        "resource_classes with the name of another",
        {"resource_classes": 1},
    ),
    (
        "INSERT INTO traits (id, name) VALUES (77, 'FUTURE_TRAIT');"
        "INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (77, 1);",
        "traits whose name is neither custom nor in the installed os-traits",
        {"traits": 1, "resource_provider_traits": 1},
    ),
    (
        "INSERT INTO traits (id, name) VALUES (77, 'CUSTOM_T');",
        "traits with the name of another",
        {"traits": 1},
    ),
    (
        "UPDATE resource_providers SET parent_provider_id = 99 WHERE id = 1;",
        "resource_providers whose parent does not exist",
        {"resource_providers": 1, "inventories": 1, "allocations": 1},
    ),
    (
        "UPDATE resource_providers SET parent_provider_id = 1 WHERE id = 2;",
        "resource_providers in a loop of parents",
        {
            "resource_providers": 2,
            "inventories": 2,
            "allocations": 2,
            "resource_provider_traits": 3,
            "resource_provider_aggregates": 1,
        },
    ),
    (
        "UPDATE resource_providers SET parent_provider_id = NULL WHERE id = 1;"
        "UPDATE resource_providers SET name = 'host';",
        "resource_providers with the uuid or name of another",
        # The one that came first, with the smaller id, stays.
        {
            "resource_providers": 1,
            "inventories": 1,
            "allocations": 1,
            "resource_provider_traits": 3,
            "resource_provider_aggregates": 1,
        },
    ),
    (
        f"UPDATE resource_providers SET uuid = '{HOST}' WHERE id = 1;",
        "resource_providers with the uuid or name of another",
        {"resource_providers": 1, "inventories": 1, "allocations": 1},
    ),
    (
        "UPDATE resource_providers SET name = NULL WHERE id = 1;",
        "resource_providers without a name",
        {"resource_providers": 1, "inventories": 1, "allocations": 1},
    ),
    (
        "UPDATE resource_providers SET uuid = 'not \"a uuid' WHERE id = 1;",
        "resource_providers with an invalid uuid",
        {"resource_providers": 1, "inventories": 1, "allocations": 1},
    ),
    (
        "INSERT INTO inventories VALUES (NULL, NULL, 9, 99, 0, 1, 0, 1, 1, 1, 1.0);",
        "inventories of a provider that does not exist or is left out",
        {"inventories": 1},
    ),
    (
        "INSERT INTO inventories VALUES (NULL, NULL, 9, 1, 99, 1, 0, 1, 1, 1, 1.0);",
        "inventories of a resource class that does not exist or is left out",
        {"inventories": 1},
    ),
    (
        "INSERT INTO inventories VALUES (NULL, NULL, 9, 2, 0, 1, 0, 1, 1, 1, 1.0);",
        "inventories with the same provider and class as another",
        {"inventories": 1},
    ),
    (
        "INSERT INTO inventories VALUES (NULL, NULL, 9, 2, 1, 1, 0, 1, 1, 0, 1.0);",
        "inventories with a unit or step below 1",
        {"inventories": 1},
    ),
    (
        "INSERT INTO inventories VALUES (NULL, NULL, 9, 2, 1, 1, 0, 1, 1, 1, 9e999);",
        "a ratio that is not a number",
        {"inventories": 1},
    ),
    (
        "INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (1, 99);",
        "resource_provider_traits of a provider or trait that does not exist or is left out",
        {"resource_provider_traits": 1},
    ),
    (
        "INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id) VALUES (2, 99);",
        "resource_provider_aggregates of a provider or aggregate that does not exist or is left out",
        {"resource_provider_aggregates": 1},
    ),
    (
        "INSERT INTO placement_aggregates (id) VALUES (9);",
        "placement_aggregates without a uuid",
        {"placement_aggregates": 1},
    ),
    (
        "UPDATE consumers SET project_id = 99 WHERE id = 1;",
        "consumers of a project, user or type that does not exist",
        {"consumers": 1, "allocations": 2, "consumer_types": 0},
    ),
    (
        "UPDATE consumers SET consumer_type_id = 99 WHERE id = 2;",
        "consumers of a project, user or type that does not exist",
        {"consumers": 1},
    ),
    (
        f"UPDATE consumers SET uuid = '{CONSUMER}' WHERE id = 2;",
        "consumers with the uuid of another",
        {"consumers": 1},
    ),
    (
        "INSERT INTO allocations VALUES (NULL, NULL, 8, 2, 'nobody', 0, 1), "
        "(NULL, NULL, 9, 2, 'noone', 0, 1);",
        "allocations of a consumer that does not exist",
        {"allocations": 2},
    ),
    (
        f"INSERT INTO allocations VALUES (NULL, NULL, 9, 99, '{CONSUMER}', 0, 1);",
        "allocations of a provider that does not exist or is left out",
        {"allocations": 1},
    ),
    (
        f"INSERT INTO allocations VALUES (NULL, NULL, 9, 2, '{CONSUMER}', 99, 1);",
        "allocations of a resource class that does not exist or is left out",
        {"allocations": 1},
    ),
    (
        f"INSERT INTO allocations VALUES (NULL, NULL, 9, 2, '{CONSUMER}', 1, 1);",
        "allocations of a provider that has no inventory of the class",
        {"allocations": 1},
    ),
    (
        f"INSERT INTO allocations VALUES (NULL, NULL, 9, 2, '{IDLE}', 0, 0);",
        "allocations of less than 1",
        {"allocations": 1},
    ),
    (
        f"INSERT INTO allocations VALUES (NULL, NULL, 9, 2, '{CONSUMER}', 0, 1);",
        "allocations with the same consumer, provider and class as another",
        {"allocations": 1},
    ),
)


@pytest.mark.parametrize(("script", "kind", "left_out"), BROKEN)
def test_broken_rows_are_refused_or_left_out(
    script: str, kind: str, left_out: dict[str, int], importer: Importer
) -> None:
    refused = importer.run(SOUND, script)
    assert refused.status == 1
    assert kind in refused.out
    assert "nothing was written. Repair the source, or import the rest with --skip-broken" in refused.err
    assert importer.view().index == 0

    result = importer.run(SOUND, script, flags=("--skip-broken",))
    assert result.status == 0, result
    assert kind in result.out
    for table, count in left_out.items():
        stored, read, left, unused, berth = result.counts(table)
        assert (stored, left) == (read, count)
        assert berth == read - left - unused
    importer.view()


def test_a_refusal_shows_a_few_examples_and_a_skip_all(importer: Importer) -> None:
    orphans = ", ".join(f"(NULL, NULL, {n}, 2, 'nobody-{n}', 0, 1)" for n in range(100, 150))
    script = f"INSERT INTO allocations VALUES {orphans};"
    refused = importer.run(SOUND, script)
    assert "50 allocations of a consumer" in refused.out
    assert refused.out.count("nobody-") == 3
    assert importer.run(SOUND, script, flags=("--skip-broken",)).out.count("nobody-") == 50


# -- the source ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("DROP TABLE resource_providers;", "not a Placement database: it has no table resource_providers"),
        ("DROP TABLE alembic_version;", "schema revision none; Berth reads that of Placement 16.0"),
        ("UPDATE alembic_version SET version_num = 'b5c396305c25';", "schema revision b5c396305c25;"),
        (
            "DROP TABLE users; ALTER TABLE consumers DROP COLUMN consumer_type_id;",
            "lacks tables or columns of a Placement 16.0 database: users, consumers.consumer_type_id",
        ),
    ],
)
def test_a_source_that_is_not_what_is_expected_is_refused(
    script: str, message: str, importer: Importer
) -> None:
    result = importer.run(SOUND, script)
    assert result.status == 1
    assert message in result.err


def test_a_source_that_is_not_there_is_not_created(importer: Importer, tmp_path: Path) -> None:
    result = importer.run_from(f"sqlite:///{tmp_path / 'none.db'}")
    assert result.status == 1
    assert "cannot read the source: unable to open database file" in result.err
    assert not (tmp_path / "none.db").exists()


def test_a_source_is_left_as_it_is(importer: Importer, tmp_path: Path) -> None:
    importer.run(SOUND)
    before = (tmp_path / "placement.db").read_bytes()
    importer.run_from(f"sqlite:///{tmp_path / 'placement.db'}", "--dry-run")
    assert (tmp_path / "placement.db").read_bytes() == before
    assert {path.name for path in tmp_path.glob("placement.db*")} == {"placement.db"}


def test_urls_as_they_stand_in_a_placement_conf() -> None:
    plain = parse_address("mysql://placement:s3cret@db/placement")
    assert placement_address("mysql+pymysql://placement:s3cret@db/placement?charset=utf8") == plain
    assert placement_address("postgresql+psycopg2://db/placement") == parse_address(
        "postgresql://db/placement"
    )
    with pytest.raises(AddressError, match="without options"):
        placement_address("mysql+pymysql://db/placement?ssl_ca=/etc/ca.pem")


def test_a_missing_source_and_a_bad_one_are_refused(
    importer: Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "--database", importer.target]) == 2
    assert "--from or OS_PLACEMENT_DATABASE__CONNECTION must name" in capsys.readouterr().err
    result = importer.run_from("oracle://placement:s3cret@db/placement")
    assert result.status == 2
    assert "oracle is not supported" in result.err
    assert "s3cret" not in result.err


def test_the_source_may_be_named_where_placement_looks(
    importer: Importer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OS_PLACEMENT_DATABASE__CONNECTION", make_source(tmp_path / "named.db", SOUND))
    assert main(["import", "--database", importer.target]) == 0
    assert len(importer.view().providers) == 2


# -- the target ---------------------------------------------------------------------------------


def test_a_dry_run_reports_and_writes_nothing(importer: Importer) -> None:
    result = importer.run(SOUND, flags=("--dry-run",))
    assert result.status == 0
    assert "nothing was written" in result.out
    assert result.counts("consumers") == [2, 2, 0, 0]
    assert not importer.path.exists()
    broken = importer.run(SOUND, "DELETE FROM consumers;", flags=("--dry-run",))
    assert broken.status == 1
    assert "2 allocations of a consumer that does not exist" in broken.out


def test_a_target_that_is_not_empty_is_refused_with_what_it_has(importer: Importer) -> None:
    assert importer.run(SOUND).status == 0
    before = importer.view().state()
    result = importer.run(SOUND)
    assert result.status == 1
    for words in (
        "ends at index 1",
        "2 providers",
        "2 consumers",
        "2 custom resource classes",
        "1 custom trait",
    ):
        assert words in result.err
    assert importer.view().state() == before


def test_an_unfinished_import_cannot_be_used_or_continued(
    importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.importing.events._BATCH_EVENTS", 5)
    append = Journal.fill

    def broken(journal: Journal, row: JournalRow) -> None:
        if row.index == 3:
            raise JournalError("the disk is full")
        append(journal, row)

    monkeypatch.setattr(Journal, "fill", broken)
    result = importer.run(SOUND)
    assert result.status == 1
    assert "the import failed: the disk is full; drop the target database" in result.err
    with pytest.raises(JournalError):
        importer.view()
    monkeypatch.setattr(Journal, "fill", append)
    result = importer.run(SOUND)
    assert result.status == 1
    assert "an earlier import into the target did not finish: drop the target database" in result.err


def test_every_append_before_the_last_leaves_a_journal_without_a_beginning(
    importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.importing.events._BATCH_EVENTS", 5)
    append, indices = Journal.fill, []

    def counted(journal: Journal, row: JournalRow) -> None:
        indices.append(row.index)
        append(journal, row)

    monkeypatch.setattr(Journal, "fill", counted)
    assert importer.run(SOUND).status == 0
    assert sorted(indices) == list(range(1, len(indices) + 1))
    assert len(indices) > 2
    assert indices[-1] == 1


def test_another_writer_to_the_target_is_reported(
    importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: Any) -> None:
        raise Conflict("duplicate key")

    monkeypatch.setattr(Journal, "fill", taken)
    result = importer.run(SOUND)
    assert result.status == 1
    assert "another process writes to the target: stop every server that uses it" in result.err


def test_a_row_that_is_lost_on_the_way_is_reported(
    importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_of = Journal.row_of

    def forgetful(journal: Journal, batch: Batch, previous: str | None) -> JournalRow:
        (entry,) = batch.entries
        entry = type(entry)(entry.origin, entry.events[:-1])
        return row_of(journal, Batch(batch.index, batch.id, batch.at_ns, (entry,)), previous)

    monkeypatch.setattr(Journal, "row_of", forgetful)
    result = importer.run(SOUND)
    assert result.status == 1
    assert [line.split()[0] for line in result.out.splitlines() if line.endswith("DIFFERS")] == ["consumers"]
    assert "the two sides differ: do not use the target" in result.err


def test_an_empty_placement_is_an_empty_ledger(importer: Importer) -> None:
    assert importer.run().status == 0
    assert importer.view().index == 0

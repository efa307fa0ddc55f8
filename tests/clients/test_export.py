"""The way back: a Berth that was filled through its API is exported into a database of upstream's own making,
and then upstream is asked the same as Berth. The commands are those of the guide."""

import json
import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from tests.clients.test_import import HOSTS, compare_answers, fill, life_goes_on
from tests.clients.upstream import connection_of, placement_server, run, write_config
from tests.databases import statements
from tests.placement import PlacementClient
from tests.servers import ROOT, berth, running

pytestmark = [pytest.mark.clients]

GUIDE: Final = ROOT / "docs" / "guides" / "going-back.md"


@pytest.fixture(params=["postgresql", "mariadb"])
def target_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def folder(target_url: str, tmp_path: Path) -> Path:
    """Where upstream's configuration is."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    write_config(folder, target_url)
    return folder


def commands_of_the_guide(folder: Path, target: str, source: Path) -> list[list[str]]:
    """What the guide shows, with the addresses of the test in place of its own."""
    lines = re.findall(r"^ +((?:placement-manage|berth export) .*)$", GUIDE.read_text(), re.MULTILINE)
    assert len(lines) == 2
    text = "\n".join(lines).replace("/etc/placement", str(folder))
    text = re.sub(r"mysql://\S+", target, text)
    text = re.sub(r"sqlite:///\S+", f"sqlite:///{source}", text)
    return [shlex.split(line) for line in text.splitlines()]


def test_every_answer_of_upstream_is_that_of_berth(target_url: str, folder: Path, tmp_path: Path) -> None:
    sync, export = commands_of_the_guide(folder, target_url, tmp_path / "berth.db")
    with running(berth(tmp_path)) as server:
        fill(server.url)
        client = PlacementClient(server.url)
        client("POST", "/berth/v1/groups", {"group": {"name": "apart", "policy": "anti-affinity"}})
        client.close()

        refused = run(export)
        assert refused.returncode == 1
        assert "is not a Placement database: it has no table resource_providers" in refused.stderr
        assert "placement-manage db sync" in refused.stderr
        synced = run(sync)
        assert synced.returncode == 0, synced.stdout + synced.stderr
        exported = run([*export, "--json"])
        assert exported.returncode == 0, exported.stdout + exported.stderr
        shown = json.loads(exported.stdout)
        counts = {one["table"]: (one["ledger"], one["placement"]) for one in shown["tables"]}
        assert counts["resource_providers"] == (14, 14)
        assert counts["consumers"] == (8, 8)
        assert counts["placement_aggregates"] == (2, 2)
        assert all(ledger == placement for ledger, placement in counts.values())
        assert shown["no_place"] == {"groups": 1}

        with running(placement_server(folder)) as upstream:
            compare_answers(upstream.url, target_url, server.url)
            # Also the ids that upstream chooses next are free.
            life_goes_on(upstream.url, server.url)
            placement = PlacementClient(upstream.url, "1.39")
            placement("POST", "/resource_providers", {"name": "new", "parent_provider_uuid": HOSTS[0]})
            placement("PUT", "/traits/CUSTOM_NEWEST")
            placement.close()

        again = run(export)
        assert again.returncode == 1
        assert "the target is not empty: it has" in again.stderr
        assert "15 resource_providers" in again.stderr


def test_a_target_that_placement_was_started_on_is_filled_too(
    target_url: str, folder: Path, tmp_path: Path
) -> None:
    """It has standard classes and traits then, with ids of its own."""
    sync, export = commands_of_the_guide(folder, target_url, tmp_path / "berth.db")
    with running(berth(tmp_path)) as server:
        fill(server.url)
        assert run(sync).returncode == 0
        with running(placement_server(folder)):
            pass
        # The URL as placement.conf has it.
        words = [word for word in export if word not in ("--to", target_url)]
        exported = run(words, OS_PLACEMENT_DATABASE__CONNECTION=connection_of(target_url))
        assert exported.returncode == 0, exported.stdout + exported.stderr
        assert "the export is complete: the ledger at index" in exported.stdout
        with running(placement_server(folder)) as upstream:
            compare_answers(upstream.url, target_url, server.url)


def test_nothing_is_written_where_something_cannot_be(target_url: str, folder: Path, tmp_path: Path) -> None:
    sync, export = commands_of_the_guide(folder, target_url, tmp_path / "berth.db")
    with running(berth(tmp_path)) as server:
        fill(server.url)
    assert run(sync).returncode == 0
    statements.execute(target_url, "ALTER TABLE allocations ADD CHECK (used < 3)")
    refused = run(export)
    assert refused.returncode == 1
    assert "nothing was written" in refused.stderr
    for table in ("resource_classes", "traits", "resource_providers", "consumers", "allocations"):
        assert statements.execute(target_url, f"SELECT count(*) FROM {table}") == [(0,)]
    statements.execute(target_url, "UPDATE alembic_version SET version_num = 'b5c396305c25'")
    other = run(export)
    assert other.returncode == 1
    assert "the target has schema revision b5c396305c25" in other.stderr


def test_sqlite_is_refused_by_name(tmp_path: Path) -> None:
    refused = run(["berth", "export", "--to", f"sqlite:///{tmp_path / 'placement.db'}"])
    assert refused.returncode == 2
    assert "Placement is served from MariaDB, MySQL or PostgreSQL: name one of these" in refused.stderr
    assert run(["berth", "export"]).returncode == 2

"""A release and the next share a journal under load; the commands are those of the guide."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.crash.holdings import NOTHING
from tests.databases import statements
from tests.databases.releases import NEXT, TICKET, Release, ReleasedServer
from tests.faults.fleet import seeded, words_of
from tests.faults.lines import line_to
from tests.faults.load import ClientLoad
from tests.faults.verdict import assert_books_right, assert_sums, served_state
from tests.placement import PlacementAnswer
from tests.servers import ROOT, ServerStartError
from tests.waiting import WITHIN_S

GUIDE = (ROOT / "docs" / "guides" / "upgrade.md").read_text()
CLIENTS = 4
WRITES = 40


def command(words: str, database: str) -> list[str]:
    """A command of the guide, for a database of ours."""
    (line,) = (
        line for line in GUIDE.splitlines() if re.fullmatch(rf" +berth {words} --database \S+/region", line)
    )
    return [*line.split()[1:-1], database]


def set_ticket(server: ReleasedServer, host: str) -> PlacementAnswer:
    """What only the next release can write."""
    with line_to(server) as line:
        return line.ask("PUT", f"/berth/v1/hosts/{host}", {"host": {"disabled": True, "reason": TICKET}})


def finish_in_spite_of(
    old: Release, new: Release, finish: list[str], url: str
) -> subprocess.CompletedProcess[str]:
    """Finish the upgrade as if the programs of a release were not there. They say every 30 seconds that they
    are, so that may take more than one attempt."""
    for _ in range(5):
        statements.execute(url, f"DELETE FROM journal_program WHERE version = '{old.program.version}'")
        finished = new.run(*finish)
        if finished.returncode == 0:
            return finished
    raise AssertionError(finished.stderr)


@contextlib.contextmanager
def two_servers(release: Release, directory: Path, url: str) -> Iterator[list[ReleasedServer]]:
    servers = [
        ReleasedServer(release, directory / f"server{number}", "serve", "--database", url)
        for number in range(2)
    ]
    try:
        for server in servers:
            server.start()
        yield servers
    except BaseException:
        for server in servers:
            print(f"{server.log_path.parent.name}:\n{words_of(server)}")
        raise
    finally:
        for server in servers:
            if server.process is not None:
                server.stop()


@pytest.mark.timeout(600)
def test_servers_are_upgraded_one_by_one_rolled_back_and_upgraded_for_good(
    releases: tuple[Release, Release], postgresql_url: str, tmp_path: Path
) -> None:
    this, new = releases
    look, finish = (command(words, postgresql_url) for words in ("db upgrade", "db upgrade --finish"))
    for release in releases:
        assert release.run("--version").stdout == f"berth {release.program.version}\n"
    with two_servers(this, tmp_path, postgresql_url) as servers:
        first, second = servers
        load = ClientLoad(servers, CLIENTS, seeded())
        host = load.providers[0]
        with load:
            load.go_on(WRITES)
            second.replace(new)
            load.go_on(WRITES, 0)
            load.go_on(WRITES, 1)
            shown = json.loads(new.run(*look, "--json").stdout)
            assert (shown["format"], shown["format_max"]) == (this.program.format, new.program.format)
            assert {(one["version"], one["part"]) for one in shown["programs"]} == {
                (release.program.version, "worker 1") for release in releases
            }
            # Nothing new is written while an older program may read it, and no program is surprised.
            refused = set_ticket(second, host)
            assert (refused.status, refused.body["errors"][0]["code"]) == (409, "berth.format_too_old")
            assert "HostStatus.ticket needs format" in refused.body["errors"][0]["detail"]
            early = new.run(*finish)
            assert early.returncode == 1
            assert f"these programs would stop: Berth {this.program.version}, worker 1" in early.stderr
            # The way back, and forth again.
            second.replace(this)
            load.go_on(WRITES, 1)
            second.replace(new)
            load.go_on(WRITES, 1)
        assert_books_right(load, postgresql_url)

        # An older program that is not known to be there meets the new format, and stops without harm.
        load = ClientLoad(servers, CLIENTS, seeded())
        with load:
            load.go_on(WRITES, 0)
            finished = finish_in_spite_of(this, new, finish, postgresql_url)
            assert f"the journal has format {NEXT.format} now" in finished.stdout
            load.go_on(WRITES, 1)
        with line_to(first) as line:
            assert line.ask("GET", "/resource_providers").status == 503
        assert httpx.get(f"{first.url}/healthz", timeout=WITHIN_S).json()["status"] == "broken"
        sentence = f"was written by {NEXT}; this is Berth {this.program.version}, which reads up to format"
        assert sentence in first.log
        first.stop()
        with pytest.raises(ServerStartError, match="exited with status 1"):
            first.start()
        assert first.log.count(sentence) > 1
        assert sentence in this.run("db", "check", "--database", postgresql_url).stdout

        # What is new is accepted now, and nothing that was acknowledged is lost.
        assert set_ticket(second, host).status == 200
        with line_to(second) as line:
            assert line("GET", f"/berth/v1/hosts/{host}")["host"]["reason"] == f"see {TICKET}"
            records = [client.record for client in load.clients]
            state = served_state(line, [id for record in records for id in record.acknowledged])
        for record in records:
            record.settle({id: state.consumers.get(id, NOTHING) for id in record.acknowledged})
        assert_sums(state, load.providers)
        first.env = new.env
        first.start()
        assert new.run("db", "check", "--database", postgresql_url).returncode == 0

"""The years of a region in one test: it begins on SQLite, moves to Galera, is upgraded process by process to
the next release, is backed up and restored, and goes back to upstream's Placement. Clients write and create
servers meanwhile, and whatever was acknowledged to them is there after every stage."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.upstream import compare, placement_server, write_config
from tests.clients.upstream import run as run_program
from tests.databases.fixtures import fresh_database
from tests.databases.galera import Galera
from tests.databases.releases import NEXT, Release, ReleasedServer
from tests.faults.fleet import seeded, words_of
from tests.faults.lines import LOST, Line, line_to
from tests.faults.load import ClientLoad
from tests.faults.verdict import holdings_through
from tests.servers import HOST, ServerProcess, running
from tests.waiting import WITHIN_S

pytestmark = [pytest.mark.clients, pytest.mark.crash, pytest.mark.timeout(600)]

CLIENTS: Final = 3
WRITES: Final = 25
SERVERS: Final = 3
PAUSE_S: Final = 0.2
NO_QUOTAS: Final = [word for name in ("instances", "cores", "ram") for word in (f"--quota-{name}", "-1")]
SECRETS: Final = {"BERTH_PLACEMENT_TOKEN": "admin", "BERTH_AGENT_TOKEN": "the-token-to-join-with"}


class Creator(threading.Thread):
    """A client that creates servers, one after the other, through whichever region answers, and notes which
    were acknowledged."""

    def __init__(self, regions: list[ReleasedServer], flavor: str) -> None:
        super().__init__(daemon=True)
        self._regions = regions
        self._flavor = flavor
        self.acknowledged: list[str] = []
        self.surprise: str | None = None
        self.ending = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.ending.wait(PAUSE_S) and self.surprise is None:
            number += 1
            with contextlib.suppress(*LOST):
                self._create(self._regions[number % len(self._regions)], f"server-{number}")

    def _create(self, region: ReleasedServer, name: str) -> None:
        wanted = {"name": name, "flavorRef": self._flavor, "networks": "none"}
        with contextlib.closing(ComputeLine(region)) as line:
            answer = line.ask("POST", "/compute/v2.1/servers", {"server": wanted})
        if answer.status == 202:
            self.acknowledged.append(answer.body["server"]["id"])
        elif answer.status < 500:
            self.surprise = f"{answer.status} {answer.body}"


class ComputeLine(Line):
    """A connection whose requests have a version of the compute API, too."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(server)
        self.version = "1.39, compute 2.90"


class Region:
    """Two servers, a cell and its agent. ``database`` is the region's; the cell stays on a file."""

    def __init__(self, release: Release, folder: Path, database: str) -> None:
        self.folder = folder
        self.cell_database = f"sqlite:///{folder / 'cell1.db'}"
        self.servers = [
            ReleasedServer(release, folder / f"region{number}", *self._words(database), is_at_home=True)
            for number in range(2)
        ]
        placement = ["--placement", self.servers[0].url, "--database", self.cell_database]
        self.cell = ReleasedServer(
            release, folder / "cell1", "cell", "--name", "cell1", *placement, is_at_home=True
        )
        hosts = ["--hosts", "3", "--build-seconds", "0", "--data", str(folder / "agents")]
        self.agent = ReleasedServer(
            release,
            folder / "agent",
            "agent",
            *("--driver", "sim", "--conductor", self.cell.url, *hosts),
            listens_by="--metrics-listen",
        )
        for part in (self.cell, self.agent):
            part.env = {**release.env, **SECRETS}
        self.loads: list[ClientLoad] = []
        self.creators: list[Creator] = []

    def _words(self, database: str) -> tuple[str, ...]:
        return ("region", "--database", database, "--cells", f"cell1={self.cell_database}", *NO_QUOTAS)

    def use(self, database: str) -> None:
        for server in self.servers:
            server.words = self._words(database)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        parts = [*self.servers, self.cell, self.agent]
        try:
            for part in (self.servers[0], self.cell, self.agent):
                part.start()
            yield
        except BaseException:
            for part in parts:
                print(f"{part.log_path.parent.name}:\n{words_of(part)}")
            raise
        finally:
            for part in parts:
                if part.process is not None:
                    part.stop()

    def make_flavor(self) -> str:
        with contextlib.closing(ComputeLine(self.servers[0])) as line:
            small = {"name": "small", "vcpus": 1, "ram": 128, "disk": 1}
            flavor: str = line("POST", "/compute/v2.1/flavors", {"flavor": small})["flavor"]["id"]
            wait_until(lambda: len(find_hosts(line)) == 3, "the hosts are up")
        return flavor

    @contextlib.contextmanager
    def under_load(self, flavor: str, servers: list[ReleasedServer]) -> Iterator[ClientLoad]:
        load, creator = ClientLoad(servers, CLIENTS, seeded()), Creator(servers, flavor)
        self.loads.append(load)
        self.creators.append(creator)
        creator.start()
        try:
            with load:
                yield load
                wait_until(lambda: len(creator.acknowledged) >= SERVERS, "servers are created")
        finally:
            creator.ending.set()
            creator.join(WITHIN_S)
        assert creator.surprise is None

    @property
    def created(self) -> list[str]:
        return [id for creator in self.creators for id in creator.acknowledged]

    def check(self, *servers: ReleasedServer) -> None:
        """Whatever was acknowledged is there: what each client claimed, moved and released, and every server,
        on its host. Nothing is wrong."""
        for server in servers:
            with contextlib.closing(ComputeLine(server)) as line:
                wait_until(lambda: self._are_active(line), f"the servers are active: {self.created}")
                self.check_claims(line)
                assert all(holdings_through(line, id).held for id in self.created)
                wait_until(lambda: line("GET", "/berth/v1/doctor")["findings"] == [], "nothing is wrong")
        on_hosts = [
            json.loads(file.read_text())["servers"] for file in self.folder.glob("agents/hosts/*.json")
        ]
        running_there = [id for servers in on_hosts for id, state in servers.items() if state == "running"]
        assert set(self.created) <= set(running_there)
        assert len(set(running_there)) == len(running_there)

    def check_claims(self, line: Line) -> None:
        for record in (client.record for load in self.loads for client in load.clients):
            record.settle({id: holdings_through(line, id) for id in record.acknowledged})

    def _are_active(self, line: Line) -> bool:
        found = line("GET", "/compute/v2.1/servers/detail?all_tenants=1&limit=1000")["servers"]
        status = {server["id"]: server["status"] for server in found}
        assert status.keys() >= set(self.created), "a server is lost"
        return all(status[id] == "ACTIVE" for id in self.created)


def find_hosts(line: Line) -> list[Any]:
    return list(line("GET", "/berth/v1/hosts?state=up")["hosts"])


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline_s, f"not in time: {what}"
        time.sleep(0.1)


def run(release: Release, *words: str) -> str:
    done = release.run(*words)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def move(release: Release, region: Region, before: str, after: str, file: Path) -> None:
    """Back a database up and restore it into another."""
    run(release, "db", "backup", str(file), "--database", before)
    run(release, "db", "restore", str(file), "--database", after)
    region.use(after)


def export(release: Release, database: str, target: str, folder: Path) -> None:
    write_config(folder, target)
    synced = run_program(["placement-manage", "--config-dir", str(folder), "db", "sync"])
    assert synced.returncode == 0, synced.stdout + synced.stderr
    shown = json.loads(run(release, "export", "--database", database, "--to", target, "--json"))
    assert all(one["ledger"] == one["placement"] for one in shown["tables"])
    assert shown["no_place"]["servers"]


def test_nothing_acknowledged_is_lost_from_sqlite_to_galera_to_the_next_release_and_to_upstream(
    releases: tuple[Release, Release], galera: Galera, tmp_path: Path
) -> None:
    this, new = releases
    sqlite = f"sqlite:///{tmp_path / 'region.db'}"
    region = Region(this, tmp_path, sqlite)
    first, second = region.servers
    with contextlib.ExitStack() as stack:
        on_galera, restored, exported = (stack.enter_context(fresh_database(galera)) for _ in range(3))
        stack.enter_context(region.at_work())
        flavor = region.make_flavor()
        with region.under_load(flavor, [first]) as load:
            load.go_on(WRITES)
        region.check(first)

        # It has outgrown its file. The cell and its servers do not notice.
        assert first.stop(WITHIN_S) == 0
        move(this, region, sqlite, on_galera, tmp_path / "sqlite.backup")
        for server in (first, second):
            server.start()
        region.check(first, second)

        # The next release, process by process, and finished while clients write.
        with region.under_load(flavor, [first, second]) as load:
            load.go_on(WRITES)
            second.replace(new)
            load.go_on(WRITES, 0)
            load.go_on(WRITES, 1)
            region.cell.replace(new)
            region.agent.replace(new)
            first.replace(new)
            load.go_on(WRITES, 0)
            for database in (region.cell_database, on_galera):
                said = run(new, "db", "upgrade", "--finish", "--database", database)
                assert f"the journal has format {NEXT.format} now" in said
            load.go_on(WRITES, 0)
            load.go_on(WRITES, 1)
        region.check(first, second)

        # A backup of it, in another database.
        for server in (first, second):
            assert server.stop(WITHIN_S) == 0
        move(new, region, on_galera, restored, tmp_path / "galera.backup")
        first.start()
        region.check(first)

        # And the way back.
        folder = tmp_path / "upstream"
        folder.mkdir()
        target = f"mysql://berth:berth@{HOST}:{galera.nodes[0].port}/{exported.rpartition('/')[2]}"
        export(new, restored, target, folder)
        with running(placement_server(folder)) as upstream, line_to(upstream) as line:
            region.check_claims(line)
            rows = line("GET", "/resource_providers")["resource_providers"]
            compare(upstream.url, target, first.url, questions(region, [row["uuid"] for row in rows]))


def questions(region: Region, providers: list[str]) -> Iterator[tuple[str, str]]:
    yield "1.39", "/resource_providers"
    for id in providers:
        for what in ("", "/inventories", "/traits", "/aggregates", "/usages", "/allocations"):
            yield "1.39", f"/resource_providers/{id}{what}"
    records = [client.record for load in region.loads for client in load.clients]
    for id in (*region.created, *(id for record in records for id in record.acknowledged)):
        yield "1.39", f"/allocations/{id}"

"""Members of a group claim all at once, each on a connection of its own, through several workers.

A member that is refused a host tries the next, as Nova does. Hosts are only ever taken here, so one pass over
them is enough: who is refused everywhere, with room left, was refused wrongly. What the journal says is then
replayed, and the policy must hold after every single event.
"""

import contextlib
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from berth.journal import open_journal, parse_address
from berth.model.ids import GroupId
from berth.view import View
from tests.faults.fleet import fleet, rounds, seeded
from tests.faults.lines import LOST, UNAVAILABLE, kill_worker, line_to, worker_of
from tests.faults.load import claim_body, make_providers
from tests.servers import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

MEMBERS = 24
KINDS = ["sqlite", "mariadb", "postgresql"]
ATTEMPTS = 100
"""Of one claim, while servers die and come back."""


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    return str(request.getfixturevalue(f"{request.param}_url"))


@contextlib.contextmanager
def servers_on(url: str, directory: Path) -> Iterator[list[ServerProcess]]:
    """Two servers of two workers each; a file is for one server."""
    count, workers = (1, 3) if url.startswith("sqlite") else (2, 2)
    with fleet(directory, [url] * count, "--workers", str(workers)) as servers:
        yield servers


class Crowd:
    """Hosts, and a group whose members all want one of them."""

    def __init__(
        self, servers: Sequence[ServerProcess], hosts: int, members: int, rule: dict[str, object]
    ) -> None:
        self.servers = servers
        self.hosts = [str(uuid.uuid4()) for _ in range(hosts)]
        self.members = [str(uuid.uuid4()) for _ in range(members)]
        with line_to(servers[0]) as line:
            make_providers(line, self.hosts, {"VCPU": 2 * members})
            body = {"group": {"name": "crowd", "members": self.members, **rule}}
            self.group = line("POST", "/berth/v1/groups", body)["group"]["uuid"]

    def claim_all(self, dice: random.Random) -> list[str | None]:
        """Where each member got a place: all of them ask at the same moment."""
        gate = threading.Barrier(len(self.members))
        seeds = [dice.getrandbits(32) for _ in self.members]
        with ThreadPoolExecutor(len(self.members)) as pool:
            return list(pool.map(lambda m, s: self._claim(m, random.Random(s), gate), self.members, seeds))

    def _claim(self, member: str, dice: random.Random, gate: threading.Barrier) -> str | None:
        server = dice.choice(self.servers)
        gate.wait(60)
        for host in dice.sample(self.hosts, len(self.hosts)):
            if self._claim_on(host, member, dice, server):
                return host
        return None

    def _claim_on(self, host: str, member: str, dice: random.Random, server: ServerProcess) -> bool:
        """Whether the member got the host; asked again, of any server, for as long as nobody says."""
        for _ in range(ATTEMPTS):
            try:
                with line_to(server) as line:
                    answer = line.ask("PUT", f"/allocations/{member}", claim_body({host: {"VCPU": 1}}, None))
                    if answer.status == 204:
                        return True
                    if answer.status == UNAVAILABLE:
                        continue
                    assert answer.status == 409, answer
                    code = answer.body["errors"][0]["code"]
                    if code == "berth.group_policy":
                        return False
                    # An earlier attempt, whose answer was lost, had been carried out.
                    assert code == "placement.concurrent_update", answer
                    held = line("GET", f"/allocations/{member}")["allocations"]
                    assert list(held) == [host]
                    return True
            except LOST:
                threading.Event().wait(0.1)
                server = dice.choice(self.servers)
        raise AssertionError(f"nobody answered {member} in {ATTEMPTS} attempts")


def assert_always(url: str, group: str, holds: Callable[[dict[str, int]], bool]) -> None:
    """Whether a rule held of the members per host after every event of the journal."""
    view = View()
    with contextlib.closing(open_journal(parse_address(url), shared=None)) as journal:
        for batch in journal.read(view.index):
            for entry in batch.entries:
                for event in entry.events:
                    view.apply(event)
                    record = view.groups.records.get(GroupId(group))
                    if record is not None:
                        counts = {str(host.id): len(whose) for host, whose in record.hosts.items()}
                        assert holds(counts), (batch.index, event, counts)
            view.index = batch.index


def test_anti_affinity_gives_each_a_host_of_its_own(url: str, tmp_path: Path) -> None:
    dice = seeded()
    with servers_on(url, tmp_path) as servers:
        for _ in range(rounds(2)):
            crowd = Crowd(servers, MEMBERS, MEMBERS, {"policy": "anti-affinity"})
            placed = crowd.claim_all(dice)
            assert sorted(map(str, placed)) == sorted(crowd.hosts)
            assert_always(url, crowd.group, lambda counts: max(counts.values(), default=0) <= 1)


def test_affinity_brings_all_to_one_host(url: str, tmp_path: Path) -> None:
    dice = seeded()
    with servers_on(url, tmp_path) as servers:
        crowd = Crowd(servers, 5, MEMBERS, {"policy": "affinity"})
        placed = crowd.claim_all(dice)
        assert None not in placed
        assert len(set(placed)) == 1
        assert_always(url, crowd.group, lambda counts: len(counts) <= 1)


def test_with_three_to_a_host_there_is_never_a_fourth(url: str, tmp_path: Path) -> None:
    dice = seeded()
    with servers_on(url, tmp_path) as servers:
        rule = {"policy": "anti-affinity", "max_per_domain": 3}
        crowd = Crowd(servers, MEMBERS // 3, MEMBERS + 2, rule)
        placed = crowd.claim_all(dice)
        assert placed.count(None) == 2
        assert all(placed.count(host) == 3 for host in crowd.hosts)
        assert_always(url, crowd.group, lambda counts: max(counts.values(), default=0) <= 3)


@pytest.mark.parametrize("url", KINDS[1:], indirect=True)
def test_killed_workers_break_no_policy(url: str, tmp_path: Path) -> None:
    dice = seeded()
    with fleet(tmp_path, [url] * 3) as servers:
        for _ in range(rounds(2)):
            crowd = Crowd(servers, MEMBERS, MEMBERS, {"policy": "anti-affinity"})
            with ThreadPoolExecutor(1) as pool:
                claiming = pool.submit(crowd.claim_all, dice)
                victim = servers[dice.randrange(len(servers))]
                kill_worker(victim, worker_of(victim))
                placed = claiming.result(120)
            assert sorted(map(str, placed)) == sorted(crowd.hosts)
            assert_always(url, crowd.group, lambda counts: max(counts.values(), default=0) <= 1)

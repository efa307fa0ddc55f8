"""Three servers write through a Galera cluster, each to a node of its own first, and nodes fail."""

import time
import uuid
from pathlib import Path

import pytest

from tests.databases.galera import Galera, GaleraNode
from tests.faults.counting import assert_fresh, counting
from tests.faults.fleet import fleet, seeded
from tests.faults.lines import line_to
from tests.faults.load import CAPACITY, ClientLoad, make_providers
from tests.faults.verdict import assert_all_agree, assert_books_right
from tests.waiting import WITHIN_S

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CLIENTS = 6


def rotations(url: str) -> list[str]:
    """The same cluster, each time with another node first."""
    before, _, rest = url.rpartition("@")
    hosts, _, name = rest.partition("/")
    nodes = hosts.split(",")
    return [f"{before}@{','.join(nodes[first:] + nodes[:first])}/{name}" for first in range(len(nodes))]


def is_cut_off(node: GaleraNode) -> bool:
    return node.status()["cluster_status"] != "Primary"


def all_go_on(load: ClientLoad) -> None:
    """Until each of the three servers has acknowledged some more."""
    for number in range(3):
        load.go_on(20, server=number)


def test_a_node_is_killed_and_comes_back(galera: Galera, galera_url: str, tmp_path: Path) -> None:
    dice = seeded()
    with fleet(tmp_path, rotations(galera_url)) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load:
            all_go_on(load)
            galera.kill_node(1)
            all_go_on(load)
            galera.start_node(1)
            all_go_on(load)
        for url in rotations(galera_url):
            assert_books_right(load, url)


def test_a_node_is_cut_off_and_healed(galera: Galera, galera_url: str, tmp_path: Path) -> None:
    dice = seeded()
    with fleet(tmp_path, rotations(galera_url)) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load:
            all_go_on(load)
            # From now on the node's clients still reach it, and it does not know yet that it is alone.
            galera.isolate(0)
            load.go_on(20, server=0)
            load.go_on(20)
            galera.nodes[0].daemon.wait_until(
                lambda: is_cut_off(galera.nodes[0]), "cut off", time.monotonic() + WITHIN_S
            )
            all_go_on(load)
            galera.heal(0)
            all_go_on(load)
        for url in rotations(galera_url):
            assert_books_right(load, url)


def test_a_server_that_only_reads_gets_over_the_cut(galera: Galera, galera_url: str, tmp_path: Path) -> None:
    """A read that waits for the cluster when its node loses it fails in another way than a write."""
    own, _, other = rotations(galera_url)
    with fleet(tmp_path, [own, other]) as (reading, writing), line_to(reading) as line:
        with counting(writing, str(uuid.uuid4())) as counter:
            assert_fresh(reading, counter)
            galera.isolate(0)
            while not is_cut_off(galera.nodes[0]):
                assert_fresh(reading, counter)
            for _ in range(100):
                assert_fresh(reading, counter)
            galera.heal(0)
            assert_fresh(reading, counter)
        line("PUT", f"/resource_providers/{counter.provider}", {"name": "written"})
        assert_all_agree([reading, writing], galera_url)


def test_a_server_starts_while_its_first_node_is_cut_off(
    galera: Galera, galera_url: str, tmp_path: Path
) -> None:
    own, other, _ = rotations(galera_url)
    with fleet(tmp_path, [own, other]) as servers:
        server = servers[0]
        assert server.stop(WITHIN_S) == 0
        galera.partition(0)
        server.start()
        with line_to(server) as line:
            make_providers(line, [str(uuid.uuid4())], CAPACITY)
        galera.heal(0)
        assert_all_agree(servers, galera_url)

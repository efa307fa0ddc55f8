"""A Placement that was filled through its own API, brought over, and then asked the same as Berth.

Upstream keeps running on its database while it is read; each GET goes to both, and the answers must be equal
but for the order of what has none.
"""

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa

from berth.importing import CannotImport, Source, placement_address
from berth.importing.upstream import TRAITS
from tests.clients.upstream import compare, placement_server, write_config
from tests.databases import statements
from tests.placement import PlacementClient
from tests.servers import ServerProcess, ServerStartError, berth, running
from tests.unit.importing.sources import CONSUMER, SOUND, make_source
from tests.warm_start import COMMANDS

pytestmark = [pytest.mark.clients]

KINDS: Final = ("sqlite", "postgresql", "mariadb")


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


RACK, EMPTY_RACK, POOLED = uuid(0xA1), uuid(0xA2), uuid(0xA3)
HOSTS: Final = tuple(uuid(0x100 + number) for number in range(4))
CELLS: Final = tuple(uuid(0x200 + number) for number in range(4))
FUNCTIONS: Final = tuple(uuid(0x300 + number) for number in range(4))
STORE, LONER = uuid(0x400), uuid(0x401)
PROVIDERS: Final = (*HOSTS, *CELLS, *FUNCTIONS, STORE, LONER)

SERVERS: Final = tuple(uuid(0x500 + number) for number in range(4))
MIGRATION, OLDEST, UNTYPED, IDLE, GONE = (uuid(0x600 + number) for number in range(5))
CONSUMERS: Final = (*SERVERS, MIGRATION, OLDEST, UNTYPED, IDLE, GONE)

PROJECTS: Final = ("p1", "p2", "p3", "00000000-0000-0000-0000-000000000000", "nobody's")
USERS: Final = ("u1", "u2", "00000000-0000-0000-0000-000000000000")
TYPES: Final = ("INSTANCE", "MIGRATION", "unknown", "all", "VOLUME")


# -- upstream, and what is in it ----------------------------------------------------------------


@pytest.fixture(params=KINDS)
def source_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, as a URL of Berth's."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'placement.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def upstream(source_url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    directory = tmp_path / "upstream"
    directory.mkdir()
    write_config(directory, source_url, "sync_on_startup = True")
    with running(placement_server(directory)) as server:
        yield server


def fill(url: str) -> None:
    """Everything a Placement can hold, through its API, with a past: things renamed, moved and removed."""
    placement = PlacementClient(url, "1.39")
    vocabulary(url, placement)
    providers(placement)
    inventories(placement)
    consumers(url, placement)
    # What is over capacity: the inventory shrank under its consumers.
    generation = placement("GET", f"/resource_providers/{HOSTS[1]}")["generation"]
    shrunk = {"resource_provider_generation": generation, "total": 1, "max_unit": 64, "allocation_ratio": 1.0}
    placement("PUT", f"/resource_providers/{HOSTS[1]}/inventories/VCPU", shrunk)
    placement.close()


def put(url: str, version: str, path: str, body: object) -> None:
    """One request of another version."""
    placement = PlacementClient(url, version)
    placement("PUT", path, body)
    placement.close()


def vocabulary(url: str, placement: PlacementClient) -> None:
    for name in ("CUSTOM_GONE", "CUSTOM_ZEBRA", "CUSTOM_OLD_NAME", "CUSTOM_APE"):
        placement("PUT", f"/resource_classes/{name}")
    placement("DELETE", "/resource_classes/CUSTOM_GONE")
    put(url, "1.2", "/resource_classes/CUSTOM_OLD_NAME", {"name": "CUSTOM_NEW_NAME"})
    for name in ("CUSTOM_RED", "CUSTOM_BLUE", "CUSTOM_UNUSED"):
        placement("PUT", f"/traits/{name}")


def providers(placement: PlacementClient) -> None:
    for number, id in enumerate(HOSTS):
        placement("POST", "/resource_providers", {"uuid": id, "name": f"host-{number}"})
    for number, (cell, function) in enumerate(zip(CELLS, FUNCTIONS, strict=True)):
        # Made as roots, and put below others that may be younger.
        placement("POST", "/resource_providers", {"uuid": function, "name": f"pf-{number}"})
        parent = {"uuid": cell, "name": f"cell-{number}", "parent_provider_uuid": HOSTS[number]}
        placement("POST", "/resource_providers", parent)
        moved = {"name": f"pf-{number}", "parent_provider_uuid": cell}
        placement("PUT", f"/resource_providers/{function}", moved)
    for id, name in ((STORE, "store"), (LONER, 'lone "host" \u00e9')):
        placement("POST", "/resource_providers", {"uuid": id, "name": name})
    placement("PUT", f"/resource_providers/{HOSTS[3]}", {"name": "host-renamed"})
    for id, *names in (
        (HOSTS[0], "CUSTOM_RED", "HW_CPU_X86_AVX2", "COMPUTE_NODE"),
        (HOSTS[1], "HW_CPU_X86_AVX2"),
        (FUNCTIONS[2], "CUSTOM_BLUE", "CUSTOM_RED"),
        (STORE, "MISC_SHARES_VIA_AGGREGATE"),
    ):
        change(placement, id, "traits", {"traits": names})
    change(placement, HOSTS[3], "aggregates", {"aggregates": [EMPTY_RACK]})
    for id, *racks in ((HOSTS[3], POOLED), (HOSTS[0], RACK, POOLED), (HOSTS[1], RACK), (STORE, POOLED)):
        change(placement, id, "aggregates", {"aggregates": racks})


def inventories(placement: PlacementClient) -> None:
    for id in (*HOSTS, LONER):
        change(
            placement,
            id,
            "inventories",
            {
                "inventories": {
                    "VCPU": {"total": 16, "allocation_ratio": 16.0, "max_unit": 16},
                    "MEMORY_MB": {"total": 65536, "reserved": 512, "step_size": 64, "allocation_ratio": 1.1},
                    "CUSTOM_NEW_NAME": {"total": 7, "min_unit": 2, "max_unit": 4, "reserved": 1},
                }
            },
        )
    for id in CELLS:
        change(placement, id, "inventories", {"inventories": {"PCPU": {"total": 8}}})
    for id in FUNCTIONS:
        wanted = {"SRIOV_NET_VF": {"total": 4}, "CUSTOM_APE": {"total": 9, "allocation_ratio": 0.5}}
        change(placement, id, "inventories", {"inventories": wanted})
    change(placement, STORE, "inventories", {"inventories": {"DISK_GB": {"total": 2000, "reserved": 100}}})
    change(placement, HOSTS[2], "inventories", {"inventories": {"VCPU": {"total": 4}}})


def change(placement: PlacementClient, provider: str, what: str, body: dict[str, Any]) -> None:
    generation = placement("GET", f"/resource_providers/{provider}")["generation"]
    body = {**body, "resource_provider_generation": generation}
    placement("PUT", f"/resource_providers/{provider}/{what}", body)


def claim(amounts: dict[str, dict[str, int]], project: str, user: str, **more: Any) -> dict[str, Any]:
    allocations = {provider: {"resources": resources} for provider, resources in amounts.items()}
    return {"allocations": allocations, "project_id": project, "user_id": user, **more}


def consumers(url: str, placement: PlacementClient) -> None:
    wanted: tuple[tuple[dict[str, dict[str, int]], str, str], ...] = (
        ({HOSTS[0]: {"VCPU": 4, "MEMORY_MB": 4096}, STORE: {"DISK_GB": 20}}, "p1", "u1"),
        ({HOSTS[1]: {"VCPU": 2, "MEMORY_MB": 64}, CELLS[1]: {"PCPU": 3}}, "p1", "u2"),
        ({HOSTS[1]: {"VCPU": 1, "CUSTOM_NEW_NAME": 2}, FUNCTIONS[1]: {"SRIOV_NET_VF": 1}}, "p2", "u2"),
        ({LONER: {"VCPU": 16, "CUSTOM_NEW_NAME": 4}}, "p2", "u1"),
    )
    for id, (amounts, project, user) in zip(SERVERS, wanted, strict=True):
        new = claim(amounts, project, user, consumer_generation=None, consumer_type="INSTANCE")
        placement("PUT", f"/allocations/{id}", new)
    # A move: the source's goes to a migration, the server holds the destination's.
    moves = {
        MIGRATION: claim(wanted[0][0], "p1", "u1", consumer_generation=None, consumer_type="MIGRATION"),
        SERVERS[0]: claim(
            {HOSTS[3]: {"VCPU": 4, "MEMORY_MB": 4096}, STORE: {"DISK_GB": 20}},
            "p1",
            "u1",
            consumer_generation=1,
            consumer_type="INSTANCE",
        ),
    }
    placement("POST", "/allocations", moves)
    oldest = [{"resource_provider": {"uuid": HOSTS[2]}, "resources": {"VCPU": 1}}]
    put(url, "1.0", f"/allocations/{OLDEST}", {"allocations": oldest})
    untyped = claim({HOSTS[2]: {"VCPU": 2}}, "p3", "u1", consumer_generation=None)
    put(url, "1.28", f"/allocations/{UNTYPED}", untyped)
    idle = claim({}, "p3", "u2", consumer_generation=None, consumer_type="VOLUME")
    placement("PUT", f"/allocations/{IDLE}", idle)
    gone = claim({LONER: {"MEMORY_MB": 64}}, "p3", "u2", consumer_generation=None, consumer_type="INSTANCE")
    placement("PUT", f"/allocations/{GONE}", gone)
    placement("DELETE", f"/allocations/{GONE}")


# -- asking both --------------------------------------------------------------------------------


def questions() -> Iterator[tuple[str, str]]:
    """Versions and paths."""
    for path in ("/resource_classes", "/traits", "/traits?associated=true", "/resource_providers"):
        yield "1.39", path
    for name in ("CUSTOM_NEW_NAME", "CUSTOM_OLD_NAME", "CUSTOM_GONE", "VCPU"):
        yield "1.39", f"/resource_classes/{name}"
    for id in PROVIDERS:
        yield "1.39", f"/resource_providers/{id}"
        yield "1.39", f"/resource_providers?in_tree={id}"
        for what in ("inventories", "traits", "aggregates", "usages", "allocations"):
            yield "1.39", f"/resource_providers/{id}/{what}"
        yield "1.11", f"/resource_providers/{id}/allocations"
    for id in CONSUMERS:
        for version in ("1.0", "1.12", "1.28", "1.38"):
            yield version, f"/allocations/{id}"
    for project in PROJECTS:
        yield "1.9", f"/usages?project_id={project}"
        for narrower in (
            "",
            *(f"&user_id={user}" for user in USERS),
            *(f"&consumer_type={t}" for t in TYPES),
        ):
            yield "1.39", f"/usages?project_id={project}{narrower}"
    yield "1.39", "/usages?project_id=p1&user_id=u1&consumer_type=INSTANCE"
    for query in (f"member_of={RACK}", "required=CUSTOM_RED", "resources=VCPU:4", "name=host-renamed"):
        yield "1.39", f"/resource_providers?{query}"
    for query in (
        "resources=VCPU:1,MEMORY_MB:128",
        "resources=VCPU:1,DISK_GB:10",
        "resources=CUSTOM_NEW_NAME:3",
        "resources=VCPU:1&resources1=PCPU:1&resources2=SRIOV_NET_VF:2&group_policy=none",
        f"resources=VCPU:1&member_of={RACK}&required=HW_CPU_X86_AVX2",
        "resources1=CUSTOM_APE:1&required1=CUSTOM_RED,CUSTOM_BLUE",
        "resources=CUSTOM_ZEBRA:1",
    ):
        yield "1.39", f"/allocation_candidates?{query}"


def compare_answers(upstream: str, database: str, berth: str) -> None:
    """Every question has the same answer from Placement, which serves ``database``, and from Berth."""
    compare(upstream, database, berth, questions())


def run_import(*words: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    return COMMANDS["berth"].run(["import", *words], env)


# -- tests --------------------------------------------------------------------------------------


def test_every_answer_is_the_same_after_an_import(
    upstream: ServerProcess, source_url: str, tmp_path: Path
) -> None:
    fill(upstream.url)
    target = ("--database", f"sqlite:///{tmp_path / 'berth.db'}")
    brought = run_import("--from", source_url, *target)
    assert brought.returncode == 0, brought.stdout + brought.stderr
    counts = {line.split()[0]: line.split()[1:] for line in brought.stdout.splitlines() if line}
    assert counts["resource_providers"] == ["14", "14", "0", "0", "14"]
    assert counts["consumers"] == ["8", "8", "0", "0", "8"]
    assert counts["placement_aggregates"] == ["3", "3", "0", "1", "2"]
    assert "DIFFERS" not in brought.stdout
    assert f"{HOSTS[1]} (host-1), VCPU: 3 of 1" in brought.stdout

    with running(berth(tmp_path)) as server:
        compare_answers(upstream.url, source_url, server.url)
        life_goes_on(upstream.url, server.url)
        server.stop()
        assert server.complaints() == []
    again = run_import("--from", source_url, *target)
    assert again.returncode == 1
    assert "the target is not empty" in again.stderr
    assert "14 providers" in again.stderr


def life_goes_on(*urls: str) -> None:
    """Writers that last saw the one can go on with the other: generations are the same, and count."""
    seen = []
    for url in urls:
        placement = PlacementClient(url, "1.39")
        generation = placement("GET", f"/allocations/{SERVERS[1]}")["consumer_generation"]
        wanted = claim({CELLS[1]: {"PCPU": 4}}, "p1", "u2", consumer_type="INSTANCE")
        idle = claim({CELLS[0]: {"PCPU": 1}}, "p3", "u2", consumer_type="VOLUME")
        seen.append(
            [
                placement.ask(*request).status
                for request in (
                    ("PUT", f"/allocations/{SERVERS[1]}", {**wanted, "consumer_generation": generation - 1}),
                    ("PUT", f"/allocations/{SERVERS[1]}", {**wanted, "consumer_generation": generation}),
                    ("PUT", f"/allocations/{IDLE}", {**idle, "consumer_generation": None}),
                    ("PUT", f"/allocations/{IDLE}", {**idle, "consumer_generation": 0}),
                    ("POST", "/resource_classes", {"name": "CUSTOM_YAK"}),
                    ("DELETE", "/resource_classes/CUSTOM_APE", None),
                    ("DELETE", "/traits/CUSTOM_RED", None),
                    ("DELETE", "/traits/CUSTOM_UNUSED", None),
                    ("DELETE", f"/resource_providers/{CELLS[0]}", None),
                )
            ]
        )
        classes = [entry["name"] for entry in placement("GET", "/resource_classes")["resource_classes"]]
        placement.close()
    # The order of Berth's list is that of the numbers.
    assert classes[-4:] == ["CUSTOM_ZEBRA", "CUSTOM_NEW_NAME", "CUSTOM_APE", "CUSTOM_YAK"]
    assert seen[0] == seen[1] == [409, 204, 409, 204, 201, 409, 409, 204, 409]


def test_a_source_is_read_as_of_one_moment_and_cannot_be_written(
    upstream: ServerProcess, source_url: str
) -> None:
    placement = PlacementClient(upstream.url, "1.39")
    with Source(placement_address(source_url)) as source:
        before = source.counts()["traits"]
        if not source_url.startswith("sqlite:"):
            # In SQLite's default mode one who writes waits for those who read.
            placement("PUT", "/traits/CUSTOM_LATER")
        assert len(list(source.rows(TRAITS))) == before
        with pytest.raises(CannotImport, match=r"(?i)read.?only"):
            source.execute(sa.text("DELETE FROM traits"))
    placement.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_the_target_may_be_on_a_server(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    brought = run_import("--from", make_source(tmp_path / "placement.db", SOUND), "--database", url)
    assert brought.returncode == 0, brought.stdout + brought.stderr
    with running(berth(tmp_path, database=url)) as server:
        placement = PlacementClient(server.url, "1.39")
        assert placement("GET", f"/allocations/{CONSUMER}")["consumer_generation"] == 3
        placement.close()


def test_no_server_starts_on_an_import_that_broke_off(tmp_path: Path) -> None:
    target = tmp_path / "berth.db"
    source = make_source(tmp_path / "placement.db", SOUND)
    assert run_import("--from", source, "--database", f"sqlite:///{target}").returncode == 0
    # The last thing that an import writes is the first entry of the journal.
    with contextlib.closing(sqlite3.connect(target)) as journal, journal:
        journal.execute("UPDATE journal SET idx = 2")
    with pytest.raises(ServerStartError, match="no readable snapshot reaches the start of the journal"):
        berth(tmp_path).start()
    refused = run_import("--from", source, "--database", f"sqlite:///{target}")
    assert refused.returncode == 1
    assert "an earlier import into the target did not finish" in refused.stderr


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_database_of_something_else_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    statements.execute(url, "CREATE TABLE instances (id INTEGER PRIMARY KEY)")
    refused = run_import("--from", url, "--dry-run")
    assert refused.returncode == 1
    assert "not a Placement database: it has no table resource_providers" in refused.stderr

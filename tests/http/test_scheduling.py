"""Groups and the scheduler on a running server with two workers, over connections to both."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults.lines import Line, lines_to_all_workers
from tests.faults.load import make_providers
from tests.placement import PlacementAnswer
from tests.servers import ServerProcess, berth, running
from tests.unit.native.refused_schedules import REFUSED, REFUSED_GROUPS
from tests.worlds import uuid_of

pytestmark = pytest.mark.http

WORKERS = 2
HOSTS = [uuid_of(number) for number in range(1, 13)]
CLIENTS = 12


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running(berth(tmp_path, "--workers", str(WORKERS))) as server:
        yield server


@pytest.fixture
def lines(server: ServerProcess) -> Iterator[list[Line]]:
    """A line to each worker, and a fleet."""
    lines = lines_to_all_workers(server, WORKERS)
    make_providers(lines[0], HOSTS, {"VCPU": 8, "MEMORY_MB": 8192})
    yield lines
    for line in lines:
        line.close()


def post(line: Line, path: str, body: object) -> PlacementAnswer:
    return line.ask("POST", f"/berth/v1/{path}", body)


def refusal(answer: PlacementAnswer) -> Any:
    [error] = answer.body["errors"]
    return error


def test_what_one_worker_plans_the_other_claims(lines: list[Line]) -> None:
    here, there = lines
    planned = post(here, "schedule", {"resources": {"VCPU": 8}, "max_count": 12, "dry_run": True})
    assert planned.status == 200
    assert post(there, "capacity", {"resources": {"VCPU": 8}}).body["capacity"]["count"] == 12
    done = post(there, "schedule", {"token": planned.body["token"]})
    assert done.status == 200
    assert len({one["host_uuid"] for one in done.body["placements"]}) == 12
    assert post(here, "capacity", {"resources": {"VCPU": 1}}).body["capacity"]["count"] == 0
    again = post(here, "schedule", {"token": planned.body["token"]})
    assert (again.status, refusal(again)["code"]) == (409, "berth.plan_moved")
    full = post(there, "schedule", {"resources": {"VCPU": 1}, "explain": True})
    assert (full.status, refusal(full)["code"]) == (409, "berth.no_fit")
    assert refusal(full)["explanation"]["fitting"] == 0
    explained = post(here, "explain", {"resources": {"VCPU": 1}, "hosts": [HOSTS[0]]})
    assert explained.body["explanation"]["hosts"][0]["fits"] is False


def test_all_at_once_into_a_group_each_gets_a_host_of_its_own(
    server: ServerProcess, lines: list[Line]
) -> None:
    made = post(lines[0], "groups", {"group": {"name": "db", "policy": "anti-affinity"}})
    group = made.body["group"]["uuid"]
    gate = threading.Barrier(CLIENTS + 2)

    def schedule(_: int) -> PlacementAnswer:
        line = Line(server)
        gate.wait(30)
        try:
            return post(line, "schedule", {"resources": {"VCPU": 1}, "group": group})
        finally:
            line.close()

    with ThreadPoolExecutor(CLIENTS + 2) as pool:
        answers = list(pool.map(schedule, range(CLIENTS + 2)))
    placed = Counter(
        one["host_uuid"] for answer in answers if answer.status == 200 for one in answer.body["placements"]
    )
    assert placed == dict.fromkeys(HOSTS, 1)
    assert [refusal(a)["code"] for a in answers if a.status != 200] == ["berth.no_fit"] * 2
    shown = lines[1]("GET", f"/berth/v1/groups/{group}")["group"]
    assert shown["member_count"] == CLIENTS


def test_refusals_read_the_same_through_either_worker(lines: list[Line]) -> None:
    for body, words in REFUSED:
        for line in lines:
            answer = post(line, "schedule", body)
            assert (answer.status, refusal(answer)["code"]) == (400, "berth.bad_body"), body
            assert words in refusal(answer)["detail"]
    for unfit, words in REFUSED_GROUPS:
        for line in lines:
            answer = post(line, "groups", unfit)
            assert (answer.status, refusal(answer)["code"]) == (400, "berth.bad_body"), unfit
            assert words in refusal(answer)["detail"]


def test_a_worker_refuses_what_conflicts_with_another_workers_write(
    lines: list[Line],
) -> None:
    here, there = lines
    rack, member = uuid_of(501), uuid_of(101)
    label = {"aggregate": {"kind": "rack", "name": "r1"}}
    assert here.ask("PUT", f"/berth/v1/aggregates/{rack}", label).status == 200
    body = {"group": {"name": "db", "policy": "anti-affinity", "domain": "rack", "members": [member]}}
    group = post(here, "groups", body).body["group"]["uuid"]
    placed = {"resources": {"VCPU": 1}, "consumers": [uuid_of(102)], "hints": {"forced_host": HOSTS[0]}}
    assert post(here, "schedule", placed).status == 200
    unknown = {"resources": {"VCPU": 1}, "hints": {"same_host": [uuid_of(999)]}}
    missing = {"resources": {"VCPU": 1}, "group": uuid_of(999)}
    below = {"host": {"down": True}}
    cases = [
        (
            "POST",
            "groups",
            {"group": {**body["group"], "uuid": group}},
            409,
            "already exists: choose another uuid",
        ),
        ("POST", "groups", body, 409, "is already a member of group"),
        ("GET", f"groups/{uuid_of(999)}", None, 404, "There is no group"),
        ("DELETE", f"groups/{group}", None, 409, "delete it with force=true"),
        ("PUT", f"aggregates/{uuid_of(502)}", label, 409, "choose another name"),
        ("DELETE", f"aggregates/{rack}", None, 409, "This is the last rack"),
        ("PUT", f"aggregates/{rack}", {"aggregate": {"kind": "host"}}, 400, "choose another kind"),
        ("PUT", f"hosts/{uuid_of(999)}", below, 404, "No host has the name"),
        ("POST", "schedule", placed, 409, "is there already"),
        ("POST", "schedule", unknown, 400, "which holds no allocations"),
        ("POST", "schedule", missing, 404, "There is no group"),
        ("POST", "explain", {"resources": {"CUSTOM_X": 1}}, 400, "There is no resource class CUSTOM_X"),
        ("POST", "capacity", missing, 404, "There is no group"),
        ("POST", "schedule", {"resources": {"VCPU": 1}, "group": group}, 409, "0 fit"),
    ]
    for method, path, sent, status, words in cases:
        answer = there.ask(method, f"/berth/v1/{path}", sent)
        assert answer.status == status, (method, path, answer)
        assert words in refusal(answer)["detail"], answer
    claim = {
        "allocations": {HOSTS[1]: {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    refused = there.ask("PUT", f"/allocations/{member}", claim)
    assert (refused.status, refusal(refused)["code"]) == (409, "berth.group_policy")
    assert "it is in no rack" in refusal(refused)["detail"]


def test_a_host_that_one_worker_hears_is_down_is_not_chosen_by_the_other(lines: list[Line]) -> None:
    here, there = lines
    for host in HOSTS[1:]:
        status = {"host": {"down": True}}
        assert here.ask("PUT", f"/berth/v1/hosts/{host}", status).status == 200
        placed = post(there, "schedule", {"resources": {"VCPU": 1}, "hints": {"ignore_hosts": HOSTS[:1]}})
        if host == HOSTS[-1]:
            assert placed.status == 409
        else:
            assert placed.body["placements"][0]["host_uuid"] > host

"""Alerts: each fires by its cause, with a real Prometheus; and nights on call, in which nothing is read but
alerts, metrics and logs."""

import json
import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.databases.postgresql import PostgreSQL
from tests.ops.fleet import (
    ALERTS,
    BUILD_S,
    SECRETS,
    SILENT_S,
    SNAPSHOT_EVERY,
    Fleet,
    running_fleet,
    wait_until,
)
from tests.packages import PackageMissing
from tests.waiting import WITHIN_S

FIRED: Final[set[str]] = set()
"""What the tests of this file have seen firing."""
PROVIDER: Final = str(uuid.uuid4())


@pytest.fixture(scope="module")
def fleet(postgresql: PostgreSQL, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    try:
        with running_fleet(tmp_path_factory.mktemp("alerts"), postgresql) as fleet:
            fleet.must("POST", "/resource_providers", {"name": "spare", "uuid": PROVIDER})
            inventories = {"VCPU": {"total": 10_000}}
            body = {"resource_provider_generation": 0, "inventories": inventories}
            fleet.must("PUT", f"/resource_providers/{PROVIDER}/inventories", body)
            flavor = {"id": "1", "name": "small", "vcpus": 1, "ram": 512, "disk": 1}
            fleet.must("POST", "/compute/v2.1/flavors", {"flavor": flavor})
            wait_until(
                lambda: fleet.query('berth_hosts{state="up",job="berth"}') == {("up",): 4}, lambda: "up"
            )
            yield fleet
    except PackageMissing as missing:
        pytest.skip(str(missing))


def expect(fleet: Fleet, *names: str, **how: Any) -> dict[str, str]:
    FIRED.update(names)
    return fleet.wait_for_alerts(*names, **how)


def claim(fleet: Fleet, amount: int) -> None:
    allocations = {PROVIDER: {"resources": {"VCPU": amount}}}
    body = {
        "allocations": allocations,
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "TEST",
    }
    fleet.must("PUT", f"/allocations/{uuid.uuid4()}", body)


def create(fleet: Fleet, name: str) -> tuple[str, str]:
    """The ids of a server, and of the request for it."""
    body = {"server": {"name": name, "flavorRef": "1", "networks": "none"}}
    answer = fleet.ask("POST", "/compute/v2.1/servers", body)
    assert answer is not None
    assert answer.status_code == 202, answer.text
    return answer.json()["server"]["id"], answer.headers["x-openstack-request-id"]


def create_on_a_host(fleet: Fleet, name: str) -> tuple[str, str]:
    """Hosts are down for a moment after their cell's database was away for longer than their timeout: then
    there is no host for a server, and nothing of it is built."""
    made: list[tuple[str, str]] = []

    def is_on_a_host() -> bool:
        made.append(create(fleet, name))
        answer = fleet.ask("GET", f"/compute/v2.1/servers/{made[-1][0]}")
        return answer is not None and answer.json()["server"]["status"] == "BUILD"

    wait_until(is_on_a_host, lambda: f"{len(made)} servers found no host")
    return made[-1]


def is_deadline_known(fleet: Fleet, server: str) -> bool:
    answer = fleet.ask("GET", f"/berth/v1/operations?server={server}")
    return answer is not None and any(one["deadline"] for one in answer.json().get("operations", ()))


def have_builds_hang(fleet: Fleet) -> Path:
    """The file that says so."""
    said = len(read_log(fleet.agent.log_path, "simulated hosts behave as /"))
    behaviour = fleet.agents / "control" / "behaviour.toml"
    behaviour.parent.mkdir(exist_ok=True)
    behaviour.write_text('[[rules]]\noutcome = "hang"\nverb = "build"\n')
    wait_until(
        lambda: len(read_log(fleet.agent.log_path, "simulated hosts behave as /")) > said,
        lambda: "the agent does not read it",
    )
    return behaviour


def read_log(path: Path, pattern: str) -> list[dict[str, Any]]:
    """The lines of a log whose message matches."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if re.search(pattern, line.get("message", ""))]


def wait_for_line(path: Path, pattern: str, seen: int = 0) -> dict[str, Any]:
    """The last line that matches, once there are more than were seen."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = read_log(path, pattern)
        return len(found) > seen

    wait_until(is_there, lambda: f"{pattern} is not in {path.name}: {path.read_text()[-3000:]}")
    return found[-1]


# -- nights -------------------------------------------------------------------------------------


def test_a_night_with_a_host_that_dies(fleet: Fleet) -> None:
    control = fleet.agents / "control"
    control.mkdir(exist_ok=True)
    wait_until(lambda: "BerthHostDown" not in fleet.find_firing(), lambda: "hosts are down already")
    pattern = "host-0001: down, no heartbeat within 5 s"
    seen = len(read_log(fleet.cell.log_path, pattern))
    (control / "host-0001.dead").touch()
    try:
        assert expect(fleet, "BerthHostDown")["BerthHostDown"].endswith(" hosts are down")
        down = wait_for_line(fleet.cell.log_path, pattern, seen)
        assert down["host"] == "host-0001"
    finally:
        (control / "host-0001.dead").unlink()
    up = wait_for_line(fleet.cell.log_path, "host-0001: up again after ")
    assert up["seconds"] > 0


def test_a_night_with_a_database_that_is_away(fleet: Fleet) -> None:
    token = fleet.log_in()
    with fleet.database_away(fleet.names[0]):
        summaries = expect(
            fleet,
            "BerthDatabaseAway",
            "BerthErrors",
            "BerthTokensNotJudged",
            meanwhile=lambda: fleet.ask("GET", "/resource_providers", timeout_s=3, token=token),
        )
        assert "cannot use its database" in summaries["BerthDatabaseAway"]
        wait_until(lambda: 0.0 in fleet.query('berth_database_up{job="berth"}').values(), lambda: "it is up")
        lost = wait_for_line(fleet.region.log_path, "^the database: unavailable: ")
        assert "not currently accepting connections" in lost["message"] or "terminating" in lost["message"]
    back = wait_for_line(fleet.region.log_path, "^the database: available again after ")
    assert back["seconds"] > 0
    wait_until(
        lambda: set(fleet.query('berth_database_up{job="berth"}').values()) == {1.0}, lambda: "it stays down"
    )
    assert sum(fleet.query_all('berth_database_outages_total{job="berth"}', 1).values()) >= 1


def test_a_night_with_the_database_of_a_cell(fleet: Fleet) -> None:
    with fleet.database_away(fleet.names[1]):
        assert "cell1" in expect(fleet, "BerthCellUnreachable")["BerthCellUnreachable"]
        wait_for_line(fleet.region.log_path, "^the database of cell1: unavailable: ")
        wait_for_line(fleet.cell.log_path, "^the database: unavailable: ")
    wait_for_line(fleet.region.log_path, "^the database of cell1: available again after ")
    wait_for_line(fleet.cell.log_path, "^the database: available again after ")


def test_a_night_with_a_build_that_hangs(fleet: Fleet) -> None:
    behaviour = have_builds_hang(fleet)
    server, request_id = create_on_a_host(fleet, "stuck")
    fired = expect(fleet, "BerthOperationsFail")["BerthOperationsFail"]
    assert "create" in fired
    for path in (fleet.region.log_path, fleet.cell.log_path):
        failed = wait_for_line(path, "create: step build failed on host-")
        assert (failed["server"], failed["request_id"]) == (server, request_id)
        assert failed["seconds"] >= BUILD_S
        assert failed["message"].endswith(f"no answer within {BUILD_S} seconds")
        ended = wait_for_line(path, "create failed on host-")
        assert (ended["server"], ended["request_id"]) == (server, request_id)
    begun = wait_for_line(fleet.agent.log_path, f"server {server}: build begun")
    assert begun["host"].startswith("host-")
    assert begun["request_id"] == request_id
    behaviour.unlink()
    wait_for_line(fleet.agent.log_path, "simulated hosts behave as the command line says")


def test_a_night_with_a_worker_that_hangs(fleet: Fleet) -> None:
    [(worker, pid), (_, other)] = fleet.find_workers().items()
    fleet.execute_in_region("REVOKE INSERT ON snapshot, snapshot_part FROM berth")
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(3 * SNAPSHOT_EVERY + 10):
            claim(fleet, 1)
        fired = expect(fleet, "BerthWorkerHung", "BerthWorkerLags", "BerthSnapshotsBehind")
    finally:
        fleet.execute_in_region("GRANT INSERT ON snapshot, snapshot_part TO berth")
        os.kill(pid, signal.SIGKILL)
    assert fired["BerthWorkerHung"].startswith(f"worker {worker[0]} of berth ")
    replaced = wait_for_line(fleet.region.log_path, f"worker {worker[0]} ended")
    assert "restarting it in" in replaced["message"]
    os.kill(other, signal.SIGKILL)
    expect(fleet, "BerthWorkersRestart")


# -- other causes -------------------------------------------------------------------------------


def test_appends_that_wait_for_a_lock(fleet: Fleet) -> None:
    statement = "BEGIN; LOCK TABLE journal IN EXCLUSIVE MODE; SELECT pg_sleep(0.9); COMMIT"
    stopping = threading.Event()

    def lock() -> None:
        while not stopping.wait(0.3):
            fleet.execute_in_region(statement)

    thread = threading.Thread(target=lock)
    thread.start()
    try:
        expect(fleet, "BerthAppendsSlow", meanwhile=lambda: claim(fleet, 1))
    finally:
        stopping.set()
        thread.join()


def test_a_log_that_nobody_reads(fleet: Fleet) -> None:
    reader = fleet.region.reader
    assert reader is not None
    reader.send_signal(signal.SIGSTOP)
    try:
        for _ in range(50):
            fleet.ask("GET", f"/resource_providers?name={'x' * 50_000}")
        expect(fleet, "BerthLogLinesDropped")
    finally:
        reader.send_signal(signal.SIGCONT)


def test_a_class_that_runs_out(fleet: Fleet) -> None:
    [free] = fleet.query_all('berth_free{resource_class="VCPU",cell=""}', 1).values()
    claim(fleet, int(0.95 * free))
    expect(fleet, "BerthCapacityLow")


def test_secrets_are_in_no_log(fleet: Fleet) -> None:
    """All of it was logged at level debug."""
    token = fleet.log_in()
    assert fleet.ask("GET", "/traits", token=token) is not None
    assert '"level":"DEBUG"' in fleet.region.log
    credentials = [path.read_text().strip() for path in (fleet.agents / "credentials").iterdir()]
    assert len(credentials) == 3
    issued = [credential.rpartition(":")[2] for credential in credentials]
    for server in (fleet.region, fleet.cell, fleet.agent):
        for secret in (*SECRETS, token, *issued):
            assert secret not in server.log


def test_promtool_accepts_the_metrics(fleet: Fleet) -> None:
    for server in (fleet.region, fleet.cell, fleet.agent):
        text = httpx.get(f"{server.url}/metrics", timeout=WITHIN_S).content
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


@pytest.mark.timeout(600)
def test_a_conductor_that_dies_in_the_middle(fleet: Fleet) -> None:
    """The last of them: it does not come back."""
    have_builds_hang(fleet)
    server, _ = create_on_a_host(fleet, "orphan")
    wait_for_line(fleet.agent.log_path, f"server {server}: build begun")
    wait_until(
        lambda: fleet.query("berth_operations_under_way{job='berth'}") == {("create",): 1.0},
        lambda: "under way",
    )
    # Nobody will tell the region any more until when the step should have ended.
    wait_until(lambda: is_deadline_known(fleet, server), lambda: "the region knows no deadline")
    fleet.cell.kill()
    fired = expect(fleet, "BerthDown", "BerthOperationsOverdue", "BerthAgentAlone")
    assert "berth-cell" in fired["BerthDown"]
    wait_for_line(fleet.agent.log_path, "^the conductor .*: unreachable, retrying: ")
    # This one takes its time: it costs nothing while other tests run.
    fired = expect(fleet, "BerthConductorSilent", within_s=3 * SILENT_S)
    assert fired["BerthConductorSilent"] == "the conductor of cell1 is not heard of"


def test_every_alert_has_fired(fleet: Fleet) -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == FIRED


# -- without a fleet ----------------------------------------------------------------------------


def promtool(*words: str, cwd: Path | None = None) -> None:
    done = subprocess.run(["promtool", *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


ACTION: Final = "Start it again (berth cell), and read its log. Nothing is carried out there meanwhile."


def test_promtool_accepts_the_rules_and_the_silence_of_a_conductor_fires(
    fleet: Fleet, tmp_path: Path
) -> None:
    promtool("check", "rules", str(ALERTS))
    series = 'berth_conductor_heard_timestamp_seconds{cell="cell1"}'
    play = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                # It is heard of once a minute for five minutes, and then not any more.
                "input_series": [{"series": series, "values": "30+60x5 330x20"}],
                "alert_rule_test": [
                    {"eval_time": "9m", "alertname": "BerthConductorSilent", "exp_alerts": []},
                    {
                        "eval_time": "12m",
                        "alertname": "BerthConductorSilent",
                        "exp_alerts": [
                            {
                                "exp_labels": {"cell": "cell1", "severity": "critical"},
                                "exp_annotations": {
                                    "summary": "the conductor of cell1 is not heard of",
                                    "action": ACTION,
                                },
                            }
                        ],
                    },
                ],
            }
        ],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    promtool("test", "rules", "play.yml", cwd=tmp_path)

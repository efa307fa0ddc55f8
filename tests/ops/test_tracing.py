"""Traces: a region with two workers, a cell and an agent, and a collector of our own making."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.collector import Collector, SeenSpan
from tests.ops.fleet import wait_until
from tests.servers import HOST, ROOT, ServerProcess
from tests.waiting import WITHIN_S

BERTH: Final = str(Path(sys.executable).with_name("berth"))
GUIDE: Final = ROOT / "docs" / "guides" / "observing.md"
ENTRY: Final = "berth.cli:main"
CALLER: Final = "00f067aa0ba902b7"
"""The span of a caller, below which its requests belong."""
COMPUTE: Final = "/compute/v2.1/servers"
BEHAVIOUR: Final = """
build_seconds = 0
[[rules]]
server = "fails"
verb = "build"
outcome = "fail"
message = "no space left"
[[rules]]
server = "slow"
verb = "build"
outcome = "late"
seconds = 3
"""
"""Of the simulated hosts, by the names of servers."""


class TracedCloud:
    """``stack``: of who ends what was started, also when not all of it could be."""

    def __init__(self, directory: Path, collector: Collector, stack: contextlib.ExitStack) -> None:
        self.collector = collector
        self.data = directory / "agents"
        env = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "OTEL_"))}
        traced = f"--trace-endpoint {collector.url} --log-format json"
        url = f"sqlite:///{directory}"
        region = f"region --database {url}/region.db --cells cell1={url}/cell.db --workers 2 {traced}"
        self.region = ServerProcess(
            lambda port: [BERTH, *region.split(), "--listen", f"{HOST}:{port}"],
            directory / "region.log",
            {**env, "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=berth"},
            ENTRY,
        )
        self.region.start()
        stack.callback(_end, self.region)
        cell = f"cell --name cell1 --database {url}/cell.db --placement {self.region.url} {traced}"
        self.cell = ServerProcess(
            lambda port: [BERTH, *cell.split(), "--listen", f"{HOST}:{port}"],
            directory / "cell.log",
            {**env, "BERTH_PLACEMENT_TOKEN": "admin"},
            ENTRY,
        )
        self.cell.start()
        stack.callback(_end, self.cell)
        (self.data / "control").mkdir(parents=True)
        (self.data / "control" / "behaviour.toml").write_text(BEHAVIOUR)
        agent = f"agent --driver sim --hosts 2 --conductor {self.cell.url} --data {self.data} {traced}"
        self.agent = ServerProcess(
            lambda port: [BERTH, *agent.split(), "--metrics-listen", f"{HOST}:{port}"],
            directory / "agent.log",
            env,
            ENTRY,
        )
        self.agent.start()
        stack.callback(_end, self.agent)
        headers = {"x-auth-token": "admin"}
        client = httpx.Client(base_url=self.region.url, headers=headers, timeout=WITHIN_S)
        self.client = stack.enter_context(client)

    def prepare(self) -> None:
        flavor = {"id": "1", "name": "small", "vcpus": 1, "ram": 512, "disk": 1}
        self.client.post("/compute/v2.1/flavors", json={"flavor": flavor}).raise_for_status()
        wait_until(
            lambda: self.client.get("/compute/v2.1/os-services").text.count('"up"') == 2,
            lambda: "the hosts are not up",
        )

    def create(self, trace: str, name: str = "good", flags: str = "01") -> str:
        body = {"server": {"name": name, "flavorRef": "1"}}
        headers = {"traceparent": f"00-{trace}-{CALLER}-{flags}"}
        answer = self.client.post(COMPUTE, json=body, headers=headers)
        answer.raise_for_status()
        return str(answer.json()["server"]["id"])

    def wait_for_status(self, server: str, status: str = "ACTIVE") -> None:
        found: list[str] = []

        def has_it() -> bool:
            found.append(self.client.get(f"{COMPUTE}/{server}").json()["server"]["status"])
            assert found[-1] in ("BUILD", status), found
            return found[-1] == status

        wait_until(has_it, lambda: f"{server} is {found[-1]}, not {status}")

    def read_conductor(self) -> int:
        """The process of the conductor."""
        [line] = (
            line
            for line in httpx.get(f"{self.cell.url}/metrics", timeout=WITHIN_S).text.splitlines()
            if line.startswith("berth_worker_pid{")
        )
        return int(float(line.split()[1]))

    def dropped(self) -> float:
        return sum(
            float(line.split()[1])
            for server in (self.region, self.cell, self.agent)
            for line in httpx.get(f"{server.url}/metrics", timeout=WITHIN_S).text.splitlines()
            if line.startswith("berth_spans_dropped_total ")
        )


def _end(server: ServerProcess) -> None:
    if server.process is not None:
        # A conductor that is told to stop would answer the polls of its hosts first.
        server.kill()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedCloud]:
    collector = Collector()
    collector.start()
    with contextlib.ExitStack() as stack:
        stack.callback(collector.stop)
        cloud = TracedCloud(tmp_path_factory.mktemp("traced"), collector, stack)
        cloud.prepare()
        yield cloud


def one(spans: list[SeenSpan], service: str, name: str) -> SeenSpan:
    (found,) = (span for span in spans if (span.service, span.name) == (service, name))
    return found


def below(spans: list[SeenSpan], parent: SeenSpan) -> list[SeenSpan]:
    return [span for span in spans if span.parent == parent.id]


def named(spans: list[SeenSpan], name: str) -> list[SeenSpan]:
    return [span for span in spans if span.name == name]


def wait_for(collector: Collector, trace: str, name: str, count: int = 1) -> list[SeenSpan]:
    """The spans of a trace, once so many of a name are there."""
    collector.wait(lambda: len(named(collector.trace(trace), name)) == count, f"{count} of {name!r}")
    return collector.trace(trace)


def draw(spans: list[SeenSpan]) -> set[tuple[str, ...]]:
    """Every span as the way to it, from the request on, and its service."""
    by_id = {span.id: span for span in spans}

    def find_way(span: SeenSpan) -> tuple[str, ...]:
        parent = by_id.get(span.parent)
        return (*(() if parent is None else find_way(parent)), span.name)

    return {(*find_way(span), span.service) for span in spans}


def read_guide() -> set[tuple[str, ...]]:
    """The same, as the guide shows it."""
    [block] = re.findall(r"(?m)^    POST /compute/v2.1/servers .*\n(?:    .*\n)+", GUIDE.read_text())
    drawn, way = set(), list[str]()
    for line in block.splitlines():
        indent, name, service = re.fullmatch(r"    ( *)(\S.*?)  +(berth-\w+)\b.*", line).groups()  # type: ignore[union-attr]
        way[len(indent) // 2 :] = [name]
        drawn.add((*way, service))
    return drawn


def test_a_create_is_one_trace_through_all_processes(cloud: TracedCloud) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    server = cloud.create(trace)
    cloud.wait_for_status(server)
    collector = cloud.collector
    collector.wait(
        lambda: (
            {"agent build", "create: build", "dispatch", f"POST {COMPUTE}"}
            <= {span.name for span in collector.trace(trace)}
        ),
        "spans are missing",
    )
    spans = collector.trace(trace)

    request = one(spans, "berth-region", f"POST {COMPUTE}")
    assert request.parent == CALLER
    assert request.error is None
    assert request.attributes["http.request.method"] == "POST"
    assert request.attributes["http.route"] == COMPUTE
    assert request.attributes["http.response.status_code"] == 202
    request_id = request.attributes["berth.request_id"]

    # The engine: chosen and claimed in the writer's turn, then durable.
    (submit,) = (span for span in below(spans, request) if span.name == "submit")
    turns = [span.name for span in sorted(below(spans, submit), key=lambda span: span.start_ns)]
    # Both once more where another worker was first to append.
    assert turns == ["decide", "append"] * (len(turns) // 2)
    assert turns

    dispatch = one(spans, "berth-region", "dispatch")
    assert dispatch.parent == request.id
    assert dispatch.attributes["berth.cell"] == "cell1"

    steps = [span for span in below(spans, dispatch) if span.service == "berth-cell"]
    assert [span.name for span in sorted(steps, key=lambda span: span.start_ns)] == [
        "create: claim",
        "create: build",
    ]
    command = one(spans, "berth-agent", "agent build")
    assert command.parent == one(spans, "berth-cell", "create: build").id
    for span in (dispatch, *steps, command):
        assert span.attributes["berth.request_id"] == request_id
        assert span.attributes["berth.server"] == server
        assert span.start_ns <= span.end_ns

    assert draw(spans) == read_guide()

    # Every other span is of this trace, too, and has its parent in it.
    known = {span.id for span in spans} | {CALLER}
    assert [span for span in spans if span.parent not in known] == []
    assert any(headers.get("x-tenant") == "berth" for headers in collector.requests)
    assert {headers[":path"] for headers in collector.requests} == {"/v1/traces"}


def test_what_fails_is_recorded_and_what_placement_is_asked_for_belongs_to_it(cloud: TracedCloud) -> None:
    trace = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
    server = cloud.create(trace, "fails")
    cloud.wait_for_status(server, "ERROR")
    collector = cloud.collector
    for name in ("agent build", "create: build"):
        spans = wait_for(collector, trace, name, 2)
    for name in ("agent build", "create: build"):
        assert [span.error for span in named(spans, name)] == ["no space left"] * 2
    # The conductor moves the claim to the other host by Placement's API.
    (move,) = named(spans, "create: move the claim")
    # Its span comes from the region, whenever that sends it.
    collector.wait(lambda: below(collector.trace(trace), move), "what Placement was asked for")
    spans = collector.trace(trace)
    (asked,) = (span for span in below(spans, move) if span.service == "berth-region")
    assert asked.name.startswith("POST /allocations")
    assert [span.name for span in below(spans, asked)] == ["submit"]


def test_a_saga_that_is_resumed_after_a_crash_stays_in_its_trace(cloud: TracedCloud) -> None:
    trace = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2"
    conductor = cloud.read_conductor()
    server = cloud.create(trace, "slow")
    wait_until(lambda: f"{server}: build begun" in cloud.agent.log, lambda: "the build has not begun")
    os.kill(conductor, signal.SIGKILL)
    cloud.wait_for_status(server)
    assert f"server {server}: create resumed" in cloud.cell.log
    collector = cloud.collector
    for name in ("dispatch", "create: build", "agent build"):
        spans = wait_for(collector, trace, name)
    dispatch = one(spans, "berth-region", "dispatch")
    assert one(spans, "berth-cell", "create: build").parent == dispatch.id
    # The span of the step that began it was lost with its conductor: the trace is the same.
    assert one(spans, "berth-agent", "agent build").error is None


def test_a_caller_says_that_its_trace_is_not_kept(cloud: TracedCloud) -> None:
    unkept, kept = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa3", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa4"
    before = {span.trace for span in cloud.collector.spans}
    cloud.wait_for_status(cloud.create(unkept, "fails", flags="00"), "ERROR")
    cloud.wait_for_status(cloud.create(kept))
    collector = cloud.collector
    wait_for(collector, kept, "create: build")
    assert collector.trace(unkept) == []
    # What Placement was asked for on behalf of it is in no other trace, either.
    others = [span for span in collector.spans if span.trace not in {*before, kept}]
    assert [span for span in others if "/allocations" in span.name] == []


def test_a_traceparent_that_is_none_is_ignored(cloud: TracedCloud) -> None:
    given = f"ff-{'a' * 32}-{CALLER}-01"
    answer = cloud.client.get("/resource_providers", headers={"traceparent": given})
    id = answer.headers["x-openstack-request-id"]
    found: list[SeenSpan] = []

    def has_come() -> bool:
        found[:] = [span for span in cloud.collector.spans if span.attributes.get("berth.request_id") == id]
        return bool(found)

    cloud.collector.wait(has_come, f"the request {id} has no span")
    assert [(span.name, span.parent) for span in found] == [("GET /resource_providers", "")]


def test_without_a_collector_all_goes_on_and_what_is_dropped_is_counted(cloud: TracedCloud) -> None:
    trace = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa5"
    collector = cloud.collector
    before = cloud.dropped()
    collector.behave("hang")
    cloud.wait_for_status(cloud.create(trace))
    collector.stop()
    cloud.wait_for_status(cloud.create(trace))
    wait_until(lambda: cloud.dropped() > before, lambda: "nothing is counted")
    lost = f"the trace collector {collector.url}: unreachable, spans are dropped: "
    wait_until(lambda: lost in cloud.region.log, lambda: cloud.region.log[-2000:])

    collector.behave("take")
    collector.start()
    again = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa6"
    cloud.wait_for_status(cloud.create(again))
    wait_for(collector, again, "agent build")
    back = f"the trace collector {collector.url}: takes spans again after "
    wait_until(lambda: back in cloud.region.log, lambda: cloud.region.log[-2000:])


def test_a_process_that_stops_sends_what_is_queued(cloud: TracedCloud) -> None:
    answer = cloud.client.get("/resource_providers")
    assert cloud.region.stop(WITHIN_S) == 0
    id = answer.headers["x-openstack-request-id"]
    assert [span.name for span in cloud.collector.spans if span.attributes.get("berth.request_id") == id]

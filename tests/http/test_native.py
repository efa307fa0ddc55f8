"""/berth/v1 on a running server: lists over the wire, and streams that end when they should."""

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.placement import PlacementClient
from tests.servers import HOST, ServerProcess, berth, running
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.http

HEADERS = {"x-auth-token": "admin"}
PATIENCE_S = WITHIN_S


def uuid_of(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012}"


def get(server: ServerProcess, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    with contextlib.closing(connection):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers={**HEADERS, **sent})
        response = connection.getresponse()
        return response, response.read()


def get_json(server: ServerProcess, path: str) -> Any:
    response, body = get(server, path)
    assert response.status == 200, body
    return json.loads(body)


@contextlib.contextmanager
def placement(server: ServerProcess) -> Iterator[PlacementClient]:
    with contextlib.closing(PlacementClient(server.url)) as client:
        yield client


def make_host(client: PlacementClient) -> str:
    provider = uuid_of(1)
    client("POST", "/resource_providers", {"name": "host", "uuid": provider})
    client(
        "PUT",
        f"/resource_providers/{provider}/inventories",
        {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 100000}}},
    )
    return provider


def claim(client: PlacementClient, number: int) -> None:
    body = {
        "allocations": {uuid_of(1): {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    client("PUT", f"/allocations/{uuid_of(number)}", body)


class Listener:
    """Reads a stream in a thread of its own."""

    def __init__(self, server: ServerProcess, path: str = "/berth/v1/events", **headers: str) -> None:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self._http = http.client.HTTPConnection(HOST, server.port, timeout=60)
        self._http.connect()
        self._socket = self._http.sock
        self._http.request("GET", path, headers={**HEADERS, "accept": "text/event-stream", **sent})
        self.response = self._http.getresponse()
        self.lines: list[str] = []
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self.response:
                self.lines.append(line.decode().rstrip("\n"))
        except Exception as failure:
            self.failure = failure

    @property
    def ids(self) -> list[int]:
        return [int(line[4:]) for line in self.lines if line.startswith("id: ")]

    @property
    def events(self) -> list[Any]:
        return [json.loads(line[6:]) for line in list(self.lines) if line.startswith("data: ")]

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def close(self) -> None:
        # Not the response's close: that waits for the thread which reads.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._http.close()


def wait_for(condition: Callable[[], bool], words: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, words
        time.sleep(0.01)


# -- lists --------------------------------------------------------------------------------------


def test_a_walk_while_others_write(tmp_path: Path) -> None:
    with running(berth(tmp_path)) as server, placement(server) as client:
        make_host(client)
        for number in range(100, 200, 2):
            claim(client, number)
        seen, path = [], "/berth/v1/consumers?limit=7"
        while path:
            page = get_json(server, path)
            seen += [consumer["uuid"] for consumer in page["consumers"]]
            path = page["next"]
            claim(client, 101 + 2 * len(seen))
            claim(client, 1 + len(seen))
        assert seen == sorted(set(seen))
        assert {uuid_of(number) for number in range(100, 200, 2)} <= set(seen)
        total = get_json(server, "/berth/v1/usage?by=project")["usage"]
        everybody = get_json(server, "/berth/v1/consumers?limit=1000")["consumers"]
        assert total == [{"key": "p", "used": {"VCPU": len(everybody)}, "consumers": len(everybody)}]
        assert len(get_json(server, "/berth/v1/allocations?limit=1000")["allocations"]) == len(everybody)
        assert server.complaints() == []


def test_conditional_reads_whoever_answers(tmp_path: Path) -> None:
    with running(berth(tmp_path, "--workers", "2")) as server, placement(server) as client:
        provider = make_host(client)
        paths = ["/berth/v1/consumers", "/resource_providers", f"/resource_providers/{provider}"]
        for round in range(20):
            for path in paths:
                tag = get(server, path)[0].headers["etag"]
                spared, body = get(server, path, if_none_match=tag)
                assert (spared.status, body) == (304, b"")
                client("PUT", f"/resource_providers/{provider}", {"name": f"host-{round}-{len(path)}"})
                changed = get(server, path, if_none_match=tag)[0].status
                assert changed == 200, path


# -- streams ------------------------------------------------------------------------------------


def test_every_worker_streams_every_change(tmp_path: Path) -> None:
    with running(berth(tmp_path, "--workers", "2")) as server:
        listeners = [Listener(server, "/berth/v1/events?after=0") for _ in range(6)]
        with placement(server) as client:
            make_host(client)
            for number in range(100, 140):
                claim(client, number)
        for listener in listeners:
            wait_for(lambda listener=listener: len(listener.events) >= 42, "an event is missing")  # type: ignore[misc]
        events = get_json(server, "/berth/v1/events?limit=1000")["events"]
        assert len(events) == 42
        for listener in listeners:
            assert listener.events == events
        resumed = Listener(server, last_event_id=str(listeners[0].ids[-3]))
        wait_for(lambda: len(resumed.events) == 2, "a stream is not resumed where it ended")
        assert resumed.events == events[-2:]
        for listener in (resumed, *listeners):
            listener.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_open_stream_does_not_keep_the_server(tmp_path: Path, number: signal.Signals) -> None:
    # As long as it may wait for requests, nobody waits here.
    with running(berth(tmp_path, "--workers", "2", "--shutdown-seconds", "3600")) as server:
        listeners = [Listener(server) for _ in range(6)]
        for listener in listeners:
            wait_for(lambda listener=listener: bool(listener.lines), "a stream does not begin")  # type: ignore[misc]
        assert server.process is not None
        os.kill(server.pid, number)
        status = server.process.wait(PATIENCE_S)
        for listener in listeners:
            wait_for(lambda listener=listener: listener.has_ended, "a stream has not ended")  # type: ignore[misc]
            assert listener.failure is None, "the stream was cut off, not ended"
            listener.close()
        assert status == 0
        assert server.complaints() == []


def has_room(server: ServerProcess) -> bool:
    listener = Listener(server)
    listener.close()
    return listener.response.status == 200


def test_a_client_that_leaves_makes_room(tmp_path: Path) -> None:
    with running(berth(tmp_path, "--event-streams-max", "1")) as server:
        first = Listener(server)
        refused, body = get(server, "/berth/v1/events?stream=true")
        assert refused.status == 503
        assert refused.headers["retry-after"] == "5"
        assert json.loads(body)["errors"][0]["code"] == "berth.too_many_streams"
        first.close()

        wait_for(lambda: has_room(server), "the place of a client that left is not given back")


def test_a_client_that_stops_reading_is_dropped(tmp_path: Path) -> None:
    options = ("--event-streams-max", "1", "--event-heartbeat-seconds", "1")
    with running(berth(tmp_path, *options)) as server, placement(server) as client:
        make_host(client)
        names = [f"CUSTOM_{'X' * 200}_{number}" for number in range(300)]
        for name in names:
            client("PUT", f"/traits/{name}")
        provider = f"/resource_providers/{uuid_of(1)}"
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((HOST, server.port))
            deaf.sendall(
                b"GET /berth/v1/events?stream=true HTTP/1.1\r\nhost: x\r\nx-auth-token: admin\r\n\r\n"
            )
            assert deaf.recv(100).startswith(b"HTTP/1.1 200")
            for generation in range(1, 151):
                traits = names if generation % 2 else []
                client(
                    "PUT",
                    f"{provider}/traits",
                    {"resource_provider_generation": generation, "traits": traits},
                )
            wait_for(lambda: has_room(server), "it still has its place")
            # The end of what was underway, and then the end of the connection.
            deaf.settimeout(PATIENCE_S)
            while deaf.recv(1 << 20):
                pass
        assert [line for line in server.complaints() if '"status":503' not in line] == []

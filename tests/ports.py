"""A small Neutron for tests: it knows ports, and answers a GET of one as Neutron does.

Its behaviour is in attributes, and can be changed at any time: ``status`` answers every request with that
status, ``latency_s`` lets it take its time, ``broken`` says how its answers are broken. ``asked`` is what it
was asked for, with the headers. It answers over real HTTP (``serving``), and is an ASGI application.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, NamedTuple

from berth.api.kernel.http import Receive, Scope, Send

Broken = Literal[
    "cut",
    "cut once",
    "garbage",
    "not json",
    "not utf-8",
    "deep",
    "huge",
    "another port",
    "redirect",
    "no port",
]
HUGE: Final = 1 << 20
PortGroup = tuple[str, dict[str, int], list[str]]


class PortAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class FakePorts:
    def __init__(self) -> None:
        self.ports: dict[str, dict[str, Any]] = {}
        self.status: int | None = None
        self.token: str | None = None
        """Whoever comes with another one is refused."""
        self.latency_s = 0.0
        self.broken: Broken | None = None
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self.url = ""

    def add(self, id: str, project: str = "admin", **fields: Any) -> str:
        """A port, with what Neutron says of every port."""
        self.ports[id] = {
            "id": id,
            "project_id": project,
            "tenant_id": project,
            "device_id": "",
            "binding:vnic_type": "normal",
            "resource_request": None,
            "status": "DOWN",
            "mac_address": "fa:16:3e:00:00:01",
            **fields,
        }
        return id

    def request(self, id: str, *groups: PortGroup, together: bool = False) -> None:
        """Let a port ask for these groups: a name, resources and traits."""
        self.ports[id]["resource_request"] = {
            "request_groups": [
                {"id": name, "resources": resources, "required": required}
                for name, resources, required in groups
            ],
            "same_subtree": [name for name, _, _ in groups] if together else [],
        }

    def begin(self, path: str, headers: Mapping[str, str]) -> None:
        with self._lock:
            self.asked.append((path, {name.lower(): value for name, value in headers.items()}))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)

    def end(self) -> None:
        with self._lock:
            self._at_once -= 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application, on the time of the event loop."""
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.begin(scope["path"], headers)
        try:
            await asyncio.sleep(self.latency_s)
            answer = self.answer(scope["path"], headers.get("x-auth-token")) or _encode(502, {})
        finally:
            self.end()
        pairs = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
        await send({"type": "http.response.body", "body": answer.body})

    def answer(self, path: str, token: str | None) -> PortAnswer | None:
        """What it answers; None: it hangs up."""
        if self.token is not None and token != self.token:
            return _encode(401, {"error": {"message": "The request you have made requires authentication."}})
        port = self.ports.get(path.rpartition("/")[2])
        match self.broken:
            case "cut":
                return None
            case "cut once":
                self.broken = None
                return None
            case "garbage":
                return PortAnswer(200, _JSON, b'{"port": {"id": ')
            case "not json":
                return PortAnswer(200, {"content-type": "text/html"}, b"<html>a proxy's own page</html>")
            case "not utf-8":
                return PortAnswer(200, _JSON, b'{"port": "\xff\xfe"}')
            case "deep":
                return PortAnswer(200, _JSON, b'{"port": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
            case "huge":
                return PortAnswer(200, _JSON, json.dumps({"port": port, "more": "x" * HUGE}).encode())
            case "another port":
                return _encode(200, {"port": (port or {}) | {"id": "0" * 8}})
            case "redirect":
                return PortAnswer(302, {"location": f"{self.url}/elsewhere/{path}"}, b"")
            case "no port":
                return _encode(200, {"ports": []})
        if self.status is not None:
            return _encode(self.status, {"NeutronError": {"type": "Error", "message": "no"}})
        if port is None:
            return _encode(404, {"NeutronError": {"type": "PortNotFound", "message": "no such port"}})
        return _encode(200, {"port": port})


_JSON: Final = {"content-type": "application/json"}


def _encode(status: int, body: Any) -> PortAnswer:
    return PortAnswer(status, _JSON, json.dumps(body).encode())


@contextlib.contextmanager
def serving(ports: FakePorts) -> Iterator[str]:
    """The address of its ports, with a place for the id."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(ports))
    server.daemon_threads = True
    ports.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{ports.url}/v2.0/ports/{{port}}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(ports: FakePorts) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            ports.begin(self.path, dict(self.headers))
            try:
                time.sleep(ports.latency_s)
                answer = ports.answer(self.path, self.headers["x-auth-token"])
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._send(answer)
            finally:
                ports.end()

        def _send(self, answer: PortAnswer | None) -> None:
            if answer is None:
                self.wfile.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
                )
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler

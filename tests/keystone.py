"""A small Keystone for tests, over real HTTP: it issues service tokens and says whose a token is.

Its moods are attributes: ``status`` answers every validation with that status, ``gate`` holds validations
back until it is set, ``revoke_service_tokens`` makes Berth log in again.
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PASSWORD = "correct horse"
REFUSED = "The request you have made requires authentication."
"""What Keystone says to whoever it does not believe."""


class FakeKeystone:
    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, Any]] = {}
        self.status: int | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.logins = 0
        self.validations = 0
        self.revoked: list[str] = []
        self.expired: set[str] = set()
        """Known tokens that are confirmed only to who asks for expired ones, too."""
        self.url = ""
        self.endpoints: dict[str, str] = {}
        """The public endpoints of services, for the catalog."""
        self.bodies: list[dict[str, Any]] = []
        self._service_tokens: set[str] = set()

    def add(self, token: str, expires_ns: int, **body: Any) -> None:
        """Know a token; ``body`` is what Keystone says of it besides."""
        moment = datetime.fromtimestamp(expires_ns / 1e9, UTC)
        expires_at = moment.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        self.tokens[token] = {"user": {"id": "u-1", "name": "nova"}, "expires_at": expires_at, **body}

    def revoke_service_tokens(self) -> None:
        self._service_tokens.clear()

    def log_in(self, body: dict[str, Any]) -> str | None:
        self.bodies.append(body)
        identity = body["auth"]["identity"]
        [method] = identity["methods"]
        shown = identity[method]
        if (shown["user"]["password"] if method == "password" else shown["secret"]) != PASSWORD:
            return None
        self.logins += 1
        token = f"service-token-{self.logins}"
        self._service_tokens.add(token)
        return token

    def catalog(self) -> list[dict[str, Any]]:
        return [
            {
                "type": type,
                "name": type,
                "id": type,
                "endpoints": [
                    {
                        "id": type,
                        "interface": "public",
                        "region": "RegionOne",
                        "region_id": "RegionOne",
                        "url": url,
                    }
                ],
            }
            for type, url in self.endpoints.items()
        ]

    def validate(
        self, service_token: str | None, token: str | None, allow_expired: bool = False
    ) -> tuple[int, dict[str, Any]]:
        self.validations += 1
        self.gate.wait(10)
        if self.status is not None:
            return self.status, {}
        if service_token not in self._service_tokens:
            return 401, {}
        if token in self.expired and allow_expired:
            return 200, {"token": self.tokens[token]}
        if token not in self.tokens or token in self.expired:
            return 404, {}
        return 200, {"token": self.tokens[token]}


@contextlib.contextmanager
def running() -> Iterator[FakeKeystone]:
    keystone = FakeKeystone()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(keystone))
    server.daemon_threads = True
    keystone.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield keystone
    finally:
        keystone.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(keystone: FakeKeystone) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            token = keystone.log_in(body)
            if token is None:
                error = {"code": 401, "message": REFUSED, "title": "Unauthorized"}
                self._answer(401, {"error": error})
                return
            expires_at = "2099-01-01T00:00:00.000000Z"
            about: dict[str, Any] = {
                "user": {"id": "u-0"},
                "methods": ["password"],
                "expires_at": expires_at,
            }
            if keystone.endpoints:
                about["catalog"] = keystone.catalog()
            self._answer(201, {"token": about}, {"X-Subject-Token": token})

        def do_GET(self) -> None:
            allow_expired = self.path.endswith("?allow_expired=1")
            status, body = keystone.validate(
                self.headers["x-auth-token"], self.headers["x-subject-token"], allow_expired
            )
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._answer(status, body)

        def do_DELETE(self) -> None:
            keystone.revoked.append(self.headers["x-subject-token"])
            self.send_response(204)
            self.end_headers()

        def _answer(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler

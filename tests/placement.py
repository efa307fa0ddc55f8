"""A small Placement client for tests: one kept connection, JSON in and out, nothing hidden."""

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class PlacementAnswer(NamedTuple):
    status: int
    body: Any
    """Decoded JSON; None if there was no body."""


class Unexpected(AssertionError):
    """The server answered something other than success."""


class PlacementClient:
    """Talks to one server as the user ``admin``. Not to be shared between threads."""

    def __init__(self, url: str, version: str = "1.38", timeout_s: float = 30) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.version = version
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)

    def ask(self, method: str, path: str, body: object = None) -> PlacementAnswer:
        """Whatever the server answers. OSError or HTTPException if it does not."""
        headers = {
            "x-auth-token": "admin",
            "accept": "application/json",
            "openstack-api-version": f"placement {self.version}",
        }
        content = None
        if body is not None:
            content = json.dumps(body)
            headers["content-type"] = "application/json"
        self._connection.request(method, path, content, headers)
        response = self._connection.getresponse()
        answer = response.read()
        return PlacementAnswer(response.status, json.loads(answer) if answer else None)

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        """The body of a successful answer."""
        answer = self.ask(method, path, body)
        if answer.status >= 300:
            raise Unexpected(f"{method} {path}: {answer.status} {answer.body}")
        return answer.body

    def close(self) -> None:
        self._connection.close()

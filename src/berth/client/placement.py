"""Talk to a Placement endpoint: one connection, one microversion, answers as parsed JSON."""

import http.client
import json
from typing import Any, Final
from urllib.parse import urlsplit

_TIMEOUT_S: Final = 30
_VERSION: Final = "1.39"

AGENT_CELL_HEADER: Final = "x-berth-agent-cell"
"""The cell whose conductor asks, for the agents of its hosts: what an agent may not do is refused to it."""


class ClientError(Exception):
    """The server said no, or could not be reached; the text says which, and why. ``status`` is the server's,
    None where there was no answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class PlacementClient:
    def __init__(self, endpoint: str, token: str) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme != "http" or not parts.hostname:
            raise ClientError(f"the endpoint must look like http://HOST:PORT, not {endpoint!r}")
        self._endpoint = endpoint
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_TIMEOUT_S)
        self._headers = {
            "accept": "application/json",
            "openstack-api-version": f"placement {_VERSION}",
            "x-auth-token": token,
        }

    def get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def put(self, path: str, body: object | None = None) -> Any:
        return self._call("PUT", path, body)

    def post(self, path: str, body: object) -> Any:
        return self._call("POST", path, body)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path, None)

    def close(self) -> None:
        self._connection.close()

    def _call(self, method: str, path: str, body: object | None) -> Any:
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = json.dumps(body)
            headers["content-type"] = "application/json"
        try:
            self._connection.request(method, path, data, headers)
            reply = self._connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ClientError(f"{method} {path}: no answer from {self._endpoint}: {error}") from error
        if reply.status >= 400:
            raise ClientError(f"{method} {path}: {reply.status}: {_detail(text)}", reply.status)
        return json.loads(text) if text else None


def _detail(text: bytes) -> str:
    """What the server said, without the envelope."""
    try:
        return str(json.loads(text)["errors"][0]["detail"]).strip()
    except (ValueError, LookupError, TypeError):
        return text.decode("utf-8", "replace")[:500]

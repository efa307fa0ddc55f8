"""A way to ask an application without a network in between: the same questions, in the same process."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from berth.api.kernel.http import Receive, Scope, Send
from berth.client.http import Answer, HttpClient

_ENDPOINT = "http://direct"

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class DirectClient(HttpClient):
    """An HttpClient whose server is an ASGI application at hand."""

    def __init__(self, application: Asgi, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(_ENDPOINT, headers)
        self._application = application

    async def ask(self, method: str, path: str, body: object = None, timeout_s: float = 30) -> Answer:
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {"host": "direct", **self._shown}
        if body is not None:
            headers |= {"content-type": "application/json", "content-length": str(len(content))}
        bare, _, query = path.partition("?")
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": bare,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("direct", 0),
        }
        messages: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        await self._application(scope, receive, send)
        start, rest = messages
        received = {name.decode(): value.decode() for name, value in start["headers"]}
        is_json = "json" in received.get("content-type", "") and rest["body"]
        return Answer(start["status"], received, msgspec.json.decode(rest["body"]) if is_json else None)

"""Cross-origin requests: which pages of other sites may call the API from a browser.

The behaviour is that of the OpenStack services: a preflight is always 200, and whether it allows
anything is in its headers. With no origin allowed there is no such handling at all.
"""

from collections.abc import Iterable
from typing import Final

from berth.api.kernel.http import Request, Response

_METHODS: Final = frozenset(("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "PATCH"))

_SIMPLE_HEADERS: Final = frozenset(
    (
        "accept",
        "accept-language",
        "content-type",
        "cache-control",
        "content-language",
        "expires",
        "last-modified",
        "pragma",
    )
)

_MAX_AGE_S: Final = 3600


class Cors:
    """Adds what a browser wants to know to responses on their way out."""

    def __init__(self, allowed_origins: Iterable[str], allow_headers: Iterable[str]) -> None:
        self._origins = frozenset(allowed_origins)
        self._headers = _SIMPLE_HEADERS | {name.lower() for name in allow_headers}
        self.enabled: Final = bool(self._origins)

    def apply(self, request: Request, response: Response) -> Response:
        """The response with the headers that a browser looks for."""
        if request.method == "OPTIONS":
            return self._preflight(request, response)
        origin = self._allowed_origin(request)
        if origin is not None:
            headers = [(name, value) for name, value in response.headers if name != "vary"]
            vary = [value for name, value in response.headers if name == "vary"]
            headers.append(("vary", ",".join([*vary, "Origin"])))
            response.headers = [*headers, *_permission(origin)]
        return response

    def _preflight(self, request: Request, response: Response) -> Response:
        # Whatever the API made of OPTIONS (it knows no such method), a preflight is answered.
        if not 200 <= response.status < 300:
            response = Response(200)
        origin = self._allowed_origin(request)
        method = request.headers.get("access-control-request-method")
        if origin is None or method not in _METHODS:
            return response
        asked = request.headers.get("access-control-request-headers", "").split(",")
        wanted = [name.strip() for name in asked if name.strip()]
        if not all(name.lower() in self._headers for name in wanted):
            return response
        response.headers += [
            ("vary", "Origin"),
            *_permission(origin),
            ("access-control-max-age", str(_MAX_AGE_S)),
            ("access-control-allow-methods", method),
        ]
        if wanted:
            response.headers.append(("access-control-allow-headers", ",".join(wanted)))
        return response

    def _allowed_origin(self, request: Request) -> str | None:
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins:
            return origin
        return "*" if "*" in self._origins else None


def _permission(origin: str) -> list[tuple[str, str]]:
    return [("access-control-allow-origin", origin), ("access-control-allow-credentials", "true")]

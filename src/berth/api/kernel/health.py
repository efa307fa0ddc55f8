"""What operators and load balancers ask: alive, ready, and how it is going.

These paths need no token and speak no microversion. Alive means that this process answers and that a
restart would do it no good; ready, that it can answer from a journal it can read.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from berth.api.kernel.http import JSON, Request, Response
from berth.engine import Engine, Overloaded, Unavailable

PATHS: Final = frozenset(("/healthz", "/readyz", "/metrics"))

READY_WITHIN_S: Final = 5.0
"""A journal that takes longer to answer is not one to send clients to."""

METRICS_KEPT_S: Final = 1.0
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """The metrics as they were at most ``METRICS_KEPT_S`` ago. Many routes take 50 ms to render: that is
    done in a thread, once for all who ask meanwhile. ``look`` finds what they show of the view, just
    before that and in the event loop."""

    def __init__(self, exposition: Callable[[], bytes], look: Callable[[], None] = lambda: None) -> None:
        self._exposition = exposition
        self._look = look
        self._rendered: asyncio.Future[bytes] | None = None
        self._until_s = 0.0

    async def render(self) -> bytes:
        now_s = asyncio.get_running_loop().time()
        if self._rendered is None or now_s >= self._until_s:
            self._look()
            self._rendered = asyncio.ensure_future(asyncio.to_thread(self._exposition))
            self._until_s = now_s + METRICS_KEPT_S
        return await asyncio.shield(self._rendered)


class Health:
    """Answers the paths of PATHS. ``exposition`` and ``look``: as those of a MetricsPage."""

    def __init__(
        self, engine: Engine, exposition: Callable[[], bytes], look: Callable[[], None] = lambda: None
    ) -> None:
        self._engine = engine
        self._metrics = MetricsPage(exposition, look)

    async def handle(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(405, headers=[("allow", "GET, HEAD")])
        if request.path == "/metrics":
            return Response(200, await self._metrics.render(), METRICS_TYPE)
        if request.path == "/readyz":
            return await self._ready()
        broken = self._engine.broken
        if broken is not None:
            return _json(503, {"status": "broken", "reason": broken})
        return _json(200, {"status": "alive"})

    async def _ready(self) -> Response:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                reason = await self._engine.check_ready()
                if reason is not None:
                    return _not_ready(reason)
                index = await self._engine.read(lambda view: int(view.index))
        except (Overloaded, Unavailable) as error:
            return _not_ready(str(error))
        except TimeoutError:
            return _not_ready(f"the journal did not answer within {READY_WITHIN_S:g} seconds")
        return _json(200, {"status": "ready", "index": index})


def _not_ready(reason: str) -> Response:
    return _json(503, {"status": "not ready", "reason": reason})


def _json(status: int, payload: dict[str, str | int]) -> Response:
    return Response(status, msgspec.json.encode(payload), JSON)

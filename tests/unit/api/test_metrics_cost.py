"""What /metrics costs, for anybody may ask: it is rendered once for all who do, and not on the loop."""

import asyncio
import threading
from typing import cast

import pytest

from berth.api.kernel.health import Health
from berth.api.kernel.http import Request
from berth.engine import Engine


class Metrics:
    """Counts how often they are rendered, and where."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def rendered(self) -> bytes:
        self.threads.append(threading.get_ident())
        return b"berth_renderings %d\n" % len(self.threads)


async def ask(metrics: Metrics, health: Health, times: int) -> set[bytes]:
    answers = await asyncio.gather(*(health.handle(Request("GET", "/metrics")) for _ in range(times)))
    return {answer.body for answer in answers}


async def test_all_who_ask_within_a_second_get_what_was_rendered_once() -> None:
    metrics = Metrics()
    health = Health(cast(Engine, None), metrics.rendered)

    assert (await ask(metrics, health, 20) | await ask(metrics, health, 20)) == {b"berth_renderings 1\n"}
    assert threading.get_ident() not in metrics.threads


async def test_what_is_older_is_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.api.kernel.health.METRICS_KEPT_S", 0.0)
    metrics = Metrics()
    health = Health(cast(Engine, None), metrics.rendered)

    assert await ask(metrics, health, 1) == {b"berth_renderings 1\n"}
    assert await ask(metrics, health, 1) == {b"berth_renderings 2\n"}

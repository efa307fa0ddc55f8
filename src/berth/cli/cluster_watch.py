"""Waiting for a cluster: a line for every change, until nothing is under way any more.

A region that is away for a moment is waited for; the deadline is for all of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from berth.client import Client, ClientError
from berth.runtime.clock import Clock, SystemClock

SETTLED: Final = ("active", "degraded", "error")
PAUSE_S: Final = 0.5
_GONE: Final = 404
_AWAY: Final = (None, 503)


class Overdue(Exception):
    """The waiting had to end. The message says how far it had come."""


async def watch(
    client: Client,
    path: str,
    timeout_s: float,
    clock: Clock | None = None,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Any:
    """The cluster when it is settled; None when it is gone. Overdue if neither comes to be in time."""
    clock = clock or SystemClock()
    deadline_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    said = ""
    while True:
        try:
            cluster = (await client.fetch("GET", path))["cluster"]
        except ClientError as error:
            if error.status == _GONE:
                print("deleted")
                return None
            if error.status not in _AWAY or clock.monotonic_ns() >= deadline_ns:
                raise
        else:
            line = sentence(cluster)
            if line != said:
                print(line, flush=True)
                said = line
            if cluster["state"] in SETTLED:
                return cluster
        if clock.monotonic_ns() >= deadline_ns:
            raise Overdue(f"after {timeout_s:g} seconds the cluster is not settled; it is {said}")
        await pause(PAUSE_S)


def sentence(cluster: Any) -> str:
    """How far a cluster has come."""
    progress = cluster["progress"]
    line = f"{cluster['state']}: {progress['ready']} of {progress['wanted']} nodes ready"
    if progress["leaving"]:
        line += f", {progress['leaving']} leaving"
    return line if cluster["fault"] is None else f"{line}; {cluster['fault']}"

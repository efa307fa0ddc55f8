"""Waiting for a server that starts, and for hosts to come up, with a line for every second that it takes.

Every wait has an end. A server that does not come is a failure; a host that does not is not: it may have been
broken on purpose.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from berth.client import Client, Unreachable

_LOOK_EVERY_S: Final = 0.1
_SAY_EVERY_S: Final = 1.0
_READY_WITHIN_S: Final = 60.0
_NO_NEWS_S: Final = 15.0

Say = Callable[[str], None]


class NotReady(Exception):
    """Something has not come in time, or will not. The message is for the operator."""


async def ready(client: Client, name: str, say: Say) -> None:
    """Until a server answers that it is ready."""
    lines = _Lines(say)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _READY_WITHIN_S
    try:
        while not await _is_ready(client):
            if loop.time() > end_s:
                raise NotReady(f"{name} has not become ready in {_READY_WITHIN_S:g} s")
            lines.say(f"starting {name} ...")
            await asyncio.sleep(_LOOK_EVERY_S)
    finally:
        await client.close()


async def _is_ready(client: Client) -> bool:
    try:
        return (await client.ask("GET", "/readyz", timeout_s=5)).status == 200
    except Unreachable:
        return False


async def hosts_up(client: Client, wanted: int, say: Say) -> None:
    """Until all hosts are up, or no further one has come for a while."""
    lines = _Lines(say)
    loop = asyncio.get_running_loop()
    most, since_s = -1, loop.time()
    while True:
        up = await _count_up(client)
        if up >= wanted:
            return
        if up > most:
            most, since_s = up, loop.time()
        elif loop.time() - since_s > _NO_NEWS_S:
            say(f"{most} of {wanted} hosts are up, and no other has come for {_NO_NEWS_S:g} s: going on")
            return
        lines.say(f"{up} of {wanted} hosts are up")
        await asyncio.sleep(_LOOK_EVERY_S)


async def _count_up(client: Client) -> int:
    """How many services of hosts are up."""
    answer = await client.ask("GET", "/compute/v2.1/os-services?binary=nova-compute")
    if answer.status >= 500:
        return 0
    if answer.status != 200:
        raise NotReady(f"the region does not say which hosts are up: {answer.status}: {answer.body}")
    return sum(service["state"] == "up" for service in answer.body["services"])


class _Lines:
    """Says a line now and then, and nothing in the first second."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._next_s = asyncio.get_running_loop().time() + _SAY_EVERY_S

    def say(self, words: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_s:
            self._say(words)
            self._next_s = now_s + _SAY_EVERY_S

"""Bringing a new region up: wait until its processes are ready and its hosts are up, then write the first
flavors and an image through its API. What is there already is kept.

Every wait has a deadline. A server that does not become ready is a failure; a host that does not come up is
not: it may have been broken on purpose.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from berth.client import Answer, Client, Unreachable

_LOOK_EVERY_S: Final = 0.1
_SAY_EVERY_S: Final = 1.0
_READY_WITHIN_S: Final = 60.0
_NO_NEWS_S: Final = 15.0

Say = Callable[[str], None]


class BootstrapError(Exception):
    """The region cannot be brought up. The message is for the operator."""


async def wait_until_ready(client: Client, name: str, say: Say) -> None:
    """Wait until a server answers that it is ready."""
    lines = _Lines(say)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _READY_WITHIN_S
    while not await _is_ready(client):
        if loop.time() > end_s:
            raise BootstrapError(f"{name} was not ready within {_READY_WITHIN_S:g} s")
        lines.say(f"starting {name} ...")
        await asyncio.sleep(_LOOK_EVERY_S)


async def _is_ready(client: Client) -> bool:
    try:
        return (await client.ask("GET", "/readyz", timeout_s=5)).status == 200
    except Unreachable:
        return False


async def wait_for_hosts(client: Client, wanted: int, say: Say) -> None:
    """Wait until all hosts are up, or none has come up for a while."""
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
            say(f"{most} of {wanted} hosts are up, and none has come up for {_NO_NEWS_S:g} s: continuing")
            return
        lines.say(f"{up} of {wanted} hosts are up")
        await asyncio.sleep(_LOOK_EVERY_S)


async def _count_up(client: Client) -> int:
    """How many hosts are up."""
    answer = await client.ask("GET", "/compute/v2.1/os-services?binary=nova-compute")
    if answer.status >= 500:
        return 0
    if answer.status != 200:
        raise BootstrapError(f"the region does not list its hosts: {answer.status}: {answer.body}")
    return sum(service["state"] == "up" for service in answer.body["services"])


class _Lines:
    """Prints a line every second, and nothing in the first."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._next_s = asyncio.get_running_loop().time() + _SAY_EVERY_S

    def say(self, words: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_s:
            self._say(words)
            self._next_s = now_s + _SAY_EVERY_S


# -- the first flavors and image -----------------------------------------------------------------


_COMPUTE: Final = "/compute/v2.1"
_IMAGES: Final = "/image/v2/images"


class DefaultFlavor(msgspec.Struct, frozen=True):
    id: str
    name: str
    vcpus: int
    ram: int
    disk: int


FLAVORS: Final = (
    DefaultFlavor("1", "m1.tiny", 1, 512, 1),
    DefaultFlavor("2", "m1.small", 1, 2048, 20),
    DefaultFlavor("3", "m1.medium", 2, 4096, 40),
    DefaultFlavor("4", "m1.large", 4, 8192, 80),
)
IMAGE: Final = "cirros"


async def write_defaults(client: Client) -> None:
    """Write the flavors and the image that are missing."""
    found = _body(await client.ask("GET", f"{_COMPUTE}/flavors?is_public=None"))
    names = {flavor["name"] for flavor in found["flavors"]}
    for flavor in FLAVORS:
        if flavor.name not in names:
            _body(await client.ask("POST", f"{_COMPUTE}/flavors", {"flavor": flavor}))
    images = _body(await client.ask("GET", f"{_IMAGES}?name={IMAGE}"))["images"]
    if not any(image["status"] == "active" for image in images):
        await _write_image(client)


async def _write_image(client: Client) -> None:
    image = _body(
        await client.ask(
            "POST",
            _IMAGES,
            {"name": IMAGE, "disk_format": "qcow2", "container_format": "bare", "visibility": "public"},
        )
    )
    _body(await client.ask("PUT", f"{_IMAGES}/{image['id']}/file", {"simulated": IMAGE}))


def _body(answer: Answer) -> Any:
    if answer.status >= 400:
        raise BootstrapError(
            f"the default flavors and image cannot be written: {answer.status}: {answer.body}"
        )
    return answer.body

"""What a region needs before the first server can be made: a few flavors and an image, written through its
API as any client would. What is there already is left alone."""

from typing import Any, Final

import msgspec

from berth.client import Answer, Client

_COMPUTE: Final = "/compute/v2.1"
_IMAGES: Final = "/image/v2/images"


class FirstFlavor(msgspec.Struct, frozen=True):
    id: str
    name: str
    vcpus: int
    ram: int
    disk: int


FLAVORS: Final = (
    FirstFlavor("1", "m1.tiny", 1, 512, 1),
    FirstFlavor("2", "m1.small", 1, 2048, 20),
    FirstFlavor("3", "m1.medium", 2, 4096, 40),
    FirstFlavor("4", "m1.large", 4, 8192, 80),
)
IMAGE: Final = "cirros"


class Missing(Exception):
    """The region would not take them. The message is its own."""


async def write_first_things(client: Client) -> None:
    """Write what is missing."""
    found = _good(await client.ask("GET", f"{_COMPUTE}/flavors?is_public=None"))
    names = {flavor["name"] for flavor in found["flavors"]}
    for flavor in FLAVORS:
        if flavor.name not in names:
            _good(await client.ask("POST", f"{_COMPUTE}/flavors", {"flavor": flavor}))
    images = _good(await client.ask("GET", f"{_IMAGES}?name={IMAGE}"))["images"]
    if not any(image["status"] == "active" for image in images):
        await _write_image(client)


async def _write_image(client: Client) -> None:
    image = _good(
        await client.ask(
            "POST",
            _IMAGES,
            {"name": IMAGE, "disk_format": "qcow2", "container_format": "bare", "visibility": "public"},
        )
    )
    _good(await client.ask("PUT", f"{_IMAGES}/{image['id']}/file", {"simulated": IMAGE}))


def _good(answer: Answer) -> Any:
    if answer.status >= 400:
        raise Missing(f"the first flavors and image cannot be written: {answer.status}: {answer.body}")
    return answer.body

"""What belongs to an image: its file, its tags, whether it may be used, and with whom it is shared.

The content of a file is not kept. What is kept is how long it is and its digests, so that it can be told from
others; and from then on servers can be made from the image.
"""

import hashlib
from typing import Final

import msgspec

from berth.api.image.fields import check_tag, check_tags
from berth.api.image.images import change_image, find_image
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.model.servers import Image


async def upload_file(call: Call) -> Response:
    content = call.request.body
    checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
    digest = hashlib.sha512(content).hexdigest()

    def after(image: Image) -> Image:
        if image.status != "queued":
            raise Problem(409, f"Image {image.id} is {image.status}: it has its content already.")
        if image.disk_format is None or image.container_format is None:
            raise Problem(400, "disk_format and container_format must be set before there can be content.")
        return msgspec.structs.replace(
            image, status="active", size=len(content), checksum=checksum, hash_value=digest
        )

    return await change_image(call, after, lambda image: Response(204))


async def download_file(call: Call) -> Response:
    image = await call.read(lambda view: find_image(view, call))
    if not image.size:
        return Response(204)
    raise Problem(
        404, f"The content of image {image.id} is not kept here: only its size and its digests are."
    )


async def add_tag(call: Call) -> Response:
    name = check_tag(call.params[1])
    return await change_image(
        call, lambda image: _with_tags(image, (*image.tags, name)), lambda image: Response(204)
    )


async def remove_tag(call: Call) -> Response:
    def after(image: Image) -> Image:
        if call.params[1] not in image.tags:
            raise Problem(404, f"Image {image.id} has no tag {call.params[1]}.")
        return _with_tags(image, tuple(tag for tag in image.tags if tag != call.params[1]))

    return await change_image(call, after, lambda image: Response(204))


def _with_tags(image: Image, tags: tuple[str, ...]) -> Image:
    return msgspec.structs.replace(image, tags=check_tags(tags))


async def deactivate(call: Call) -> Response:
    """Servers cannot be made from it until it is active again."""

    def after(image: Image) -> Image:
        if image.status == "queued":
            raise Problem(403, f"Image {image.id} is queued: it has never been active.")
        return msgspec.structs.replace(image, status="deactivated")

    return await change_image(call, after, lambda image: Response(204))


async def reactivate(call: Call) -> Response:
    def after(image: Image) -> Image:
        if image.status == "queued":
            raise Problem(403, f"Image {image.id} is queued: give it content first.")
        return msgspec.structs.replace(image, status="active")

    return await change_image(call, after, lambda image: Response(204))


async def list_members(call: Call) -> Response:
    """Nobody: an image is for its project, or for all."""
    await call.read(lambda view: find_image(view, call))
    return json({"members": [], "schema": "/v2/schemas/members"})


ROUTES: Final = (
    Route("PUT", "/images/{id}/file", upload_file, policy="upload_image"),
    Route("GET", "/images/{id}/file", download_file, policy="download_image"),
    Route("PUT", "/images/{id}/tags/{tag}", add_tag, policy="modify_image"),
    Route("DELETE", "/images/{id}/tags/{tag}", remove_tag, policy="modify_image"),
    Route("POST", "/images/{id}/actions/deactivate", deactivate, policy="deactivate"),
    Route("POST", "/images/{id}/actions/reactivate", reactivate, policy="reactivate"),
    Route("GET", "/images/{id}/members", list_members, policy="get_members"),
)

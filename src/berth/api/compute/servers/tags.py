"""/servers/{id}/tags: short words that servers are found by, from microversion 2.26 on."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Meta

from berth.api.compute.servers.show import find_server, find_unlocked, get_server
from berth.api.compute.servers.update import replace_server
from berth.api.compute.versions import make_base_url, require_version
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.model.commands import Enact
from berth.model.rejections import Rejection, TagNotFound, TooManyTags
from berth.model.servers import Server
from berth.view import View

SINCE: Final = 26
TAGS_MAX: Final = 50
TAG_MAX: Final = 60
Tag = Annotated[str, Meta(min_length=1, max_length=TAG_MAX, pattern=r"^[^,/]*\Z")]
Tags = Annotated[tuple[Tag, ...], Meta(max_length=TAGS_MAX)]

_TAG: Final = re.compile(rf"[^,/]{{1,{TAG_MAX}}}")


class TagsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tags: Tags


async def list_tags(call: Call) -> Response:
    require_version(call, SINCE)
    return json({"tags": await call.read(lambda view: get_server(call, view, call.params[0]).tags)})


async def replace_tags(call: Call) -> Response:
    require_version(call, SINCE)
    asked = call.decode(TagsBody).tags
    tags = await _change_tags(call, lambda server: tuple(dict.fromkeys(asked)))
    return json({"tags": tags})


async def delete_tags(call: Call) -> Response:
    require_version(call, SINCE)
    await _change_tags(call, lambda server: ())
    return Response(204)


async def check_tag(call: Call) -> Response:
    require_version(call, SINCE)
    tag = call.params[1]

    def check(view: View) -> Response | Rejection:
        server = find_server(call, view, call.params[0])
        if isinstance(server, Rejection):
            return server
        return Response(204) if tag in server.tags else TagNotFound(server.id, tag)

    return await call.read(check)


async def add_tag(call: Call) -> Response:
    """Add a tag: 201, or 204 if the server has it."""
    require_version(call, SINCE)
    id, tag = call.params[0], call.params[1]
    if _TAG.fullmatch(tag) is None:
        raise Problem(
            400,
            f"Invalid input: the tag is {tag[:100]!r}; it must have 1 to {TAG_MAX} characters, and neither a "
            "comma nor a slash.",
        )

    def add(server: Server) -> tuple[str, ...] | Rejection:
        if tag in server.tags:
            return server.tags
        return TooManyTags(id, TAGS_MAX) if len(server.tags) >= TAGS_MAX else (*server.tags, tag)

    if tag in await call.read(lambda view: get_server(call, view, id).tags):
        return Response(204)
    await _change_tags(call, add)
    return Response(201, headers=(("location", f"{make_base_url(call)}/servers/{id}/tags/{quote(tag)}"),))


async def delete_tag(call: Call) -> Response:
    require_version(call, SINCE)
    tag = call.params[1]

    def remove(server: Server) -> tuple[str, ...] | Rejection:
        if tag not in server.tags:
            return TagNotFound(server.id, tag)
        return tuple(other for other in server.tags if other != tag)

    await _change_tags(call, remove)
    return Response(204)


async def _change_tags(
    call: Call, change: Callable[[Server], tuple[str, ...] | Rejection]
) -> tuple[str, ...]:
    id = call.params[0]

    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_unlocked(call, view, id)
        if isinstance(server, Rejection):
            return server
        tags = change(server)
        if isinstance(tags, Rejection):
            return tags
        return replace_server(view, msgspec.structs.replace(server, tags=tags), now_s)

    return await call.submit(propose, lambda view: get_server(call, view, id).tags)


_RULE: Final = "os_compute_api:os-server-tags"
ROUTES: Final[tuple[Route[Any], ...]] = (
    Route("GET", "/servers/{id}/tags", list_tags, policy=f"{_RULE}:index"),
    Route("PUT", "/servers/{id}/tags", replace_tags, policy=f"{_RULE}:update_all"),
    Route("DELETE", "/servers/{id}/tags", delete_tags, policy=f"{_RULE}:delete_all"),
    Route("GET", "/servers/{id}/tags/{tag}", check_tag, policy=f"{_RULE}:show"),
    Route("PUT", "/servers/{id}/tags/{tag}", add_tag, policy=f"{_RULE}:update"),
    Route("DELETE", "/servers/{id}/tags/{tag}", delete_tag, policy=f"{_RULE}:delete"),
)

"""/v2/images: make them, look at them, change them."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from berth.api.image import fields, patching
from berth.api.image.access import found, is_listed, own, refuse_publishing
from berth.api.image.list_query import Test, order_of, sorted_by, test_of
from berth.api.image.wire import shown
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import flag_in, number_in, render_page
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.ledger.records import remove_record, replace_record
from berth.model.commands import Command, Enact
from berth.model.servers import Image
from berth.view import View

_LIMIT: Final = 25
_LIMIT_MAX: Final = 1_000
_VISIBILITIES: Final = (*fields.VISIBILITIES, "all")
_MEMBER_STATUSES: Final = ("accepted", "pending", "rejected", "all")
_REPEATED: Final = ("tag", "sort_key", "sort_dir")
_NOT_FILTERS: Final = frozenset(
    (
        "limit",
        "marker",
        "sort",
        "sort_key",
        "sort_dir",
        "member_status",
        "tag",
        "visibility",
        "os_hidden",
        "size_min",
        "size_max",
    )
)


# -- reading ------------------------------------------------------------------------------------


async def index(call: Call) -> Response:
    pairs = call.query_pairs()
    query = dict(pairs)
    _refuse_unknown_values(pairs, query)
    order = order_of(pairs)
    tags = {value for name, value in pairs if name == "tag"}
    limit = min(number_in(query, "limit", _LIMIT), _LIMIT_MAX)
    wanted = await call.read(lambda view: sorted_by(order, _wanted(call, query, tags, view)))
    start = _behind(wanted, query.get("marker"))
    images = render_page(wanted[start : start + limit], shown)
    body: dict[str, Any] = {
        "images": images,
        "first": _link([pair for pair in pairs if pair[0] != "marker"]),
        "schema": "/v2/schemas/images",
    }
    end = start + len(images)
    if images and end < len(wanted):
        kept = [pair for pair in pairs if pair[0] != "marker"]
        body["next"] = _link([*kept, ("marker", wanted[end - 1].id)])
    return json(body)


def _wanted(call: Call, query: dict[str, str], tags: set[str], view: View) -> list[Image]:
    least, most = number_in(query, "size_min", 0), number_in(query, "size_max", 2**31 - 1)
    is_hidden = flag_in(query, "os_hidden")
    tests = [(name, test_of(name, value)) for name, value in query.items() if name not in _NOT_FILTERS]
    return [
        image
        for image in view.records.all(Image)
        if is_listed(call, image, query.get("visibility"))
        and image.is_hidden == is_hidden
        and tags <= set(image.tags)
        and ("size_min" not in query or (image.size or 0) >= least)
        and ("size_max" not in query or (image.size or 0) <= most)
        and _says(image, tests)
    ]


def _says(image: Image, tests: list[tuple[str, Test]]) -> bool:
    """Whether its fields and properties are what is asked for."""
    if not tests:
        return True
    said = shown(image)
    return all(test(said.get(name)) for name, test in tests)


def _refuse_unknown_values(pairs: list[tuple[str, str]], query: dict[str, str]) -> None:
    """Images are private to a project or open to all, so nobody is a member of one, in whichever status."""
    for name, known in (("visibility", _VISIBILITIES), ("member_status", _MEMBER_STATUSES)):
        if query.get(name, known[0]) not in known:
            raise Problem(400, f"{name} is {query[name][:100]!r}; it must be one of {', '.join(known)}.")
    names = [name for name, _ in pairs if name not in _REPEATED]
    twice = [name for name in set(names) if names.count(name) > 1]
    if twice:
        raise Problem(400, f"{min(twice)[:100]!r} is given more than once: give it once.")


def _behind(images: list[Image], marker: str | None) -> int:
    if marker is None:
        return 0
    for place, image in enumerate(images):
        if image.id == marker:
            return place + 1
    raise Problem(400, f"marker {marker!r} is not the id of an image of this list: begin without one.")


def _link(pairs: list[tuple[str, str]]) -> str:
    return "/v2/images" + (f"?{urlencode(pairs)}" if pairs else "")


async def show(call: Call) -> Response:
    return await call.read(lambda view: json(shown(found(view, call))))


# -- changing -----------------------------------------------------------------------------------


async def create(call: Call) -> Response:
    given = call.decode(dict[str, Any])
    id = fields.id_given(given["id"]) if given.get("id") is not None else call.services.ids.uuid()
    image = fields.new_image(id, call.project, given)
    refuse_publishing(call, None, image)

    def make(view: View, now_s: int) -> Command:
        if view.records.get(Image, id) is not None:
            raise Problem(409, f"Image ID {id} already exists: choose another, or give none.")
        return Enact(
            (replace_record(view, msgspec.structs.replace(image, created_at_s=now_s, updated_at_s=now_s)),),
            quotas=call.quotas,
        )

    response = await call.submit(make, lambda view: json(shown(_kept(view, id)), 201))
    response.headers.append(("location", f"{call.origin}/image/v2/images/{id}"))
    return response


async def patch(call: Call) -> Response:
    given = call.request.headers.get("content-type", "").split(";")[0].strip()
    if given != patching.MEDIA_TYPE:
        raise Problem(415, f"The content type is {given!r}; it must be {patching.MEDIA_TYPE}.")
    steps = call.decode(patching.Patch)

    def after(before: Image) -> Image:
        image = patching.patched(before, steps)
        refuse_publishing(call, before, image)
        return image

    return await changed(call, after, lambda image: json(shown(image)))


async def delete(call: Call) -> Response:
    def make(view: View, now_s: int) -> Command:
        image = own(view, call)
        if image.is_protected:
            raise Problem(403, f"Image {image.id} is protected: set protected to false first.")
        return Enact((remove_record(view, image),))

    return await call.submit(make, lambda view: Response(204))


async def changed(
    call: Call, after: Callable[[Image], Image], answer: Callable[[Image], Response]
) -> Response:
    """The image of the path, replaced by what is made of it."""

    def make(view: View, now_s: int) -> Command:
        image = after(own(view, call))
        image = msgspec.structs.replace(image, tags=fields.tags(image.tags), updated_at_s=now_s)
        return Enact((replace_record(view, image),), quotas=call.quotas)

    return await call.submit(make, lambda view: answer(_kept(view, call.params[0].lower())))


def _kept(view: View, id: str) -> Image:
    image = view.records.get(Image, id)
    assert image is not None, "it has just been written"
    return image


ROUTES: Final = (
    Route("GET", "/images", index, policy="get_images"),
    Route("POST", "/images", create, policy="add_image"),
    Route("GET", "/images/{id}", show, policy="get_image"),
    Route("PATCH", "/images/{id}", patch, policy="modify_image"),
    Route("DELETE", "/images/{id}", delete, policy="delete_image"),
)

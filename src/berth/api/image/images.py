"""/v2/images: create, list, show, change and delete images, their tags, and whether they may be used.

A list has any field and any property of an image for a filter, as Glance's clients write it:

    name=cirros   name=in:cirros,alpine   created_at=gte:2026-01-01T00:00:00Z   hw_disk_bus=scsi
    sort=name:asc,created_at:desc         sort_key=name&sort_dir=asc

Without an order images come newest first. What a list has of the images of other projects: public ones, those
that are shared with the caller's project and that it has accepted (``member_status`` asks for others), and
community images if they are asked for.
"""

import logging
from collections.abc import Callable, Iterable
from operator import attrgetter, eq, ge, gt, le, lt, ne
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from berth.api.image.fields import (
    MEDIA_TYPE,
    OLD_MEDIA_TYPE,
    VISIBILITIES,
    OldPatch,
    Patch,
    check_tag,
    make_image,
    patch_image,
    read_id,
    read_patch,
    render_image,
    renew_patch,
    sort_tags,
)
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.image_store import StoreUnavailable
from berth.api.kernel.paging import read_flag, read_parameter, render_page
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import parse_time
from berth.ledger import remove_record, replace_record
from berth.model.commands import Command, Enact
from berth.model.rejections import (
    Forbidden,
    ImageExists,
    ImageNotFound,
    ImageProtected,
    ImageQueued,
    ImageTagNotFound,
    Rejection,
)
from berth.model.servers import Image
from berth.view import View

_log = logging.getLogger(__name__)

# -- which are there for a caller ---------------------------------------------------------------


def _is_listed(call: Call, image: Image, visibility: str | None, member_status: str) -> bool:
    """Whether it is in a list. Community images of other projects are listed if they are asked for."""
    if visibility not in (None, "all", image.visibility):
        return False
    if visibility is None and image.visibility == "community" and image.owner != call.project:
        return False
    if image.visibility in ("public", "community") or call.access.sees(image.owner):
        return True
    member = image.find_member(call.project)
    return member is not None and member_status in ("all", member.status)


def find_image(view: View, call: Call) -> Image | ImageNotFound:
    """The image of the path; not found if the caller cannot see it."""
    image = view.records.get(Image, call.params[0].lower())
    if image is None or not call.access.may_use_image(image):
        return ImageNotFound(call.params[0])
    return image


def find_own_image(view: View, call: Call) -> Image | Rejection:
    """The image of the path, to be changed."""
    image = find_image(view, call)
    return image if isinstance(image, Rejection) else call.find_forbidden(image.owner) or image


_PUBLISHING: Final = {"public": "publicize_image", "community": "communitize_image"}


def _find_forbidden(call: Call, before: Image | None, after: Image) -> Forbidden | None:
    """The rule that keeps the caller from publishing an image, or from giving it to another project."""
    if before is None or after.visibility != before.visibility:
        rule = _PUBLISHING.get(after.visibility)
        if rule is not None and not call.allows(rule, after.owner):
            return Forbidden(rule)
    # A caller that gives an image to a project must be allowed to add images there.
    return call.find_forbidden(after.owner)


# -- filters and order --------------------------------------------------------------------------

ImageTest = Callable[[Any], bool]
"""A test of the value that an image has under a name."""
_IN: Final = "in:"
_LISTED: Final = ("id", "name", "status", "container_format", "disk_format")
_TIMES: Final = ("created_at", "updated_at")
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "gt": gt,
    "gte": ge,
    "eq": eq,
    "neq": ne,
    "lt": lt,
    "lte": le,
}
_SORT_KEYS: Final[dict[str, Callable[[Image], Any]]] = {
    "name": attrgetter("name"),
    "status": attrgetter("status"),
    "container_format": attrgetter("container_format"),
    "disk_format": attrgetter("disk_format"),
    "size": attrgetter("size"),
    "id": attrgetter("id"),
    "created_at": attrgetter("created_at_s"),
    "updated_at": attrgetter("updated_at_s"),
}
_DIRECTIONS: Final = ("asc", "desc")
_KEYS_MAX: Final = 10
SortOrder = list[tuple[str, str]]
"""Keys with their directions, the first one first."""


def _make_test(name: str, value: str) -> ImageTest:
    """The test that a filter makes."""
    if name in _TIMES:
        return _make_time_test(name, value)
    if name in _LISTED and value.startswith(_IN):
        names = [part.strip().strip('"') for part in value.removeprefix(_IN).split(",")]
        return lambda said: _show_value(said) in names
    return lambda said: _show_value(said) == value


def _make_time_test(name: str, value: str) -> ImageTest:
    word, colon, rest = value.partition(":")
    compare = _COMPARISONS.get(word) if colon else None
    limit_s = parse_time(name, value if compare is None else rest)
    comparison = compare or eq
    return lambda said: bool(comparison(parse_time(name, said), limit_s))


def _show_value(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def _read_order(pairs: Iterable[tuple[str, str]]) -> SortOrder:
    given = {
        name: [value for other, value in pairs if other == name] for name in ("sort", "sort_key", "sort_dir")
    }
    if given["sort"] and (given["sort_key"] or given["sort_dir"]):
        raise Problem(400, "The order is given twice: use sort, or sort_key and sort_dir.")
    if given["sort"]:
        parts = [part.strip().partition(":") for part in given["sort"][0].split(",")]
        return _check_order([(key, direction or "desc") for key, _, direction in parts])
    keys, directions = given["sort_key"] or ["created_at"], given["sort_dir"] or ["desc"]
    if len(directions) not in (1, len(keys)):
        raise Problem(400, f"sort_key is given {len(keys)} times and sort_dir {len(directions)} times.")
    if len(directions) == 1:
        directions = directions * len(keys)
    return _check_order(list(zip(keys, directions, strict=True)))


def _check_order(order: SortOrder) -> SortOrder:
    if len(order) > _KEYS_MAX:
        raise Problem(400, f"The list is sorted by {len(order)} keys; the maximum is {_KEYS_MAX}.")
    for key, direction in order:
        if key not in _SORT_KEYS:
            raise Problem(400, f"The sort key is {key[:100]!r}; it must be one of {', '.join(_SORT_KEYS)}.")
        if direction not in _DIRECTIONS:
            raise Problem(400, f"The direction of {key} is {direction[:100]!r}; it must be asc or desc.")
    return order


def _sort_images(order: SortOrder, images: list[Image]) -> list[Image]:
    """The images in order; those with equal keys newest first."""
    for key, direction in reversed([*order, ("created_at", "desc"), ("id", "desc")]):
        read = _SORT_KEYS[key]
        images = sorted(images, key=lambda image: _make_comparable(read(image)), reverse=direction == "desc")
    return images


def _make_comparable(value: Any) -> tuple[bool, Any]:
    """None comes before everything."""
    return (value is not None, value if value is not None else 0)


# -- handlers -----------------------------------------------------------------------------------

_LIMIT: Final = 25
_LIMIT_MAX: Final = 1_000
_SIZE_MAX: Final = 1 << 60
_VISIBILITIES: Final = (*VISIBILITIES, "all")
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


async def list_images(call: Call) -> Response:
    pairs = call.query_pairs()
    query = dict(pairs)
    _refuse_unknown_values(pairs, query)
    order = _read_order(pairs)
    tags = {value for name, value in pairs if name == "tag"}
    limit = min(read_parameter(query, "limit", _LIMIT), _LIMIT_MAX)
    wanted = await call.read(lambda view: _sort_images(order, _select(call, query, tags, view)))
    start = _find_start(wanted, query.get("marker"))
    images = render_page(wanted[start : start + limit], render_image)
    body: dict[str, Any] = {
        "images": images,
        "first": _make_link([pair for pair in pairs if pair[0] != "marker"]),
        "schema": "/v2/schemas/images",
    }
    end = start + len(images)
    if images and end < len(wanted):
        kept = [pair for pair in pairs if pair[0] != "marker"]
        body["next"] = _make_link([*kept, ("marker", wanted[end - 1].id)])
    return json(body)


def _select(call: Call, query: dict[str, str], tags: set[str], view: View) -> list[Image]:
    least, most = _read_size(query, "size_min", 0), _read_size(query, "size_max", _SIZE_MAX)
    member_status = query.get("member_status", "accepted")
    is_hidden = read_flag(query, "os_hidden")
    tests = [(name, _make_test(name, value)) for name, value in query.items() if name not in _NOT_FILTERS]
    return [
        image
        for image in view.records.all(Image)
        if _is_listed(call, image, query.get("visibility"), member_status)
        and image.is_hidden == is_hidden
        and tags <= set(image.tags)
        and ("size_min" not in query or (image.size or 0) >= least)
        and ("size_max" not in query or (image.size or 0) <= most)
        and _is_asked_for(image, tests)
    ]


def _read_size(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_SIZE_MAX))):
        raise Problem(
            400, f"{name} is {text[:100]!r}; it must be a whole number of bytes, not more than {_SIZE_MAX}."
        )
    return int(text)


def _is_asked_for(image: Image, tests: list[tuple[str, ImageTest]]) -> bool:
    """Whether its fields and properties are what is asked for."""
    if not tests:
        return True
    said = render_image(image)
    return all(test(said.get(name)) for name, test in tests)


def _refuse_unknown_values(pairs: list[tuple[str, str]], query: dict[str, str]) -> None:
    """Refuse values that Glance does not know, and parameters that are given twice."""
    for name, known in (("visibility", _VISIBILITIES), ("member_status", _MEMBER_STATUSES)):
        if query.get(name, known[0]) not in known:
            raise Problem(400, f"{name} is {query[name][:100]!r}; it must be one of {', '.join(known)}.")
    names = [name for name, _ in pairs if name not in _REPEATED]
    twice = [name for name in set(names) if names.count(name) > 1]
    if twice:
        raise Problem(400, f"{min(twice)[:100]!r} is given more than once.")


def _find_start(images: list[Image], marker: str | None) -> int:
    if marker is None:
        return 0
    for place, image in enumerate(images):
        if image.id == marker:
            return place + 1
    raise Problem(400, f"marker {marker!r} is not the id of an image of this list: start without one.")


def _make_link(pairs: list[tuple[str, str]]) -> str:
    return "/v2/images" + (f"?{urlencode(pairs)}" if pairs else "")


async def show_image(call: Call) -> Response:
    return json(render_image(await call.read(lambda view: find_image(view, call))))


async def create_image(call: Call) -> Response:
    given = call.decode(dict[str, Any])
    id = read_id(given["id"]) if given.get("id") is not None else call.services.ids.uuid()
    image = call.accept(make_image(id, call.project, given))
    call.accept(_find_forbidden(call, None, image))

    def propose(view: View, now_s: int) -> Command | Rejection:
        if view.records.get(Image, id) is not None:
            return ImageExists(id)
        return Enact(
            (replace_record(view, msgspec.structs.replace(image, created_at_s=now_s, updated_at_s=now_s)),),
            quotas=call.quotas,
        )

    response = await call.submit(propose, lambda view: json(render_image(_read_image(view, id)), 201))
    response.headers.append(("location", f"{call.origin}/image/v2/images/{id}"))
    return response


async def update_image(call: Call) -> Response:
    given = call.request.headers.get("content-type", "").split(";")[0].strip()
    if given == OLD_MEDIA_TYPE:
        steps = call.convert(renew_patch(call.decode(OldPatch)), Patch)
    elif given == MEDIA_TYPE:
        steps = call.decode(Patch)
    else:
        raise Problem(415, f"The content type is {given!r}; it must be {MEDIA_TYPE}.")
    changes = read_patch(steps)

    def after(before: Image) -> Image | Rejection:
        image = patch_image(before, changes)
        return image if isinstance(image, Rejection) else _find_forbidden(call, before, image) or image

    return await change_image(call, after, lambda image: json(render_image(image)))


async def delete_image(call: Call) -> Response:
    """With its content. Who downloads it gets the rest; who uploads it finds out at the end."""

    def propose(view: View, now_s: int) -> Command | Rejection:
        image = find_own_image(view, call)
        if isinstance(image, Rejection):
            return image
        if image.is_protected:
            return ImageProtected(image.id)
        return Enact((remove_record(view, image),))

    before = await call.read(lambda view: find_own_image(view, call))
    await call.submit(propose, lambda view: None)
    if before.content is not None and before.status != "saving":
        await _remove_content(call, before.content)
    return Response(204)


async def _remove_content(call: Call, name: str) -> None:
    assert call.services.images is not None, "there are images where they are kept"
    try:
        await call.services.images.remove(name)
    except StoreUnavailable as outage:
        _log.warning("image %s: its file %s is left to the next sweep: %s", call.params[0], name, outage)


async def change_image(
    call: Call, after: Callable[[Image], Image | Rejection], answer: Callable[[Image], Response]
) -> Response:
    """Replace the image of the path by what ``after`` makes of it."""

    def propose(view: View, now_s: int) -> Command | Rejection:
        before = find_own_image(view, call)
        image = before if isinstance(before, Rejection) else after(before)
        if isinstance(image, Rejection):
            return image
        tags = sort_tags(image.tags)
        if isinstance(tags, Rejection):
            return tags
        image = msgspec.structs.replace(image, tags=tags, updated_at_s=now_s)
        return Enact((replace_record(view, image),), quotas=call.quotas)

    return await call.submit(propose, lambda view: answer(_read_image(view, call.params[0].lower())))


def _read_image(view: View, id: str) -> Image:
    image = view.records.get(Image, id)
    assert image is not None, "it has just been written"
    return image


# -- tags, activation ---------------------------------------------------------------------------


async def add_tag(call: Call) -> Response:
    name = check_tag(call.params[1])

    def after(image: Image) -> Image:
        return msgspec.structs.replace(image, tags=(*image.tags, name))

    return await change_image(call, after, lambda image: Response(204))


async def remove_tag(call: Call) -> Response:
    name = call.params[1]

    def after(image: Image) -> Image | Rejection:
        if name not in image.tags:
            return ImageTagNotFound(image.id, name)
        return msgspec.structs.replace(image, tags=tuple(tag for tag in image.tags if tag != name))

    return await change_image(call, after, lambda image: Response(204))


async def deactivate_image(call: Call) -> Response:
    """No server can be made from it until it is active again."""

    def after(image: Image) -> Image | Rejection:
        if image.status not in ("active", "deactivated"):
            return ImageQueued(image.id, "it has never been active")
        return msgspec.structs.replace(image, status="deactivated")

    return await change_image(call, after, lambda image: Response(204))


async def reactivate_image(call: Call) -> Response:
    def after(image: Image) -> Image | Rejection:
        if image.status not in ("active", "deactivated"):
            return ImageQueued(image.id, "upload it first")
        return msgspec.structs.replace(image, status="active")

    return await change_image(call, after, lambda image: Response(204))


ROUTES: Final = (
    Route("GET", "/images", list_images, policy="get_images"),
    Route("POST", "/images", create_image, policy="add_image"),
    Route("GET", "/images/{id}", show_image, policy="get_image"),
    Route("PATCH", "/images/{id}", update_image, policy="modify_image"),
    Route("DELETE", "/images/{id}", delete_image, policy="delete_image"),
    Route("PUT", "/images/{id}/tags/{tag}", add_tag, policy="modify_image"),
    Route("DELETE", "/images/{id}/tags/{tag}", remove_tag, policy="modify_image"),
    Route("POST", "/images/{id}/actions/deactivate", deactivate_image, policy="deactivate"),
    Route("POST", "/images/{id}/actions/reactivate", reactivate_image, policy="reactivate"),
)

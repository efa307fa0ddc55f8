"""/images: images as Nova showed them on behalf of Glance, until microversion 2.36 (metadata until 2.39).

It is the image API's records that are shown, in Nova's words; images are made there.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from berth.api.compute.metadata import Change, Items, check_named, make_removal, respond_item
from berth.api.compute.servers.fields import Metadata, find_excess
from berth.api.compute.versions import make_links
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_parameter, read_query, render_list
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import parse_time, show_time
from berth.ledger import remove_record, replace_record
from berth.model.commands import Command, Enact
from berth.model.rejections import ImageNotFound, ImageProtected, Rejection
from berth.model.servers import Image
from berth.view import View

_REMOVED: Final = 36
_METADATA_REMOVED: Final = 39
_STATUS: Final = {"active": "ACTIVE", "queued": "SAVING", "saving": "SAVING", "deactivated": "DEACTIVATED"}
_SERVER: Final = "instance_uuid"
"""The property that names the server that an image was made of."""
QUERY: Final = dict.fromkeys(
    ("changes-since", "limit", "marker", "minDisk", "minRam", "name", "server", "status", "type"), 1
)


class ImageMetadataBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    metadata: Metadata


class ImageMetaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    meta: Annotated[Metadata, Meta(min_length=1, max_length=1)]


# -- reading ------------------------------------------------------------------------------------


async def list_images(call: Call) -> Response:
    return await _list_page(call, lambda image: _show_summary(call, image))


async def list_images_with_details(call: Call) -> Response:
    return await _list_page(call, lambda image: _show_whole(call, image))


async def show_image(call: Call) -> Response:
    _refuse_from(call, _REMOVED)
    return json({"image": _show_whole(call, await call.read(lambda view: _find_image(view, call)))})


async def _list_page(call: Call, show: Callable[[Image], dict[str, Any]]) -> Response:
    _refuse_from(call, _REMOVED)
    query = read_query(call, "images", QUERY)
    tests = _read_filters(query)

    def answer(view: View) -> Response:
        view.steps.take(view.records.count(Image))
        found = [
            image
            for image in view.records.all(Image)
            if _is_listed(call, image) and all(test(image) for test in tests)
        ]
        found.sort(key=lambda image: (image.created_at_s, image.id), reverse=True)
        images, links = render_list(call, found, lambda image: image.id, show)
        return json({"images": images} | ({"images_links": links} if links else {}))

    return await call.read(answer)


def _is_listed(call: Call, image: Image) -> bool:
    """Images of others are listed if they are public, as in Glance's list."""
    return image.visibility == "public" or image.owner == call.project


def _read_filters(query: dict[str, str]) -> Iterable[Callable[[Image], bool]]:
    tests: list[Callable[[Image], bool]] = []
    if "name" in query:
        tests.append(lambda image: image.name == query["name"])
    if "status" in query:
        tests.append(lambda image: _STATUS[image.status] == query["status"].upper())
    if "changes-since" in query:
        since_s = parse_time("changes-since", query["changes-since"])
        tests.append(lambda image: (image.updated_at_s or image.created_at_s) >= since_s)
    if "server" in query:
        id = query["server"].rstrip("/").rpartition("/")[2]
        tests.append(lambda image: image.properties.get(_SERVER) == id)
    if "type" in query:
        tests.append(lambda image: image.properties.get("image_type", "base") == query["type"])
    least_gb, least_mb = read_parameter(query, "minDisk", 0), read_parameter(query, "minRam", 0)
    tests.append(lambda image: image.min_disk_gb >= least_gb and image.min_memory_mb >= least_mb)
    return tests


def _find_image(view: View, call: Call) -> Image | ImageNotFound:
    image = view.records.get(Image, call.params[0].lower())
    if image is None or not call.access.may_use_image(image):
        return ImageNotFound(call.params[0])
    return image


def _find_own_image(view: View, call: Call) -> Image | Rejection:
    image = _find_image(view, call)
    return image if isinstance(image, Rejection) else call.find_forbidden(image.owner) or image


# -- showing ------------------------------------------------------------------------------------


def _show_summary(call: Call, image: Image) -> dict[str, Any]:
    alternate = {
        "rel": "alternate",
        "type": "application/vnd.openstack.image",
        "href": f"{call.origin}/image/v2/images/{image.id}",
    }
    links = [*make_links(call, "images", image.id), alternate]
    return {"id": image.id, "name": image.name, "links": links}


def _show_whole(call: Call, image: Image) -> dict[str, Any]:
    status = _STATUS[image.status]
    shown = _show_summary(call, image) | {
        "status": status,
        "progress": 100 if status == "ACTIVE" else 25 if status == "SAVING" else 0,
        "created": show_time(image.created_at_s),
        "updated": show_time(image.updated_at_s or image.created_at_s),
        "minDisk": image.min_disk_gb,
        "minRam": image.min_memory_mb,
        "metadata": image.properties,
        "OS-EXT-IMG-SIZE:size": image.size or 0,
    }
    server = image.properties.get(_SERVER)
    if server is not None:
        shown["server"] = {"id": server, "links": make_links(call, "servers", server)}
    return shown


# -- changing -----------------------------------------------------------------------------------


async def delete_image(call: Call) -> Response:
    """Delete an image. Its content goes with the next sweep of the image service's folder."""
    _refuse_from(call, _REMOVED)

    def propose(view: View, now_s: int) -> Command | Rejection:
        image = _find_own_image(view, call)
        if isinstance(image, Rejection):
            return image
        return ImageProtected(image.id) if image.is_protected else Enact((remove_record(view, image),))

    return await call.submit(propose, lambda view: Response(204))


async def list_metadata(call: Call) -> Response:
    _refuse_from(call, _METADATA_REMOVED)
    image = await call.read(lambda view: _find_image(view, call))
    return json({"metadata": image.properties})


async def add_metadata(call: Call) -> Response:
    asked = call.decode(ImageMetadataBody).metadata
    return json({"metadata": await _change_metadata(call, lambda before: before | asked)})


async def replace_metadata(call: Call) -> Response:
    asked = call.decode(ImageMetadataBody).metadata
    return json({"metadata": await _change_metadata(call, lambda _: asked)})


async def show_metadata_item(call: Call) -> Response:
    _refuse_from(call, _METADATA_REMOVED)
    image = await call.read(lambda view: _find_image(view, call))
    return respond_item(call, image.properties)


async def set_metadata_item(call: Call) -> Response:
    asked = call.decode(ImageMetaBody).meta
    check_named(call, asked)
    await _change_metadata(call, lambda before: before | asked)
    return json({"meta": asked})


async def delete_metadata_item(call: Call) -> Response:
    await _change_metadata(call, make_removal(call))
    return Response(204)


async def _change_metadata(call: Call, change: Change) -> Items:
    _refuse_from(call, _METADATA_REMOVED)

    def propose(view: View, now_s: int) -> Command | Rejection:
        image = _find_own_image(view, call)
        if isinstance(image, Rejection):
            return image
        properties = change(image.properties)
        if isinstance(properties, Rejection):
            return properties
        after = msgspec.structs.replace(image, properties=properties, updated_at_s=now_s)
        return find_excess(properties) or Enact((replace_record(view, after),))

    return await call.submit(propose, lambda view: call.accept(_find_image(view, call)).properties)


def _refuse_from(call: Call, version: int) -> None:
    if call.version >= version:
        raise Problem(404, f"This was removed in microversion 2.{version}: ask the image API.")


ROUTES: Final = (
    Route("GET", "/images", list_images, policy="get_images"),
    Route("GET", "/images/detail", list_images_with_details, policy="get_images"),
    Route("GET", "/images/{id}", show_image, policy="get_image"),
    Route("DELETE", "/images/{id}", delete_image, policy="delete_image"),
    Route("GET", "/images/{id}/metadata", list_metadata, policy="get_image"),
    Route("POST", "/images/{id}/metadata", add_metadata, policy="modify_image"),
    Route("PUT", "/images/{id}/metadata", replace_metadata, policy="modify_image"),
    Route("GET", "/images/{id}/metadata/{key}", show_metadata_item, policy="get_image"),
    Route("PUT", "/images/{id}/metadata/{key}", set_metadata_item, policy="modify_image"),
    Route("DELETE", "/images/{id}/metadata/{key}", delete_metadata_item, policy="modify_image"),
)

"""/v2/images/{id}/file: contents come in and go out, piece by piece, and never whole in memory.

An upload first says in the journal what it is about to do, and at its end what it has done:

    file made and locked -> record: saving, with the name of the file -> blocks written -> record: active
        it fails, or the client leaves -> record: queued again -> file removed

If the server dies in between, ``sweep`` finds the rest at the next start of any server over this folder. What
the journal says decides: where its answer is not known, nothing is removed.

How large an image may be is judged three times: when it is told, as it comes, and with the change that makes
the image active. A length that is told is reserved while the image is saving.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Final, NamedTuple

import msgspec

from berth.api.image.disk_formats import find_fault, read_virtual_size
from berth.api.image.images import find_image, find_own_image
from berth.api.kernel import codes
from berth.api.kernel.call import Call
from berth.api.kernel.http import BodyCutShort, Response, StreamResponse
from berth.api.kernel.image_store import (
    HEAD_BYTES,
    Content,
    ContentNotFound,
    ImageStore,
    Reader,
    StoreFull,
    StoreUnavailable,
    TooManyTransfers,
    Upload,
)
from berth.api.kernel.problem import RETRY_SOON, Problem
from berth.api.kernel.router import Route
from berth.engine import Engine, Overloaded, Proposal, Unavailable
from berth.ledger import replace_record
from berth.ledger.quotas import limits_of
from berth.model.commands import Command, Enact
from berth.model.events import Origin
from berth.model.quotas import UNLIMITED
from berth.model.rejections import ImageFormatsMissing, ImageGone, ImageHasContent, ImagesFull, Rejection
from berth.model.servers import Image
from berth.view import View

_log = logging.getLogger(__name__)

_TYPE: Final = "application/octet-stream"
_BLOCK_BYTES: Final = 512 << 10
"""So much is written, or read, at a time. A block takes a thread a few milliseconds."""
_WRITE_S: Final = 60.0
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_MIB: Final = 1 << 20
_SWEEP: Final = Origin("", None, None, "sweep of image contents")


def _find_store(call: Call) -> ImageStore:
    store = call.services.images
    assert store is not None, "there are images where they are kept"
    return store


@contextlib.contextmanager
def _wording_outages(call: Call) -> Iterator[None]:
    """What a client is told if the folder cannot be used. Its name is for the log."""
    try:
        yield
    except StoreFull as full:
        _log.error("image %s: %s", call.params[0], full, extra={"request_id": call.request.ids})
        raise Problem(413, "There is no more room for the contents of images.") from full
    except StoreUnavailable as outage:
        _log.error("image %s: %s", call.params[0], outage, extra={"request_id": call.request.ids})
        text = "The contents of images cannot be reached. Retry later."
        raise Problem(503, text, codes.UNAVAILABLE, headers=RETRY_SOON) from outage
    except TooManyTransfers as crowd:
        raise Problem(503, f"{crowd}. Retry later.", codes.OVERLOADED, headers=RETRY_SOON) from crowd


# -- in -----------------------------------------------------------------------------------------


class _Room(NamedTuple):
    """How many bytes an upload may have, and what it is told of more."""

    size: int
    says: str


async def upload_file(call: Call) -> Response:
    given = call.request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != _TYPE:
        raise Problem(415, f"The content type is {given[:100]!r}; it must be {_TYPE}.")
    image, room = await call.read(lambda view: _find_room(view, call))
    told = call.request.told_length if "content-length" in call.request.headers else None
    if told is not None and told > call.services.settings.image_bytes_max:
        raise Problem(413, _say_too_large(call.services.settings.image_bytes_max))
    store = _find_store(call)
    with _wording_outages(call):
        end_transfer = store.transfers.begin(call.project)
        try:
            name = call.services.ids.uuid()
            await _fill(call, image, name, await store.begin(name), told, room)
        finally:
            end_transfer()
    return Response(204)


def _say_too_large(most: int) -> str:
    return f"The content has more than {most} bytes, the maximum of one image (image_bytes_max)."


def _find_room(view: View, call: Call) -> tuple[Image, _Room] | Rejection:
    """The image that is to be filled, and how large it may be."""
    image = find_own_image(view, call)
    if isinstance(image, Rejection):
        return image
    if image.status != "queued":
        return ImageHasContent(image.id, image.status)
    if image.disk_format is None or image.container_format is None:
        return ImageFormatsMissing()
    settings = call.services.settings
    most = settings.image_bytes_max
    rooms = [_Room(most, _say_too_large(most))]
    left = max(0, settings.images_bytes_max - view.project_counts.image_bytes)
    rooms.append(_Room(left, f"All images of the region have room for {left} bytes more (images_bytes_max)."))
    quota = limits_of(view, call.quotas, image.owner)["image_size_total"]
    if quota != UNLIMITED:
        used = view.project_counts.of(image.owner).get("image_bytes", 0)
        left = max(0, quota * _MIB - used)
        says = f"Resource image_size_total is over limit of {quota} due to current usage {-(-used // _MIB)}."
        rooms.append(_Room(left, says))
    return image, min(rooms)


async def _fill(call: Call, image: Image, name: str, upload: Upload, told: int | None, room: _Room) -> None:
    """Take the body for the content of an image. However it ends, no file is left that is no image's."""
    try:
        await call.submit(_make_saving(call, image.id, name, told), lambda view: None)
        await _receive(call, upload, image.disk_format or "", room)
        content = await upload.finish()
        virtual_size = read_virtual_size(image.disk_format or "", bytes(upload.digest.head), content.size)
        await call.submit(_make_active(call, image.id, name, content, virtual_size), lambda view: None)
        await upload.close()
    except BaseException:
        # Also if this task is cancelled: the server is about to stop.
        giving_up = asyncio.create_task(_give_up(call.services.engine, call.cause(), image.id, name, upload))
        await asyncio.shield(giving_up)
        raise


async def _receive(call: Call, upload: Upload, disk_format: str, room: _Room) -> None:
    pieces: list[bytes] = []
    waiting = 0

    async def write() -> None:
        nonlocal waiting
        block = b"".join(pieces)
        pieces.clear()
        waiting = 0
        is_new = len(upload.digest.head) < HEAD_BYTES
        await upload.write(block)
        if is_new and len(upload.digest.head) >= HEAD_BYTES:
            _refuse_fault(upload, disk_format)

    if call.request.stream is not None:
        try:
            async for piece in call.request.stream:
                if upload.digest.size + waiting + len(piece) > room.size:
                    raise Problem(413, room.says)
                pieces.append(piece)
                waiting += len(piece)
                if waiting >= _BLOCK_BYTES:
                    await write()
        except BodyCutShort:
            # The client is gone: only the log has this.
            raise Problem(400, "The content ended before its length.") from None
    await write()
    _refuse_fault(upload, disk_format)


def _refuse_fault(upload: Upload, disk_format: str) -> None:
    fault = find_fault(disk_format, bytes(upload.digest.head))
    if fault is not None:
        raise Problem(415, f"The content is refused: {fault}.")


def _make_saving(call: Call, id: str, name: str, told: int | None) -> Proposal:
    def propose(view: View, now_s: int) -> Command | Rejection:
        image = find_own_image(view, call)
        if isinstance(image, Rejection):
            return image
        if image.status != "queued":
            return ImageHasContent(id, image.status)
        saving = msgspec.structs.replace(image, status="saving", content=name, size=told, updated_at_s=now_s)
        return _judge_total(view, call, image, saving) or Enact(
            (replace_record(view, saving),), quotas=call.quotas
        )

    return propose


def _make_active(call: Call, id: str, name: str, content: Content, virtual_size: int | None) -> Proposal:
    def propose(view: View, now_s: int) -> Command | Rejection:
        image = view.records.get(Image, id)
        if image is None or image.content != name:
            return ImageGone(id)
        active = msgspec.structs.replace(
            image,
            status="active",
            size=content.size,
            checksum=content.checksum,
            hash_value=content.hash_value,
            virtual_size=virtual_size,
            updated_at_s=now_s,
        )
        return _judge_total(view, call, image, active) or Enact(
            (replace_record(view, active),), quotas=call.quotas
        )

    return propose


def _judge_total(view: View, call: Call, before: Image, after: Image) -> ImagesFull | None:
    limit, used = call.services.settings.images_bytes_max, view.project_counts.image_bytes
    more = (after.size or 0) - (before.size or 0)
    return ImagesFull(limit, used, more) if more > 0 and used + more > limit else None


# -- an upload that has failed ------------------------------------------------------------------


def _make_queued(id: str, name: str) -> Proposal:
    """What an image is again whose upload has failed."""

    def propose(view: View, now_s: int) -> Command | None:
        image = view.records.get(Image, id)
        if image is None or image.content != name or image.status != "saving":
            return None
        queued = msgspec.structs.replace(image, status="queued", content=None, size=None, updated_at_s=now_s)
        return Enact((replace_record(view, queued),))

    return propose


async def _give_up(engine: Engine, cause: Origin, id: str, name: str, upload: Upload) -> None:
    """Take an upload back. A file that the journal has for an image's after all stays: the change that made
    it active may have been written although its outcome was not known."""
    try:
        kept = await engine.submit(_make_queued(id, name), cause, lambda view, _: _names(view, id, name))
    except (Overloaded, Unavailable) as outage:
        _log.warning("image %s: its failed upload is left to the next sweep: %s", id, outage)
        kept = True
    try:
        if kept is False:
            await upload.discard()
        else:
            await upload.close()
    except (StoreUnavailable, ContentNotFound) as outage:
        _log.warning("image %s: the file %s is left to the next sweep: %s", id, name, outage)


def _names(view: View, id: str, name: str) -> bool:
    image = view.records.get(Image, id)
    return image is not None and image.content == name


async def sweep(engine: Engine, store: ImageStore) -> None:
    """Take back the uploads of servers that have died, and remove files that are no image's.

    A file is listed before the journal is read, and its record is written after it was made: one that the
    journal does not know is no image's, or its upload is just beginning and has its lock.
    """
    names = await store.list_names()
    saving, kept = await engine.read(_list_contents)
    for name in sorted(saving.keys() - set(names)):
        if not await store.has(name):
            await _requeue(engine, saving[name], name)
    for name in sorted(set(names) - kept):
        held = await store.lock(name)
        if held is None:
            continue
        if name in saving:
            await _requeue(engine, saving[name], name)
        # With the lock nobody else writes it: what the journal says of it now is true from now on.
        _, kept = await engine.read(_list_contents)
        if name in kept:
            await held.close()
        else:
            await held.discard()
            _log.info("image contents: removed %s, left over from an upload that failed", name)


def _list_contents(view: View) -> tuple[dict[str, str], set[str]]:
    """The images that are being uploaded, by the names of their files; and the files of all others."""
    saving: dict[str, str] = {}
    kept: set[str] = set()
    for image in view.records.all(Image):
        if image.content is not None:
            if image.status == "saving":
                saving[image.content] = image.id
            else:
                kept.add(image.content)
    return saving, kept


async def _requeue(engine: Engine, id: str, name: str) -> None:
    await engine.submit(_make_queued(id, name), _SWEEP, lambda view, _: None)
    _log.warning("image %s: its upload ended with the server; it is queued again", id)


# -- out ----------------------------------------------------------------------------------------


async def download_file(call: Call) -> Response:
    image = await call.read(lambda view: find_image(view, call))
    if image.status == "deactivated" and not call.is_admin:
        raise Problem(403, f"Image {image.id} is deactivated: its content cannot be downloaded.")
    if image.status in ("queued", "saving") or not image.size:
        return Response(204)
    if image.content is None:
        raise Problem(404, f"The content of image {image.id} is not kept: only its size and its digests are.")
    first, last = _read_range(call, image.size)
    store = _find_store(call)
    with _wording_outages(call):
        end_transfer = store.transfers.begin(call.project)
        try:
            reader = await _open(call, store, image.id, image.content, image.size)
        except BaseException:
            end_transfer()
            raise

    def end() -> None:
        reader.close()
        end_transfer()

    is_part = last - first + 1 < image.size or "range" in call.request.headers
    headers = [("accept-ranges", "bytes")]
    if is_part:
        headers.append(("content-range", f"bytes {first}-{last}/{image.size}"))
    elif image.checksum is not None:
        headers.append(("content-md5", image.checksum))
    last_sent = first - 1 if call.request.method == "HEAD" else last
    return StreamResponse(
        _read_blocks(reader, first, last_sent),
        _TYPE,
        end,
        _WRITE_S,
        status=206 if is_part else 200,
        length=last - first + 1,
        headers=headers,
    )


async def _open(call: Call, store: ImageStore, id: str, name: str, size: int) -> Reader:
    try:
        reader = await store.open(name)
    except ContentNotFound:
        _log.error("image %s: its file %s is missing", id, name, extra={"request_id": call.request.ids})
        raise Problem(404, f"The content of image {id} is lost. Its administrator can read why.") from None
    if reader.size != size:
        reader.close()
        _log.error("image %s: its file %s has %d bytes, not %d", id, name, reader.size, size)
        raise Problem(404, f"The content of image {id} is damaged. Its administrator can read why.")
    return reader


def _read_range(call: Call, size: int) -> tuple[int, int]:
    """The first and the last byte that are asked for."""
    given = call.request.headers.get("range")
    if given is None:
        return 0, size - 1
    if "," in given:
        raise Problem(400, "Requests with several ranges are not supported: ask for one after the other.")
    found = _RANGE.fullmatch(given.strip())
    first, last = (found[1], found[2]) if found is not None else ("", "")
    headers = (("content-range", f"bytes */{size}"),)
    if not (first or last):
        text = f"The range is {given[:100]!r}; it must be bytes=FIRST-LAST."
        raise Problem(416, text, headers=headers)
    if not first:
        # The last so many bytes.
        begin, end = max(0, size - int(last)), size - 1
    else:
        begin, end = int(first), min(int(last), size - 1) if last else size - 1
    if begin >= size or begin > end:
        raise Problem(416, f"The range {given[:100]!r} is outside of the {size} bytes.", headers=headers)
    return begin, end


async def _read_blocks(reader: Reader, first: int, last: int) -> AsyncGenerator[bytes, None]:
    at = first
    while at <= last:
        block = await reader.read(at, min(_BLOCK_BYTES, last + 1 - at))
        if not block:
            raise StoreUnavailable("a file became shorter while it was read")
        at += len(block)
        yield block


ROUTES: Final = (
    Route("PUT", "/images/{id}/file", upload_file, policy="upload_image"),
    Route("GET", "/images/{id}/file", download_file, policy="download_image"),
)

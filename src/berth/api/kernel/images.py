"""The images that a request names: records of this region, or those of a Glance that the operator has named.

With ``image_endpoint`` a Glance is asked before anything is proposed, with the token of the caller: Glance
decides which images are there for it. What it says of an image is put into the same record that our own
images have, so nothing behind this module knows the difference.

Every question has a deadline, repeated attempts included, and every answer a size. Redirects are not
followed. A Glance that does not answer, or answers anything but images, is unavailable: 503, and nothing was
claimed. Its address is for the log and for nobody else.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Meta

from berth.api.kernel import codes
from berth.api.kernel.access import Access
from berth.api.kernel.http import Request
from berth.api.kernel.problem import Problem
from berth.client import Answer, Client, ClientError, Transport
from berth.model.placement import AMOUNT_MAX
from berth.model.servers import Image
from berth.runtime.backoff import Backoff
from berth.runtime.settings import Settings
from berth.view import View

_log = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 3
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_LONGEST_S: Final = 1.0
_AT_ONCE_MAX: Final = 16
"""How many questions are asked at the same time."""
_WAITING_MAX: Final = 256
"""How many are asked or wait for it; more are refused at once."""
_ANSWER_BYTES_MAX: Final = 1 << 20
_NAMED_MAX: Final = 20
"""How many images of one name are looked at."""
_RETRY_AFTER: Final = (("retry-after", "5"),)
_UUID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_GONE: Final = ("deleted", "pending_delete", "killed")
_STATUSES: Final[Mapping[str, Literal["queued", "saving", "active", "deactivated"]]] = {
    "queued": "queued",
    "saving": "saving",
    "uploading": "saving",
    "importing": "saving",
    "active": "active",
    "deactivated": "deactivated",
}
_FIELDS: Final = frozenset(
    (
        *("id", "name", "status", "visibility", "owner", "tags", "disk_format", "container_format"),
        *("min_disk", "min_ram", "protected", "os_hidden", "size", "virtual_size", "checksum"),
        *("os_hash_algo", "os_hash_value", "created_at", "updated_at", "self", "file", "schema"),
        *("locations", "direct_url", "stores"),
    )
)
"""Of an image as Glance shows it, what is no property."""


class GlanceImage(msgspec.Struct, frozen=True):
    """Fields that are not listed here are properties, or do not matter."""

    id: str
    status: str
    name: str | None = None
    visibility: Literal["public", "private", "shared", "community"] = "shared"
    owner: str | None = None
    disk_format: str | None = None
    container_format: str | None = None
    min_disk: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    min_ram: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    size: int | None = None


class _GlanceUnavailable(Exception):
    """Glance cannot be asked now: why, for the log. ``is_final``: trying again soon would not help."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class ImageSourceError(Exception):
    """A file that the settings name cannot be used. The message names it."""


class ImageSource:
    """A Glance. ``transport`` is another way to it than a network. The constructor raises ImageSourceError if
    the file of certificates cannot be used."""

    def __init__(self, settings: Settings, transport: Transport | None = None) -> None:
        assert settings.image_endpoint is not None, "asked for only with a Glance"
        parts = urlsplit(settings.image_endpoint)
        self._endpoint = f"{parts.scheme}://{parts.netloc}"
        self._path = f"{parts.path.rstrip('/')}/v2/images"
        self._timeout_s = settings.image_endpoint_timeout_seconds
        ca_file = settings.image_endpoint_cafile
        try:
            self._client = Client(
                self._endpoint,
                ca_file=None if ca_file is None else Path(ca_file),
                transport=transport,
                answer_bytes_max=_ANSWER_BYTES_MAX,
            )
        except OSError as error:
            raise ImageSourceError(f"{ca_file}: cannot read the certificates: {error.strerror}") from error
        self._places = asyncio.Semaphore(_AT_ONCE_MAX)
        self._count = 0

    async def find(self, ref: str, token: str, *, by_name: bool) -> tuple[Image, ...]:
        """The image of an id, or else those of a name, that are there for the owner of a token. Problem if
        Glance cannot say."""
        if self._count >= _WAITING_MAX:
            text = "Too many images are being looked for. Nothing was claimed. Retry later."
            raise Problem(503, text, codes.OVERLOADED, headers=_RETRY_AFTER)
        self._count += 1
        try:
            async with asyncio.timeout(self._timeout_s), self._places:
                return await self._find(ref, token, by_name=by_name)
        except TimeoutError:
            raise self._word(ref, f"no answer in {self._timeout_s} s") from None
        except _GlanceUnavailable as outage:
            raise self._word(ref, str(outage)) from outage
        finally:
            self._count -= 1

    async def close(self) -> None:
        await self._client.close()

    def _word(self, ref: str, reason: str) -> Problem:
        _log.warning("image %r cannot be read from %s: %s", ref, self._endpoint, reason)
        text = f"Image {ref[:100]} cannot be read: the image service is not available. Nothing was claimed. "
        return Problem(503, f"{text}Retry later.", codes.UNAVAILABLE, headers=_RETRY_AFTER)

    async def _find(self, ref: str, token: str, *, by_name: bool) -> tuple[Image, ...]:
        if _UUID.fullmatch(ref.lower()) is not None:
            answer = await self._ask_repeatedly(f"{self._path}/{ref.lower()}", token)
            if answer.status == 200:
                return _read_image(answer.body, ref.lower())
        if not by_name:
            return ()
        answer = await self._ask_repeatedly(
            f"{self._path}?name={quote(ref, safe='')}&limit={_NAMED_MAX}", token
        )
        if answer.status != 200 or not isinstance(answer.body, dict):
            raise _GlanceUnavailable("its answer is no list of images", is_final=True)
        listed = answer.body.get("images")
        if not isinstance(listed, list) or len(listed) > _NAMED_MAX:
            raise _GlanceUnavailable("its answer is no list of images", is_final=True)
        found = (image for body in listed for image in _read_image(body))
        return tuple(image for image in found if image.name == ref)

    async def _ask_repeatedly(self, path: str, token: str) -> Answer:
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LONGEST_S)
        for _ in range(_ATTEMPTS_MAX - 1):
            try:
                return await self._ask(path, token)
            except _GlanceUnavailable as error:
                if error.is_final:
                    raise
            await backoff.pause()
        return await self._ask(path, token)

    async def _ask(self, path: str, token: str) -> Answer:
        headers = {b"x-auth-token": token.encode("latin-1")}
        try:
            answer = await self._client.ask("GET", path, None, self._timeout_s, headers=headers)
        except ClientError as error:
            raise _GlanceUnavailable(str(error)) from error
        # What is not there for the caller, and an id that Glance does not take for one.
        if answer.status in (200, 400, 404):
            return answer
        if answer.status in (401, 403):
            raise _GlanceUnavailable(f"it refuses the caller's token with {answer.status}", is_final=True)
        if 300 <= answer.status < 400:
            raise _GlanceUnavailable(
                f"it answers with a redirect ({answer.status}), which is not followed", is_final=True
            )
        is_passing = answer.status >= 500 or answer.status in (408, 409, 425, 429)
        raise _GlanceUnavailable(f"it answers with {answer.status}", is_final=not is_passing)


def _read_image(body: Any, id: str | None = None) -> tuple[Image, ...]:
    """The image that Glance shows; none if it is on its way out."""
    try:
        shown = msgspec.convert(body, GlanceImage)
    except msgspec.ValidationError as error:
        raise _GlanceUnavailable(f"its answer is no image: {error}", is_final=True) from error
    if id is not None and shown.id.lower() != id:
        raise _GlanceUnavailable(f"its answer is about another image: {shown.id[:100]!r}", is_final=True)
    if shown.status in _GONE:
        return ()
    status = _STATUSES.get(shown.status)
    if status is None:
        raise _GlanceUnavailable(
            f"the status of the image is not known: {shown.status[:100]!r}", is_final=True
        )
    properties = {
        name: value for name, value in body.items() if name not in _FIELDS and isinstance(value, str)
    }
    return (
        Image(
            id=shown.id.lower(),
            name=shown.name,
            status=status,
            visibility=shown.visibility,
            owner=shown.owner or "",
            properties=properties,
            disk_format=shown.disk_format,
            container_format=shown.container_format,
            min_disk_gb=shown.min_disk,
            min_memory_mb=shown.min_ram,
            size=shown.size,
        ),
    )


# -- the images of a request --------------------------------------------------------------------


class Asking(Protocol):
    """What of a call matters here."""

    request: Request
    fetched_images: dict[str, tuple[Image, ...]] | None

    @property
    def access(self) -> Access: ...


async def fetch_images(
    source: ImageSource | None, call: Asking, refs: Iterable[str | None], *, by_name: bool = False
) -> None:
    """Ask the Glance, if there is one, for what a request names: before anything is proposed."""
    if source is None:
        return
    token = call.request.headers.get("x-auth-token", "")
    wanted = dict.fromkeys(ref for ref in refs if ref)
    found = await asyncio.gather(*(source.find(ref, token, by_name=by_name) for ref in wanted))
    call.fetched_images = dict(zip(wanted, found, strict=True))


def find_images(call: Asking, view: View, ref: str, *, by_name: bool = False) -> list[Image]:
    """The image of an id that the caller may use, or else those of a name."""
    if call.fetched_images is not None:
        return list(call.fetched_images.get(ref, ()))
    by_id = view.records.get(Image, ref)
    if by_id is not None:
        return [by_id] if call.access.may_use_image(by_id) else []
    if not by_name:
        return []
    # Names of images are not unique and rarely looked for: there is no index of them.
    view.steps.take(view.records.count(Image))
    return [one for one in view.records.all(Image) if one.name == ref and call.access.finds_by_name(one)]

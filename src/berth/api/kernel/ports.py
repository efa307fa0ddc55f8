"""Ports of a network service: what each needs of the host of its server, read from a configured source.

The source is Neutron, or another service that answers as Neutron does: a GET of ``port_source_url`` with the
id of a port in it answers ``{"port": {...}}``. Its ``resource_request`` becomes a need of the server.

Every read has a deadline, repeated attempts included, and every answer a size. Redirects are not followed.
A source that does not answer, refuses Berth or answers anything but a port is unavailable: 503, and nothing
was claimed. Its address and the headers that are sent to it are for the log and for nobody else; the headers
are secrets and are not even logged.
"""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from berth.api.kernel import codes
from berth.api.kernel.auth.keystone import v3_url
from berth.api.kernel.problem import Problem
from berth.client import Answer, Client, ClientError, Token, Transport, keystone_token
from berth.model.devices import NumaPolicy
from berth.model.placement import AMOUNT_MAX
from berth.model.rejections import PortGone, PortInUse, PortNotFound, PortUnusable, Rejection
from berth.model.servers import NEED_GROUPS_MAX, Need, NeedGroup
from berth.runtime.backoff import Backoff
from berth.runtime.secrets import refuse_others
from berth.runtime.settings import PORT_FIELD, Settings

_log = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 4
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_LONGEST_S: Final = 1.0
_AT_ONCE_MAX: Final = 16
"""How many ports are read at the same time."""
_WAITING_MAX: Final = 256
"""How many ports are read or wait for it; more are refused at once."""
_ANSWER_BYTES_MAX: Final = 256 << 10
_HEADERS_BYTES_MAX: Final = 64 << 10
_RETRY_AFTER: Final = (("retry-after", "5"),)

_RATES: Final = "NET_"
"""How the names of resource classes begin that are rates, and no devices."""


# -- a port as the source tells it --------------------------------------------------------------

_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Resources = dict[_Name, Annotated[int, Meta(ge=1, le=AMOUNT_MAX)]]
_Traits = Annotated[tuple[_Name, ...], Meta(max_length=50)]
_GroupId = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}\\Z")]


class _RequestGroup(msgspec.Struct, frozen=True):
    id: _GroupId
    resources: Annotated[_Resources, Meta(min_length=1, max_length=20)]
    required: _Traits = ()


class _ResourceRequest(msgspec.Struct, frozen=True):
    """Older Neutrons have one group, without a name."""

    request_groups: Annotated[tuple[_RequestGroup, ...], Meta(max_length=NEED_GROUPS_MAX)] = ()
    same_subtree: Annotated[tuple[_GroupId, ...], Meta(max_length=NEED_GROUPS_MAX)] = ()
    resources: Annotated[_Resources, Meta(max_length=20)] = {}
    required: _Traits = ()


def name_port_need(port: str) -> str:
    return f"port-{port}"


class Port(msgspec.Struct, frozen=True, rename={"vnic_type": "binding:vnic_type"}):
    """Fields that are not listed here do not matter. ``device_id`` is the server that it is attached to."""

    id: str
    project_id: str
    device_id: str | None = None
    vnic_type: str = "normal"
    resource_request: _ResourceRequest | None = None
    numa_affinity_policy: NumaPolicy | None = None

    def make_need(self) -> Need:
        """What the port needs of its server's host. A port may need nothing."""
        asked = self.resource_request or _ResourceRequest()
        name = name_port_need(self.id)
        if not asked.request_groups:
            required = asked.required if asked.resources else ()
            return Need(name, asked.resources, required, port=self.id, numa_policy=self.numa_affinity_policy)
        groups = tuple(NeedGroup(group.id, group.resources, group.required) for group in asked.request_groups)
        return Need(
            name,
            {},
            groups=groups,
            same_subtree=asked.same_subtree,
            port=self.id,
            numa_policy=self.numa_affinity_policy,
        )


class _PortAnswer(msgspec.Struct, frozen=True):
    port: Port


# -- the source ---------------------------------------------------------------------------------


class PortSourceError(Exception):
    """A file that the settings name cannot be used. The message names the file, and no value in it."""


class _Unavailable(Exception):
    """A port cannot be read now: why, for the log. ``is_final``: trying again soon would not help."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class PortSource:
    """Reads ports. The constructor raises PortSourceError if a file that the settings name cannot be used.

    The file is read for every request: a token in it can be replaced at any time. Without one, Berth's own
    user in Keystone asks, where there is one. ``transport`` is another way to the source than a network."""

    def __init__(self, settings: Settings, transport: Transport | None = None) -> None:
        assert settings.port_source_url is not None, "asked for only with a source"
        parts = urlsplit(settings.port_source_url)
        self._endpoint = f"{parts.scheme}://{parts.netloc}"
        self._path = parts._replace(scheme="", netloc="").geturl()
        self._timeout_s = settings.port_source_timeout_seconds
        self._headers_file = settings.port_source_headers_file
        ca_file = settings.port_source_cafile
        headers = None if self._headers_file is None else _read_headers(self._headers_file)
        try:
            self._client = Client(
                self._endpoint,
                headers,
                token=_find_token(settings),
                ca_file=None if ca_file is None else Path(ca_file),
                transport=transport,
                answer_bytes_max=_ANSWER_BYTES_MAX,
            )
        except OSError as error:
            raise PortSourceError(f"{ca_file}: cannot read the certificates: {error.strerror}") from error
        self._places = asyncio.Semaphore(_AT_ONCE_MAX)
        self._count = 0

    async def read(self, ids: Iterable[str]) -> list[Port | None]:
        """The ports of these ids, in their order; None where there is none. Problem if one cannot be read."""
        ids = tuple(ids)
        if self._count + len(ids) > _WAITING_MAX:
            raise Problem(
                503,
                "Too many ports are being read. Nothing was claimed. Retry later.",
                codes.OVERLOADED,
                headers=_RETRY_AFTER,
            )
        self._count += len(ids)
        try:
            found = await asyncio.gather(*map(self._read, ids), return_exceptions=True)
        finally:
            self._count -= len(ids)
        for id, one in zip(ids, found, strict=True):
            if isinstance(one, _Unavailable):
                _log.warning("port %s cannot be read from %s: %s", id, self._endpoint, one)
                raise Problem(
                    503,
                    f"Port {id} cannot be read: the port source is not available. Nothing was claimed. Retry "
                    "later.",
                    codes.UNAVAILABLE,
                    headers=_RETRY_AFTER,
                ) from one
            if isinstance(one, BaseException):
                raise one
        return [one for one in found if not isinstance(one, BaseException)]

    async def close(self) -> None:
        await self._client.close()

    async def _read(self, id: str) -> Port | None:
        try:
            async with asyncio.timeout(self._timeout_s), self._places:
                return await self._ask_repeatedly(id)
        except TimeoutError:
            raise _Unavailable(f"no answer in {self._timeout_s} s") from None

    async def _ask_repeatedly(self, id: str) -> Port | None:
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LONGEST_S)
        for _ in range(_ATTEMPTS_MAX - 1):
            try:
                return await self._ask(id)
            except _Unavailable as error:
                if error.is_final:
                    raise
            await backoff.pause()
        return await self._ask(id)

    async def _ask(self, id: str) -> Port | None:
        try:
            if self._headers_file is not None:
                self._client.replace_headers(_read_headers(self._headers_file))
            answer = await self._client.ask("GET", self._path.replace(PORT_FIELD, id), None, self._timeout_s)
        except PortSourceError as error:
            raise _Unavailable(str(error), is_final=True) from error
        except ClientError as error:
            raise _Unavailable(str(error)) from error
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise _refuse_status(answer.status)
        return _read_port(id, answer)


def _refuse_status(status: int) -> _Unavailable:
    if status in (401, 403):
        return _Unavailable(f"it refuses Berth's credentials with {status}", is_final=True)
    if 300 <= status < 400:
        return _Unavailable(f"it answers with a redirect ({status}), which is not followed", is_final=True)
    is_passing = status >= 500 or status in (408, 409, 425, 429)
    return _Unavailable(f"it answers with {status}", is_final=not is_passing)


def _read_port(id: str, answer: Answer) -> Port:
    try:
        port = msgspec.convert(answer.body, _PortAnswer).port
    except msgspec.ValidationError as error:
        raise _Unavailable(f"its answer is no port: {error}", is_final=True) from error
    if port.id.lower() != id:
        raise _Unavailable(f"its answer is about another port: {port.id[:100]!r}", is_final=True)
    asked = port.resource_request or _ResourceRequest()
    names = [group.id for group in asked.request_groups]
    if len(set(names)) < len(names) or not set(asked.same_subtree) <= set(names):
        raise _Unavailable("the groups of its resource_request do not go together", is_final=True)
    return msgspec.structs.replace(port, id=id)


def _read_headers(path: str) -> dict[str, str]:
    """The headers of a file: ``Name: value``, one in a line; lines that begin with # are comments."""
    try:
        with Path(path).open("rb") as file:
            shared = refuse_others(path, file)
            text = file.read(_HEADERS_BYTES_MAX + 1)
    except OSError as error:
        raise PortSourceError(f"{path}: cannot read the headers: {error.strerror}") from error
    if shared is not None:
        raise PortSourceError(shared)
    if len(text) > _HEADERS_BYTES_MAX:
        raise PortSourceError(f"{path}: it has more than {_HEADERS_BYTES_MAX} bytes")
    headers: dict[str, str] = {}
    for number, line in enumerate(text.decode("latin-1").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        is_text = line.isascii() and line.isprintable()
        if not (colon and name.replace("-", "").isalnum() and is_text):
            raise PortSourceError(f"{path}: line {number}: NAME: VALUE is expected, in printable ASCII")
        headers[name] = value.strip()
    return headers


def _find_token(settings: Settings) -> Token | None:
    """Tokens of Berth's own user in Keystone, where there is one and no file says what to send."""
    if settings.auth != "keystone" or settings.port_source_headers_file is not None:
        return None
    return keystone_token(
        v3_url(settings.keystone_auth_url or ""),
        settings.keystone_username or "",
        settings.keystone_password or "",
        settings.keystone_project_name or "",
        settings.keystone_user_domain_name,
        settings.keystone_project_domain_name,
        verify=False if settings.keystone_insecure else settings.keystone_cafile or True,
    )


# -- ports of a server --------------------------------------------------------------------------


async def read_port_needs(
    source: PortSource | None, ids: Iterable[str], project: str, server: str | None = None
) -> tuple[Need, ...] | Rejection:
    """The needs of a server's ports, as they are now; or why it cannot have one of them. ``server``: it is
    there, and has had them until now. Problem if they cannot be read."""
    ids = tuple(ids)
    if not ids:
        return ()
    if source is None:
        text = f"Port {ids[0]} cannot be read: port_source_url is not set. Nothing was claimed."
        raise Problem(503, text, codes.UNAVAILABLE, headers=_RETRY_AFTER)
    needs = []
    for id, port in zip(ids, await source.read(ids), strict=True):
        # A port of another project is refused as if there were none.
        if port is None or port.project_id != project:
            return PortNotFound(id) if server is None else PortGone(id, server)
        if port.device_id and port.device_id != server:
            return PortInUse(id)
        need = port.make_need()
        has_device = any(not name.startswith(_RATES) for group in need.parts for name in group.resources)
        if port.vnic_type != "normal" and not has_device:
            return PortUnusable(id, port.vnic_type)
        needs.append(need)
    return tuple(needs)

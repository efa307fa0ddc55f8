"""Asks Keystone who a token belongs to, as seldom as possible and never on the event loop.

    token -> can it be one? -> cached? -> being asked already? join -> wait for a place -> ask in a thread
          -> cache until it expires

A token that Keystone confirms is believed until it expires, at most ``cache_seconds``; one that it denies
stays denied for a few seconds, so that a client in a loop does not become a load on Keystone. Keystone being
down, slow or unwilling to talk to Berth is not the caller's fault: AuthUnavailable, which is never cached.
It is logged once, when it begins and when it is over.

A service that acts for a user sends its own token beside the user's (``X-Service-Token``). With the role
``service`` the user's may have expired meanwhile, within the time that Keystone allows: long work is not cut
off half-way. A service token that is no good is refused with the request.

Tokens are kept only as digests. Everything is bounded: threads, waiting questions, both caches. Who asks
about many bad tokens does not keep others waiting: see ``WaitingRoom``.
"""

import asyncio
import contextlib
import functools
import hashlib
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.identity import v3
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from requests import Session as Connections

from berth.api.kernel.auth.caller import TOKEN_HEADER, AuthUnavailable, Caller
from berth.runtime.clock import Clock
from berth.runtime.dependency import Dependency
from berth.runtime.settings import Settings

_log = logging.getLogger(__name__)

SERVICE_TOKEN_HEADER: Final = "x-service-token"
SERVICE: Final = "service"
"""The role of services that act for users."""
THREADS: Final = 32
"""Questions under way. They wait for the network, and take no time of the processor."""
KNOWN_PEER_SECONDS: Final = 600
"""How long a peer that had a good token is asked about before those that had none."""
CACHE_MAX: Final = 10_000
DENIED_SECONDS: Final = 10
EXPIRED_SECONDS: Final = 10
"""How long an expired token is believed that a service has sent."""

_FORM: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,8192}")
"""What a token can consist of (Fernet, JWS and older ones). Keystone is not asked about anything else."""

_SECOND_NS: Final = 1_000_000_000
_REJECTED: Final = "Keystone rejects Berth's own user and password"

T = TypeVar("T")

LANE_MAX: Final = 2048
PEER_MAX: Final = 1024

_KNOWN_TURNS: Final = 3
"""So many places go to known peers before one goes to the others."""


# -- who waits for an answer --------------------------------------------------------------------


class RoomFull(Exception):
    """No more can wait, of this peer or of its kind."""


class WaitingRoom:
    """Who is next, where more ask than can be served at once: a peer that floods it keeps no others out.

    Those who wait are sorted by their peer (an address) into two lanes: peers that have shown a good token
    lately, and all others. Of four places that become free, three go to the first lane, if anybody waits
    there; within a lane peers take turns, and the questions of one peer keep their order. Each lane has a
    bound, and so has each peer: a flood from one address fills that address's share and no more.

    ``places``: how many may be inside at once. ``enter`` waits for a place, ``leave`` gives it on."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._known = _Lane()
        self._others = _Lane()
        self._turns = 0

    async def enter(self, peer: str, *, is_known: bool) -> None:
        """Wait for a place; RoomFull if there is not even one to wait."""
        if self._free:
            self._free -= 1
            return
        lane = self._known if is_known else self._others
        called = lane.add(peer)
        try:
            await called
        except asyncio.CancelledError:
            if called.cancelled():
                lane.remove(peer, called)
            else:
                # It was called in the same moment.
                self.leave()
            raise

    def leave(self) -> None:
        """Give the place to whoever is next."""
        for lane in self._next_lanes():
            called = lane.next()
            if called is not None:
                called.set_result(None)
                return
        self._free += 1

    def _next_lanes(self) -> "tuple[_Lane, _Lane]":
        self._turns += 1
        if self._turns % (_KNOWN_TURNS + 1):
            return self._known, self._others
        return self._others, self._known


class _Lane:
    """Those who wait, by peer. The peer whose turn it is comes first."""

    def __init__(self) -> None:
        self._peers: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = 0

    def add(self, peer: str) -> "asyncio.Future[None]":
        waiting = self._peers.get(peer)
        if self._waiting >= LANE_MAX or (waiting is not None and len(waiting) >= PEER_MAX):
            raise RoomFull
        if waiting is None:
            waiting = self._peers[peer] = deque()
        called = asyncio.get_running_loop().create_future()
        waiting.append(called)
        self._waiting += 1
        return called

    def next(self) -> "asyncio.Future[None] | None":
        while self._peers:
            peer = next(iter(self._peers))
            waiting = self._peers.pop(peer)
            called = waiting.popleft()
            self._waiting -= 1
            if waiting:
                # Behind the other peers.
                self._peers[peer] = waiting
            if not called.done():
                return called
        return None

    def remove(self, peer: str, called: "asyncio.Future[None]") -> None:
        """One who has stopped waiting."""
        waiting = self._peers.get(peer)
        if waiting is None or called not in waiting:
            return
        waiting.remove(called)
        self._waiting -= 1
        if not waiting:
            del self._peers[peer]


# -- Keystone's answer, as far as it is read ----------------------------------------------------


class _Named(msgspec.Struct):
    id: str


class _Role(msgspec.Struct):
    name: str


class _Token(msgspec.Struct):
    user: _Named
    expires_at: datetime
    roles: list[_Role] = []
    project: _Named | None = None
    domain: _Named | None = None
    system: dict[str, bool] | None = None

    def caller(self) -> Caller:
        return Caller(
            user_id=self.user.id,
            project_id=self.project.id if self.project else None,
            roles=tuple(role.name for role in self.roles),
            system_scope="all" if self.system and self.system.get("all") else None,
            domain_id=self.domain.id if self.domain else None,
        )


class _Answer(msgspec.Struct):
    token: _Token


class Passed(NamedTuple):
    """Keystone's answer to what was passed on. ``token``: the one that it issued, if it did."""

    status: int
    content: bytes
    token: str | None


# -- asking -------------------------------------------------------------------------------------


class Keystone:
    """One authenticator per process; ``close`` lets go of its threads."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._cache_ns = settings.keystone_cache_seconds * _SECOND_NS
        self._url = v3_url(settings.keystone_auth_url or "")
        # In the words of Keystone's own middleware.
        self.challenge: Final = f'Keystone uri="{settings.keystone_auth_url}"'
        self._session = _session(settings, self._url)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="keystone")
        self._asking: dict[bytes, asyncio.Task[Caller | None]] = {}
        self._confirmed: _Cache[Caller] = _Cache(CACHE_MAX)
        # Apart from the confirmed ones, so that a flood of bad tokens cannot push out the good.
        self._denied: _Cache[None] = _Cache(CACHE_MAX)
        self._room = WaitingRoom(THREADS)
        self._wait_s = settings.keystone_timeout_seconds
        self._known_peers: _Cache[None] = _Cache(CACHE_MAX)
        self._outage = Dependency("Keystone", _log)

    async def identify(self, headers: Mapping[str, str], peer: str = "") -> Caller | None:
        token, service_token = headers.get(TOKEN_HEADER), headers.get(SERVICE_TOKEN_HEADER)
        if not token:
            return None
        if service_token is None:
            return await self._identify(token, peer)
        service = await self._identify(service_token, peer)
        if service is None:
            return None
        return await self._identify(token, peer, allow_expired=SERVICE in service.roles)

    async def check(self) -> None:
        """Find out whether Keystone accepts Berth's own user, and log it if not: at the start, and not with
        the first request."""
        with contextlib.suppress(AuthUnavailable):
            await self._in_turn("", self._log_in)

    async def _identify(self, token: str, peer: str, *, allow_expired: bool = False) -> Caller | None:
        if _FORM.fullmatch(token) is None:
            return None
        digest = hashlib.sha256(token.encode() + (b" expired" if allow_expired else b"")).digest()
        now_ns = self._clock.monotonic_ns()
        caller = self._confirmed.get(digest, now_ns)
        if caller is not None:
            return caller
        if self._denied.has(digest, now_ns):
            return None
        # Shielded: a client that hangs up must not take the answer from the others who wait for it.
        asking = self._asking.get(digest) or self._begin(digest, token, peer, allow_expired)
        return await asyncio.shield(asking)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(
        self, digest: bytes, token: str, peer: str, allow_expired: bool
    ) -> "asyncio.Task[Caller | None]":
        task = asyncio.create_task(self._validate(digest, token, peer, allow_expired))
        self._asking[digest] = task
        # If every client has hung up, nobody else looks at the outcome.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _validate(self, digest: bytes, token: str, peer: str, allow_expired: bool) -> Caller | None:
        try:
            answer = await self._in_turn(peer, functools.partial(self._ask, token, allow_expired))
        finally:
            del self._asking[digest]
        now_ns = self._clock.monotonic_ns()
        valid_ns = 0 if answer is None else _wall_ns(answer.expires_at) - self._clock.now_ns()
        if allow_expired:
            # For how much longer is for Keystone to say: it is asked again soon.
            valid_ns = max(valid_ns, EXPIRED_SECONDS * _SECOND_NS)
        if answer is None or valid_ns <= 0:
            self._denied.put(digest, None, now_ns, min(self._cache_ns, DENIED_SECONDS * _SECOND_NS))
            return None
        caller = answer.caller()
        self._known_peers.put(peer.encode(), None, now_ns, KNOWN_PEER_SECONDS * _SECOND_NS)
        self._confirmed.put(digest, caller, now_ns, min(self._cache_ns, valid_ns))
        return caller

    async def pass_on(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, peer: str
    ) -> Passed:
        """Keystone's answer to a request of a user's own, such as a sign-in; AuthUnavailable if there is
        none. Waits its turn among the questions about tokens."""
        return await self._in_turn(peer, functools.partial(self._send, method, path, headers, body))

    async def _in_turn(self, peer: str, ask: Callable[[], T]) -> T:
        """What a question comes to, asked in a thread when it is the peer's turn."""
        is_known = self._known_peers.has(peer.encode(), self._clock.monotonic_ns())
        try:
            async with asyncio.timeout(self._wait_s):
                await self._room.enter(peer, is_known=is_known)
        except (RoomFull, TimeoutError):
            raise AuthUnavailable("too many tokens are waiting for Keystone") from None
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except AuthUnavailable as outage:
            self._outage.lose(str(outage))
            raise
        finally:
            self._room.leave()
        self._outage.regain()
        return answer

    def _send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Passed:
        """Runs in a thread."""
        try:
            response = self._session.request(
                self._url + path,
                method,
                headers={**headers, "Content-Type": "application/json", "Accept": "application/json"},
                data=body,
                authenticated=False,
                raise_exc=False,
                log=False,
            )
        except keystone_errors.ClientException as error:
            raise AuthUnavailable(f"Keystone is unreachable: {type(error).__name__}") from error
        return Passed(response.status_code, response.content, response.headers.get("X-Subject-Token"))

    def _log_in(self) -> None:
        """Get a token of Berth's own. Runs in a thread."""
        try:
            self._session.get_token()
        except keystone_errors.Unauthorized as error:
            raise AuthUnavailable(_REJECTED) from error
        except keystone_errors.ClientException as error:
            raise AuthUnavailable(f"Keystone is unreachable: {type(error).__name__}") from error

    def _ask(self, token: str, allow_expired: bool) -> _Token | None:
        """What Keystone says of the token; None if it does not know it. Runs in a thread."""
        try:
            response = self._session.get(
                f"{self._url}/auth/tokens{'?allow_expired=1' if allow_expired else ''}",
                headers={"X-Subject-Token": token, "Accept": "application/json"},
                authenticated=True,
                raise_exc=False,
            )
        except keystone_errors.Unauthorized as error:
            raise AuthUnavailable(_REJECTED) from error
        except keystone_errors.ClientException as error:
            raise AuthUnavailable(f"Keystone is unreachable: {type(error).__name__}") from error
        if response.status_code == 404:
            return None
        if response.status_code in (401, 403):
            raise AuthUnavailable(
                f"Keystone does not allow Berth to validate tokens ({response.status_code})"
            )
        if response.status_code != 200:
            raise AuthUnavailable(f"Keystone answered {response.status_code}")
        try:
            return msgspec.json.decode(response.content, type=_Answer).token
        except msgspec.DecodeError as error:
            raise AuthUnavailable(f"cannot decode the answer of Keystone: {error}") from error


def v3_url(auth_url: str) -> str:
    url = auth_url.rstrip("/")
    return url if url.endswith("/v3") else url + "/v3"


def _session(settings: Settings, url: str) -> Session:
    credentials = v3.Password(
        auth_url=url,
        username=settings.keystone_username,
        password=settings.keystone_password or "",
        user_domain_name=settings.keystone_user_domain_name,
        project_name=settings.keystone_project_name,
        project_domain_name=settings.keystone_project_domain_name,
    )
    verify = False if settings.keystone_insecure else settings.keystone_cafile or True
    connections = Connections()
    for scheme in ("http://", "https://"):
        # A connection for every thread: fewer would be opened and closed all the time.
        connections.mount(scheme, TCPKeepAliveAdapter(pool_maxsize=THREADS))
    return Session(
        auth=credentials, verify=verify, timeout=settings.keystone_timeout_seconds, session=connections
    )


def _wall_ns(moment: datetime) -> int:
    return int(moment.timestamp() * _SECOND_NS)


class _Cache(Generic[T]):
    """Values with a time to go. When it is full, the one that was put in first makes room."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._values: dict[bytes, tuple[T, int]] = {}

    def get(self, key: bytes, now_ns: int) -> T | None:
        return self._values[key][0] if self.has(key, now_ns) else None

    def has(self, key: bytes, now_ns: int) -> bool:
        found = self._values.get(key)
        if found is None:
            return False
        if found[1] > now_ns:
            return True
        del self._values[key]
        return False

    def put(self, key: bytes, value: T, now_ns: int, valid_ns: int) -> None:
        if valid_ns <= 0:
            return
        self._values.pop(key, None)
        if len(self._values) >= self._size_max:
            del self._values[next(iter(self._values))]
        self._values[key] = (value, now_ns + valid_ns)

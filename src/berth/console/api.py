"""The console's files, what its pages must know before anybody has signed in, and the way to a Keystone.

    GET  /console/...                      a file, with a strong tag of its content
    GET  /console/settings.json            how callers are identified, and where they sign in
    POST, DELETE /console/keystone/...     passed on to the Keystone that the operator configured
    GET  /  (of a browser), /console       a redirect to /console/

All of it is open: it says nothing that is not in the program or its README. Files are read once, when the
server starts. A page may load nothing from elsewhere, run nothing that is written into it, and be shown in no
frame.
"""

import functools
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from berth import __version__
from berth.api.kernel.application import Api
from berth.api.kernel.auth.caller import TOKEN_HEADER, Authenticator, AuthUnavailable, Caller
from berth.api.kernel.auth.keystone import Keystone
from berth.api.kernel.codes import METHOD_NOT_ALLOWED, UNAVAILABLE
from berth.api.kernel.etags import add_tag, make_body_tag
from berth.api.kernel.http import JSON, Request, Response
from berth.api.kernel.problem import RETRY_SOON, Problem
from berth.runtime.settings import Settings

_PREFIX: Final = "/console"
_HOME: Final = f"{_PREFIX}/"
_TO_HOME: Final = "console/"
"""Relative to / and to /console: it is right behind a proxy that takes a prefix away, too."""
_SETTINGS: Final = f"{_PREFIX}/settings.json"
_KEYSTONE: Final = "console/keystone/v3"
_IDENTITY: Final = "identity/v3"
_TOKENS: Final = "/auth/tokens"
_ICON: Final = "/favicon.ico"
_SUBJECT: Final = "x-subject-token"

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
"""Media types by the ending of a file. What has another ending is not served."""

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types lit-html",
    )
)

_GUARDS: Final = (
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


class ConsoleFile(NamedTuple):
    content: bytes
    media_type: str
    tag: str


class ConsoleSettings(msgspec.Struct):
    """``identity``: the path, from the root of the server, at which a user's password is exchanged for a
    token; None if there is no such path."""

    version: str
    auth: str
    identity: str | None
    has_servers: bool
    event_heartbeat_seconds: int


# -- what may be sent to a Keystone -------------------------------------------------------------

_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class _InDomain(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name


class _SignInUser(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    password: Annotated[str, Meta(max_length=4096)]
    domain: _InDomain


class _SignInPassword(msgspec.Struct, forbid_unknown_fields=True):
    user: _SignInUser


class _SignInIdentity(msgspec.Struct, forbid_unknown_fields=True):
    methods: Annotated[list[str], Meta(max_length=1)]
    password: _SignInPassword


class _SignInProject(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    domain: _InDomain


class _SignInScope(msgspec.Struct, forbid_unknown_fields=True):
    project: _SignInProject


class _SignInAuth(msgspec.Struct, forbid_unknown_fields=True):
    identity: _SignInIdentity
    scope: _SignInScope


class _SignIn(msgspec.Struct, forbid_unknown_fields=True):
    auth: _SignInAuth


# -- the API ------------------------------------------------------------------------------------


class ConsoleApi(Api):
    PREFIX = _PREFIX

    def __init__(self, settings: Settings, authenticator: Authenticator) -> None:
        self._keystone = authenticator if isinstance(authenticator, Keystone) else None
        described = _make_file(_SETTINGS, msgspec.json.encode(self._describe(settings)))
        self._files = {**_read_files(), _SETTINGS: described}

    def _describe(self, settings: Settings) -> ConsoleSettings:
        identity = _IDENTITY if settings.cells else None
        if self._keystone is not None:
            identity = _KEYSTONE
        return ConsoleSettings(
            __version__, settings.auth, identity, bool(settings.cells), settings.event_heartbeat_seconds
        )

    def is_open(self, request: Request) -> bool:
        return True

    def claims(self, request: Request) -> bool:
        if request.path == _ICON:
            return True
        # No browser asks for a version of Placement.
        is_browser = "openstack-api-version" not in request.headers
        is_read = request.method in ("GET", "HEAD")
        return is_read and is_browser and "text/html" in request.headers.get("accept", "")

    def refuse(self, problem: Problem, request: Request) -> Response:
        body = {"error": {"code": problem.status, "message": problem.text}}
        return Response(problem.status, msgspec.json.encode(body), JSON, (*problem.headers, *_GUARDS))

    async def answer(self, request: Request, caller: Caller) -> Response:
        path = request.path
        if path == f"/{_KEYSTONE}{_TOKENS}" and self._keystone is not None:
            request.route = path
            return await self._pass_on(request, self._keystone)
        if request.method not in ("GET", "HEAD"):
            text = f"{request.method} is not allowed here, only GET."
            raise Problem(405, text, METHOD_NOT_ALLOWED, headers=(("allow", "GET, HEAD"),))
        if path in ("/", _PREFIX):
            request.route = path
            return Response(302, headers=(("location", _TO_HOME), ("vary", "Accept"), *_GUARDS))
        found = self._files.get(f"{_PREFIX}/icon.svg" if path == _ICON else path)
        if found is None:
            raise Problem(404, f"The console has no {path}. It begins at {_HOME}.")
        request.route = path
        response = Response(200, found.content, found.media_type, _GUARDS)
        return add_tag(request, response, found.tag)

    async def _pass_on(self, request: Request, keystone: Keystone) -> Response:
        """A sign-in or a sign-out, for the Keystone: a page may not ask another origin."""
        if request.method == "POST":
            try:
                body = msgspec.json.encode(msgspec.json.decode(request.body, type=_SignIn))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Problem(400, f"The body is not a valid sign-in: {error}.") from None
            headers: dict[str, str] = {}
        elif request.method == "DELETE":
            body = b""
            headers = {
                name: value for name in (TOKEN_HEADER, _SUBJECT) if (value := request.headers.get(name))
            }
        else:
            text = f"{request.method} is not allowed here, only POST and DELETE."
            raise Problem(405, text, METHOD_NOT_ALLOWED, headers=(("allow", "POST, DELETE"),))
        try:
            told = await keystone.pass_on(
                request.method, f"{_TOKENS}?nocatalog", headers, body, request.client
            )
        except AuthUnavailable as outage:
            raise Problem(
                503, f"Nobody can sign in now: {outage}.", UNAVAILABLE, headers=RETRY_SOON
            ) from None
        response = Response(told.status, told.content, JSON if told.content else None, _GUARDS)
        if told.token is not None:
            response.headers.append((_SUBJECT, told.token))
        return response


@functools.cache
def _read_files() -> dict[str, ConsoleFile]:
    """The files of the program, by path: read once, whatever is served in this process."""
    folder = files("berth.console") / "static"
    found = {path: _make_file(path, content) for path, content in _walk(folder, _PREFIX)}
    return {**found, _HOME: _make_file(_HOME, (folder / "index.html").read_bytes())}


def _walk(folder: Traversable, below: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{below}/{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, path)
        elif entry.name.rpartition(".")[2] in TYPES:
            yield path, entry.read_bytes()


def _make_file(path: str, content: bytes) -> ConsoleFile:
    media_type = JSON if path == _SETTINGS else TYPES["html" if path == _HOME else path.rpartition(".")[2]]
    return ConsoleFile(content, media_type, make_body_tag(content))

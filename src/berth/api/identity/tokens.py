"""/auth/tokens: log in, look at a token, and revoke one.

An issued token is good until it expires or is revoked. Revoked tokens are records in the journal until they
expire, so that every worker honours them at once, and after a restart. A user has a bounded number of them,
and whoever revokes one removes those that have expired. A token of the tokens file itself is good until its
entry is taken out: it cannot be revoked here.

What Keystone knows and this does not (trusts, application credentials, systems) is refused by name.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from berth.api.identity.directory import DOMAIN_ID, DOMAIN_NAME, Issuer, Login, make_catalog
from berth.api.kernel.auth.caller import TOKEN_HEADER, Caller
from berth.api.kernel.auth.tokens import Grant, Tokens
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Request, Response, read_origin
from berth.api.kernel.problem import Problem
from berth.api.kernel.times import show_long_time
from berth.engine import Engine
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.rejections import RevocationsExceeded
from berth.model.servers import RevokedToken
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.view import View

# -- what is sent to log in: who somebody is, how that is proved, where they want to go ---------

Text = Annotated[str, Meta(max_length=4096)]


class DomainRef(msgspec.Struct, frozen=True):
    id: Text | None = None
    name: Text | None = None


class LoginUser(msgspec.Struct, frozen=True):
    id: Text | None = None
    name: Text | None = None
    domain: DomainRef | None = None
    password: Text = ""


class LoginPassword(msgspec.Struct, frozen=True):
    user: LoginUser


class LoginToken(msgspec.Struct, frozen=True):
    id: Text


class LoginIdentity(msgspec.Struct, frozen=True):
    methods: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=10)]
    password: LoginPassword | None = None
    token: LoginToken | None = None


class LoginProject(msgspec.Struct, frozen=True):
    id: Text | None = None
    name: Text | None = None
    domain: DomainRef | None = None


class LoginScope(msgspec.Struct, frozen=True):
    project: LoginProject | None = None
    system: dict[str, Any] | None = None
    domain: DomainRef | None = None


class LoginAuth(msgspec.Struct, frozen=True):
    identity: LoginIdentity
    scope: LoginScope | str | None = None


class LoginBody(msgspec.Struct, frozen=True):
    auth: LoginAuth


def _is_ours(domain: DomainRef | None) -> bool:
    """Whether it is the one domain that exists, in any spelling, or none is named."""
    if domain is None:
        return True
    named = domain.id if domain.id is not None else domain.name
    return named is None or named.lower() == DOMAIN_ID


def _read_project(scope: LoginScope | str | None) -> str | None:
    """The project to log in to; None for the user's own."""
    if scope is None or isinstance(scope, str):
        return None
    if scope.project is None:
        raise Problem(400, "The scope must be a project: no other scope is supported.")
    if not _is_ours(scope.project.domain):
        raise Problem(401, f"Unknown domain: the only one is {DOMAIN_NAME}.")
    project = scope.project.id or scope.project.name
    if not project:
        raise Problem(400, "scope.project must have an id or a name.")
    return project


# -- revoked tokens ------------------------------------------------------------------------------


OF_USER_MAX: Final = 1_000
_EXPIRED_MAX: Final = 100
"""How many expired tokens one command removes: more than it adds."""


def revoke_token(view: View, now_s: int, grant: Grant) -> Enact | RevocationsExceeded:
    """The command that revokes a token, unless its user has revoked too many."""
    if view.records.get(RevokedToken, grant.audit) is not None:
        return Enact(())
    kept = view.records.find(RevokedToken, "user", grant.user)
    if sum(token.expires_at_s > now_s for token in kept) >= OF_USER_MAX:
        return RevocationsExceeded(grant.user, OF_USER_MAX)
    expired = (token for token in view.records.all(RevokedToken) if token.expires_at_s <= now_s)
    removed = tuple(RecordChanged(token, None) for token in islice(expired, _EXPIRED_MAX))
    revoked = RevokedToken(id=grant.audit, user=grant.user, expires_at_s=grant.expires_at_s)
    return Enact((*removed, RecordChanged(None, revoked)))


class Revocations:
    """Which tokens have been revoked."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def has(self, grant: Grant) -> bool:
        """Whether a token was revoked, by any worker. Only a revoked one waits for the journal."""
        await self._engine.look()
        if self._engine.view.records.get(RevokedToken, grant.audit) is None:
            return False
        return await self._engine.read(lambda view: view.records.get(RevokedToken, grant.audit) is not None)


class RevocableTokens:
    """The callers of a tokens file, as long as their tokens are not revoked."""

    challenge: Final = None

    def __init__(self, tokens: Tokens, revocations: Revocations) -> None:
        self._tokens = tokens
        self._revocations = revocations

    async def identify(self, headers: Mapping[str, str], peer: str = "") -> Caller | None:
        token = headers.get(TOKEN_HEADER)
        found = None if token is None else self._tokens.known_by_token(token)
        if found is None:
            return None
        entry, grant = found
        if grant is not None and await self._revocations.has(grant):
            return None
        return entry.caller


# -- handlers -----------------------------------------------------------------------------------

LIFETIME_S: Final = 12 * 3600
SUBJECT: Final = "x-subject-token"
_DOMAIN: Final = {"id": DOMAIN_ID, "name": DOMAIN_NAME}


class TokenHandlers:
    def __init__(
        self,
        issuer: Issuer,
        revocations: Revocations,
        clock: Clock,
        ids: Ids,
        image_endpoint: str | None = None,
    ) -> None:
        self._image_endpoint = image_endpoint
        self._issuer = issuer
        self._revocations = revocations
        self._failed = FailedLogins(clock)
        self._clock = clock
        self._ids = ids

    async def log_in(self, request: Request) -> Response:
        auth = _decode_login(request)
        login = await self._recognise(auth, request.client)
        grant = self._make_grant(login, tuple(auth.identity.methods))
        return self._respond(request, login.caller, grant, login.issue(grant), 201)

    async def show(self, call: Call) -> Response:
        """Show a token. Only its user and administrators may."""
        subject, login = await self._find_subject(call)
        grant = login.grant or self._make_grant(login, ("password",))
        return self._respond(call.request, login.caller, grant, subject, 200)

    def _respond(self, request: Request, caller: Caller, grant: Grant, token: str, status: int) -> Response:
        body = _describe_token(caller, grant)
        if "nocatalog" not in request.query_string:
            body["catalog"] = make_catalog(read_origin(request), self._image_endpoint)
        return json({"token": body}, status, ((SUBJECT, token), ("vary", "X-Auth-Token")))

    async def revoke(self, call: Call) -> Response:
        """Revoke a token. Only its user and administrators may."""
        _, login = await self._find_subject(call)
        grant = login.grant
        if grant is None:
            raise Problem(
                403,
                "This token was not issued by a login and cannot be revoked here: it is valid until it is "
                "removed from the tokens file.",
            )
        return await call.submit(
            lambda view, now_s: revoke_token(view, now_s, grant), lambda view: Response(204)
        )

    async def _recognise(self, auth: LoginAuth, peer: str) -> Login:
        """The user who logs in, by every method that is named. Problem if one of them fails."""
        user, project = self._read_user(auth), _read_project(auth.scope)
        must_wait = self._failed.must_wait(user, peer)
        login = None if must_wait else await self._prove(auth, project)
        if login is not None:
            self._failed.record_success(user, peer)
            return login
        wait_s = self._failed.wait_s(peer)
        self._failed.record_failure("" if must_wait else user, peer)
        if wait_s:
            raise Problem(
                429,
                f"Too many logins have failed: wait {wait_s} s before the next one.",
                headers=(("retry-after", str(wait_s)),),
            )
        raise Problem(
            401,
            "The request you have made requires authentication: the user, password and project, or the "
            "token, are not known here.",
        )

    def _read_user(self, auth: LoginAuth) -> str:
        """The user whose password is given; the empty name if there is no such user."""
        password = auth.identity.password
        name = "" if password is None else password.user.id or password.user.name or ""
        return name if self._issuer.knows(name) else ""

    async def _prove(self, auth: LoginAuth, project: str | None) -> Login | None:
        login = None
        for method in dict.fromkeys(auth.identity.methods):
            found = await self._recognise_by(method, auth, project)
            if found is None or (login is not None and login.caller != found.caller):
                return None
            # A token that is given with a password is exchanged too: the new one expires with it.
            login = found if login is None or found.grant is not None else login
        return login

    async def _recognise_token(self, token: str, project: str | None) -> Login | None:
        login = self._issuer.log_in_by_token(token, project)
        if login is None or login.grant is None:
            return login
        return None if await self._revocations.has(login.grant) else login

    async def _recognise_by(self, method: str, auth: LoginAuth, project: str | None) -> Login | None:
        identity = auth.identity
        match method:
            case "password" if identity.password is not None:
                user = identity.password.user
                name = user.id or user.name or ""
                if not _is_ours(user.domain):
                    return None
                return self._issuer.log_in_by_password(name, user.password, project)
            case "token" if identity.token is not None:
                return await self._recognise_token(identity.token.id, project)
            case "password" | "token":
                raise Problem(400, f"identity.methods has {method}, but identity.{method} is missing.")
            case _:
                raise Problem(401, f"The method {method!r} is not supported: use password or token.")

    def _make_grant(self, login: Login, methods: tuple[str, ...]) -> Grant:
        now_s = self._clock.now_ns() // 1_000_000_000
        # A token that is issued for a token expires with it.
        expires_at_s = now_s + LIFETIME_S if login.grant is None else login.grant.expires_at_s
        caller = login.caller
        before = () if login.grant is None else login.grant.methods
        return Grant(
            caller.user_id or "",
            caller.project_id or "",
            tuple(dict.fromkeys((*methods, *before))),
            now_s,
            expires_at_s,
            self._ids.uuid(),
        )

    async def _find_subject(self, call: Call) -> tuple[str, Login]:
        """The token that the request is about, and its login."""
        subject = call.request.headers.get(SUBJECT)
        if subject is None:
            raise Problem(400, "X-Subject-Token is missing: it must have the token to show or revoke.")
        login = await self._recognise_token(subject, None)
        if login is None:
            raise Problem(404, "The token in X-Subject-Token is invalid, has expired or has been revoked.")
        if not call.is_admin and login.caller.user_id != call.caller.user_id:
            raise Problem(
                403,
                "The token in X-Subject-Token belongs to another user: ask an administrator.",
            )
        return subject, login


def _decode_login(request: Request) -> LoginAuth:
    try:
        return msgspec.json.decode(request.body, type=LoginBody).auth
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"The body is not a valid login: {error}.") from None


def _describe_token(caller: Caller, grant: Grant) -> dict[str, Any]:
    return {
        "methods": grant.methods,
        "user": {
            "id": caller.user_id,
            "name": caller.user_id,
            "domain": _DOMAIN,
            "password_expires_at": None,
        },
        "project": {"id": caller.project_id, "name": caller.project_id, "domain": _DOMAIN},
        "is_domain": False,
        "roles": [{"id": role, "name": role} for role in caller.roles],
        "issued_at": show_long_time(grant.issued_at_s),
        "expires_at": show_long_time(grant.expires_at_s),
        "audit_ids": [grant.audit],
    }


# -- failed logins ------------------------------------------------------------------------------


FREE: Final = 5
"""How many logins may fail before the next one has to wait."""
WAIT_MAX_S: Final = 60
_FORGOTTEN_S: Final = 900
_KEYS_MAX: Final = 10_000
_SECOND_NS: Final = 1_000_000_000
_ANYBODY: Final = ""


class _Failures(NamedTuple):
    total: int
    last_ns: int


class FailedLogins:
    """Failed logins, counted by address, and by user and address: after a few, each makes the next attempt
    wait longer. Each worker counts its own.

    A caller that fails is told to wait by what has failed from its address, whichever user was named: the
    answer does not tell whether the user exists. A correct login waits only for what has failed for that user
    from that address. A user that does not exist is the empty name, so that guesses take no memory.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}

    def must_wait(self, user: str, peer: str) -> bool:
        """Whether it is too early to try a login of the user."""
        return user != _ANYBODY and self._left_s(user, peer) > 0

    def wait_s(self, peer: str) -> int:
        """How long a caller that fails at an address is told to wait; 0 if not at all."""
        return self._left_s(_ANYBODY, peer)

    def record_failure(self, user: str, peer: str) -> None:
        for name in dict.fromkeys((_ANYBODY, user)):
            self._count(name, peer)

    def record_success(self, user: str, peer: str) -> None:
        if user != _ANYBODY:
            self._failures.pop((user, peer), None)

    def _left_s(self, user: str, peer: str) -> int:
        failures = self._failures.get((user, peer))
        if failures is None or failures.total < FREE:
            return 0
        wait_s = min(1 << min(failures.total - FREE, 10), WAIT_MAX_S)
        left_ns = failures.last_ns + wait_s * _SECOND_NS - self._clock.monotonic_ns()
        return max(0, -(-left_ns // _SECOND_NS))

    def _count(self, user: str, peer: str) -> None:
        now_ns = self._clock.monotonic_ns()
        before = self._failures.pop((user, peer), _Failures(0, now_ns))
        count = before.total if now_ns - before.last_ns < _FORGOTTEN_S * _SECOND_NS else 0
        if len(self._failures) >= _KEYS_MAX:
            # The first entry is the one that failed longest ago.
            del self._failures[next(iter(self._failures))]
        self._failures[user, peer] = _Failures(count + 1, now_ns)

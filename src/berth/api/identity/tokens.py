"""/auth/tokens: log in, look at a token, and revoke one.

An issued token is good until it expires or is revoked. A token of the tokens file itself is good until its
entry is taken out: it cannot be revoked here.

What Keystone knows and this does not (trusts, application credentials, systems) is refused by name.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from berth.api.identity.catalog import DOMAIN_ID, DOMAIN_NAME, catalog
from berth.api.identity.failed_logins import FailedLogins
from berth.api.identity.issuers import Issuer, Login
from berth.api.identity.revocations import Revocations, revoke
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.issued import Grant
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Request, Response, origin_of
from berth.api.kernel.problem import Problem
from berth.api.kernel.times import show_long_time
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids

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
    """Whether it is the one domain that there is, however it is spelled; or none is named."""
    if domain is None:
        return True
    named = domain.id if domain.id is not None else domain.name
    return named is None or named.lower() == DOMAIN_ID


def _read_project(scope: LoginScope | str | None) -> str | None:
    """The project that is wanted; None for the user's own."""
    if scope is None or isinstance(scope, str):
        return None
    if scope.project is None:
        raise Problem(400, "The scope must be a project: there are no others here.")
    if not _is_ours(scope.project.domain):
        raise Problem(401, f"There is no domain but {DOMAIN_NAME}.")
    project = scope.project.id or scope.project.name
    if not project:
        raise Problem(400, "scope.project must have an id or a name.")
    return project


# -- handlers -----------------------------------------------------------------------------------

LIFETIME_S: Final = 12 * 3600
SUBJECT: Final = "x-subject-token"
_DOMAIN: Final = {"id": DOMAIN_ID, "name": DOMAIN_NAME}


class TokenHandlers:
    def __init__(self, issuer: Issuer, revocations: Revocations, clock: Clock, ids: Ids) -> None:
        self._issuer = issuer
        self._revocations = revocations
        self._failed = FailedLogins(clock)
        self._clock = clock
        self._ids = ids

    async def log_in(self, request: Request) -> Response:
        auth = _decode_login(request)
        login = await self._recognised(auth, request.client)
        grant = self._grant(login, tuple(auth.identity.methods))
        return _respond(request, login.caller, grant, login.issue(grant), 201)

    async def show(self, call: Call) -> Response:
        """What a token says. It takes the same user, or an admin."""
        subject, login = await self._subject(call)
        grant = login.grant or self._grant(login, ("password",))
        return _respond(call.request, login.caller, grant, subject, 200)

    async def revoke(self, call: Call) -> Response:
        """From now on the token is nobody's. It takes the same user, or an admin."""
        _, login = await self._subject(call)
        grant = login.grant
        if grant is None:
            raise Problem(
                403,
                "This token is not one that a login has issued, and cannot be revoked here: it is good as "
                "long as it stands in the tokens file.",
            )
        return await call.submit(lambda view, now_s: revoke(view, now_s, grant), lambda view: Response(204))

    async def _recognised(self, auth: LoginAuth, peer: str) -> Login:
        """Who logs in, proved in every way that is named."""
        user, project = self._known_user(auth), _read_project(auth.scope)
        must_wait = self._failed.must_wait(user, peer)
        login = None if must_wait else await self._proved(auth, project)
        if login is not None:
            self._failed.succeeded(user, peer)
            return login
        wait_s = self._failed.wait_s(peer)
        self._failed.failed("" if must_wait else user, peer)
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

    def _known_user(self, auth: LoginAuth) -> str:
        """Whose password is given; the empty name where there is no such user."""
        password = auth.identity.password
        name = "" if password is None else password.user.id or password.user.name or ""
        return name if self._issuer.knows(name) else ""

    async def _proved(self, auth: LoginAuth, project: str | None) -> Login | None:
        login = None
        for method in dict.fromkeys(auth.identity.methods):
            found = await self._by(method, auth, project)
            if found is None or (login is not None and login.caller != found.caller):
                return None
            # With a password beside it a token is exchanged all the same: the new one expires with it.
            login = found if login is None or found.grant is not None else login
        return login

    async def _by_token(self, token: str, project: str | None) -> Login | None:
        login = self._issuer.by_token(token, project)
        if login is None or login.grant is None:
            return login
        return None if await self._revocations.has(login.grant) else login

    async def _by(self, method: str, auth: LoginAuth, project: str | None) -> Login | None:
        identity = auth.identity
        match method:
            case "password" if identity.password is not None:
                user = identity.password.user
                name = user.id or user.name or ""
                if not _is_ours(user.domain):
                    return None
                return self._issuer.by_password(name, user.password, project)
            case "token" if identity.token is not None:
                return await self._by_token(identity.token.id, project)
            case "password" | "token":
                raise Problem(400, f"The method {method} is named, and identity.{method} is missing.")
            case _:
                raise Problem(401, f"The method {method!r} is not known here: use password or token.")

    def _grant(self, login: Login, methods: tuple[str, ...]) -> Grant:
        now_s = self._clock.now_ns() // 1_000_000_000
        # A token that is got for a token lasts no longer than that one.
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

    async def _subject(self, call: Call) -> tuple[str, Login]:
        """The token that is asked about."""
        subject = call.request.headers.get(SUBJECT)
        if subject is None:
            raise Problem(400, "X-Subject-Token is missing: it names the token that is asked about.")
        login = await self._by_token(subject, None)
        if login is None:
            raise Problem(404, "The token in X-Subject-Token is invalid, has expired or has been revoked.")
        if not call.is_admin and login.caller.user_id != call.caller.user_id:
            raise Problem(403, "The token in X-Subject-Token is another user's: that takes an admin.")
        return subject, login


def _decode_login(request: Request) -> LoginAuth:
    try:
        return msgspec.json.decode(request.body, type=LoginBody).auth
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"The body is not what is expected to log in: {error}.") from None


def _respond(request: Request, caller: Caller, grant: Grant, token: str, status: int) -> Response:
    body: dict[str, Any] = {
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
    if "nocatalog" not in request.query_string:
        body["catalog"] = catalog(origin_of(request))
    return json({"token": body}, status, ((SUBJECT, token), ("vary", "X-Auth-Token")))

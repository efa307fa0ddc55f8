"""Who is calling: the value that every way of finding out comes to, the seam between those ways, and the
simplest of them.
"""

import functools
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

TOKEN_HEADER = "x-auth-token"


class Caller(msgspec.Struct, frozen=True):
    """``system_scope`` is not None for a token of the whole deployment, which belongs to no project."""

    user_id: str | None
    project_id: str | None
    roles: tuple[str, ...]
    system_scope: str | None = None
    domain_id: str | None = None


_IMPLIED: Final = ("admin", "manager", "member", "reader")


@functools.lru_cache(maxsize=1024)
def with_implied(roles: tuple[str, ...]) -> tuple[str, ...]:
    """The roles, and those that come with them, as a Keystone grants them: admin implies manager, manager
    implies member, member implies reader."""
    first = next((place for place, role in enumerate(_IMPLIED) if role in roles), len(_IMPLIED))
    return tuple(dict.fromkeys((*roles, *_IMPLIED[first:])))


class AuthUnavailable(Exception):
    """Nobody can say now who is calling. Not the caller's fault: try again later."""


class Authenticator(Protocol):
    @property
    def challenge(self) -> str | None:
        """What a 401 tells its caller in ``www-authenticate``: where a token can be had, if there is such
        a place."""

    async def identify(self, headers: Mapping[str, str], peer: str = "") -> Caller | None:
        """The caller, or None if the headers name no known caller. Header names are lower case. ``peer``
        is the address that the request comes from.

        AuthUnavailable if that cannot be found out at the moment; the engine's Unavailable if that is for
        want of the database.
        """


# -- noauth --------------------------------------------------------------------------------------


class NoAuth:
    """Believes every token: for tests and for networks where everybody may do everything.

    The token is ``USER`` or ``USER:PROJECT``. Headers that Keystone's middleware would set are believed too,
    so that roles and scopes can be tried out without a Keystone. It refuses only a request without a token.
    """

    challenge: Final = None

    async def identify(self, headers: Mapping[str, str], peer: str = "") -> Caller | None:
        token = headers.get(TOKEN_HEADER)
        if token is None:
            return None
        user, _, project = token.partition(":")
        scope = headers.get("openstack-system-scope") or None
        return Caller(user, _project(headers, project or user, scope), _roles(headers, user), scope)


def _project(headers: Mapping[str, str], of_token: str, scope: str | None) -> str | None:
    named = headers.get("x-project-id")
    if named is not None:
        return named
    return of_token if scope is None else headers.get("x-tenant-id")


def _roles(headers: Mapping[str, str], user: str) -> tuple[str, ...]:
    named = headers.get("x-roles")
    if named is not None:
        return with_implied(tuple(role.strip() for role in named.split(",") if role.strip()))
    return roles_of(user)


def roles_of(user: str) -> tuple[str, ...]:
    """Everybody is a member of its project, and ``admin`` an administrator."""
    return with_implied(("admin",) if user == "admin" else ("member",))

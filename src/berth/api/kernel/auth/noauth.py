"""Believes every token: for tests and for networks where everybody may do everything.

The token is ``USER`` or ``USER:PROJECT``. Headers that Keystone's middleware would set are believed too,
so that roles and scopes can be tried out without a Keystone. It refuses only a request without a token.
"""

from collections.abc import Mapping
from typing import Final

from berth.api.kernel.auth.caller import TOKEN_HEADER, Caller, with_implied


class NoAuth:
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

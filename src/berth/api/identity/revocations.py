"""Revoked tokens: records in the journal until they expire, so that every worker honours them at once, and
after a restart.

A user has a bounded number of them, and whoever revokes one removes those that have expired.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final

from berth.api.kernel.auth.caller import TOKEN_HEADER, Caller
from berth.api.kernel.auth.issued import Grant
from berth.api.kernel.auth.tokens import Tokens
from berth.engine import Engine
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.rejections import RevocationsExceeded
from berth.model.servers import RevokedToken
from berth.view import View

OF_USER_MAX: Final = 1_000
_EXPIRED_MAX: Final = 100
"""How many expired tokens one command removes: more than it adds."""


def revoke(view: View, now_s: int, grant: Grant) -> Enact | RevocationsExceeded:
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

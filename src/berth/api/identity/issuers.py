"""Who may log in, and the token they get: one issuer for each authenticator that has no Keystone."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from berth.api.kernel.auth.caller import Authenticator, Caller
from berth.api.kernel.auth.issued import Grant
from berth.api.kernel.auth.noauth import NoAuth, roles_of
from berth.api.kernel.auth.tokens import TokenEntry, Tokens


class Login(NamedTuple):
    """A caller that has been recognised. ``grant`` is what its token said, if it was recognised by one that a
    login had issued; ``issue`` makes a token of a grant."""

    caller: Caller
    grant: Grant | None
    issue: Callable[[Grant], str]


class Issuer(Protocol):
    """``project`` is the one to log in to; None for the user's own. The answer is None if the login is not
    known, or not in that project."""

    def log_in_by_password(self, user: str, password: str, project: str | None) -> Login | None: ...

    def log_in_by_token(self, token: str, project: str | None) -> Login | None: ...

    def knows(self, user: str) -> bool:
        """Whether there is such a user."""

    def list_callers(self, asking: Caller) -> Iterable[Caller]:
        """All callers that are known."""


def choose_issuer(authenticator: Authenticator) -> Issuer | None:
    """None where a Keystone issues tokens."""
    match authenticator:
        case Tokens():
            return TokensIssuer(authenticator)
        case NoAuth():
            return NoAuthIssuer()
        case _:
            return None


class TokensIssuer:
    """A user's password is its token in the tokens file; what is issued is signed, and expires."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def log_in_by_password(self, user: str, password: str, project: str | None) -> Login | None:
        entry = self._tokens.known_by_password(user, password)
        return None if entry is None else _log_in(entry, None, project)

    def log_in_by_token(self, token: str, project: str | None) -> Login | None:
        found = self._tokens.known_by_token(token)
        return None if found is None else _log_in(*found, project)

    def knows(self, user: str) -> bool:
        return any(caller.user_id == user for caller in self._tokens.callers())

    def list_callers(self, asking: Caller) -> Iterable[Caller]:
        return self._tokens.callers()


def _log_in(entry: TokenEntry, grant: Grant | None, project: str | None) -> Login | None:
    if project not in (None, entry.caller.project_id):
        return None
    return Login(entry.caller, grant, entry.seal.issue)


class NoAuthIssuer:
    """Any password will do, and the token is ``USER:PROJECT``, as ``noauth`` reads it."""

    def log_in_by_password(self, user: str, password: str, project: str | None) -> Login | None:
        return _make_login(user, project or user)

    def log_in_by_token(self, token: str, project: str | None) -> Login | None:
        user, _, own = token.partition(":")
        return _make_login(user, project or own or user)

    def knows(self, user: str) -> bool:
        return False

    def list_callers(self, asking: Caller) -> Iterable[Caller]:
        return (asking,)


def _make_login(user: str, project: str) -> Login | None:
    token = f"{user}:{project}"
    # The token goes into a header, and is split at the colon when it comes back.
    if not (token.isascii() and token.isprintable() and " " not in token) or ":" in user or not user:
        return None
    return Login(Caller(user, project, roles_of(user)), None, lambda grant: token)

"""Who may log in, and what they get for it: one way for each way of knowing callers that has no Keystone."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from berth.api.kernel.auth.caller import Authenticator, Caller
from berth.api.kernel.auth.issued import Grant
from berth.api.kernel.auth.noauth import NoAuth, roles_of
from berth.api.kernel.auth.tokens import Entry, Tokens


class Login(NamedTuple):
    """Somebody who has been recognised. ``grant`` is what the token said that it was recognised by, if that
    was an issued one; ``issue`` makes a token of a grant."""

    caller: Caller
    grant: Grant | None
    issue: Callable[[Grant], str]


class Issuer(Protocol):
    """``project`` is the one to log in to; None for the user's own. None: nobody is known so, or not
    there."""

    def by_password(self, user: str, password: str, project: str | None) -> Login | None: ...

    def by_token(self, token: str, project: str | None) -> Login | None: ...

    def knows(self, user: str) -> bool:
        """Whether there is such a user."""

    def callers(self, asking: Caller) -> Iterable[Caller]:
        """Those that there are, as far as is known."""


def issuer_of(authenticator: Authenticator) -> Issuer | None:
    """None where a Keystone does all this."""
    match authenticator:
        case Tokens():
            return TokensIssuer(authenticator)
        case NoAuth():
            return BelievingIssuer()
        case _:
            return None


class TokensIssuer:
    """A user's password is its token in the tokens file; what is issued is signed, and expires."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def by_password(self, user: str, password: str, project: str | None) -> Login | None:
        entry = self._tokens.known_by_password(user, password)
        return None if entry is None else _login(entry, None, project)

    def by_token(self, token: str, project: str | None) -> Login | None:
        found = self._tokens.known_by_token(token)
        return None if found is None else _login(*found, project)

    def knows(self, user: str) -> bool:
        return any(caller.user_id == user for caller in self._tokens.callers())

    def callers(self, asking: Caller) -> Iterable[Caller]:
        return self._tokens.callers()


def _login(entry: Entry, grant: Grant | None, project: str | None) -> Login | None:
    if project not in (None, entry.caller.project_id):
        return None
    return Login(entry.caller, grant, entry.seal.issue)


class BelievingIssuer:
    """Any password will do, and the token is ``USER:PROJECT``, as ``noauth`` reads it."""

    def by_password(self, user: str, password: str, project: str | None) -> Login | None:
        return _believed(user, project or user)

    def by_token(self, token: str, project: str | None) -> Login | None:
        user, _, own = token.partition(":")
        return _believed(user, project or own or user)

    def knows(self, user: str) -> bool:
        return False

    def callers(self, asking: Caller) -> Iterable[Caller]:
        return (asking,)


def _believed(user: str, project: str) -> Login | None:
    token = f"{user}:{project}"
    # It goes into a header, and comes back to be taken apart at the colon.
    if not (token.isascii() and token.isprintable() and " " not in token) or ":" in user or not user:
        return None
    return Login(Caller(user, project, roles_of(user)), None, lambda grant: token)

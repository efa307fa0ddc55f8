"""A client that shows a token, and has another when that is not good any more.

Where a token comes from is a function that may take a while: a file is read, Keystone is asked. It is called
when there is none yet, and when the server does not know the last one. What fails there counts as no answer.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from keystoneauth1.exceptions import ClientException
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from berth.client.http import Answer, HttpClient, Unreachable

HEADER: Final = "x-auth-token"
_UNKNOWN: Final = 401
_KEYSTONE_TIMEOUT_S: Final = 10

Token = Callable[[], str]
"""Gives a token; or an exception that says why not."""


class TokenClient(HttpClient):
    def __init__(self, endpoint: str, headers: Mapping[str, str], token: Token) -> None:
        super().__init__(endpoint, headers)
        self._token = token
        self._renewing = asyncio.Lock()
        self._last: str | None = None

    async def ask(self, method: str, path: str, body: object = None, timeout_s: float = 30) -> Answer:
        shown = self._last
        if shown is None:
            await self._renew(shown)
        answer = await super().ask(method, path, body, timeout_s)
        if answer.status == _UNKNOWN:
            await self._renew(shown)
            answer = await super().ask(method, path, body, timeout_s)
        return answer

    async def _renew(self, refused: str | None) -> None:
        """Have another token than the one that was refused. Who comes second finds it there."""
        async with self._renewing:
            if self._last != refused:
                return
            try:
                token = await asyncio.to_thread(self._token)
                self.show(HEADER, token)
            except Exception as error:
                raise Unreachable(f"no token for {self.endpoint}: {error}") from error
            self._last = token


def keystone_token(
    auth_url: str,
    username: str,
    password: str,
    project: str,
    user_domain: str = "Default",
    project_domain: str = "Default",
) -> Token:
    """Tokens of a user of Keystone's, each a new one."""
    user = v3.Password(
        auth_url=auth_url,
        username=username,
        password=password,
        project_name=project,
        user_domain_name=user_domain,
        project_domain_name=project_domain,
    )
    session = Session(auth=user, timeout=_KEYSTONE_TIMEOUT_S)

    def token() -> str:
        user.invalidate()
        try:
            issued = session.get_token()
        except ClientException as error:
            raise RuntimeError(f"Keystone at {auth_url} gives none: {error}") from error
        if issued is None:
            raise RuntimeError(f"Keystone at {auth_url} gives none")
        return str(issued)

    return token

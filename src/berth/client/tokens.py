"""Tokens of a Keystone user, for a ``Client``."""

from typing import Final

from keystoneauth1.exceptions import ClientException
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from berth.client.client import Token

_KEYSTONE_TIMEOUT_S: Final = 10


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

    def fetch_token() -> str:
        user.invalidate()
        try:
            issued = session.get_token()
        except ClientException as error:
            raise RuntimeError(f"Keystone at {auth_url} gives none: {error}") from error
        if issued is None:
            raise RuntimeError(f"Keystone at {auth_url} gives none")
        return str(issued)

    return fetch_token

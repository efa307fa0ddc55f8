"""Who may speak for a host: a caller with the host's own credential, and nobody else.

A new host joins: its agent sends the cell's join token with the credential that it has made, and that is the
host's from then on. An agent that speaks version 1 of the protocol has no credential. It is accepted with the
join token for a host that registered in that version, until the host's agent sends a credential; it cannot
join.
"""

import hmac
import re
from typing import Final, NamedTuple

from berth.cell import protocol
from berth.model.saga_runs import Agent
from berth.runtime.secrets import digest_of, is_secret_of

_CREDENTIAL: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([A-Za-z0-9_-]{32,128})\Z")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,5}\Z")


class NotAllowed(Exception):
    """The caller may not do this. The message is for the operator of the agent."""


class AgentCaller(NamedTuple):
    """What a caller sends. ``may_join``: its join token is the cell's, or the cell has none."""

    version: int
    may_join: bool
    host: str | None = None
    secret: str | None = None

    @property
    def digest(self) -> str | None:
        return None if self.secret is None else digest_of(self.secret)


def read_caller(headers: dict[str, str], join_token: str | None) -> AgentCaller:
    token = headers.get(protocol.TOKEN_HEADER, "")
    may_join = join_token is None or hmac.compare_digest(token.encode(), join_token.encode())
    version = headers.get(protocol.VERSION_HEADER, "1")
    if _VERSION.match(version) is None:
        raise NotAllowed(f"X-Agent-Version is {version[:20]!r}; it must be 1 or more.")
    credential = headers.get(protocol.CREDENTIAL_HEADER)
    if credential is None:
        return AgentCaller(int(version), may_join)
    found = _CREDENTIAL.match(credential)
    if found is None:
        raise NotAllowed("X-Agent-Credential must be HOST:SECRET, with the host's uuid.")
    return AgentCaller(int(version), may_join, found[1], found[2])


def check_before_body(caller: AgentCaller, agent: Agent | None) -> None:
    """Refuse a caller whose body need not be read. ``agent``: of the host whose credential is shown."""
    if agent is not None and agent.is_revoked:
        raise NotAllowed(
            f"The credential of the host {agent.name} was revoked: 'berth agent readmit' lets it join again."
        )
    if agent is not None and agent.credential is not None:
        if caller.secret is None or not is_secret_of(caller.secret, agent.credential):
            raise NotAllowed(
                f"The credential of the host {agent.name} is wrong. If it is lost: 'berth agent readmit'."
            )
    elif not caller.may_join:
        raise NotAllowed("An unknown host must send the cell's join token in X-Agent-Token.")


def check_host(caller: AgentCaller, host: str, agent: Agent | None) -> None:
    """Refuse a caller who speaks for another host than its own. ``agent``: of the host spoken for."""
    if caller.host is not None:
        if caller.host != host:
            raise NotAllowed(f"This credential belongs to host {caller.host}, not to {host}.")
    elif agent is None:
        raise NotAllowed(
            "A host must send a credential of its own in X-Agent-Credential to join: upgrade its agent."
        )
    elif agent.protocol >= protocol.WITH_CREDENTIALS or agent.credential is not None or agent.is_revoked:
        raise NotAllowed(f"The host {agent.name} has a credential: send it in X-Agent-Credential.")

"""The agent's client of its conductor: its requests, and how they fail."""

from typing import Final, TypeVar

import msgspec

from berth.cell import protocol
from berth.client import Client, Unreachable

_TIMEOUT_S: Final = 30
_POLL_MARGIN_S: Final = 15
"""How much longer than a poll waits its answer may take."""

T = TypeVar("T")


class ConductorUnreachable(Exception):
    """There is no answer; a retry may help."""


class ConductorRefuses(Exception):
    """The request is refused, and will be until an operator changes something."""


class NotRegistered(ConductorRefuses):
    """The conductor does not know this host."""


class CredentialRefused(ConductorRefuses):
    """The conductor does not accept the credential."""


class ConductorClient:
    """``token``: the cell's join token, which a host needs that is not known there yet."""

    def __init__(self, client: Client, token: str | None = None) -> None:
        self._client = client
        self._version = 1
        """Which version the conductor speaks, by its last answer."""
        client.set_header(protocol.VERSION_HEADER, str(protocol.VERSION))
        if token is not None:
            client.set_header(protocol.TOKEN_HEADER, token)

    def show(self, header: tuple[str, str]) -> None:
        """Send a credential from now on."""
        self._client.set_header(*header)

    async def register(self, register: protocol.Register) -> protocol.Registered:
        return await self._ask(protocol.REGISTER, register, protocol.Registered, _TIMEOUT_S)

    async def poll(self, poll: protocol.Poll) -> protocol.PollAnswer:
        return await self._ask(protocol.POLL, poll, protocol.PollAnswer, poll.wait_seconds + _POLL_MARGIN_S)

    async def report(self, report: protocol.Report) -> None:
        if self._version < protocol.WITH_ADDRESSES:
            report = msgspec.structs.replace(report, addresses=())
        await self._ask(protocol.REPORT, report, protocol.ReportAnswer, _TIMEOUT_S)

    async def change_credential(self, new: protocol.NewCredential) -> None:
        await self._ask(protocol.CREDENTIAL, new, dict[str, object], _TIMEOUT_S)

    async def close(self) -> None:
        await self._client.close()

    async def _ask(self, path: str, message: object, kind: type[T], timeout_s: float) -> T:
        try:
            answer = await self._client.ask("POST", path, message, timeout_s)
        except Unreachable as error:
            raise ConductorUnreachable(str(error)) from error
        version = answer.headers.get(protocol.VERSION_HEADER, "1")
        self._version = int(version) if version.isdecimal() else 1
        if answer.status == 401:
            raise CredentialRefused(f"{path}: {answer.status}: {answer.detail}")
        if answer.status == 404:
            raise NotRegistered(answer.detail)
        if answer.status == 429 or answer.status >= 500:
            raise ConductorUnreachable(f"{path}: {answer.status}: {answer.detail}")
        if answer.status != 200:
            raise ConductorRefuses(f"{path}: {answer.status}: {answer.detail}")
        try:
            return msgspec.convert(answer.body, kind)
        except msgspec.ValidationError as error:
            raise ConductorRefuses(f"{path}: this is not a conductor's answer: {error}") from error

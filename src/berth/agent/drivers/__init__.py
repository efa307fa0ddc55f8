"""Drivers: what an agent carries commands out with, one file per kind of hypervisor. This is their interface.

Every command can be repeated: an agent that has lost an answer asks again. Of one server, one command is
carried out at a time; of several servers, several at once.
"""

from collections.abc import Collection
from typing import Protocol

from berth.cell.protocol import AgentCommand, ReportedAddress


class DriverError(Exception):
    """The command could not be carried out. The message is for the user who requested it."""


class Driver(Protocol):
    @property
    def name(self) -> str:
        """What kind of hypervisor this is."""

    async def carry_out(self, command: AgentCommand) -> None:
        """Carry a command out, or DriverError. A command that is cancelled leaves the server as it is."""

    def servers(self) -> Collection[str]:
        """The servers on this host, in whatever state."""

    def units(self) -> dict[str, tuple[str, ...]]:
        """The units that servers on this host have, by server."""

    def addresses(self, server: str) -> tuple[ReportedAddress, ...]:
        """The addresses of a server on this host; none of one that is not here."""

    def abort(self, server: str) -> None:
        """Have what is being done to a server end soon: with a DriverError, unless it is done by then."""

"""What an agent asks of a hypervisor.

Everything can be asked for again: whoever lost the answer asks a second time. Of one server, one thing is
asked at a time; of several, several at once.
"""

from collections.abc import Collection
from typing import Protocol

from berth.cell.protocol import AgentCommand


class DriverError(Exception):
    """It could not be done. The message is for whoever asked for it."""


class Driver(Protocol):
    @property
    def name(self) -> str:
        """What kind of hypervisor this is."""

    async def carry_out(self, command: AgentCommand) -> None:
        """Do what an order says, or DriverError. One that is cancelled leaves the server as it is."""

    def servers(self) -> Collection[str]:
        """The servers on this host, in whatever state."""

    def abort(self, server: str) -> None:
        """Have what is being done to a server end soon: with a DriverError, unless it is done by then."""

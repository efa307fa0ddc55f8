"""A simulated hypervisor: a server is an entry on a disk, and commands take as long as the behaviour says.

    build --> running | stopped --send, live_migrate--> outgoing --resume--> running | stopped
    prepare --> incoming --receive--> running | stopped             any of them --destroy--> gone
    running --pause--> paused --unpause--> running      running --suspend--> suspended --resume--> running
    running, stopped --rescue--> rescued --unrescue--> running
    running, stopped, paused, suspended --reboot_hard--> running

Units (cpus, virtual functions, GPUs) are given to a server by the commands that run it or make room for it,
and stay with it until it is destroyed. A command whose units another server has, or the host does not have,
is refused.

A server has two addresses that follow from its id: they stay the same wherever it goes.

``outgoing`` is kept until it is destroyed or resumed. What a command does to a server it does at its end, in
one go: a command that fails, is aborted or ends with its host has done nothing.
"""

import asyncio
import ipaddress
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Literal, cast

from berth.agent.drivers import DriverError
from berth.agent.drivers.behaviour import Behaviours, CommandFate
from berth.cell.protocol import AgentCommand, ReportedAddress, ReportedProvider
from berth.model.saga_runs import Units
from berth.sagas.saga import GIVING_UNITS, Verb

NAME: Final = "sim"
_NETWORKS: Final[dict[str, ipaddress.IPv4Network | ipaddress.IPv6Network]] = {
    "public": ipaddress.IPv4Network("10.0.0.0/8"),
    "public-v6": ipaddress.IPv6Network("fd00::/64"),
}
"""openstacksdk takes the address of a server from the network ``public``: with none there it would ask for a
floating one, and of several it would try to reach each."""

ServerState = Literal["running", "stopped", "incoming", "outgoing", "paused", "suspended", "rescued"]
Disk = dict[str, ServerState]
UnitsOnDisk = dict[str, Units]
"""The units of each server that has any."""

_Before = ServerState | Literal["absent"]
_After = ServerState | Literal["absent", "as before", "as commanded"]
"""``as commanded``: running or stopped, as the command says."""

_KEPT: Final[dict[_Before, _After]] = {"running": "as before", "stopped": "as before"}
_HERE: Final[tuple[_Before, ...]] = ("running", "stopped", "outgoing", "paused", "suspended", "rescued")

# A server may be sent from a host to the same one: it is prepared and received where it is.
_EFFECTS: Final[dict[str, dict[_Before, _After]]] = {
    "build": dict.fromkeys(("absent", "incoming", *_HERE), "as commanded"),
    "destroy": dict.fromkeys(("absent", "incoming", *_HERE), "absent"),
    "prepare": {"absent": "incoming", "incoming": "as before", "outgoing": "as before", **_KEPT},
    "receive": {"incoming": "as commanded", "outgoing": "as commanded", **_KEPT},
    "send": dict.fromkeys(_HERE, "outgoing"),
    "resume": {"outgoing": "as commanded", "suspended": "running", **_KEPT},
    "live_migrate": {"running": "outgoing", "outgoing": "as before"},
    "rebuild": dict.fromkeys(_HERE, "as commanded"),
    "snapshot": dict.fromkeys(_HERE, "as before"),
    "start": dict.fromkeys(_HERE, "running"),
    "stop": dict.fromkeys(_HERE, "stopped"),
    "reboot": {"running": "as before"},
    "reboot_hard": dict.fromkeys(_HERE, "running"),
    "pause": {"running": "paused", "paused": "as before"},
    "unpause": {"paused": "running", "running": "as before"},
    "suspend": {"running": "suspended", "suspended": "as before"},
    "rescue": {"running": "rescued", "stopped": "rescued", "rescued": "as before"},
    "unrescue": {"rescued": "running", "running": "as before"},
}


class SimDriver:
    """``disk`` and ``units`` are the host's, and hold all that must survive a restart. ``tree`` says
    which providers the host has now, and so which units there are."""

    def __init__(
        self,
        host: str,
        disk: Disk,
        behaviours: Behaviours,
        rng: random.Random,
        units: UnitsOnDisk | None = None,
        tree: Callable[[], Iterable[ReportedProvider]] = tuple,
    ) -> None:
        self._host = host
        self._disk = disk
        self._units = {} if units is None else units
        self._tree = tree
        self._behaviours = behaviours
        self._rng = rng
        self._aborts: dict[str, asyncio.Event] = {}

    @property
    def name(self) -> str:
        return NAME

    def servers(self) -> Collection[str]:
        return self._disk.keys()

    def units(self) -> dict[str, tuple[str, ...]]:
        return {server: tuple(list_units(given)) for server, given in self._units.items()}

    def addresses(self, server: str) -> tuple[ReportedAddress, ...]:
        return make_addresses(server) if server in self._disk else ()

    def abort(self, server: str) -> None:
        if server in self._aborts:
            self._aborts[server].set()

    async def carry_out(self, command: AgentCommand) -> None:
        after = self._find_effect(command)
        if command.verb == "destroy" and command.server not in self._disk:
            return
        self._check_units(command)
        verb = cast(Verb, command.verb)  # It has an effect, and so is a verb.
        fate = self._behaviours.fate(verb, (command.spec.name, command.server), self._host, self._rng)
        await self._pass_time(command.server, fate)
        if fate.error is not None:
            raise DriverError(fate.error)
        # Another server may have got them meanwhile.
        self._check_units(command)
        if after == "absent":
            del self._disk[command.server]
            self._units.pop(command.server, None)
        else:
            self._disk[command.server] = after
            self._give_units(command)

    def _check_units(self, command: AgentCommand) -> None:
        """Refuse a command whose units are not there, or taken."""
        if command.verb not in GIVING_UNITS or not command.units:
            return
        known = {provider.id: provider.units for provider in self._tree()}
        taken = {
            unit
            for server, given in self._units.items()
            # A server that is stopped uses none: it is told which it has when it starts.
            if server != command.server and self._disk.get(server) != "stopped"
            for unit in list_units(given)
        }
        for provider, kinds in command.units.items():
            for kind, names in kinds.items():
                for unit in names:
                    if unit not in known.get(provider, {}).get(kind, ()):
                        raise DriverError(f"the host {self._host} has no unit {unit} of {kind} in {provider}")
                    if unit in taken:
                        raise DriverError(f"the unit {unit} of {kind} on {self._host} is taken")

    def _give_units(self, command: AgentCommand) -> None:
        if command.verb not in GIVING_UNITS:
            return
        if command.units:
            self._take_from_stopped(command)
            self._units[command.server] = command.units
        else:
            self._units.pop(command.server, None)

    def _take_from_stopped(self, command: AgentCommand) -> None:
        """Servers that are stopped have not got any more what another one gets."""
        given = set(list_units(command.units))
        for server in [server for server, units in self._units.items() if given & set(list_units(units))]:
            self._units[server] = {
                provider: {
                    kind: tuple(unit for unit in names if unit not in given) for kind, names in kinds.items()
                }
                for provider, kinds in self._units[server].items()
            }

    async def _pass_time(self, server: str, fate: CommandFate) -> None:
        """Let the time of a command pass. What hangs ends only when it is aborted, or the host with it."""
        aborted = self._aborts[server] = asyncio.Event()
        try:
            async with asyncio.timeout(fate.seconds):
                await aborted.wait()
            raise DriverError("aborted")
        except TimeoutError:
            pass
        finally:
            del self._aborts[server]

    def _find_effect(self, command: AgentCommand) -> ServerState | Literal["absent"]:
        before: _Before = self._disk.get(command.server, "absent")
        effects = _EFFECTS.get(command.verb)
        if effects is None:
            raise DriverError(f"{command.verb} is not known to this release of the agent: upgrade it")
        after = effects.get(before)
        if after is None:
            where = f"not on the host {self._host}" if before == "absent" else f"{before} on {self._host}"
            raise DriverError(f"{command.verb} cannot be done: the server {command.server} is {where}")
        if after == "as before":
            return before
        if after == "as commanded":
            return "running" if command.runs else "stopped"
        return after


def list_units(given: Units) -> Iterator[str]:
    for kinds in given.values():
        for names in kinds.values():
            yield from names


def make_addresses(server: str) -> tuple[ReportedAddress, ...]:
    """The addresses of a simulated server. Nothing is sent to them: two servers may have the same."""
    number = uuid.UUID(server).int
    mac = ":".join(f"{byte:02x}" for byte in (0x02, *(number & 0xFF_FFFF_FFFF).to_bytes(5)))
    return tuple(
        # Neither the address of the network nor that of a broadcast.
        ReportedAddress(network=name, address=str(among[1 + number % (among.num_addresses - 2)]), mac=mac)
        for name, among in _NETWORKS.items()
    )

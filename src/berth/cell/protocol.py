"""The agent protocol, between an agent and its conductor: JSON bodies, each a POST.

    register     who the host is, what it has, and which servers are on it
    poll         a heartbeat, with the servers on the host; answered with commands, as soon as there are any
    report       the outcome of a command
    credential   the host's new credential, in place of the one that is sent with it

A command has an id, which is the same whenever it is handed out again, and a fence: of two commands for one
server the one with the greater fence is the later, and an agent that has seen it refuses the other. Fields
keep the names that they had on the wire when they were introduced (``rename``).

**The caller** is named in headers, so that it is known before a body is read. ``X-Agent-Credential:
HOST:SECRET`` is the host's own credential, which the agent makes before it registers for the first time.
``X-Agent-Token`` is the cell's join token, with which a host that is not known yet may register; its
credential is kept from then on, and nothing else is accepted for that host.

**Versions.** ``X-Agent-Version`` in a request says which version of this protocol the agent speaks, in an
answer which the conductor speaks. Without the header it is version 1, which has no credentials. Fields that a
reader does not know are skipped, so each side may be newer than the other:

    version 1   fields that are not known were refused: nothing newer may be sent to it
    version 2   credentials; ``PollAnswer.must_register``
    version 3   units: ``ReportedProvider.units``, ``ReportedProvider.siblings``, ``Register.units``,
                ``AgentCommand.units`` and ``AgentCommand.counts``; ports: ``Spec.ports``;
                ``AgentCommand.request_ids``
    version 4   ``AgentCommand.traceparent``
    version 5   ``Report.addresses``; what a guest is given: ``Spec.guest``; the verbs reboot, reboot_hard,
                pause, unpause, suspend, rescue and unrescue

``ADDED`` says the same, by the names on the wire. What an agent says that is newer than its conductor is
skipped. A command that has something newer than its agent, a verb or a field, is not sent: the step fails,
and says what is missing (``find_newer``). What an agent may skip without harm is in ``SKIPPED``.

**Units.** A resource class may be handed out piece by piece: each of its units has a name, which is unique on
its host, and of such a class there are as many as there are names. PCPU has the numbers of cpus;
SRIOV_NET_VF, PGPU and CUSTOM_PCI_* have PCI addresses; VGPU has uuids of mediated devices. Of all other
classes only the amount counts.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.model.counts import count
from berth.model.formats import Additions
from berth.model.placement import AMOUNT_MAX, DEDICATED, RATIO_MAX, Inventory
from berth.model.saga_runs import Spec

VERSION: Final = 5
WITH_CREDENTIALS: Final = 2
"""From this version on agents send a credential, and can be asked to register again."""
WITH_UNITS: Final = 3
"""From this version on agents know units, and ports."""
WITH_ADDRESSES: Final = 5
"""From this version on a conductor knows addresses of servers. The first refuses what it does not know."""

ADDED: Final[dict[str, int]] = {
    "NewCredential": 2,
    "PollAnswer.again": 2,
    "AgentCommand.counts": 3,
    "AgentCommand.request_ids": 3,
    "AgentCommand.traceparent": 4,
    "AgentCommand.units": 3,
    "Guest": 5,
    **dict.fromkeys(
        (
            f"AgentCommand.verb={verb}"
            for verb in ("reboot", "reboot_hard", "pause", "unpause", "suspend", "rescue", "unrescue")
        ),
        5,
    ),
    "Register.units": 3,
    "Report.addresses": 5,
    "ReportedAddress": 5,
    "ReportedProvider.siblings": 3,
    "ReportedProvider.units": 3,
    "Spec.guest": 5,
    "Spec.ports": 3,
}
SKIPPED: Final = frozenset(
    (
        "AgentCommand.counts",
        "AgentCommand.request_ids",
        "AgentCommand.traceparent",
        "AgentCommand.units",
        "Spec.ports",
    )
)
"""Of a command: the steps that need it check the agent's version themselves, all others can do without."""
_NEEDED: Final = Additions({name: since for name, since in ADDED.items() if name not in SKIPPED})

REGISTER: Final = "/agent/v1/register"
POLL: Final = "/agent/v1/poll"
REPORT: Final = "/agent/v1/report"
CREDENTIAL: Final = "/agent/v1/credential"
TOKEN_HEADER: Final = "x-agent-token"
CREDENTIAL_HEADER: Final = "x-agent-credential"
VERSION_HEADER: Final = "x-agent-version"

SERVERS_MAX: Final = 10_000
PROVIDERS_MAX: Final = 1_000
INVENTORIES_MAX: Final = 2_000
TRAITS_MAX: Final = 5_000
UNITS_MAX: Final = 10_000
"""Limits of all providers of a host together."""
VALUES_MAX: Final = 100_000
"""Of a body: more than all of these together. They are counted before it is decoded: a million of them would
take a second, and meanwhile no other host would be heard."""
ADDRESSES_MAX: Final = 64
"""Of one server."""
WAIT_SECONDS_MAX: Final = 60

Uuid = Annotated[str, Meta(pattern="^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\Z")]
Secret = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{32,128}\\Z")]
_Name = Annotated[str, Meta(pattern="^[^\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]+\\Z", max_length=200)]
"""One line without control characters: it is logged, and shown on terminals."""
_Symbol = Annotated[str, Meta(pattern="^[A-Z][A-Z0-9_]{0,254}\\Z")]
"""The name of a trait or a resource class."""
Unit = Annotated[str, Meta(pattern="^[0-9A-Za-z][0-9A-Za-z:._-]{0,63}\\Z")]
Units = Annotated[tuple[Unit, ...], Meta(min_length=1, max_length=UNITS_MAX)]
_Amount = Annotated[int, Meta(ge=1, le=AMOUNT_MAX)]
_NetworkName = Annotated[str, Meta(pattern="^[a-zA-Z0-9._-]{1,255}\\Z")]
_IpAddress = Annotated[str, Meta(pattern="^[0-9a-f.:]{2,45}\\Z")]
_MacAddress = Annotated[str, Meta(pattern="^([0-9a-f]{2}(:[0-9a-f]{2}){5})?\\Z")]
_CommandId = Annotated[str, Meta(max_length=500)]
_Servers = Annotated[tuple[Uuid, ...], Meta(max_length=SERVERS_MAX)]
Fence = tuple[int, int]
"""The number of the server's saga run, and the version of it."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class ReportedInventory(_Message, frozen=True, kw_only=True):
    """An inventory as Placement has it. ``max_unit`` None: the total."""

    total: _Amount
    reserved: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    min_unit: _Amount = 1
    max_unit: _Amount | None = None
    step_size: _Amount = 1
    allocation_ratio: Annotated[float, Meta(gt=0, le=RATIO_MAX)] = 1.0

    def in_full(self) -> Inventory:
        return Inventory(
            self.total,
            self.reserved,
            self.min_unit,
            self.max_unit or self.total,
            self.step_size,
            self.allocation_ratio,
        )


class ReportedProvider(_Message, frozen=True, kw_only=True):
    """A provider of the host's tree. ``units``: the names of the units of those classes that have any.
    ``siblings``: the PCPU units that are threads of one core, core by core; a cpu that is in none has a core
    of its own."""

    id: Uuid
    name: _Name
    parent: Uuid | None = None
    inventories: Annotated[dict[_Symbol, ReportedInventory], Meta(max_length=INVENTORIES_MAX)] = {}
    traits: Annotated[tuple[_Symbol, ...], Meta(max_length=TRAITS_MAX)] = ()
    units: Annotated[dict[_Symbol, Units], Meta(max_length=INVENTORIES_MAX)] = {}
    siblings: Annotated[tuple[Units, ...], Meta(max_length=UNITS_MAX)] = ()


def explain_wrong_units(providers: Iterable[ReportedProvider]) -> str | None:
    """Why the units of a host's providers cannot be; None if they can."""
    seen: dict[str, str] = {}
    for provider in providers:
        for kind, names in provider.units.items():
            inventory = provider.inventories.get(kind)
            if inventory is None:
                return f"the provider {provider.name} has units of {kind} and no inventory of it"
            if inventory.total != len(names) or inventory.allocation_ratio != 1:
                return (
                    f"the provider {provider.name} has {count(len(names), 'unit')} of {kind}: its total must "
                    "be the same, and its allocation ratio 1"
                )
            for name in names:
                if kind == DEDICATED and not name.isdecimal():
                    return f"the provider {provider.name} has the unit {name} of {kind}, which is no number"
                if name in seen:
                    return f"the unit {name} is there twice: in {seen[name]} and in {provider.name}"
                seen[name] = provider.name
            if len(seen) > UNITS_MAX:
                return f"there are more than {UNITS_MAX} units"
        threads = [name for core in provider.siblings for name in core]
        if len(set(threads)) < len(threads):
            return f"the provider {provider.name} has a cpu twice among the siblings"
        if strangers := set(threads).difference(provider.units.get(DEDICATED, ())):
            return f"the provider {provider.name} has the sibling {min(strangers)}, which is no unit of PCPU"
    return None


class Register(_Message, frozen=True, kw_only=True):
    """``providers`` begins with the host itself, under its name; parents come before their children."""

    host: Uuid
    name: _Name
    driver: _Name
    providers: Annotated[tuple[ReportedProvider, ...], Meta(min_length=1, max_length=PROVIDERS_MAX)]
    aggregates: Annotated[tuple[Uuid, ...], Meta(max_length=100)] = ()
    servers: _Servers = ()
    units: Annotated[
        dict[Uuid, Annotated[tuple[Unit, ...], Meta(max_length=UNITS_MAX)]], Meta(max_length=SERVERS_MAX)
    ] = {}
    """The units that servers on the host have, by server."""

    def __post_init__(self) -> None:
        """What types cannot say: the providers are one tree, and the host is its root."""
        root = self.providers[0]
        if (root.id, root.name, root.parent) != (self.host, self.name, None):
            raise ValueError("providers must begin with the host itself, under its name and without a parent")
        known = {root.id}
        for provider in self.providers[1:]:
            if provider.parent not in known:
                raise ValueError(f"the parent of the provider {provider.name} does not come before it")
            if provider.id in known:
                raise ValueError(f"the provider {provider.id} is there twice")
            known.add(provider.id)
        if len({provider.name for provider in self.providers}) < len(self.providers):
            raise ValueError("two providers have the same name")
        inventories = sum(len(provider.inventories) for provider in self.providers)
        if inventories > INVENTORIES_MAX:
            raise ValueError(f"{inventories} inventories are more than {INVENTORIES_MAX}")
        traits = sum(len(provider.traits) for provider in self.providers)
        if traits > TRAITS_MAX:
            raise ValueError(f"{traits} traits are more than {TRAITS_MAX}")
        if sum(map(len, self.units.values())) > UNITS_MAX:
            raise ValueError(f"the servers of a host have more than {UNITS_MAX} units")
        wrong = explain_wrong_units(self.providers)
        if wrong is not None:
            raise ValueError(wrong)


class Registered(
    _Message, frozen=True, kw_only=True, rename={"heartbeat_timeout_seconds": "silence_seconds"}
):
    cell: str
    heartbeat_timeout_seconds: float
    """After so long without a poll the host is down."""


class Poll(_Message, frozen=True, kw_only=True):
    """``busy``: the commands that are being carried out; they are not handed out again."""

    host: Uuid
    servers: _Servers = ()
    busy: Annotated[tuple[_CommandId, ...], Meta(max_length=SERVERS_MAX)] = ()
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0


class AgentCommand(_Message, frozen=True, kw_only=True):
    """``verb`` is any word: an agent that does not know it refuses this command, and no other."""

    id: str
    fence: Fence
    verb: str
    server: str
    spec: Spec
    runs: bool = True
    """Whether the server is to run afterwards."""
    to_host: str | None = None
    """The destination of a live migration."""
    units: dict[str, dict[str, tuple[str, ...]]] = {}
    """The units that the server has on this host: by provider and class."""
    counts: dict[str, dict[str, int]] = {}
    """What it has of the classes without units, in the same way: memory, pages, shared cpus."""
    request_ids: str = ""
    """For the log: the id of the request and, behind a space, the one that its caller has given it."""
    traceparent: str | None = None
    """The span that the command belongs to, where requests are traced."""


def find_newer(command: AgentCommand, version: int) -> str | None:
    """The name of something that an agent of this version does not know, and must know to carry a command
    out; None if it knows all of it."""
    return _NEEDED.find_newer(command, version)


class Leftover(_Message, frozen=True, kw_only=True):
    """A server that should not be on this host any more: destroy it, unless a later command has come."""

    server: str
    fence: Fence


class PollAnswer(
    _Message,
    frozen=True,
    kw_only=True,
    rename={"commands": "orders", "leftovers": "strays", "must_register": "again"},
):
    commands: tuple[AgentCommand, ...] = ()
    aborts: tuple[str, ...] = ()
    """Commands to be given up."""
    leftovers: tuple[Leftover, ...] = ()
    must_register: bool = False
    """Register again: not all that the host has could be written last time."""


class ReportedAddress(_Message, frozen=True, kw_only=True):
    """An address of a server. ``mac`` is that of the interface that has it."""

    network: _NetworkName
    address: _IpAddress
    mac: _MacAddress = ""


class Report(_Message, frozen=True, kw_only=True, rename={"command": "order"}):
    host: Uuid
    command: _CommandId
    error: Annotated[str, Meta(max_length=4000)] | None = None
    addresses: Annotated[tuple[ReportedAddress, ...], Meta(max_length=ADDRESSES_MAX)] = ()
    """Those that the server has now."""


class ReportAnswer(_Message, frozen=True, kw_only=True):
    """``awaited``: whether the conductor waited for the report."""

    awaited: bool


class NewCredential(_Message, frozen=True, kw_only=True):
    host: Uuid
    credential: Secret

"""What an agent and its conductor say to each other: JSON bodies, each a POST.

    register   who the host is, what it has, and which servers are on it
    poll       "here I am, and this is on me": answered with orders, at once or when there are any
    report     what came of an order

An order has an id, which is the same whenever it is handed out again, and a fence: of two orders for one
server the one with the greater fence is the later, and who has seen it leaves the other alone.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from berth.model.orders import Spec
from berth.operations.steps import Verb

REGISTER: Final = "/agent/v1/register"
POLL: Final = "/agent/v1/poll"
REPORT: Final = "/agent/v1/report"
TOKEN_HEADER: Final = "x-agent-token"

SERVERS_MAX: Final = 10_000
PROVIDERS_MAX: Final = 1_000
WAIT_SECONDS_MAX: Final = 60

Uuid = Annotated[str, Meta(pattern="^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\Z")]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Symbol = Annotated[str, Meta(pattern="^[A-Z][A-Z0-9_]{0,254}\\Z")]
"""The name of a trait or a resource class."""
_Servers = Annotated[tuple[Uuid, ...], Meta(max_length=SERVERS_MAX)]
Fence = tuple[int, int]
"""The number of the server's order, and the version of it."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Provider(_Message, frozen=True, kw_only=True):
    """A provider of the host's tree. ``inventories`` as Placement has them."""

    id: Uuid
    name: _Name
    parent: Uuid | None = None
    inventories: Annotated[dict[_Symbol, dict[str, Any]], Meta(max_length=1_000)] = {}
    traits: Annotated[tuple[_Symbol, ...], Meta(max_length=10_000)] = ()


class Register(_Message, frozen=True, kw_only=True):
    """``providers`` begins with the host itself, parents before their children."""

    host: Uuid
    name: _Name
    driver: _Name
    providers: Annotated[tuple[Provider, ...], Meta(min_length=1, max_length=PROVIDERS_MAX)]
    aggregates: Annotated[tuple[Uuid, ...], Meta(max_length=100)] = ()
    servers: _Servers = ()


class Registered(_Message, frozen=True, kw_only=True):
    cell: str
    silence_seconds: float
    """After so long without a poll the host counts as down."""


class Poll(_Message, frozen=True, kw_only=True):
    """``busy``: the orders that are being carried out; they are not handed out again."""

    host: Uuid
    servers: _Servers = ()
    busy: Annotated[tuple[str, ...], Meta(max_length=SERVERS_MAX)] = ()
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0


class Order(_Message, frozen=True, kw_only=True):
    id: str
    fence: Fence
    verb: Verb
    server: str
    spec: Spec
    runs: bool = True
    """Whether the server is to run afterwards."""
    to_host: str | None = None
    """Of a live migration: where it goes."""


class Stray(_Message, frozen=True, kw_only=True):
    """A server that is not to be on this host any more: destroy it, unless a later order has come."""

    server: str
    fence: Fence


class Orders(_Message, frozen=True, kw_only=True):
    orders: tuple[Order, ...] = ()
    aborts: tuple[str, ...] = ()
    """Orders to be given up."""
    strays: tuple[Stray, ...] = ()


class Report(_Message, frozen=True, kw_only=True):
    host: Uuid
    order: str
    error: Annotated[str, Meta(max_length=4000)] | None = None

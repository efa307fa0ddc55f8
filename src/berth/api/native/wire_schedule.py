"""What the scheduler answers with."""

from typing import Annotated

import msgspec
from msgspec import Meta

from berth.api.native.wire import Amounts, Index, Uuid
from berth.model.explanations import Check, SmallestChange
from berth.model.rejections import ConstraintStep


class Resources(msgspec.Struct):
    resources: Amounts


class Way(msgspec.Struct):
    """A host, and what to take of which of its providers: as PUT /allocations takes it."""

    host_uuid: Uuid
    host_name: str
    allocations: dict[str, Resources]
    mappings: Annotated[
        dict[str, list[str]], Meta(description="By the suffix of a part: the providers that serve it.")
    ]


class Placement(Way):
    """Where a member went. ``alternates`` are hosts of the same cell that would have done too, best first."""

    consumer_uuid: Uuid
    alternates: list[Way]


class HostExplanation(msgspec.Struct):
    """Each constraint at one host. ``refused``: what the ledger says of a claim there."""

    host: str
    host_uuid: str | None
    fits: bool
    checks: tuple[Check, ...]
    refused: str | None


class Explanation(msgspec.Struct):
    """``steps`` are the constraints in order, with how many hosts each removed; ``change`` is the smallest
    change that would make it fit."""

    index: Index
    needed: int
    fitting: int
    hosts_total: int
    steps: tuple[ConstraintStep, ...]
    text: str
    hosts: list[HostExplanation]
    change: SmallestChange | None
    refused: str | None


class Schedule(msgspec.Struct, omit_defaults=True):
    """``index`` is where the ledger was when it was decided. A dry run claims nothing: its ``token`` does."""

    index: Index
    claimed: bool
    placements: list[Placement]
    token: str | None = None
    explanation: Explanation | None = None


class OneExplanation(msgspec.Struct):
    explanation: Explanation


class PlaceCapacity(msgspec.Struct):
    """How many more would fit if all of them went to this aggregate."""

    kind: str | None
    name: str | None
    aggregate: str
    count: int
    hosts: int


class Capacity(msgspec.Struct):
    """How many more would fit, one after the other, and on how many hosts. ``exact`` false: at least so
    many."""

    index: Index
    count: int
    exact: bool
    hosts: int
    places: list[PlaceCapacity]


class OneCapacity(msgspec.Struct):
    capacity: Capacity

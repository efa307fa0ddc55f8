"""What /berth/v1 answers with about servers and their needs, and what the doctor says."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from berth.api.native.wire import Amounts, Time, Uuid

Held = Annotated[
    dict[str, Amounts], Meta(description="Amounts by the uuid of the provider that they are held on.")
]


class Need(msgspec.Struct):
    """``allocations`` is empty while the server holds nothing."""

    name: str
    resources: Amounts
    required: list[str]
    forbidden: list[str]
    allocations: Held


class OneNeed(msgspec.Struct):
    need: Need


class Needs(msgspec.Struct):
    needs: list[Need]


class Conflict(msgspec.Struct):
    """What another client was found to have written, when an operation was refused because of it. The next
    operation finds it known."""

    allocations: Held
    migration_allocations: Held
    asked: Annotated[str, Meta(description="What was refused.")]
    at: Time


class Server(msgspec.Struct):
    """A server as its record has it. ``allocations`` is what was last written for it; ``added_by_others`` is
    the part of that which other clients added."""

    uuid: Uuid
    name: str
    project_id: str
    state: str
    task: str | None
    host: str | None
    migration: Uuid | None
    allocations: Held
    added_by_others: Held
    conflict: Conflict | None


class OneServer(msgspec.Struct):
    server: Server


class Finding(msgspec.Struct):
    """``repair`` is what the doctor would do about it; null where a human must decide: ``unsafe`` says
    why."""

    id: str
    kind: str
    subject: str
    sentence: str
    holds: Held
    should_hold: Held
    repair: str | None
    unsafe: str | None


class Findings(msgspec.Struct):
    """``truncated``: there is more than is shown; repair this first, and examine again."""

    findings: list[Finding]
    truncated: bool


class Repaired(msgspec.Struct):
    """What became of one finding. ``detail`` says what was done, would be, or why not."""

    id: str
    outcome: Literal["would repair", "repaired", "refused"]
    detail: str


class Repairs(msgspec.Struct):
    dry_run: bool
    repairs: list[Repaired]

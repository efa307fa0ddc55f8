"""What one append to the journal holds: the changes that were decided together, and who asked for each."""

import msgspec

from berth.model.events import Event
from berth.model.ids import Index


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    request_id: str
    user: str | None
    project: str | None
    action: str


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One command's events, and who asked. Replayed whole or not at all."""

    origin: Origin
    events: tuple[Event, ...]


class Batch(msgspec.Struct, frozen=True, gc=False):
    """All of one append. ``id`` tells its writer, after a lost answer, whether it got in. ``body`` are the
    entries as they are written, where they are encoded already."""

    index: Index
    id: str
    at_ns: int
    entries: tuple[Entry, ...]
    body: bytes | None = None

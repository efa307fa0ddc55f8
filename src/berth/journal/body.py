"""The body of a batch: its entries in msgpack, encoded one by one.

A command is charged by what it writes, so the writer must know the size of an entry before it takes it into a
batch. A command may write a thousand records that share a large text in memory: encoding stops as soon as the
limit is passed, and costs no more than the limit and one event.
"""

import operator
from collections.abc import Sequence
from struct import pack
from typing import Final, NamedTuple

import msgspec

from berth.model.batches import Origin
from berth.model.events import Event

_ENCODER: Final = msgspec.msgpack.Encoder()


class Encoded(NamedTuple):
    """Events, and how they are written one after the other."""

    events: Sequence[Event]
    body: bytes


NOTHING: Final = Encoded((), b"")


def encode_events(events: Sequence[Event], bytes_max: int) -> bytes | None:
    """Events as the end of an entry has them; None if they have more than ``bytes_max`` bytes."""
    body = bytearray()
    return bytes(body) if _extend(body, events, bytes_max) else None


def encode_entry(
    origin: Origin, events: Sequence[Event], bytes_max: int, end: Encoded = NOTHING
) -> bytearray | None:
    """An ``Entry`` of these events; None if it has more than ``bytes_max`` bytes. If the last of them are
    those of ``end``, they are not encoded again."""
    body = bytearray(_array(2))
    _ENCODER.encode_into(origin, body, -1)
    body += _array(len(events))
    others = len(events) - len(end.events)
    if others < 0 or not all(map(operator.is_, events[others:], end.events)):
        others, end = len(events), NOTHING
    if not _extend(body, events[:others], bytes_max - len(end.body)):
        return None
    body += end.body
    return body


def _extend(body: bytearray, events: Sequence[Event], bytes_max: int) -> bool:
    """Append events; False as soon as there are more than ``bytes_max`` bytes."""
    for event in events:
        _ENCODER.encode_into(event, body, -1)
        if len(body) > bytes_max:
            return False
    return len(body) <= bytes_max


def join_entries(entries: Sequence[bytearray]) -> bytes:
    """The body of a batch of these entries."""
    return b"".join((_array(len(entries)), *entries))


def _array(length: int) -> bytes:
    """How msgpack begins an array."""
    if length < 1 << 4:
        return bytes((0x90 | length,))
    return pack(">BH", 0xDC, length) if length < 1 << 16 else pack(">BI", 0xDD, length)

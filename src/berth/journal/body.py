"""The body of a batch: its entries in msgpack, encoded one by one.

A command is charged by what it writes, so the writer must know the size of an entry before it takes it into a
batch. A command may write a thousand records that share a large text in memory: encoding stops as soon as the
limit is passed, and costs no more than the limit and one event.
"""

from collections.abc import Sequence
from struct import pack
from typing import Final

import msgspec

from berth.model.batches import Origin
from berth.model.events import Event

_ENCODER: Final = msgspec.msgpack.Encoder()


def encode_entry(origin: Origin, events: Sequence[Event], bytes_max: int) -> bytes | None:
    """An ``Entry`` of these events; None if it has more than ``bytes_max`` bytes."""
    body = bytearray(_array(2))
    _ENCODER.encode_into(origin, body, -1)
    body += _array(len(events))
    for event in events:
        _ENCODER.encode_into(event, body, -1)
        if len(body) > bytes_max:
            return None
    return bytes(body)


def join_entries(entries: Sequence[bytes]) -> bytes:
    """The body of a batch of these entries."""
    return b"".join((_array(len(entries)), *entries))


def _array(length: int) -> bytes:
    """How msgpack begins an array."""
    if length < 1 << 4:
        return bytes((0x90 | length,))
    return pack(">BH", 0xDC, length) if length < 1 << 16 else pack(">BI", 0xDD, length)

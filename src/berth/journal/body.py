"""The body of a batch: its entries in msgpack, encoded one by one.

A command is charged by what it writes, so the writer must know the size of an entry before it takes it into a
batch. A command may write a thousand records that share a large text in memory: encoding stops as soon as the
limit is passed, and costs no more than the limit and one event.

A thousand new servers are 2.4 MB, and everybody waits until the database has written them: 15 to 25 ms in a
SQLite file. They repeat each other, and deflated they are a tenth of that. So what is encoded ahead of its
turn, in a child, is deflated there as well, and a batch that has such a part is a ``MARK`` and one deflated
stream. All other batches are plain: to deflate what is small takes longer than to write it.

In front of a body of format 2 or later is its signature: the format, and the version of the program that
wrote it. A program that does not read the format knows by that alone what to say. Parts of snapshots have the
same in front.
"""

import operator
import zlib
from collections.abc import Iterable, Iterator, Sequence
from struct import error as StructError
from struct import pack, unpack_from
from typing import Any, Final, NamedTuple

import msgspec

from berth.model.events import Entry, Event, Origin
from berth.model.formats import SIGNED

MARK: Final = b"\xc1"
"""How a deflated body begins: no msgpack does, so a program that does not know it refuses the entry."""

_SIGNATURE: Final = ">BHB"
_SIGNATURE_MARK: Final = 0xC7
"""How a signature begins: neither a list in msgpack nor a deflated body does. Behind it are the format, and
how long the version is, in ASCII."""
SIGNATURE_BYTES_MAX: Final = 4 + 255

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[Entry, ...])
_RAW: Final = -15
"""A deflated stream without a head and a checksum of its own: such streams can be put one behind another."""
_STREAM_END: Final = b"\x03\x00"
"""A last block with nothing in it."""
_INFLATED_BYTES_MAX: Final = 512 << 20
"""More than any writer puts into a batch: ``command_bytes_max`` is 256 MiB at most. A reader inflates no
further, because a damaged row of a few kilobytes could stand for more than its memory."""


class Signature(NamedTuple):
    """The format that something is written in, and the version of the program that wrote it; no version where
    that was not written down."""

    format: int = 1
    version: str = ""

    def __str__(self) -> str:
        return f"Berth {self.version} (format {self.format})" if self.version else f"format {self.format}"


def encode_signature(signature: Signature) -> bytes:
    if signature.format < SIGNED:
        return b""
    version = signature.version.encode("ascii")
    return pack(_SIGNATURE, _SIGNATURE_MARK, signature.format, len(version)) + version


def split_signature(body: bytes) -> tuple[Signature, bytes]:
    """The signature of a body, and what is behind it. ValueError if it is damaged."""
    if not body or body[0] != _SIGNATURE_MARK:
        return Signature(), body
    try:
        _, format, length = unpack_from(_SIGNATURE, body)
    except StructError as error:
        raise ValueError("its signature ends too early") from error
    end = 4 + length
    return Signature(format, body[4:end].decode("ascii")), body[end:]


class Deflated(NamedTuple):
    """Bytes as a part of a deflated stream, and how many they are in full."""

    size: int
    content: bytes


class Encoded(NamedTuple):
    """Events, and how they are written one after the other."""

    events: Sequence[Event]
    body: Deflated


class EncodedEntry(NamedTuple):
    """An entry: its beginning in full, and its end."""

    beginning: bytearray
    end: Deflated

    @property
    def size(self) -> int:
        """What the command is charged: the bytes in full."""
        return len(self.beginning) + self.end.size


_NO_BYTES: Final = Deflated(0, b"")
NOTHING: Final = Encoded((), _NO_BYTES)


def encode_events(events: Sequence[Event], bytes_max: int) -> Deflated | None:
    """Events as the end of an entry has them; None if they have more than ``bytes_max`` bytes."""
    if not events:
        return _NO_BYTES
    body = bytearray()
    return _deflate(body) if _extend(body, events, bytes_max) else None


def encode_entry(
    origin: Origin, events: Sequence[Event], bytes_max: int, end: Encoded = NOTHING
) -> EncodedEntry | None:
    """An ``Entry`` of these events; None if it has more than ``bytes_max`` bytes. If the last of them are
    those of ``end``, they are not encoded again."""
    beginning = bytearray(_array(2))
    _ENCODER.encode_into(origin, beginning, -1)
    beginning += _array(len(events))
    others = len(events) - len(end.events)
    if others < 0 or not all(map(operator.is_, events[others:], end.events)):
        others, end = len(events), NOTHING
    if not _extend(beginning, events[:others], bytes_max - end.body.size):
        return None
    return EncodedEntry(beginning, end.body)


def _extend(body: bytearray, events: Sequence[Event], bytes_max: int) -> bool:
    """Append events; False as soon as there are more than ``bytes_max`` bytes."""
    for event in events:
        _ENCODER.encode_into(event, body, -1)
        if len(body) > bytes_max:
            return False
    return len(body) <= bytes_max


def join_entries(entries: Sequence[EncodedEntry]) -> bytes:
    """The body of a batch of these entries."""
    head = _array(len(entries))
    if not any(entry.end.size for entry in entries):
        return b"".join((head, *(entry.beginning for entry in entries)))
    pieces = [MARK, _deflate(head).content]
    for entry in entries:
        pieces += (_deflate(entry.beginning).content, entry.end.content)
    return b"".join((*pieces, _STREAM_END))


def encode_entries(entries: Sequence[Entry]) -> bytes:
    """The body of a batch that is encoded whole: plain."""
    return _ENCODER.encode(entries)


def decode_entries(body: bytes) -> tuple[Entry, ...]:
    """The entries of a batch. A body that is damaged raises an error of msgspec or zlib, or a ValueError or
    TypeError."""
    return _DECODER.decode(_inflate(body[1:]) if body[:1] == MARK else body)


def find_unknown(body: bytes) -> str | None:
    """Something in a body that this program would skip; None if it reads all of it. At a format that it reads
    there is no such thing, unless somebody has written what its format does not have."""
    plain = _inflate(body[1:]) if body[:1] == MARK else body
    return next(_unknown(_DECODER.decode(plain), msgspec.msgpack.decode(plain)), None)


def _unknown(value: Any, raw: Any) -> Iterator[str]:
    """What is in raw values and not in those that were made of them."""
    if isinstance(value, msgspec.Struct):
        kind, names = type(value), value.__struct_encode_fields__
        config = kind.__struct_config__
        if config.array_like:
            found = raw[0 if config.tag is None else 1 :]
            if len(found) > len(names):
                yield f"value {len(names) + 1} of a {kind.__name__}"
            pairs: Iterable[tuple[str, Any]] = zip(value.__struct_fields__, found, strict=False)
        else:
            yield from (
                f"{kind.__name__}.{name}" for name in raw if name not in names and name != config.tag_field
            )
            fields = zip(value.__struct_fields__, names, strict=True)
            pairs = ((field, raw[name]) for field, name in fields if name in raw)
        for field, inner in pairs:
            yield from _unknown(getattr(value, field), inner)
    elif isinstance(value, tuple | list):
        for one, inner in zip(value, raw, strict=True):
            yield from _unknown(one, inner)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _unknown(one, raw[key])


def _inflate(stream: bytes) -> bytes:
    inflating = zlib.decompressobj(_RAW)
    content = inflating.decompress(stream, _INFLATED_BYTES_MAX)
    if len(content) >= _INFLATED_BYTES_MAX:
        raise ValueError(f"its deflated stream has {_INFLATED_BYTES_MAX} bytes or more in full")
    if not inflating.eof or inflating.unused_data:
        raise ValueError("its deflated stream ends too early, or something follows its end")
    return content


def _deflate(content: bytes | bytearray) -> Deflated:
    # The lowest level: higher ones take longer and save little more.
    deflate = zlib.compressobj(1, zlib.DEFLATED, _RAW)
    return Deflated(len(content), deflate.compress(content) + deflate.flush(zlib.Z_SYNC_FLUSH))


def _array(length: int) -> bytes:
    """How msgpack begins an array."""
    if length < 1 << 4:
        return bytes((0x90 | length,))
    return pack(">BH", 0xDC, length) if length < 1 << 16 else pack(">BI", 0xDD, length)

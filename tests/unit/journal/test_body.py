"""The body of a batch: plain, or deflated where a part of it was deflated ahead of its turn."""

import tracemalloc
import zlib
from collections.abc import Callable

import msgspec
import pytest

from berth.journal import body as body_module
from berth.journal.body import (
    MARK,
    NOTHING,
    Encoded,
    EncodedEntry,
    decode_entries,
    encode_entry,
    encode_events,
    join_entries,
)
from berth.model.events import Entry, Event, Origin, TraitChanged

ORIGIN = Origin("req-1", "alice", "p", "create")
LIMIT = 1 << 20
GOLDEN = (
    "c19a08000000ffff9a346569516aa1aee1d2c49ccce4d48505cb928b52134b52274d5958b2c2393438c4df37dee0003b000000ffff"
    "9ab2b0648573687088bf6fbce1017600000000ffff0300"
)
"""As it was written by the first program that deflated anything."""


def traits(count: int, first: int = 0) -> tuple[Event, ...]:
    return tuple(TraitChanged(f"CUSTOM_{number}", None, 7) for number in range(first, first + count))


def ahead(events: tuple[Event, ...]) -> Encoded:
    body = encode_events(events, LIMIT)
    assert body is not None
    return Encoded(events, body)


def encoded(events: tuple[Event, ...], end: Encoded = NOTHING) -> EncodedEntry:
    entry = encode_entry(ORIGIN, events, LIMIT, end)
    assert entry is not None
    return entry


def test_what_is_encoded_in_its_turn_is_plain() -> None:
    entries = (Entry(ORIGIN, traits(3)), Entry(ORIGIN, traits(20)))
    body = join_entries([encoded(entry.events) for entry in entries])
    assert body == msgspec.msgpack.encode(entries)
    assert decode_entries(body) == entries


@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 1), (2, 0), (20, 30)])
def test_what_was_deflated_ahead_is_read_as_it_would_be_plain(before: int, after: int) -> None:
    """Alone, behind other events of its command, and between other commands."""
    changes = traits(1_000, 50)
    large = (*traits(before), *changes)
    entries = (Entry(ORIGIN, traits(before)), Entry(ORIGIN, large), Entry(ORIGIN, traits(after)))
    pieces = [encoded(traits(before)), encoded(large, ahead(changes)), encoded(traits(after))]
    body = join_entries(pieces)
    assert body[:1] == MARK
    assert decode_entries(body) == entries
    plain = msgspec.msgpack.encode(entries)
    assert 1 + sum(piece.size for piece in pieces) == len(plain)
    assert len(body) < len(plain) / 5


def test_a_command_is_charged_for_its_bytes_in_full() -> None:
    changes = traits(1_000)
    end = ahead(changes)
    size = encoded(changes, end).size
    assert size == encoded(changes).size
    for charged in (NOTHING, end):
        assert encode_entry(ORIGIN, changes, size, charged) is not None
        assert encode_entry(ORIGIN, changes, size - 1, charged) is None
    assert encode_events(changes, end.body.size) is not None
    assert encode_events(changes, end.body.size - 1) is None


def test_events_that_were_not_encoded_ahead_are_encoded() -> None:
    end = ahead(traits(3))
    for events in (traits(2), (*traits(3), *traits(1, 7)), traits(3, 1)):
        body = join_entries([encoded(events, end)])
        assert decode_entries(body) == (Entry(ORIGIN, events),)


def test_no_events_are_nothing_to_deflate() -> None:
    assert join_entries([encoded(traits(1), ahead(()))])[:1] != MARK


def test_a_deflated_body_of_an_earlier_program_is_read() -> None:
    assert decode_entries(bytes.fromhex(GOLDEN)) == (Entry(ORIGIN, traits(2)),)


def deflate(content: bytes) -> bytes:
    deflating = zlib.compressobj(9, zlib.DEFLATED, -15)
    return MARK + deflating.compress(content) + deflating.flush()


def test_a_deflated_body_is_inflated_no_further_than_any_batch_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row of some kilobytes could otherwise take all memory of the process that reads it."""
    monkeypatch.setattr(body_module, "_INFLATED_BYTES_MAX", 1 << 20)
    row = deflate(bytes(64 << 20))
    assert len(row) < 1 << 17
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="1048576 bytes or more"):
            decode_entries(row)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: body[:-5], lambda body: body + b"x"])
def test_a_deflated_body_that_is_cut_off_or_goes_on_is_damaged(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="ends too early, or something follows its end"):
        decode_entries(change(bytes.fromhex(GOLDEN)))

"""What earlier versions have written is read, and written again, byte for byte.

``tests/golden/journal.jsonl`` holds journal entries with every kind of event and record, with all of their
fields and with the required ones alone. ``agent_protocol.jsonl`` holds the messages between agents and
conductors, ``agent_state.json`` an agent's file. Classes and fields may be renamed; tags and the names in
these bytes may not. A new kind is added to the golden file with the change that makes it.
"""

import json
import typing
from pathlib import Path

import msgspec
import pytest

from berth.agent.state import StoredState
from berth.cell import protocol
from berth.model.events import AnyRecord, Entry, Event

GOLDEN = Path(__file__).parents[2] / "golden"
ENTRIES = [json.loads(line) for line in (GOLDEN / "journal.jsonl").read_text().splitlines()]
MESSAGES = [json.loads(line) for line in (GOLDEN / "agent_protocol.jsonl").read_text().splitlines()]
MESSAGE_TYPES = {
    "register": protocol.Register,
    "registered": protocol.Registered,
    "poll": protocol.Poll,
    "orders": protocol.PollAnswer,
    "report": protocol.Report,
    "settled": protocol.ReportAnswer,
    "newcredential": protocol.NewCredential,
}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["holds"])
def test_an_entry_is_encoded_as_it_always_was(entry: dict[str, str]) -> None:
    body = bytes.fromhex(entry["body"])
    decoded = msgspec.msgpack.decode(body, type=Entry)
    assert msgspec.msgpack.encode(decoded) == body
    assert _fields(msgspec.to_builtins(decoded)) == _fields(msgspec.msgpack.decode(body))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message["message"])
def test_a_message_of_the_agent_protocol_is_encoded_as_it_always_was(message: dict[str, str]) -> None:
    decoded = msgspec.json.decode(message["body"], type=MESSAGE_TYPES[message["message"]])
    assert msgspec.json.encode(decoded).decode() == message["body"]


def test_the_file_of_an_agent_is_encoded_as_it_always_was() -> None:
    body = (GOLDEN / "agent_state.json").read_bytes()
    assert msgspec.json.encode(msgspec.json.decode(body, type=StoredState)) == body


def test_the_file_of_an_agent_that_knew_no_units_is_read() -> None:
    body = (GOLDEN / "agent_state.json").read_bytes()
    with_units = msgspec.json.decode(body, type=StoredState)
    earlier = msgspec.json.decode(body)
    del earlier["units"]
    found = msgspec.convert(earlier, StoredState)
    assert with_units.units == {"text-2817": {"text-2818": {"PCPU": ("text-2819", "text-2820")}}}
    assert (found.servers, found.results, found.units) == (with_units.servers, with_units.results, {})


@pytest.mark.parametrize(
    ("holds", "union"), [("event", Event), ("record", AnyRecord)], ids=["events", "records"]
)
def test_every_kind_is_in_the_golden_file(holds: str, union: type) -> None:
    tags = {kind.__struct_config__.tag for kind in typing.get_args(union)} - {"r"}
    held = {entry["holds"] for entry in ENTRIES}
    assert {f"{holds} {tag}" for tag in tags} <= held


def _fields(value: object) -> object:
    """Tuples and lists are the same on the wire."""
    if isinstance(value, dict):
        return {key: _fields(inner) for key, inner in value.items()}
    return [_fields(inner) for inner in value] if isinstance(value, list | tuple) else value

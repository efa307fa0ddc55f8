"""Records in /berth/v1/events: every kind has its rendering, nothing is shown that is not named, and nothing
stops those who read on."""

import json
import logging
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from berth.api.native import changes, event_kinds
from berth.api.native.changes import change_of, require_all
from berth.model import events as e
from berth.model.clusters import Cluster
from berth.model.drains import Drain, DrainMove
from berth.model.events import AnyRecord, RecordChanged
from berth.model.saga_runs import Agent, Assignment, ClaimSnapshot, Instance, Outbox, SagaRun, Spec, Term
from berth.model.servers import (
    Action,
    Aggregate,
    CellStatus,
    Counter,
    Fault,
    Flavor,
    Host,
    Image,
    Migration,
    Place,
    QuotaSet,
    Server,
)
from tests.unit.native.streams import listening
from tests.worlds import ApplicationWorld, RegionWorld

pytestmark = pytest.mark.fast

GUIDE = Path(__file__).parents[3] / "docs/guides/native-api.md"
FLAVOR = Flavor(id="f", name="small", vcpus=1, memory_mb=1)
PLACE = Place("p", "host-1", "cell1")
SERVER = Server(id="s", name="db", project="p", user="u", flavor=FLAVOR)
WORK = SagaRun(
    id="w",
    number=1,
    server="s",
    saga="create",
    request_id="r",
    spec=Spec("db", "p", "u", FLAVOR),
    project="p",
    user="u",
    claim=ClaimSnapshot((), None),
)
SAMPLES: tuple[AnyRecord, ...] = (
    SERVER,
    FLAVOR,
    WORK,
    Action(
        id="w",
        server="s",
        name="create",
        request_id="r",
        project="p",
        user="u",
        started_at_s=1,
        updated_at_s=1,
    ),
    Agent(id="p", name="host-1", driver="sim"),
    Aggregate(id="a", number=1, name="rack"),
    Assignment(
        id="s on p", server="s", host="p", holder="s", run="w", units={"p": {"PCPU": ("4",)}}, counts={}
    ),
    Drain(id="p", name="host-1", project="p", user="u", request_id="r", moves=(DrainMove(server="s"),)),
    CellStatus(id="cell1", is_reachable=False, text="refused", since_s=5, heard_at_s=4),
    Cluster(id="c", name="c", project="p", user="u"),
    Counter(id="migration", value=1),
    Host(id="p", number=1, name="host-1", cell="cell1"),
    Image(id="i"),
    Instance(id="s"),
    Migration(
        id="m",
        number=1,
        server="s",
        type="resize",
        status="accepted",
        source=PLACE,
        dest=PLACE,
        flavor_before=FLAVOR,
        flavor_after=FLAVOR,
        project="p",
        user="u",
    ),
    Outbox(id="w", cell="cell1", run=WORK),
    QuotaSet(id="project:p", limits={"cores": 5}),
    Term(id="term", number=1),
)


def test_every_event_and_every_record_has_its_rendering() -> None:
    assert set(changes._RENDERERS) == set(get_args(e.Event))
    assert set(changes._SHOWN) | changes._INTERNAL == set(get_args(AnyRecord))
    assert not set(changes._SHOWN) & changes._INTERNAL


def test_a_kind_without_one_is_named_when_the_program_is_loaded() -> None:
    with pytest.raises(TypeError, match=r"^RecordChanged: the table must name every kind"):
        require_all(e.Event, set(get_args(e.Event)) - {RecordChanged}, "the table")
    with pytest.raises(TypeError, match=r"^Server: "):
        require_all(e.Event, {*get_args(e.Event), Server}, "the table")


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_comes_changes_and_goes(record: AnyRecord) -> None:
    came, went = change_of(RecordChanged(None, record), {}), change_of(RecordChanged(record, None), {})
    assert not isinstance(came, event_kinds.UnreadableChange)
    assert type(came) is type(went)
    if isinstance(came, event_kinds.InternalChange):
        assert msgspec.to_builtins(came) == {"kind": "internal", "record": record.__struct_config__.tag}
        return
    shown = msgspec.to_builtins(came)
    assert shown["before"] is None
    assert msgspec.to_builtins(went)["before"] == shown["after"]
    assert msgspec.to_builtins(went)["after"] is None


def test_there_is_a_sample_of_every_kind_that_is_shown() -> None:
    assert {type(record) for record in SAMPLES} >= set(changes._SHOWN)


def test_the_guide_names_every_kind_of_change() -> None:
    table = GUIDE.read_text().partition("| kind | what changed |")[2].partition("\n\n")[0]
    kinds = {kind.__struct_config__.tag for kind in get_args(event_kinds.Change)}
    assert set(re.findall(r"`([a-z_]+)`(?=[^|]*\|[^|]*\|$)", table, re.MULTILINE)) == kinds


def test_fat_values_are_cut_and_named() -> None:
    fat = msgspec.structs.replace(
        SERVER,
        metadata={f"key-{number}": "v" * 255 for number in range(128)},
        fault=Fault("x" * 100_000, 1, details="d" * 100_000),
        image_properties={"hw": "y" * 100_000},
    )
    flavor = msgspec.structs.replace(FLAVOR, projects=tuple(map(str, range(10_000))))
    shown = msgspec.to_builtins(change_of(RecordChanged(SERVER, fat), {}))
    assert sorted(shown["after"]["left_out"]) == ["fault", "metadata"]
    assert "left_out" not in shown["before"]
    assert len(shown["after"]["fault"]) == 255
    assert 0 < len(shown["after"]["metadata"]) < 128
    assert len(msgspec.json.encode(shown)) < 5_000
    assert len(msgspec.json.encode(change_of(RecordChanged(None, flavor), {}))) < 5_000


def test_nothing_is_shown_but_what_is_named() -> None:
    """Whatever else a record holds: a field that is new is not shown because it is there."""
    shown = msgspec.structs.replace(
        SERVER, key_name="SECRET", description="SECRET", image_properties={"a": "SECRET"}
    )
    assert "SECRET" not in str(msgspec.to_builtins(change_of(RecordChanged(None, shown), {})))


@pytest.mark.parametrize("how", ["page", "stream"])
async def test_a_change_that_cannot_be_shown_stops_nobody(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> event_kinds.Change:
        raise KeyError("what nobody thought of")

    monkeypatch.setitem(changes._RENDERERS, e.TraitChanged, fails)
    monkeypatch.setattr(changes, "_unreadable", set())

    caplog.set_level(logging.ERROR)
    async with ApplicationWorld(tmp_path).running() as world:
        for number in range(3):
            await world.change("PUT", f"/traits/CUSTOM_{number}")
        await world.change("PUT", "/resource_classes/CUSTOM_A")
        if how == "page":
            events = (await world.get("/berth/v1/events")).json["events"]
        else:
            async with listening(world.application, "?after=0") as (stream, _):
                await stream.until(lambda stream: len(stream.events) == 4)
            events = [json.loads(event["data"]) for event in stream.events]
    kinds = [change["kind"] for event in events for change in event["changes"]]
    assert kinds == ["unreadable"] * 3 + ["resource_class"]
    assert events[0]["changes"] == [{"kind": "unreadable", "event": "TraitChanged"}]
    logged = [record.getMessage() for record in caplog.records]
    assert [text for text in logged if "cannot be rendered" in text] == [
        "TraitChanged: the event cannot be rendered for readers; later ones of its kind are not logged"
    ]


async def test_events_show_changes_of_records(region: RegionWorld) -> None:
    flavor = {"flavor": {"name": "small", "vcpus": 1, "ram": 64, "disk": 1, "id": "small"}}
    assert (await region.compute("POST", "/flavors", flavor)).status == 200
    answer = await region.ask("GET", "/berth/v1/events")
    assert answer.status == 200
    shown = [change for event in answer.json["events"] for change in event["changes"]]
    assert [change["kind"] for change in shown] == ["flavor"]
    assert (shown[0]["before"], shown[0]["after"]["name"]) == (None, "small")

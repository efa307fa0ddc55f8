"""/berth/v1/events by kind, subject, user, project, request and time, and from the newest on; in pages and as
a stream. The answer says how far it looked."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from berth.api.native import event_pages
from tests.unit.native.streams import listening
from tests.worlds import RegionWorld, uuid_of

pytestmark = pytest.mark.fast

GLOBAL = "req-01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture(scope="module")
async def region(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RegionWorld]:
    """Two hosts, one with a NUMA cell, and a consumer on it; host-2 was disabled an hour later."""
    path: Path = tmp_path_factory.mktemp("filtered")
    async with RegionWorld(path).running() as region:
        await region.host(1)
        await region.host(11, {"PCPU": 4}, parent=1)
        await region.host(2)
        await region.claim(50, {11: {"PCPU": 1}}, project="blue")
        region.clock.advance(3600)
        body = {"host": {"disabled": True, "reason": "fan"}}
        headers = {"x-openstack-request-id": GLOBAL}
        path_2 = f"/berth/v1/hosts/{uuid_of(2)}"
        answer = await region.ask("PUT", path_2, body, token="admin:ops", headers=headers)
        assert answer.status == 200
        answer = await region.ask(
            "PUT", path_2, {"host": {}}, headers={"x-openstack-request-id": "req-not-an-id"}
        )
        assert answer.status == 200
        yield region


async def read(region: RegionWorld, query: str) -> Any:
    answer = await region.get(f"/berth/v1/events{query}")
    assert answer.status == 200, answer.body
    return answer.json


def kinds(page: Any) -> list[set[str]]:
    return [{change["kind"] for change in event["changes"]} for event in page["events"]]


async def test_a_kind_is_chosen_and_its_changes_alone_are_shown(region: RegionWorld) -> None:
    page = await read(region, "?kind=host")
    assert kinds(page) == [{"host"}, {"host"}]
    assert (page["complete"], page["next"]) == (True, page["index"])


@pytest.mark.parametrize("subject", [uuid_of(2), "host-2"])
async def test_a_subject_is_found_by_its_uuid_and_by_its_name(region: RegionWorld, subject: str) -> None:
    page = await read(region, f"?subject={subject}&kind=host")
    assert [event["changes"][0]["provider"] for event in page["events"]] == [uuid_of(2)] * 2


async def test_a_host_is_the_subject_of_what_happens_in_its_tree(region: RegionWorld) -> None:
    page = await read(region, "?subject=host-1")
    found = [change for event in page["events"] for change in event["changes"]]
    assert any(change.get("provider") == uuid_of(11) and change["kind"] == "inventory" for change in found)
    assert any(change.get("consumer") == uuid_of(50) for change in found)
    assert not any(change.get("provider") == uuid_of(2) for change in found)


async def test_who_asked_is_chosen_by(region: RegionWorld) -> None:
    [event] = (await read(region, "?project=ops"))["events"]
    assert (event["project"], event["global_request_id"]) == ("ops", GLOBAL)
    for id in (event["request_id"], GLOBAL):
        assert (await read(region, f"?request_id={id}"))["events"] == [event]
    assert (await read(region, "?user=nobody"))["events"] == []
    [*_, last] = (await read(region, ""))["events"]
    assert last["global_request_id"] is None, "what does not look like an id is ignored"


async def test_the_newest_come_first_and_pages_go_backwards(region: RegionWorld) -> None:
    forwards = [event["index"] for event in (await read(region, ""))["events"]]
    backwards: list[int] = []
    query = "?newest=true&limit=2"
    while True:
        page = await read(region, query)
        backwards += [event["index"] for event in page["events"]]
        assert page["looked_back_to"] == page["next"]
        if page["complete"]:
            break
        query = f"?newest=true&limit=2&before={page['next']}"
    assert backwards == list(reversed(forwards))
    assert page["looked_back_to"] == forwards[0]


async def test_times_choose_and_are_found_without_a_look_at_everything(region: RegionWorld) -> None:
    everything = (await read(region, ""))["events"]
    late = [event for event in everything if event["at"] >= everything[-1]["at"]]
    assert len(late) == 2
    since = everything[-1]["at"]
    assert (await read(region, f"?since={since}"))["events"] == late
    page = await read(region, f"?since={since}&newest=true")
    assert (page["events"], page["complete"]) == (late[::-1], True)
    before = everything[0]["at"]
    early = (await read(region, f"?until={before}"))["events"]
    assert early == everything[: len(early)] == everything[:-2]
    assert (await read(region, f"?until={before}&newest=true"))["events"] == early[::-1]


async def test_a_page_ends_after_so_many_looks_and_says_where(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_pages, "_LOOK_BATCHES", 2)
    page = await read(region, "?newest=true&kind=consumer")
    assert (page["events"], page["complete"]) == ([], False)
    assert page["looked_back_to"] == page["index"] - 1 == page["next"]
    found: list[Any] = []
    query = "?kind=consumer"
    for _ in range(20):
        page = await read(region, query)
        found += page["events"]
        if page["complete"]:
            break
        query = f"?kind=consumer&after={page['next']}"
    assert [event["changes"][0]["consumer"] for event in found] == [uuid_of(50)]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?kind=colour", "kind: there is no kind of change 'colour'; known are: action, "),
        ("?since=yesterday", "since: it must be a time such as 2026-01-31T09:30:00Z; it is 'yesterday'."),
        ("?before=5", "before: it goes with newest=true."),
        ("?stream=true&newest=true", "newest: it is for pages"),
        ("?stream=true&since=2026-01-01T00:00:00Z", "since: it is for pages"),
    ],
)
async def test_parameters_that_do_not_go_together_are_refused(
    region: RegionWorld, query: str, words: str
) -> None:
    answer = await region.ask("GET", f"/berth/v1/events{query}")
    assert (answer.status, answer.error["code"]) == (400, "berth.bad_parameter")
    assert words in answer.error["detail"]


async def test_a_stream_sends_what_is_meant_and_ids_of_what_is_not(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path).running() as region:
        await region.host(1)
        async with listening(region.application, "?kind=host&subject=host-1") as (stream, _):
            await region.host(2)
            passed = region.engine.view.index
            await stream.until(lambda stream: f"nothing that matches\nid: {passed}" in stream.text)
            assert stream.events == []
            await region.host_status(1, disabled=True)
            await stream.until(lambda stream: len(stream.events) == 1)
            [event] = stream.events
            [change] = json.loads(event["data"])["changes"]
            assert (change["kind"], change["provider"]) == ("host", uuid_of(1))
            assert int(event["id"]) == region.engine.view.index

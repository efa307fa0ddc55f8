"""Needs and the doctor through /berth/v1, on a journal, as other services and operators reach them."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.model.commands import Enact
from berth.model.events import AnyRecord, Origin, RecordChanged
from berth.model.ids import ProviderId
from berth.model.rejections import Rejection
from berth.model.servers import Host, Place, Server
from berth.sagas.hosts import cell_aggregate
from tests.servers import ROOT
from tests.unit.sagas.regions import BANDWIDTH, SMALL
from tests.worlds import ApplicationWorld, uuid_of

pytestmark = pytest.mark.fast

HOST, CARD, SERVER, GHOST = 1, 11, 5, 6
NEEDS = f"/berth/v1/servers/{uuid_of(SERVER)}/needs"
ORIGIN = Origin("req-1", "test", None, "test")
ONE_GROUP = {"name": "out", "resources": {BANDWIDTH: 10}}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ApplicationWorld]:
    """A region with one host, its network card, and a server on it."""
    async with ApplicationWorld(tmp_path).running() as world:
        await world.host(HOST, {"VCPU": 8})
        await world.host(CARD, {BANDWIDTH: 1000}, parent=HOST)
        await world.join(HOST, cell_aggregate("cell1"))
        await world.claim(SERVER, {HOST: {"VCPU": 2}})
        await write(world, Host(id=uuid_of(HOST), number=1, name="host-1", cell="cell1"))
        await write(world, server())
        yield world


def server() -> Server:
    return Server(
        id=uuid_of(SERVER),
        name="web",
        project="p",
        user="u",
        flavor=SMALL,
        state="active",
        place=Place(uuid_of(HOST), "host-1", "cell1"),
        held=((ProviderId(uuid_of(HOST)), (("VCPU", 2),)),),
        generation=1,
    )


async def write(world: ApplicationWorld, record: AnyRecord) -> None:
    def propose(view: Any, now_s: int) -> Enact:
        return Enact((RecordChanged(view.records.current(record), record),))

    assert not isinstance(await world.engine.submit(propose, ORIGIN, lambda view, _: None), Rejection)


async def held(world: ApplicationWorld, number: int) -> Any:
    answer = await world.get(f"/allocations/{uuid_of(number)}")
    return {id[-2:]: there["resources"] for id, there in answer.json["allocations"].items()}


async def write_over(world: ApplicationWorld) -> None:
    """Another client gives the server one VCPU more."""
    claim = {
        "allocations": {uuid_of(HOST): {"resources": {"VCPU": 3}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1,
        "consumer_type": "INSTANCE",
    }
    await world.change("PUT", f"/allocations/{uuid_of(SERVER)}", claim)


# -- needs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guide", "count", "left"),
    [
        ("needs", 7, {"01": {"VCPU": 2}}),
        ("conflicts", 4, {"01": {"VCPU": 3}, "11": {BANDWIDTH: 400}}),
    ],
)
async def test_the_guide_can_be_followed(world: ApplicationWorld, guide: str, count: int, left: Any) -> None:
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text()
    text = text.replace("{server}", uuid_of(SERVER)).replace("{host}", uuid_of(HOST))
    requests = re.findall(
        r"^```http\n([A-Z]+) (\S+) -> (\d+) ?(\S*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    assert len(requests) >= count

    for method, path, status, code, body in requests:
        sent = body.encode() if body.strip() else None
        answer = await world.ask_raw(method, path, sent)
        assert answer.status == int(status), (method, path, answer.body)
        if code:
            assert answer.error["code"] == code
    assert await held(world, SERVER) == left


async def test_a_server_shows_what_another_client_has_changed(world: ApplicationWorld) -> None:
    path = f"/berth/v1/servers/{uuid_of(SERVER)}"

    before = (await world.get(path)).json["server"]
    assert (before["name"], before["host"], before["conflict"]) == ("web", "host-1", None)
    assert before["allocations"] == {uuid_of(HOST): {"VCPU": 2}}
    await write_over(world)
    assert (await world.ask("PUT", f"{NEEDS}/port", {"resources": {BANDWIDTH: 5}})).status == 409
    shown = (await world.get(path)).json["server"]
    assert shown["conflict"]["allocations"] == {uuid_of(HOST): {"VCPU": 3}}
    assert shown["conflict"]["asked"] == "change the needs"
    assert (await world.ask("PUT", f"{NEEDS}/port", {"resources": {BANDWIDTH: 5}})).status == 200
    after = (await world.get(path)).json["server"]
    assert (after["conflict"], after["added_by_others"]) == (None, {uuid_of(HOST): {"VCPU": 1}})
    assert (await world.get(f"/berth/v1/servers/{uuid_of(99)}")).status == 404


async def test_a_need_is_shown_with_where_it_is_met(world: ApplicationWorld) -> None:
    answer = await world.ask("PUT", f"{NEEDS}/port", {"resources": {BANDWIDTH: 10}})
    shown: dict[str, Any] = {
        "name": "port",
        "resources": {BANDWIDTH: 10},
        "required": [],
        "forbidden": [],
        "allocations": {uuid_of(CARD): {BANDWIDTH: 10}},
        "groups": [],
        "same_subtree": [],
        "group_policy": "none",
        "port": None,
    }
    assert answer.json == {"need": shown}
    assert (await world.get(f"{NEEDS}/port")).json == {"need": shown}
    assert (await world.get(NEEDS)).json == {"needs": [shown]}
    assert await held(world, SERVER) == {"01": {"VCPU": 2}, "11": {BANDWIDTH: 10}}


async def test_a_need_of_several_groups_is_shown_with_where_each_is_met(world: ApplicationWorld) -> None:
    groups = [ONE_GROUP, {"name": "cpu", "resources": {"VCPU": 1}}]
    body = {"groups": groups, "same_subtree": ["out", "cpu"]}
    answer = await world.ask("PUT", f"{NEEDS}/port", body)
    on_card, on_host = {uuid_of(CARD): {BANDWIDTH: 10}}, {uuid_of(HOST): {"VCPU": 1}}
    need = answer.json["need"]
    assert (need["resources"], need["allocations"]) == ({}, on_card | on_host)
    assert [group["allocations"] for group in need["groups"]] == [on_card, on_host]
    assert need["same_subtree"] == ["out", "cpu"]
    assert await held(world, SERVER) == {"01": {"VCPU": 3}, "11": {BANDWIDTH: 10}}


@pytest.mark.parametrize(
    ("name", "body", "status", "code", "words"),
    [
        ("a b", {"resources": {BANDWIDTH: 1}}, 400, "bad_parameter", "it is 'a b'"),
        ("x.y", {"resources": {BANDWIDTH: 1}}, 400, "bad_parameter", "1 to 64"),
        ("x" * 65, {"resources": {BANDWIDTH: 1}}, 400, "bad_parameter", "its name must be 1 to 64"),
        ("port", {"resources": {}}, 400, "bad_body", "neither resources nor groups"),
        ("port", {"resources": {BANDWIDTH: 1}, "groups": [ONE_GROUP]}, 400, "bad_body", "both given"),
        ("port", {"groups": [ONE_GROUP], "required": ["HW_NIC_SRIOV"]}, 400, "bad_body", "its own"),
        ("port", {"groups": [ONE_GROUP, ONE_GROUP]}, 400, "bad_body", "out more than once"),
        ("port", {"groups": [ONE_GROUP], "same_subtree": ["in"]}, 400, "bad_body", "names in, which is no"),
        ("port", {"resources": {BANDWIDTH: 1}, "group_policy": "isolate"}, 400, "bad_body", "without groups"),
        ("port", {"groups": [ONE_GROUP], "group_policy": "x"}, 400, "bad_body", "group_policy"),
        ("port", {"groups": [ONE_GROUP | {"name": "a.b"}]}, 400, "bad_body", "$.groups[0].name"),
        ("port", {"groups": [ONE_GROUP | {"resources": {}}]}, 400, "bad_body", "$.groups[0].resources"),
        ("port", {"groups": [ONE_GROUP | {"color": "red"}]}, 400, "bad_body", "color"),
        ("port", {"groups": [ONE_GROUP] * 9}, 400, "bad_body", "$.groups"),
        (
            "port",
            {"resources": {BANDWIDTH: 1}, "required": ["HW_NIC_SRIOV"], "forbidden": ["HW_NIC_SRIOV"]},
            400,
            "bad_body",
            "HW_NIC_SRIOV is required and forbidden",
        ),
        (
            "port",
            {"groups": [ONE_GROUP, {"name": "in", "resources": {BANDWIDTH: 2000}}]},
            409,
            "no_fit",
            "host-1 has no room for the group in of the need port",
        ),
        ("port", {"resources": {f"CUSTOM_{n}": 1 for n in range(21)}}, 400, "bad_body", "resources"),
        ("port", {"resources": {BANDWIDTH: 0}}, 400, "bad_body", ">= 1"),
        ("port", {"resources": {BANDWIDTH: 1}, "color": "red"}, 400, "bad_body", "color"),
        ("port", {"resources": {"CUSTOM_X": 1}}, 400, "bad_body", "There is no resource class CUSTOM_X."),
        ("port", {"resources": {BANDWIDTH: 1}, "required": ["X"]}, 400, "bad_body", "There is no trait X."),
        ("port", {"resources": {BANDWIDTH: 2000}}, 409, "no_fit", "host-1 has no room for the need port"),
    ],
)
async def test_a_need_that_cannot_be_met_or_read_is_refused(
    world: ApplicationWorld, name: str, body: object, status: int, code: str, words: str
) -> None:
    answer = await world.ask("PUT", f"{NEEDS}/{name}", body)
    assert (answer.status, answer.error["code"]) == (status, f"berth.{code}")
    assert words in answer.error["detail"]
    assert await held(world, SERVER) == {"01": {"VCPU": 2}}


async def test_the_needs_of_a_server_that_is_missing_or_busy_are_refused(world: ApplicationWorld) -> None:
    body = {"resources": {BANDWIDTH: 1}}
    answer = await world.ask("PUT", f"/berth/v1/servers/{uuid_of(99)}/needs/port", body)
    assert answer.status == 404
    assert answer.error["detail"] == f"There is no server {uuid_of(99)}."
    await write(world, msgspec.structs.replace(server(), run="run", task="migrating"))
    for method, sent in (("PUT", body), ("DELETE", None)):
        answer = await world.ask(method, f"{NEEDS}/port", sent)
        assert answer.status == 409
        assert "while it is migrating" in answer.error["detail"]


async def test_the_policy_comes_with_the_request_or_from_the_settings(world: ApplicationWorld) -> None:
    body = {"resources": {BANDWIDTH: 5}}

    await write_over(world)
    answer = await world.ask("PUT", f"{NEEDS}/port", body)
    assert answer.status == 409
    assert "(added: VCPU 1). The conflict is recorded." in answer.error["detail"]
    wrong = await world.ask("PUT", f"{NEEDS}/port", body, headers={"x-berth-conflict-policy": "never"})
    assert wrong.status == 400
    answer = await world.ask("PUT", f"{NEEDS}/port", body, headers={"x-berth-conflict-policy": "merge"})
    assert answer.status == 200
    assert await held(world, SERVER) == {"01": {"VCPU": 3}, "11": {BANDWIDTH: 5}}


@pytest.mark.parametrize(
    ("method", "path", "rule"),
    [
        ("GET", f"/berth/v1/servers/{uuid_of(SERVER)}", "servers:show"),
        ("GET", NEEDS, "needs:list"),
        ("GET", f"{NEEDS}/port", "needs:show"),
        ("PUT", f"{NEEDS}/port", "needs:update"),
        ("DELETE", f"{NEEDS}/port", "needs:delete"),
        ("GET", "/berth/v1/doctor", "doctor:examine"),
        ("POST", "/berth/v1/doctor/repair", "doctor:repair"),
    ],
)
async def test_a_caller_without_the_role_is_refused(
    world: ApplicationWorld, method: str, path: str, rule: str
) -> None:
    answer = await world.ask(method, path, token="guest")
    assert answer.status == 403
    assert answer.error["detail"] == f"Policy doesn't allow berth:{rule} to be performed."


# -- the doctor ---------------------------------------------------------------------------------


async def test_a_sound_region_has_no_findings(world: ApplicationWorld) -> None:
    assert (await world.get("/berth/v1/doctor")).json == {"findings": [], "truncated": False}
    answer = await world.ask("POST", "/berth/v1/doctor/repair", {"findings": "all", "dry_run": False})
    assert answer.json == {"dry_run": False, "repairs": []}


async def test_a_dry_run_changes_nothing_and_a_repair_repairs(world: ApplicationWorld) -> None:
    await world.claim(GHOST, {HOST: {"VCPU": 1}})
    await world.change("DELETE", f"/allocations/{uuid_of(SERVER)}")
    found = (await world.get("/berth/v1/doctor")).json["findings"]
    ids = [f"orphan_consumer:{uuid_of(GHOST)}", f"server_without_allocations:{uuid_of(SERVER)}"]
    assert [finding["id"] for finding in found] == ids
    assert found[0]["holds"] == {uuid_of(HOST): {"VCPU": 1}}
    assert found[0]["repair"] is None
    assert found[1]["should_hold"] == {uuid_of(HOST): {"VCPU": 2}}
    body = {"findings": "all", "grace_s": 0}
    answer = await world.ask("POST", "/berth/v1/doctor/repair", body)
    assert [one["outcome"] for one in answer.json["repairs"]] == ["would repair"] * 2
    assert await held(world, GHOST)
    answer = await world.ask("POST", "/berth/v1/doctor/repair", {"findings": ids, "dry_run": False})
    outcomes = {one["id"]: (one["outcome"], one["detail"]) for one in answer.json["repairs"]}
    assert outcomes[ids[0]][0] == "refused", "it is too young"
    assert "wait 60 seconds" in outcomes[ids[0]][1]
    assert outcomes[ids[1]] == ("repaired", "claim it again, if there is room")
    assert await held(world, SERVER) == {"01": {"VCPU": 2}}
    answer = await world.ask("POST", "/berth/v1/doctor/repair", {**body, "dry_run": False})
    assert [one["outcome"] for one in answer.json["repairs"]] == ["repaired"]
    assert await held(world, GHOST) == {}
    assert (await world.get("/berth/v1/doctor")).json["findings"] == []
    again = await world.ask("POST", "/berth/v1/doctor/repair", {"findings": ids, "dry_run": True})
    assert {one["outcome"] for one in again.json["repairs"]} == {"refused"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"findings": []},
        {"findings": "some"},
        {"findings": "all", "grace_s": -1},
        {"findings": ["x"] * 1001},
    ],
)
async def test_a_repair_that_cannot_be_read_is_refused(world: ApplicationWorld, body: object) -> None:
    answer = await world.ask("POST", "/berth/v1/doctor/repair", body)
    assert (answer.status, answer.error["code"]) == (400, "berth.bad_body")

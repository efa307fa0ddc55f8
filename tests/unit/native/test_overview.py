"""/berth/v1/overview, /operations and /cells, in a region whose clock stands still. Nights on call are in
tests/lifecycle/test_overview.py."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from berth.api.native import overview
from berth.model.servers import Action, ActionProgress, CellStatus, Fault, Host, Server
from berth.view import View
from tests.worlds import SMALL, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

ZONE = uuid_of(700)


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path).running() as region:
        await region.fleet(3)
        yield region


async def show(region: RegionWorld) -> Any:
    return (await region.get("/berth/v1/overview")).json["overview"]


async def test_the_figures_are_those_of_the_other_lists(region: RegionWorld) -> None:
    await region.join(1, uuid_of(500), ZONE)
    label = {"aggregate": {"kind": "zone", "name": "north", "metadata": {}}}
    await region.change("PUT", f"/berth/v1/aggregates/{ZONE}", label)
    await region.active("db")
    await region.host_status(2, disabled=True)
    await region.host_status(3, down=True)
    await region.put(Host(id=uuid_of(9), number=9, name="host-9", cell="cell-1", is_silent=True))
    shown = await show(region)
    usage = (await region.get("/berth/v1/usage?by=resource_class")).json["usage"]
    sums = {row["key"]: row["resources"][row["key"]] for row in usage}
    expected = {name: {"capacity": one["capacity"], "used": one["used"]} for name, one in sums.items()}
    assert shown["capacity"]["total"] == expected
    assert shown["capacity"]["by_cell"] == {"cell-1": expected}
    assert shown["capacity"]["by_zone"]["north"]["VCPU"]["capacity"] == 8
    for state in ("up", "down", "disabled"):
        listed = (await region.get(f"/berth/v1/hosts?state={state}")).json["hosts"]
        assert shown["hosts"][state] == len(listed), state
    assert (shown["servers"], shown["servers_total"]) == ({"active": 1}, 1)
    fits = {flavor["name"]: flavor["fits"] for flavor in shown["flavors"]}
    asked = {"flavor": {"vcpus": SMALL.vcpus, "ram": SMALL.memory_mb, "disk": SMALL.disk_gb}}
    counted = (await region.ask("POST", "/berth/v1/capacity", asked)).json["capacity"]
    assert fits["small"] == counted["count"]
    assert fits["huge"] == 0
    assert shown["flavors_total"] == len(fits) == 4
    assert shown["last_changes"][0]["index"] == shown["index"]


async def test_what_is_wrong_is_named_with_what_to_do(region: RegionWorld) -> None:
    now_s = region.clock.now_ns() // 1_000_000_000
    await region.host_status(3, down=True)
    failed = Server(
        id=uuid_of(60),
        name="broken",
        project="p",
        user="u",
        flavor=SMALL,
        state="error",
        fault=Fault("no space left on device\nTraceback", now_s),
    )
    running = Action(
        id=uuid_of(61),
        server=uuid_of(60),
        name="rebuild",
        request_id="req-5",
        project="p",
        user="u",
        started_at_s=now_s,
        updated_at_s=now_s,
        state="running",
        progress=ActionProgress(step="build", host="host-1", since_s=now_s - 100, deadline_s=now_s - 1),
    )
    await region.put(
        failed,
        running,
        Host(id=uuid_of(1), number=1, name="host-1", cell="cell-1", complaints=("bad disk", "bad fan")),
        Host(id=uuid_of(2), number=2, name="host-2", cell="cell-7"),
        CellStatus(id="cell-1", is_reachable=False, text="connection refused", since_s=now_s),
    )
    shown = await show(region)
    by_kind = {one["kind"]: one for one in shown["wrong"]}
    assert shown["wrong_total"] == {
        "cell_unreachable": 2,
        "host_down": 1,
        "operation_overdue": 1,
        "server_in_error": 1,
        "host_complaining": 1,
    }
    texts = {one["object"]: one["text"] for one in shown["wrong"]}
    assert "connection refused" in texts["cell-1"]
    assert "not configured" in texts["cell-7"]
    assert by_kind["server_in_error"]["text"] == "no space left on device"
    overdue = by_kind["operation_overdue"]["text"]
    assert overdue == "rebuild: the step build on host-1 should have ended (req-5)."
    assert by_kind["host_complaining"]["text"] == "bad disk (1 more)"
    assert all(one["what_to_do"].endswith(".") for one in shown["wrong"])


async def test_some_of_each_kind_are_shown_and_all_are_counted(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_SHOWN_MAX", 2)
    for number in (1, 2, 3):
        await region.host_status(number, down=True)
    shown = await show(region)
    assert [one["name"] for one in shown["wrong"]] == ["host-1", "host-2"]
    assert shown["wrong_total"] == {"host_down": 3}


@pytest.mark.parametrize("kind", ["servers", "operations", "hosts"])
async def test_what_is_wrong_is_charged_by_how_much_there_is_of_it(region: RegionWorld, kind: str) -> None:
    """All of it is looked through for the some that are shown: thousands are not for the loop."""
    many = 50
    for number in range(many):
        id = uuid_of(1_000 + number)
        match kind:
            case "servers":
                await region.put(Server(id=id, name="db", project="p", user="u", flavor=SMALL, state="error"))
            case "operations":
                action = Action(
                    id=id,
                    server=id,
                    name="create",
                    project="p",
                    user="u",
                    request_id="r",
                    state="running",
                    started_at_s=1,
                    updated_at_s=1,
                )
                await region.put(action)
            case "hosts":
                await region.put(
                    Host(id=id, number=1_000 + number, name=id, cell="cell-1", complaints=("bad disk",))
                )

    def count_steps(view: View) -> int:
        left = view.steps.left
        overview.WrongThings(view, call, ())
        return left - view.steps.left

    call: Any = SimpleNamespace(now_s=0, services=SimpleNamespace(settings=SimpleNamespace(cells="")))
    assert await region.engine.read(count_steps) >= many


async def test_servers_fit_where_there_is_a_cell(region: RegionWorld) -> None:
    await region.host(7, {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000})
    fits = {flavor["name"]: flavor["fits"] for flavor in (await show(region))["flavors"]}
    assert (fits["huge"], fits["small"]) == (0, 12), "host-7 is in no cell"


async def test_fits_are_counted_again_after_a_while(region: RegionWorld) -> None:
    before = (await show(region))["flavors"]
    await region.active("db")
    assert (await show(region))["flavors"] == before, "they are kept"
    region.clock.advance(11)
    async with asyncio.timeout(30):
        while (await show(region))["flavors"] == before:
            await asyncio.sleep(0)


async def test_flavors_that_are_too_many_are_not_counted(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "FLAVORS_MAX", 1)
    shown = await show(region)
    assert ([one["name"] for one in shown["flavors"]], shown["flavors_total"]) == (["huge"], 4)


async def test_last_changes_are_news_and_cut(region: RegionWorld) -> None:
    await show(region)
    await region.put(CellStatus(id="cell-1", heard_at_s=5))
    await region.host_status(1, disabled=True, reason="fan")
    shown = await show(region)
    newest = shown["last_changes"][0]
    assert newest["changes"][0]["after"]["reason"] == "fan"
    assert newest["action"] == f"PUT /berth/v1/hosts/{uuid_of(1)}"
    assert len(shown["last_changes"]) <= 20
    kinds = {change["kind"] for one in shown["last_changes"] for change in one["changes"]}
    assert not kinds & {"internal", "cell", "provider_version"}


async def test_what_the_doctor_finds_is_wrong(region: RegionWorld) -> None:
    id = await region.active("db")
    assert (await region.ask("DELETE", f"/allocations/{id}")).status == 204
    await show(region)
    shown = await show(region)
    [found] = [one for one in shown["wrong"] if one["kind"] == "doctor"]
    assert (found["object"], "berth doctor repairs it" in found["what_to_do"]) == (id, True)
    assert shown["doctor_looked_at"] is not None


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("?state=asleep", 400, "one of done, failed, running"),
        ("?server=nobody", 404, "nobody"),
        ("?host=nowhere", 404, "No host has the name or uuid nowhere."),
        ("?limit=0", 400, "limit"),
    ],
)
async def test_operations_that_cannot_be_meant_are_refused(
    region: RegionWorld, query: str, status: int, words: str
) -> None:
    answer = await region.ask("GET", f"/berth/v1/operations{query}")
    assert answer.status == status
    assert words in answer.error["detail"]


async def test_operations_say_when_there_are_more(region: RegionWorld) -> None:
    for name in ("a", "b"):
        await region.create(name)
    shown = (await region.get("/berth/v1/operations?limit=1")).json
    assert (len(shown["operations"]), shown["truncated"]) == (1, True)
    shown = (await region.get("/berth/v1/operations")).json
    assert [one["state"] for one in shown["operations"]] == ["running", "running"]
    assert not shown["truncated"]


async def test_a_record_from_before_states_were_recorded_is_read_as_what_it_is(region: RegionWorld) -> None:
    old = Action(
        id=uuid_of(61),
        server=uuid_of(60),
        name="rebuild",
        request_id="req-5",
        project="p",
        user="u",
        started_at_s=1,
        updated_at_s=1,
        message="Error: boom",
    )
    await region.put(old)
    [shown] = (await region.get("/berth/v1/operations")).json["operations"]
    assert (shown["state"], shown["fault"], shown["server_name"]) == ("failed", "boom", None)

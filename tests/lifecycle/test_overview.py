"""Nights on call, as /berth/v1 shows them: a cell that cannot be reached, a conductor that is gone, a host
that dies, a build that hangs. And nights in which nothing happens: then next to nothing is written."""

import asyncio
from typing import Any

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.api.kernel.times import show_time
from berth.cell.conductor import Deadlines
from berth.model.saga_runs import Agent
from berth.sim.cloud import SimCloud
from tests.lifecycle.stories import beginning, done, new_server

HEADERS = {"x-auth-token": "admin"}


async def ask(cloud: SimCloud, path: str) -> Any:
    answer = await cloud.client(HEADERS).ask("GET", f"/berth/v1{path}")
    assert answer.status == 200, answer
    return answer.body


async def cells(cloud: SimCloud) -> dict[str, Any]:
    return {cell["name"]: cell for cell in (await ask(cloud, "/cells"))["cells"]}


async def wrong(cloud: SimCloud) -> dict[str, Any]:
    """What is wrong by the overview, the first of each kind."""
    shown = (await ask(cloud, "/overview"))["overview"]["wrong"]
    return {one["kind"]: one for one in reversed(shown)}


async def test_a_cell_is_well_then_out_of_reach_then_without_its_conductor() -> None:
    async with SimCloud(seed=7, hosts=4, cells=2).running() as cloud:
        await asyncio.sleep(120)
        assert [cell["state"] for cell in (await cells(cloud)).values()] == ["well", "well"]
        assert await wrong(cloud) == {}
        first = (await cells(cloud))["cell1"]
        assert (first["hosts"], first["waiting"]) == ({"up": 2, "down": 0, "disabled": 0}, 0)
        assert first["conductor_heard"] is not None

        cloud.cells["cell1"].database.is_away = True
        await asyncio.sleep(60)
        first, second = (await cells(cloud)).values()
        assert (first["state"], first["database_reachable"], second["state"]) == (
            "unreachable",
            False,
            "well",
        )
        assert "unavailable" in first["database_text"]
        found = await wrong(cloud)
        assert found["cell_unreachable"]["object"] == "cell1"
        assert "Orders wait" in found["cell_unreachable"]["what_to_do"]

        cloud.cells["cell1"].database.is_away = False
        cloud.cells["cell2"].kill()
        await asyncio.sleep(300)
        first, second = (await cells(cloud)).values()
        assert (first["state"], first["database_text"], second["state"]) == ("well", None, "silent")
        assert (await wrong(cloud))["conductor_silent"]["since"] == second["conductor_heard"]
        cloud.cells["cell2"].start()
        await asyncio.sleep(120)
        assert [cell["state"] for cell in (await cells(cloud)).values()] == ["well", "well"]


async def test_an_idle_region_writes_once_a_minute_whatever_its_cells_and_hosts_do() -> None:
    async with SimCloud(seed=7, hosts=6, cells=3).running() as cloud:
        await asyncio.sleep(120)
        before = await cloud.read(lambda view: view.index)
        await asyncio.sleep(1200)
        written = await cloud.read(lambda view: view.index) - before
        assert 10 <= written <= 24, "for three cells and six hosts that poll all the time"


async def test_a_host_that_dies_is_shown_with_its_last_heartbeat() -> None:
    async with SimCloud(seed=7, hosts=2).running() as cloud:
        await asyncio.sleep(120)
        [name, other] = sorted(cloud.hosts)
        up = (await ask(cloud, f"/hosts/{name}"))["host"]
        assert (up["state"], up["last_heartbeat"] is None) == ("up", False)
        cloud.hosts[name].kill()
        await asyncio.sleep(4 * cloud.heartbeat_timeout_s)
        down = (await ask(cloud, f"/hosts/{name}"))["host"]
        assert down["state"] == "down"
        reader = cloud.readers["cell1"]
        agent = await reader.read(lambda view: view.records.get(Agent, down["uuid"]))
        assert agent is not None
        silent_s = agent.changed_at_s - agent.heard_at_s
        assert cloud.heartbeat_timeout_s <= silent_s <= 1.5 * cloud.heartbeat_timeout_s
        assert down["last_heartbeat"] == show_time(agent.heard_at_s)
        found = (await wrong(cloud))["host_down"]
        assert (found["object"], found["name"], found["since"]) == (
            down["uuid"],
            name,
            down["last_heartbeat"],
        )
        overview = (await ask(cloud, "/overview"))["overview"]
        assert overview["hosts"] == {"up": 1, "down": 1, "disabled": 0, "complaining": 0}
        await asyncio.sleep(120)
        later = (await ask(cloud, f"/hosts/{name}"))["host"]
        assert later["last_heartbeat"] == down["last_heartbeat"]
        assert (await ask(cloud, f"/hosts/{other}"))["host"]["last_heartbeat"] > up["last_heartbeat"]


async def test_a_build_that_hangs_is_seen_at_its_step_then_overdue_then_failed() -> None:
    slow = SimBehaviour(rules=(Rule(outcome="hang", verb="build"),))
    deadlines = Deadlines(ordinary=60, build=300, live_migrate=3600)
    async with SimCloud(seed=7, hosts=2, behaviour=slow, deadlines=deadlines).running() as cloud:
        server = new_server(cloud, name="stuck")
        assert await cloud.begin(beginning(cloud, "create", server)) is None
        await asyncio.sleep(60)
        [operation] = (await ask(cloud, "/operations"))["operations"]
        assert (operation["server"], operation["server_name"]) == (server.id, "stuck")
        assert (operation["operation"], operation["state"], operation["step"]) == (
            "create",
            "running",
            "build",
        )
        assert (operation["host"], operation["overdue"]) == (operation["destination"], False)
        assert operation["deadline"] > operation["step_began"]
        assert (await ask(cloud, f"/operations?host={operation['host']}"))["operations"] == [operation]

        # Without its conductor nothing ends the step.
        cloud.cells["cell1"].kill()
        await asyncio.sleep(400)
        [late] = (await ask(cloud, "/operations?state=running"))["operations"]
        assert late["overdue"]
        found = (await wrong(cloud))["operation_overdue"]
        assert (found["object"], found["name"]) == (server.id, "stuck")
        assert operation["request_id"] in found["text"]

        cloud.cells["cell1"].start()
        await cloud.all_at_rest(patience_s=5000)
        [failed] = (await ask(cloud, "/operations"))["operations"]
        assert (failed["state"], failed["step"], failed["overdue"]) == ("failed", None, False)
        assert "no answer within 300 seconds" in failed["fault"]
        assert failed["attempt"] == 2
        assert {step["name"] for step in failed["steps"] if step["result"] == "Error"} >= {"build"}
        error = (await wrong(cloud))["server_in_error"]
        assert (error["object"], "no answer within 300 seconds" in error["text"]) == (server.id, True)


async def test_what_is_done_is_shown_where_it_is_asked_for() -> None:
    async with SimCloud(seed=7, hosts=2).running() as cloud:
        server = new_server(cloud, name="fine")
        await done(cloud, "create", server)
        assert (await ask(cloud, "/operations"))["operations"] == []
        for query in ("state=done", f"server={server.id}", "server=fine"):
            [operation] = (await ask(cloud, f"/operations?{query}"))["operations"]
            assert (operation["server"], operation["state"]) == (server.id, "done"), query
        overview = (await ask(cloud, "/overview"))["overview"]
        assert overview["servers"] == {"active": 1}
        assert overview["capacity"]["by_cell"]["cell1"] == overview["capacity"]["total"]

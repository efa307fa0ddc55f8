"""Four nights on call with the command line: cause, object and way out are in ``berth status``, and the
request is found in the log by its id."""

import asyncio
import io
from typing import Any

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.cell.conductor import Deadlines
from berth.cli import cells, hosts, log, op, ops, status, why
from berth.cli.output import Screen
from berth.cli.program import make_parser
from berth.cli.question import Question
from berth.cli.region import API_VERSIONS
from berth.sim.cloud import SimCloud
from tests.lifecycle.stories import done, new_server

HEADERS = {"x-auth-token": "admin", **API_VERSIONS}


async def berth(cloud: SimCloud, question: Question, words: str) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    stream = io.StringIO()
    arguments = make_parser().parse_args(words.split())
    clock = cloud.outside.clock
    return await question.answer(arguments, cloud.client(HEADERS), Screen(stream), clock), stream.getvalue()


async def look(cloud: SimCloud) -> str:
    """What ``berth status`` says when something is wrong."""
    exit_status, text = await berth(cloud, status.QUESTION, "status")
    assert exit_status == 1
    assert len(text.splitlines()) <= 18
    return text


async def test_a_build_hangs() -> None:
    slow = SimBehaviour(rules=(Rule(outcome="hang", verb="build"),))
    deadlines = Deadlines(ordinary=60, build=300, live_migrate=3600)
    async with SimCloud(seed=7, hosts=2, behaviour=slow, deadlines=deadlines).running() as cloud:
        await write_flavor(cloud)
        request_id = await create(cloud, "stuck")
        await asyncio.sleep(60)
        _, text = await berth(cloud, ops.QUESTION, "ops")
        assert "stuck   create     running  build" in text
        _, text = await berth(cloud, op.QUESTION, "op stuck")
        assert "build on host-" in text
        assert ", attempt 1, deadline in " in text

        # Nothing ends the step without its conductor.
        cloud.cells["cell1"].kill()
        await asyncio.sleep(600)
        text = await look(cloud)
        assert "operation overdue stuck" in text
        assert "create: the step build on host-" in text
        assert "Check the conductor of the cell and the agent of the host" in text
        assert "conductor silent cell1" in text
        assert (await berth(cloud, ops.QUESTION, "ops"))[0] == 1

        cloud.cells["cell1"].start()
        await cloud.all_at_rest(patience_s=5000)
        assert "server in error stuck" in await look(cloud)
        _, text = await berth(cloud, log.QUESTION, f"log --request {request_id}")
        assert "server stuck created" in text
        _, text = await berth(cloud, log.QUESTION, "log stuck --kind server")
        assert "state building -> error" in text


async def test_a_host_dies() -> None:
    async with SimCloud(seed=7, hosts=2).running() as cloud:
        await asyncio.sleep(120)
        exit_status, text = await berth(cloud, status.QUESTION, "status")
        assert (exit_status, text.splitlines()[0]) == (0, "all is well")
        server = new_server(cloud, name="web")
        await done(cloud, "create", server)
        name = await host_of(cloud, server.id)
        cloud.hosts[name].kill()
        await asyncio.sleep(4 * cloud.heartbeat_timeout_s)
        text = await look(cloud)
        assert f"host down {name}, since " in text
        assert "1 server is there" in text
        assert "If it does not come back, evacuate its servers." in text
        _, text = await berth(cloud, hosts.QUESTION, "hosts --state down")
        assert text.splitlines()[1].split()[:2] == [name, "down"]
        _, text = await berth(cloud, log.QUESTION, f"log {name} --limit 5")
        assert "down" in text


async def test_a_database_goes_away() -> None:
    async with SimCloud(seed=7, hosts=4, cells=2).running() as cloud:
        await asyncio.sleep(120)
        assert (await berth(cloud, cells.QUESTION, "cells"))[0] == 0
        cloud.cells["cell1"].database.is_away = True
        await asyncio.sleep(60)
        text = await look(cloud)
        assert "cell unreachable cell1" in text
        assert "Check the database of the cell" in text
        exit_status, text = await berth(cloud, cells.QUESTION, "cells")
        assert exit_status == 1
        assert "cell1  unreachable" in text
        cloud.cells["cell1"].database.is_away = False
        await asyncio.sleep(300)
        assert (await berth(cloud, cells.QUESTION, "cells"))[0] == 0


async def test_a_group_is_full() -> None:
    async with SimCloud(seed=7, hosts=2).running() as cloud:
        client = cloud.client(HEADERS)
        await write_flavor(cloud)
        body: dict[str, Any] = {"server_group": {"name": "apart", "policy": "anti-affinity"}}
        group = (await client.fetch("POST", "/compute/v2.1/os-server-groups", body))["server_group"]["id"]
        for number in (1, 2, 3):
            request_id = await create(cloud, f"db-{number}", group)
        await cloud.all_at_rest()
        text = await look(cloud)
        assert "server in error db-3" in text
        assert "anti-affinity" in text
        assert "Ask why it would not fit now" in text
        exit_status, text = await berth(cloud, why.EXPLANATION, "why --flavor small --group apart")
        assert exit_status == 1
        assert "the anti-affinity of the group apart" in text
        exit_status, text = await berth(cloud, why.EXPLANATION, "why db-3")
        assert exit_status == 1
        assert "the anti-affinity of the group apart" in text
        _, text = await berth(cloud, log.QUESTION, f"log --request {request_id}")
        assert "db-3" in text


async def write_flavor(cloud: SimCloud) -> None:
    flavor = {"id": "1", "name": "small", "vcpus": 1, "ram": 512, "disk": 1}
    await cloud.client(HEADERS).fetch("POST", "/compute/v2.1/flavors", {"flavor": flavor})


async def create(cloud: SimCloud, name: str, group: str | None = None) -> str:
    """The id of the request that creates a server."""
    body: dict[str, Any] = {
        "server": {"name": name, "flavorRef": "1", "imageRef": "", "networks": "none"},
        "OS-SCH-HNT:scheduler_hints": {} if group is None else {"group": group},
    }
    answer = await cloud.client(HEADERS).ask("POST", "/compute/v2.1/servers", body)
    assert answer.status == 202, answer
    return answer.headers["x-openstack-request-id"]


async def host_of(cloud: SimCloud, id: str) -> str:
    client = cloud.client(HEADERS)
    server = (await client.fetch("GET", f"/compute/v2.1/servers/{id}"))["server"]
    return str(server["OS-EXT-SRV-ATTR:host"])

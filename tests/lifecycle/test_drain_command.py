"""``berth drain``: the plan, the question, a line for every change, and servers that cannot leave."""

import asyncio
import io
import json

import pytest

from berth.agent.drivers.behaviour import SimBehaviour
from berth.cli import drain, main
from berth.cli.command import CommandError
from berth.cli.output import Screen
from berth.cli.program import make_parser
from berth.cli.region import API_VERSIONS
from berth.sim.cloud import SimCloud
from tests.lifecycle.stories import done, new_server

HEADERS = {"x-auth-token": "admin", **API_VERSIONS}
QUICK = SimBehaviour(build_seconds=0, live_migrate_seconds=2, other_seconds=0)


async def berth_drain(cloud: SimCloud, words: str) -> tuple[int, str]:
    stream = io.StringIO()
    arguments = make_parser().parse_args(["drain", *words.split()])
    clock = cloud.outside.clock
    return await drain.act(arguments, cloud.client(HEADERS), Screen(stream), clock), stream.getvalue()


async def fill(cloud: SimCloud, *names: str) -> str:
    """Servers on one host: its name. The other hosts are disabled meanwhile."""
    client = cloud.client(HEADERS)
    host, *others = sorted(cloud.hosts)
    for disabled in (True, False):
        for other in others:
            await client.fetch("PATCH", f"/berth/v1/hosts/{other}", {"host": {"disabled": disabled}})
        if disabled:
            for name in names:
                await done(cloud, "create", new_server(cloud, name=name))
    return host


async def test_a_host_is_drained_after_its_plan_was_confirmed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with SimCloud(seed=5, hosts=3, behaviour=QUICK).running() as cloud:
        host = await fill(cloud, "web", "db")
        status, text = await berth_drain(cloud, f"{host} --dry-run")
        assert status == 0
        assert f"{host}  planned: 0 servers moved, 2 left" in text
        assert "planned  live  host-" in text

        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        status, text = await berth_drain(cloud, host)
        assert (status, text.splitlines()[-1]) == (1, "nothing has been changed")
        assert capsys.readouterr().out == f"\ndrain {host}? [y/N] "

        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        status, text = await berth_drain(cloud, f"{host} --reason fans --watch")
        assert status == 0
        assert text.splitlines()[-1] == f"{host}  done: 2 servers moved, 0 left"
        said = capsys.readouterr().out
        assert "draining: 1 server moved, 1 left" in said
        assert said.endswith("done: 2 servers moved, 0 left\n")

        status, text = await berth_drain(cloud, f"{host} --show --json")
        assert json.loads(text)["drain"]["state"] == "done"
        assert (await berth_drain(cloud, f"{host} --stop"))[0] == 0
        with pytest.raises(CommandError, match="answered 404"):
            await berth_drain(cloud, f"{host} --show")


async def test_a_server_that_is_locked_stays_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    async with SimCloud(seed=5, hosts=3, behaviour=QUICK).running() as cloud:
        host = await fill(cloud, "web", "db")
        client = cloud.client(HEADERS)
        [locked] = (await client.fetch("GET", "/compute/v2.1/servers?name=db&all_tenants=1"))["servers"]
        lock = {"lock": {"locked_reason": "month end"}}
        await client.fetch("POST", f"/compute/v2.1/servers/{locked['id']}/action", lock)
        status, text = await berth_drain(cloud, f"{host} --yes --watch")
        assert status == 1
        assert f"{host}  draining: 1 server moved, 1 left; 1 blocked" in text
        [row] = [line for line in text.splitlines() if line.startswith("db")]
        assert "blocked" in row
        assert "month end" in row
        with pytest.raises(CommandError, match="answered 404: No host has the name or uuid nowhere"):
            await berth_drain(cloud, "nowhere --dry-run")


async def test_servers_without_a_place_are_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The plan finds none for any of them: that may change while somebody watches."""
    async with SimCloud(seed=5, hosts=2, behaviour=QUICK).running() as cloud:
        host = await fill(cloud, "web")
        [other] = set(cloud.hosts) - {host}
        client = cloud.client(HEADERS)
        await client.fetch("PATCH", f"/berth/v1/hosts/{other}", {"host": {"disabled": True}})
        status, text = await berth_drain(cloud, f"{host} --dry-run")
        assert (status, "1 blocked" in text) == (1, True)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(berth_drain(cloud, f"{host} --yes --watch"))
            await asyncio.sleep(30)
            await client.fetch("PATCH", f"/berth/v1/hosts/{other}", {"host": {"disabled": False}})
        status, text = watching.result()
        assert (status, text) == (0, f"{host}  done: 1 server moved, 0 left\n")
        assert "blocked" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("h --json", "--json asks no questions: give --yes too, or --dry-run"),
        ("h --show --yes", "--yes is for a drain that begins: leave it out"),
        ("h --stop --watch", "--watch needs a drain: leave out --dry-run and --stop"),
    ],
)
def test_what_does_not_go_together(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", *words.split()]) == 2
    assert capsys.readouterr().err == f"berth: {message}\n"

"""What commands print of a small region, for people and as JSON: tests/golden/cli. After a change that is
meant:

    UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/cli/test_golden.py && git diff tests/golden

The region's clock stands still and its ids come from a seed, so it is the same region every time.
"""

import io
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from berth.cli import cells, host, hosts, log, op, ops, pools, servers, status, top, who, why
from berth.cli.command import CommandError
from berth.cli.output import Screen
from berth.cli.program import make_parser
from berth.cli.question import Question
from berth.cli.region import API_VERSIONS
from berth.client import connect_directly
from berth.model.servers import CellStatus, Host
from tests.worlds import RegionWorld, uuid_of

pytestmark = pytest.mark.fast

GOLDEN = Path(__file__).parents[2] / "golden" / "cli"
QUESTIONS: dict[str, tuple[Question, str, int]] = {
    "status": (status.QUESTION, "status", 1),
    "status-all": (status.QUESTION, "status --all", 1),
    "hosts": (hosts.QUESTION, "hosts", 0),
    "hosts-down": (hosts.QUESTION, "hosts host-* --state down --cell cell-1", 0),
    "hosts-none": (hosts.QUESTION, "hosts nowhere", 0),
    "host": (host.QUESTION, "host host-1", 0),
    "host-disable": (host.QUESTION, "host host-2 disable --reason=disks", 0),
    "servers": (servers.QUESTION, "servers", 0),
    "servers-error": (servers.QUESTION, "servers --status error", 0),
    "ops": (ops.QUESTION, "ops", 0),
    "ops-failed": (ops.QUESTION, "ops --state failed", 0),
    "cells": (cells.QUESTION, "cells", 0),
    "op": (op.QUESTION, "op db", 1),
    "top": (top.QUESTION, "top --rows 2 --class MEMORY_MB", 0),
    "who-host": (who.QUESTION, "who host-1", 0),
    "who-provider": (who.QUESTION, f"who {uuid_of(9)}", 0),
    "who-consumer": (who.QUESTION, f"who {uuid_of(800)}", 0),
    "why": (why.EXPLANATION, "why --flavor large --group g --count 3 --host host-2", 1),
    "why-server": (why.EXPLANATION, "why db --host host-4", 0),
    "why-fits": (why.EXPLANATION, "why --resource VCPU=1", 0),
    "fit": (why.CAPACITY, "fit --flavor small", 0),
    "fit-none": (why.CAPACITY, "fit --resource VCPU=1000", 1),
    "log": (log.QUESTION, "log --limit 5", 0),
    "log-host": (log.QUESTION, "log host-3 --kind host", 0),
    "log-none": (log.QUESTION, "log nowhere", 0),
    "pools": (pools.QUESTION, "pools", 0),
}


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    """Four hosts, one of them down and one disabled; a server in each of the usual states; a pool."""
    names = ("cell-1=sqlite:///cell-1.db", "cell-2=sqlite:///cell-2.db")
    async with RegionWorld(tmp_path, cells=names).running() as region:
        await region.fleet(4, cells=2)
        await region.host(9, {"VGPU": 4}, parent=1)
        await region.group()
        claim = {
            "allocations": {uuid_of(9): {"resources": {"VGPU": 1}}},
            "project_id": "render",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "WORKLOAD",
        }
        await region.change("PUT", f"/allocations/{uuid_of(800)}", claim)
        pool = {"name": "nas", "inventories": {"DISK_GB": {"total": 5000}}, "traits": []}
        aggregates = {"aggregates": [uuid_of(500)]}
        await region.change("PUT", f"/berth/v1/pools/{uuid_of(70)}", {"pool": pool | aggregates})
        await region.host_status(4, disabled=True, reason="new fans")
        await region.active("web")
        await region.finish(await region.create("db"), error="no space left on device")
        await region.create("cache")
        await region.host_status(3, down=True, build_failures=2)
        region.clock.advance(120)
        yield region


async def ask(
    region: RegionWorld, question: Question, words: list[str], width: int | None
) -> tuple[int, str]:
    stream = io.StringIO()
    client = connect_directly(region.application, {"x-auth-token": "admin", **API_VERSIONS})
    arguments = make_parser().parse_args(words)
    ended = await question.answer(arguments, client, Screen(stream, width=width), region.clock)
    return ended, stream.getvalue()


def compare(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", QUESTIONS)
async def test_what_is_printed(region: RegionWorld, name: str) -> None:
    question, words, expected = QUESTIONS[name]
    ended, text = await ask(region, question, words.split(), None)
    assert ended == expected
    compare(f"{name}.txt", text)
    ended, text = await ask(region, question, [*words.split(), "--json"], None)
    assert ended == expected
    compare(f"{name}.json", text)
    msgspec.json.decode(text)
    _, text = await ask(region, question, words.split(), 80)
    assert all(len(line) <= 80 for line in text.splitlines()), "it fits a terminal"


async def test_a_consumer_and_what_it_holds(region: RegionWorld) -> None:
    """Its id is not known before."""
    id = await region.active("mail")
    _, text = await ask(region, who.QUESTION, ["who", id], None)
    assert text.startswith(f"mail  {id}  INSTANCE of project ")
    assert "VCPU 2, MEMORY_MB 2 GiB" in text


async def test_a_provider_is_held_by_servers_that_have_names(region: RegionWorld) -> None:
    """Also one whose name could not be part of a path."""
    id = await region.active("mail")
    host = (await region.server(id))["OS-EXT-SRV-ATTR:host"]
    device = uuid_of(10 + int(host[-1]))
    await region.host(10 + int(host[-1]), {"VGPU": 4}, parent=int(host[-1]))
    await region.change("PUT", f"/resource_providers/{device}", {"name": "../gpu"})
    held = (await region.get(f"/allocations/{id}")).json
    held["allocations"] = {
        **{provider: {"resources": one["resources"]} for provider, one in held["allocations"].items()},
        device: {"resources": {"VGPU": 1}},
    }
    await region.change("PUT", f"/allocations/{id}", held)
    _, text = await ask(region, who.QUESTION, ["who", "../gpu"], None)
    assert text.splitlines()[-1].split()[:2] == ["mail", "INSTANCE"]


@pytest.mark.parametrize(
    ("question", "words", "said"),
    [
        (who.QUESTION, "who host-1/drain", "knows no host, provider or consumer"),
        (host.QUESTION, "host nowhere?x", "answered 404"),
        (servers.QUESTION, "servers --host nowhere", "answered 404: .*nowhere"),
        (ops.QUESTION, "ops --host nowhere", "answered 404: .*nowhere"),
        (ops.QUESTION, "ops --server nothing", "answered 404: .*nothing"),
        (hosts.QUESTION, "hosts --cell cell-9", "answered 400: cell: no host has the cell 'cell-9'"),
        (hosts.QUESTION, "hosts --driver magic", "answered 400: driver: no host has the driver 'magic'"),
        (hosts.QUESTION, "hosts --domain rack:r9", "answered 400: domain: there is no domain 'rack:r9'"),
        (log.QUESTION, "log --kind nonsense", "answered 400: kind: there is no kind of change 'nonsense'"),
        (why.EXPLANATION, "why --flavor nonsense", "nonsense"),
        (why.EXPLANATION, "why --flavor small --group nonsense", "nonsense"),
    ],
)
async def test_what_is_not_there(region: RegionWorld, question: Question, words: str, said: str) -> None:
    """Nothing that is asked for is taken for an empty answer."""
    # Without any agent no driver is known.
    await region.put(Host(id=uuid_of(1), number=1, name="host-1", cell="cell-1"))
    with pytest.raises(CommandError, match=said):
        await ask(region, question, words.split(), None)


async def test_servers_of_a_host_that_is_named_by_its_uuid(region: RegionWorld) -> None:
    id = await region.active("mail", host="host-2")
    _, text = await ask(region, servers.QUESTION, ["servers", "--host", uuid_of(2), "--json"], None)
    assert [one["id"] for one in msgspec.json.decode(text)["servers"]] == [id]


async def test_what_is_no_news_does_not_hide_the_news(region: RegionWorld) -> None:
    """A cell that is heard of is written down once a minute."""
    for minute in range(1, 6):
        await region.put(CellStatus(id="cell-1", heard_at_s=60 * minute))
    _, before = await ask(region, log.QUESTION, ["log", "--limit", "2"], None)
    assert "server cache created" in before
    assert "down, build_failures 2" in before
    assert "conductor_heard" not in before
    _, asked = await ask(region, log.QUESTION, ["log", "--limit", "2", "--kind", "cell"], None)
    assert asked.count("conductor_heard") == 2
    _, text = await ask(region, log.QUESTION, ["log", "--limit", "2", "--json"], None)
    assert [one["changes"][0]["kind"] for one in msgspec.json.decode(text)["events"]] == ["cell", "cell"]


async def test_a_change_is_not_repeated(region: RegionWorld) -> None:
    with pytest.raises(CommandError, match="--watch would disable the host every time"):
        await ask(region, host.QUESTION, ["host", "host-1", "disable", "--watch"], None)


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(QUESTIONS)

"""``berth up``: a region, cells and a simulated fleet, for a first look, and for trying out what happens when
things break.

    folder -> region -> cells -> agents -> hosts are up -> first flavors and image -> told to stop -> all stop

Every part is an ordinary process of one of the commands ``region``, ``cell`` and ``agent``, which know
nothing of this one. It ends with 0 when it was told to stop, and with 1 when a part cannot be kept alive.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from berth.agent.fleet_file import FleetError
from berth.cli.agent import AgentRefused
from berth.cli.first_things import FLAVORS, IMAGE, Missing, write_first_things
from berth.cli.folder import Folder, FolderError
from berth.cli.parts import Fallen, Parts
from berth.cli.readiness import NotReady, hosts_up, ready
from berth.cli.up_plan import Plan, agents, cell, plan_of, refuse_taken, region
from berth.client import Client, Unreachable
from berth.serving import CannotListen

_TRY: Final = """
Berth is at {url}: {hosts} simulated hosts in {cells} cells. From another terminal:

  export OS_CLIENT_CONFIG_FILE={clouds} OS_CLOUD=berth OS_PLACEMENT_API_VERSION=1.39
  {bin}/openstack hypervisor list
  {bin}/openstack server create --flavor {flavor} --image {image} --wait first
  {bin}/openstack server migrate --wait first && {bin}/openstack server migrate confirm first
  {bin}/berth sim break {host} --data {data}

The README goes on from there. Logs are in {log}. Ctrl-C stops it.
"""


def run(arguments: argparse.Namespace) -> int:
    """Run all of it until told to stop; the exit status."""
    try:
        refuse_taken(arguments.listen)
        folder = Folder(arguments.data)
        with folder.lock():
            return asyncio.run(_live(plan_of(arguments, folder)))
    except (AgentRefused, CannotListen, FleetError, FolderError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2


async def _live(plan: Plan) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    parts = Parts(_say)
    try:
        if not await _before(stop, parts, _bring_up(plan, parts)):
            parts.is_up = True
            _say(_words(plan))
            await _before(stop, parts, asyncio.Event().wait())
        return 0
    except (Fallen, Missing, NotReady, Unreachable) as error:
        _say(f"berth: {error}", sys.stderr)
        return 1
    finally:
        _say("stopping ...")
        await parts.stop()


async def _before(stop: asyncio.Event, parts: Parts, work: Coroutine[Any, Any, object]) -> bool:
    """Do the work, unless told to stop before it is done: whether that is so. Fallen if a part falls."""
    stopping, falling, working = (asyncio.create_task(one) for one in (stop.wait(), parts.fall(), work))
    tasks = {stopping, falling, working}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in (falling, working) if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
    return stopping.done() and not stopping.cancelled() and not ended


async def _bring_up(plan: Plan, parts: Parts) -> None:
    cells = range(len(plan.running.cells))
    client = Client(plan.running.url, {"x-auth-token": plan.secrets.admin})
    try:
        parts.start(region(plan))
        await ready(client, "the region", _say)
        plan.folder.note(plan.running, plan.secrets)
        parts.start(*(cell(plan, number) for number in cells))
        for name, listen in zip(plan.running.cells, plan.cell_listens, strict=True):
            await ready(Client(f"http://{listen}"), f"the cell {name}", _say)
        parts.start(*(agents(plan, number) for number in cells))
        await hosts_up(client, len(plan.running.hosts), _say)
        await write_first_things(client)
    finally:
        await client.close()


def _say(words: str, stream: Any = None) -> None:
    print(words, file=stream or sys.stdout, flush=True)


def _words(plan: Plan) -> str:
    return _TRY.format(
        url=plan.running.url,
        hosts=len(plan.running.hosts),
        cells=len(plan.running.cells),
        clouds=_short(plan.folder.clouds),
        data=_short(plan.folder.path),
        log=_short(plan.folder.path / "log"),
        bin=_short(Path(sys.executable).parent),
        flavor=FLAVORS[1].name,
        image=IMAGE,
        host=plan.running.hosts[0],
    )


def _short(path: Path) -> Path:
    """A path as short as it can be said."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

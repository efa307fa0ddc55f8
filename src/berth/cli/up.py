"""``berth up``: a region, cells and a simulated fleet, for a first look, and to try out what happens when
things break.

    folder -> region, pools -> cells -> agents -> hosts are up -> flavors, image -> told to stop -> all stop

Every wait has a deadline. A server that does not become ready is a failure; a host that does not come up is
not: it may have been broken on purpose. Flavors and an image that are there already are kept; pools become
what the fleet file says.

Every part is an ordinary process of one of the commands ``region``, ``cell`` and ``agent``, which know
nothing of this one. The status is 0 when it was stopped, and 1 when a process cannot be kept running.
"""

import argparse
import asyncio
import shlex
import shutil
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from berth.agent.fleet import FleetError, SimPool, read_fleet, read_pools, simulated_fleet
from berth.cli.agent import hosts_of_cell
from berth.cli.command import (
    CELLS_MAX,
    DAY_S,
    CommandError,
    add_fleet,
    add_heartbeat_timeout,
    add_logging,
    add_seconds,
    add_trace_endpoint,
    add_worker_hung_seconds,
    describe,
    listen_address,
    refuse_untraceable,
    whole,
)
from berth.cli.folder import Folder, Running, Secrets
from berth.cli.pool import apply_pools
from berth.cli.supervisor import ChildProcess, ProcessFailed, Supervisor
from berth.client import Answer, Client, ClientError, Unreachable
from berth.model.counts import count
from berth.runtime.secrets import keep_files_private
from berth.runtime.settings import BY_NAME
from berth.serving import CannotListen, free_address

_TRY: Final = """
Berth is at {url}: {hosts} in {cells}. In a browser:

  {url}/console/    user admin; the password is in {data}/secrets.json, under "admin"

From another terminal: how everything is, what changed last, who holds a host, and why something does not fit:

  cd {folder}
  {bin}/berth status --data {data}
  {bin}/berth hosts --data {data}
  {bin}/berth log --data {data}
  {bin}/berth who {host} --data {data}
  {bin}/berth why --flavor {large} --count 1000 --data {data}
  {bin}/berth doctor --data {data}
{openstack}
Break a host, and see what happens:

  {bin}/berth sim break {host} --data {data}

Logs are in {log}. Ctrl-C stops it.
"""

_TRY_OPENSTACK: Final = """
With OpenStack's own client:

  export OS_CLIENT_CONFIG_FILE={clouds} OS_CLOUD=berth OS_PLACEMENT_API_VERSION=1.39
  {program} hypervisor list
  {program} server create --flavor {flavor} --image {image} --wait first
  {program} server migrate --wait first && {program} server migrate confirm first
"""

_PORTS_TRIED: Final = 1000
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
_LOOK_EVERY_S: Final = 0.1
_SAY_EVERY_S: Final = 1.0
_READY_WITHIN_S: Final = 60.0
_NO_NEWS_S: Final = 15.0

_COMPUTE: Final = "/compute/v2.1"
_IMAGES: Final = "/image/v2/images"

_QUOTAS: Final = {
    "instances": 10_000,
    "cores": 40_000,
    "ram": 100_000_000,
    "server_groups": 1_000,
    "server_group_members": 1_000,
    "clusters": 1_000,
}
"""For trying things out: the default quotas are too small for that."""


class DefaultFlavor(msgspec.Struct, frozen=True):
    id: str
    name: str
    vcpus: int
    ram: int
    disk: int


FLAVORS: Final = (
    DefaultFlavor("1", "m1.tiny", 1, 512, 1),
    DefaultFlavor("2", "m1.small", 1, 2048, 20),
    DefaultFlavor("3", "m1.medium", 2, 4096, 40),
    DefaultFlavor("4", "m1.large", 4, 8192, 80),
)
IMAGE: Final = "cirros"
_CONTENT: Final = b"simulated".ljust(512, b"\0")
"""What it has: one sector. Simulated hosts do not look at it."""
SERVERS: Final = (("web", "m1.small"), ("db", "m1.large"), ("batch", "m1.medium"))
"""Names and flavors of the servers to begin with."""


class UpPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is run: hosts, cells, ports and secrets, decided before anything is started."""

    arguments: argparse.Namespace
    folder: Folder
    secrets: Secrets
    running: Running
    cell_listens: tuple[str, ...]
    pools: tuple[SimPool, ...] = ()


class BootstrapError(Exception):
    """The region cannot be brought up. The message is for the operator."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "All it makes is in the folder --data; clouds.yaml there is for the openstack command.")
    default = BY_NAME["listen"].default
    command.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=listen_address,
        default=default,
        help=f"the region's address [{default}]",
    )
    command.add_argument(
        "--data", metavar="DIR", type=Path, default=Path("data"), help="folder for everything it makes [data]"
    )
    add_fleet(command, hosts=20, build_s=1, live_migrate_s=10)
    command.add_argument(
        "--servers",
        metavar="N",
        type=whole(0, 1000),
        default=0,
        help="create this many small servers, if there are none yet [0 to 1000, default 0]",
    )
    command.add_argument(
        "--cells",
        metavar="N",
        type=whole(1, CELLS_MAX),
        default=2,
        help=f"number of cells [1 to {CELLS_MAX}, default 2]",
    )
    add_heartbeat_timeout(command, 5)
    add_seconds(
        command, "--build-timeout", 300, 0.1, DAY_S, "a build that takes longer is tried on another host"
    )
    add_worker_hung_seconds(command, "a process")
    add_logging(command, "warning")
    add_trace_endpoint(command)
    command.add_argument(
        "--json", action="store_true", help="print what runs as JSON, in one line, once it is up"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run region, cells and fleet until told to stop; the exit status."""
    keep_files_private()
    refuse_untraceable(arguments.trace_endpoint)
    try:
        _refuse_taken(arguments.listen)
        folder = Folder(arguments.data)
        with folder.lock():
            return asyncio.run(_supervise(make_plan(arguments, folder)))
    except (CannotListen, FleetError) as error:
        raise CommandError(str(error)) from error


async def _supervise(plan: UpPlan) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    supervisor = Supervisor(_say, plan.arguments.worker_hung_seconds)
    try:
        if not await _run_until_stopped(stop, supervisor, _bring_up(plan, supervisor)):
            supervisor.is_up = True
            if plan.arguments.json:
                print(msgspec.json.encode(_list_parts(plan)).decode(), flush=True)
            else:
                _say(write_help(plan), sys.stdout)
            await _run_until_stopped(stop, supervisor, asyncio.Event().wait())
        return 0
    except (BootstrapError, ProcessFailed, ClientError) as error:
        _say(f"berth: {error}")
        return 1
    finally:
        _say("stopping ...")
        await supervisor.stop()


async def _run_until_stopped(
    stop: asyncio.Event, supervisor: Supervisor, work: Coroutine[Any, Any, object]
) -> bool:
    """Do the work; whether it was stopped before it was done. ProcessFailed if a process fails."""
    stopping, failing, working = (
        asyncio.create_task(one) for one in (stop.wait(), supervisor.wait_for_failure(), work)
    )
    tasks = {stopping, failing, working}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in (failing, working) if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
    return stopping.done() and not stopping.cancelled() and not ended


async def _bring_up(plan: UpPlan, supervisor: Supervisor) -> None:
    cells = range(len(plan.running.cells))
    client = Client(plan.running.url, {"x-auth-token": plan.secrets.admin})
    try:
        supervisor.start(_make_region(plan))
        await _wait_until_ready(client, "the region")
        plan.folder.note(plan.running, plan.secrets)
        await apply_pools(client, plan.pools)
        supervisor.start(*(_make_cell(plan, number) for number in cells))
        for name, listen in zip(plan.running.cells, plan.cell_listens, strict=True):
            cell = Client(f"http://{listen}")
            try:
                await _wait_until_ready(cell, f"the cell {name}")
            finally:
                await cell.close()
        supervisor.start(*(_make_agents(plan, number) for number in cells))
        await _wait_for_hosts(client, len(plan.running.hosts))
        await write_defaults(client)
        await write_servers(client, plan.arguments.servers)
    finally:
        await client.close()


def _say(words: str, stream: Any = None) -> None:
    print(words, file=stream or sys.stderr, flush=True)


def write_help(plan: UpPlan) -> str:
    """What to try, with commands that are there."""
    clouds = _shorten(plan.folder.clouds)
    openstack = Path(sys.executable).with_name("openstack")
    program = str(_shorten(openstack)) if openstack.exists() else shutil.which("openstack")
    return _TRY.format(
        url=plan.running.url,
        folder=shlex.quote(str(Path.cwd())),
        hosts=count(len(plan.running.hosts), "simulated host"),
        cells=count(len(plan.running.cells), "cell"),
        data=_shorten(plan.folder.path),
        log=_shorten(plan.folder.path / "log"),
        bin=_shorten(Path(sys.executable).parent),
        host=plan.running.hosts[0],
        large=FLAVORS[-1].name,
        openstack=""
        if program is None
        else _TRY_OPENSTACK.format(clouds=clouds, program=program, flavor=FLAVORS[1].name, image=IMAGE),
    )


def _list_parts(plan: UpPlan) -> dict[str, Any]:
    """What runs, for programs."""
    return {
        **msgspec.to_builtins(plan.running),
        "data": str(plan.folder.path),
        "clouds_yaml": str(plan.folder.clouds),
        "log": str(plan.folder.path / "log"),
    }


def _shorten(path: Path) -> Path:
    """A path relative to the current folder, where it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


# -- waiting, and the first flavors and image ---------------------------------------------------


async def _wait_until_ready(client: Client, name: str) -> None:
    """Wait until a server answers that it is ready."""
    lines = _ProgressLines()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _READY_WITHIN_S
    while not await _is_ready(client):
        if loop.time() > end_s:
            raise BootstrapError(f"{name} was not ready within {_READY_WITHIN_S:g} s")
        lines.say(f"starting {name} ...")
        await asyncio.sleep(_LOOK_EVERY_S)


async def _is_ready(client: Client) -> bool:
    try:
        return (await client.ask("GET", "/readyz", timeout_s=5)).status == 200
    except Unreachable:
        return False


async def _wait_for_hosts(client: Client, wanted: int) -> None:
    """Wait until all hosts are up, or none has come up for a while."""
    lines = _ProgressLines()
    loop = asyncio.get_running_loop()
    most, since_s = -1, loop.time()
    while True:
        up = await _count_up(client)
        if up >= wanted:
            return
        if up > most:
            most, since_s = up, loop.time()
        elif loop.time() - since_s > _NO_NEWS_S:
            waited = f"none has come up for {_NO_NEWS_S:g} s"
            _say(f"{most} of {count(wanted, 'host')} are up, and {waited}: continuing")
            return
        lines.say(f"{up} of {count(wanted, 'host')} are up")
        await asyncio.sleep(_LOOK_EVERY_S)


async def _count_up(client: Client) -> int:
    """How many hosts are up."""
    answer = await client.ask("GET", "/compute/v2.1/os-services?binary=nova-compute")
    if answer.status >= 500:
        return 0
    if answer.status != 200:
        raise BootstrapError(f"the region does not list its hosts: {answer.status}: {answer.body}")
    return sum(service["state"] == "up" for service in answer.body["services"])


class _ProgressLines:
    """Prints a line every second, and nothing in the first."""

    def __init__(self) -> None:
        self._next_s = asyncio.get_running_loop().time() + _SAY_EVERY_S

    def say(self, words: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_s:
            _say(words)
            self._next_s = now_s + _SAY_EVERY_S


async def write_defaults(client: Client) -> None:
    """Write the flavors and the image that are missing."""
    found = _read_body(await client.ask("GET", f"{_COMPUTE}/flavors?is_public=None"))
    names = {flavor["name"] for flavor in found["flavors"]}
    for flavor in FLAVORS:
        if flavor.name not in names:
            _read_body(await client.ask("POST", f"{_COMPUTE}/flavors", {"flavor": flavor}))
    images = _read_body(await client.ask("GET", f"{_IMAGES}?name={IMAGE}"))["images"]
    if not any(image["status"] == "active" for image in images):
        await _write_image(client)


async def _write_image(client: Client) -> None:
    image = _read_body(
        await client.ask(
            "POST",
            _IMAGES,
            {"name": IMAGE, "disk_format": "raw", "container_format": "bare", "visibility": "public"},
        )
    )
    _read_body(await client.ask("PUT", f"{_IMAGES}/{image['id']}/file", _CONTENT))


async def write_servers(client: Client, wanted: int) -> None:
    """Have some servers built, so that there is something to look at; where there are any, nothing."""
    if wanted == 0 or _read_body(await client.ask("GET", f"{_COMPUTE}/servers?limit=1"))["servers"]:
        return
    listed = _read_body(await client.ask("GET", f"{_COMPUTE}/flavors?is_public=None"))["flavors"]
    flavors = {flavor["name"]: flavor["id"] for flavor in listed}
    [image, *_] = _read_body(await client.ask("GET", f"{_IMAGES}?name={IMAGE}&status=active"))["images"]
    for number, (name, flavor) in enumerate(SERVERS):
        share = wanted // len(SERVERS) + (number < wanted % len(SERVERS))
        if share > 0:
            server = {"name": name, "flavorRef": flavors[flavor], "imageRef": image["id"]}
            several = {"min_count": share, "max_count": share}
            _read_body(await client.ask("POST", f"{_COMPUTE}/servers", {"server": server | several}))


def _read_body(answer: Answer) -> Any:
    if answer.status >= 400:
        raise BootstrapError(f"what there is to begin with cannot be written: {answer.status}: {answer.body}")
    return answer.body


# -- what is run ---------------------------------------------------------------------------------


def make_plan(arguments: argparse.Namespace, folder: Folder) -> UpPlan:
    host, _, port = arguments.listen.rpartition(":")
    cells = tuple(f"cell{number}" for number in range(1, arguments.cells + 1))
    hosts = _name_hosts(arguments, cells)
    secrets = folder.prepare()
    folder.refuse_other_cells(cells)
    return UpPlan(
        arguments=arguments,
        folder=folder,
        secrets=secrets,
        running=Running(url=f"http://{_WILDCARDS.get(host, host)}:{port}", cells=cells, hosts=hosts),
        cell_listens=_free_listens(int(port) + 1, len(cells)),
        pools=() if arguments.fleet is None else tuple(read_pools(arguments.fleet)),
    )


def _refuse_taken(listen: str) -> None:
    """CannotListen if the region's address is in use."""
    host, _, port = listen.rpartition(":")
    try:
        free_address(host.strip("[]"), int(port))
    except CannotListen as error:
        raise CannotListen(f"cannot listen on {listen}: {error}") from error


def _name_hosts(arguments: argparse.Namespace, cells: tuple[str, ...]) -> tuple[str, ...]:
    """The names of all hosts, when each has been given a cell."""
    if arguments.fleet is not None:
        # Processes run in the folder.
        arguments.fleet = arguments.fleet.absolute()
        hosts = read_fleet(arguments.fleet)
    else:
        hosts = simulated_fleet(arguments.hosts)
    for name in cells:
        hosts_of_cell(hosts, cells, name)
    return tuple(host.name for host in hosts)


def _free_listens(port: int, count: int) -> tuple[str, ...]:
    """Free addresses for the agent APIs, on the next ports."""
    found: list[str] = []
    for candidate in range(port, min(port + _PORTS_TRIED, 65536)):
        try:
            free_address("127.0.0.1", candidate)
        except CannotListen:
            continue
        found.append(f"127.0.0.1:{candidate}")
        if len(found) == count:
            return tuple(found)
    raise CannotListen(f"only {len(found)} of {count} ports for cells are free above port {port - 1}")


def _make_region(plan: UpPlan) -> ChildProcess:
    cells = ",".join(f"{name}=sqlite:///{name}.db" for name in plan.running.cells)
    words = f"region --listen {plan.arguments.listen} --database sqlite:///region.db --cells {cells}"
    words += f" --worker-hung-seconds {plan.arguments.worker_hung_seconds}"
    quotas = {f"BERTH_QUOTA_{name.upper()}": str(limit) for name, limit in _QUOTAS.items()}
    return _make_child(plan, "region", f"{words} --auth tokens --tokens-file tokens.toml".split(), quotas)


def _make_cell(plan: UpPlan, number: int) -> ChildProcess:
    name = plan.running.cells[number]
    words = f"cell --name {name} --database sqlite:///{name}.db --placement {plan.running.url}"
    words += f" --listen {plan.cell_listens[number]} --heartbeat-timeout {plan.arguments.heartbeat_timeout}"
    words += f" --build-seconds {plan.arguments.build_timeout}"
    words += f" --worker-hung-seconds {plan.arguments.worker_hung_seconds}"
    tokens = {"BERTH_PLACEMENT_TOKEN": plan.secrets.conductor, "BERTH_AGENT_TOKEN": plan.secrets.agent}
    return _make_child(plan, name, words.split(), tokens)


def _make_agents(plan: UpPlan, number: int) -> ChildProcess:
    name, given = plan.running.cells[number], plan.arguments
    words = f"agent --conductor http://{plan.cell_listens[number]} --driver sim --data agents"
    words += f" --cell {name} --cells {','.join(plan.running.cells)}"
    words += f" --build-seconds {given.build_seconds} --live-migrate-seconds {given.live_migrate_seconds}"
    words += f" --seed {given.seed}" if given.seed is not None else ""
    fleet = ["--hosts", str(given.hosts)] if given.fleet is None else ["--fleet", str(given.fleet)]
    return _make_child(
        plan, f"{name}-agents", words.split() + fleet, {"BERTH_AGENT_TOKEN": plan.secrets.agent}
    )


def _make_child(plan: UpPlan, name: str, words: list[str], variables: dict[str, str]) -> ChildProcess:
    shared = ["--log-level", plan.arguments.log_level, "--log-format", plan.arguments.log_format]
    if plan.arguments.trace_endpoint is not None:
        shared += ["--trace-endpoint", plan.arguments.trace_endpoint]
    folder = plan.folder
    return ChildProcess(
        name=name, words=(*words, *shared), variables=variables, folder=folder.path, log=folder.log(name)
    )

"""What ``berth up`` runs, decided before anything is started: which hosts in which cells, on which ports, and
the command line of every part."""

import argparse
from typing import Final

import msgspec

from berth.agent.fleet import simulated_fleet
from berth.agent.fleet_file import read_fleet
from berth.cli.agent import spread
from berth.cli.folder import Folder, Running, Secrets
from berth.cli.parts import Part
from berth.serving import CannotListen, free_address

_PORTS_TRIED: Final = 1000
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


_QUOTAS: Final = {
    "instances": 10_000,
    "cores": 40_000,
    "ram": 100_000_000,
    "server_groups": 1_000,
    "server_group_members": 1_000,
    "clusters": 1_000,
}
"""For trying things out. What a region limits its projects to by default would be in the way soon."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, all of it decided."""

    arguments: argparse.Namespace
    folder: Folder
    secrets: Secrets
    running: Running
    cell_listens: tuple[str, ...]


def plan_of(arguments: argparse.Namespace, folder: Folder) -> Plan:
    host, _, port = arguments.listen.rpartition(":")
    cells = tuple(f"cell{number}" for number in range(1, arguments.cells + 1))
    hosts = _hosts(arguments, cells)
    secrets = folder.prepare()
    folder.refuse_other_cells(cells)
    return Plan(
        arguments=arguments,
        folder=folder,
        secrets=secrets,
        running=Running(url=f"http://{_WILDCARDS.get(host, host)}:{port}", cells=cells, hosts=hosts),
        cell_listens=_free_listens(int(port) + 1, len(cells)),
    )


def refuse_taken(listen: str) -> None:
    """CannotListen if the region's address cannot be had."""
    host, _, port = listen.rpartition(":")
    try:
        free_address(host.strip("[]"), int(port))
    except CannotListen as error:
        raise CannotListen(f"cannot listen on {listen}: {error}") from error


def _hosts(arguments: argparse.Namespace, cells: tuple[str, ...]) -> tuple[str, ...]:
    """The names of all hosts, each of which has its cell."""
    if arguments.fleet is not None:
        # Parts have the folder for their own.
        arguments.fleet = arguments.fleet.absolute()
        hosts = read_fleet(arguments.fleet)
    else:
        hosts = simulated_fleet(arguments.hosts)
    for name in cells:
        spread(hosts, cells, name)
    return tuple(host.name for host in hosts)


def _free_listens(port: int, count: int) -> tuple[str, ...]:
    """Addresses where agents can knock, on the ports that come next."""
    found: list[str] = []
    for candidate in range(port, min(port + _PORTS_TRIED, 65536)):
        try:
            free_address("127.0.0.1", candidate)
        except CannotListen:
            continue
        found.append(f"127.0.0.1:{candidate}")
        if len(found) == count:
            return tuple(found)
    raise CannotListen(f"only {len(found)} of {count} ports for cells are free behind port {port - 1}")


def region(plan: Plan) -> Part:
    cells = ",".join(f"{name}=sqlite:///{name}.db" for name in plan.running.cells)
    words = f"region --listen {plan.arguments.listen} --database sqlite:///region.db --cells {cells}"
    quotas = {f"BERTH_QUOTA_{name.upper()}": str(limit) for name, limit in _QUOTAS.items()}
    return _part(plan, "region", f"{words} --auth tokens --tokens-file tokens.toml".split(), quotas)


def cell(plan: Plan, number: int) -> Part:
    name = plan.running.cells[number]
    words = f"cell --name {name} --database sqlite:///{name}.db --placement {plan.running.url}"
    words += f" --listen {plan.cell_listens[number]} --silence-seconds {plan.arguments.silence_seconds}"
    tokens = {"BERTH_PLACEMENT_TOKEN": plan.secrets.conductor, "BERTH_AGENT_TOKEN": plan.secrets.agent}
    return _part(plan, name, words.split(), tokens)


def agents(plan: Plan, number: int) -> Part:
    name, given = plan.running.cells[number], plan.arguments
    words = f"agent --conductor http://{plan.cell_listens[number]} --driver sim --data agents"
    words += f" --cell {name} --cells {','.join(plan.running.cells)}"
    words += f" --build-seconds {given.build_seconds} --live-migrate-seconds {given.live_migrate_seconds}"
    words += f" --seed {given.seed}" if given.seed is not None else ""
    fleet = ["--hosts", str(given.hosts)] if given.fleet is None else ["--fleet", str(given.fleet)]
    return _part(plan, f"{name}-agents", words.split() + fleet, {"BERTH_AGENT_TOKEN": plan.secrets.agent})


def _part(plan: Plan, name: str, words: list[str], variables: dict[str, str]) -> Part:
    logging = ("--log-level", plan.arguments.log_level, "--log-format", plan.arguments.log_format)
    folder = plan.folder
    return Part(
        name=name, words=(*words, *logging), variables=variables, folder=folder.path, log=folder.log(name)
    )

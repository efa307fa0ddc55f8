"""``berth agent``: run the agents of hosts, many in one process, or change their credentials."""

import argparse
import asyncio
import functools
from collections.abc import Sequence
from pathlib import Path

from berth.agent.discovery import UNNAMED, Discovery, DiscoveryError, ProviderConfigError
from berth.agent.drivers.behaviour import SimBehaviour
from berth.agent.fleet import FleetError, SimHost, read_fleet, simulated_fleet
from berth.agent.machine import Machine
from berth.agent.metrics import AgentMetrics, MetricsApi
from berth.agent.process import AgentSettings, serve_agents
from berth.cli.command import (
    CELLS_MAX,
    CommandError,
    add_action,
    add_ca_file,
    add_fleet,
    add_logging,
    add_token_file,
    add_trace_endpoint,
    cell_name,
    describe,
    find_secret,
    listen_address,
    refuse_untraceable,
    url,
)
from berth.cli.discovery import add_discovery, find_given, read_discovery
from berth.runtime import tracing
from berth.runtime.secrets import keep_files_private
from berth.serving import Address, CannotListen, Heartbeat, beat_from_loop, free_address, listen


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "A host that is new to its cell joins with the token in BERTH_AGENT_TOKEN. From then on it has a\n"
        "credential of its own, which is kept in the folder --data. With an ACTION no agent is run: the\n"
        "credentials of hosts are rotated, revoked, or issued again.",
    )
    command.add_argument("--conductor", metavar="URL", type=url, help="the cell's agent API (required)")
    add_ca_file(command)
    command.add_argument("--driver", choices=("sim",), help="sim: simulated hosts (required)")
    command.add_argument("--data", metavar="DIR", type=Path, help="folder of the hosts' state (required)")
    add_token_file(command, "--agent-token-file", "BERTH_AGENT_TOKEN")
    which = add_fleet(command, hosts=1, build_s=0.5, live_migrate_s=3)
    which.add_argument(
        "--discover",
        action="store_true",
        help="one host, this machine: what it has is read from sys and proc; SIGHUP reads it again",
    )
    command.add_argument(
        "--prefix",
        metavar="NAME",
        type=_read_prefix,
        help="prefix of the hosts' names [host]",
    )
    command.add_argument(
        "--cell",
        metavar="NAME",
        type=cell_name,
        help="run only the hosts of this cell: those that name it, and its share of those that name none",
    )
    command.add_argument(
        "--cells", metavar="A,B,...", type=_read_cell_names, default=(), help="all cells that share the fleet"
    )
    command.add_argument(
        "--metrics-listen",
        metavar="HOST:PORT",
        type=listen_address,
        help="address of /metrics and /healthz, for anybody who reaches it [there is none]",
    )
    add_logging(command, "info")
    add_trace_endpoint(command)
    add_discovery(command)
    _add_actions(command)


def _add_actions(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION")
    rotate = add_action(actions, "rotate", "give hosts new credentials; their agents may be running")
    rotate.add_argument("hosts_named", metavar="HOST", nargs="*", help="[all hosts of the folder]")
    rotate.add_argument("--conductor", metavar="URL", type=url, required=True, help="the cell's agent API")
    add_ca_file(rotate)
    rotate.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder of the hosts' state, as for the agents",
    )
    for name, summary in (
        ("revoke", "refuse the agent of a host; the host is down after the heartbeat timeout"),
        ("readmit", "let a host join again, with the join token and a new credential"),
    ):
        action = add_action(actions, name, summary)
        action.add_argument("host_named", metavar="HOST", help="the host's name, or its uuid")
        action.add_argument(
            "--database",
            metavar="URL",
            help="the cell's database; if the URL has a password, use BERTH_DATABASE instead",
        )


def _read_cell_names(text: str) -> tuple[str, ...]:
    names = tuple(cell_name(name) for name in text.split(","))
    if len(set(names)) < len(names) or len(names) > CELLS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: up to {CELLS_MAX} names, each once")
    return names


def _read_prefix(text: str) -> str:
    if not (1 <= len(text) <= 100 and text.isascii() and text.replace("-", "").replace(".", "").isalnum()):
        raise argparse.ArgumentTypeError(f"{text!r} is refused: letters, digits, '-' and '.', 100 at most")
    return text


def run(arguments: argparse.Namespace) -> int:
    """Run the agents until told to stop; the exit status."""
    keep_files_private()
    if arguments.action is not None:
        # It imports the cell's side, which agents do not need.
        from berth.cli import agent_credentials

        return agent_credentials.run(arguments)
    _refuse_incomplete(arguments)
    refuse_untraceable(arguments.trace_endpoint)
    try:
        machine = _discover(arguments)
        hosts = _read_hosts(arguments) if machine is None else []
    except (FleetError, DiscoveryError, ProviderConfigError) as error:
        raise CommandError(str(error)) from error
    token = find_secret("BERTH_AGENT_TOKEN", arguments.agent_token_file)
    address = _find_address(arguments.metrics_listen)
    metrics = AgentMetrics()
    with tracing.exporting("berth-agent", arguments.trace_endpoint, {}):
        return serve_agents(
            AgentSettings(
                conductor=arguments.conductor,
                ca_file=arguments.ca_file,
                token=token,
                data=arguments.data,
                hosts=tuple(hosts),
                machine=machine,
                behaviour=SimBehaviour(
                    build_seconds=arguments.build_seconds, live_migrate_seconds=arguments.live_migrate_seconds
                ),
                seed=arguments.seed,
                log_level=arguments.log_level,
                log_format=arguments.log_format,
            ),
            functools.partial(_start_beside, Heartbeat.inherited(), address, metrics),
            metrics,
        )


def _find_address(told: str | None) -> Address | None:
    """Where the metrics are shown, if anywhere."""
    if told is None:
        return None
    host, _, port = told.rpartition(":")
    try:
        return free_address(host.strip("[]"), int(port))
    except CannotListen as error:
        raise CommandError(f"--metrics-listen: cannot listen on {told}: {error}") from error


def _start_beside(
    heartbeat: Heartbeat | None, address: Address | None, metrics: AgentMetrics, stop: asyncio.Event
) -> None:
    """Send heartbeats from the event loop, if the process that started this one watches it; and show the
    metrics, if that is wanted."""
    if heartbeat is not None:
        beat_from_loop(heartbeat, stop.set)
    if address is not None:
        showing = asyncio.create_task(listen(MetricsApi(metrics), address), name="metrics")
        # A process whose metrics cannot be seen is not what was asked for.
        showing.add_done_callback(lambda task: stop.set() if task.exception() else None)


def _refuse_incomplete(arguments: argparse.Namespace) -> None:
    # The parser cannot require them: the actions take other arguments.
    missing = [flag for flag in ("conductor", "driver", "data") if getattr(arguments, flag) is None]
    if missing:
        raise CommandError(f"--{', --'.join(missing)} must be given; see 'berth agent --help'")


def _discover(arguments: argparse.Namespace) -> Machine | None:
    """The machine at hand, if it is to be the host."""
    if not arguments.discover:
        flag = find_given(arguments)
        if flag is not None:
            raise CommandError(f"{flag} needs --discover")
        return None
    for name in ("prefix", "cell", "cells"):
        if getattr(arguments, name):
            raise CommandError(f"--{name} is for simulated fleets, not for --discover")
    settings = read_discovery(arguments)
    machine = Machine(Discovery(settings, arguments.data))
    if settings.host_name is None and machine.name == UNNAMED:
        raise CommandError(f"{settings.sysroot} does not tell the machine's name: use --host-name")
    return machine


def _read_hosts(arguments: argparse.Namespace) -> list[SimHost]:
    if arguments.fleet is not None:
        hosts = read_fleet(arguments.fleet)
    else:
        hosts = simulated_fleet(arguments.hosts, prefix=arguments.prefix or "host")
    if arguments.cell is None:
        return list(hosts)
    return hosts_of_cell(hosts, arguments.cells or (arguments.cell,), arguments.cell)


def hosts_of_cell(hosts: Sequence[SimHost], cells: Sequence[str], cell: str) -> list[SimHost]:
    """The hosts of one of the cells: those that name it, and an equal share of those that name none."""
    if cell not in cells:
        raise CommandError(f"--cell: {cell} is none of the cells of the fleet, {', '.join(cells)}")
    for host in hosts:
        if host.cell is not None and host.cell not in cells:
            raise CommandError(
                f"the host {host.name} is to be in the cell {host.cell}; there are {', '.join(cells)}"
            )
    free = [host for host in hosts if host.cell is None]
    return [host for host in hosts if host.cell == cell] + free[cells.index(cell) :: len(cells)]

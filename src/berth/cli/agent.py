"""``berth agent``: the agents of hosts, many in one process; or what is done about their credentials."""

import argparse
import sys
from collections.abc import Sequence

from berth.agent.drivers.behaviour import SimBehaviour
from berth.agent.fleet import SimHost, simulated_fleet
from berth.agent.fleet_file import FleetError, read_fleet
from berth.agent.process import AgentSettings, serve_agents
from berth.cli.secrets import SecretError, secret


class AgentRefused(Exception):
    """The agents cannot be run like this. The message is for the operator."""


def run(arguments: argparse.Namespace) -> int:
    """Run the agents until told to stop; the exit status."""
    if arguments.action is not None:
        from berth.cli import agent_credentials

        return agent_credentials.run(arguments)
    try:
        _refuse_without_needed(arguments)
        hosts = _hosts(arguments)
        token = secret("BERTH_AGENT_TOKEN", arguments.agent_token_file)
    except (AgentRefused, FleetError, SecretError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2
    return serve_agents(
        AgentSettings(
            conductor=arguments.conductor,
            ca_file=arguments.ca_file,
            token=token,
            data=arguments.data,
            hosts=tuple(hosts),
            behaviour=SimBehaviour(
                build_seconds=arguments.build_seconds, live_migrate_seconds=arguments.live_migrate_seconds
            ),
            seed=arguments.seed,
            log_level=arguments.log_level,
            log_format=arguments.log_format,
        )
    )


def _refuse_without_needed(arguments: argparse.Namespace) -> None:
    # Not the parser's to say: its actions need other arguments.
    missing = [flag for flag in ("conductor", "driver", "data") if getattr(arguments, flag) is None]
    if missing:
        raise AgentRefused(f"--{', --'.join(missing)} must be given; see 'berth agent --help'")


def _hosts(arguments: argparse.Namespace) -> list[SimHost]:
    if arguments.fleet is not None:
        hosts = read_fleet(arguments.fleet)
    else:
        hosts = simulated_fleet(arguments.hosts, prefix=arguments.prefix)
    if arguments.cell is None:
        return list(hosts)
    return spread(hosts, arguments.cells or (arguments.cell,), arguments.cell)


def spread(hosts: Sequence[SimHost], cells: Sequence[str], cell: str) -> list[SimHost]:
    """The hosts of one of the cells: those that name it, and every so-manieth of those that name none."""
    if cell not in cells:
        raise AgentRefused(f"--cell: {cell} is none of the cells of the fleet, {', '.join(cells)}")
    for host in hosts:
        if host.cell is not None and host.cell not in cells:
            raise AgentRefused(
                f"the host {host.name} is to be in the cell {host.cell}; there are {', '.join(cells)}"
            )
    free = [host for host in hosts if host.cell is None]
    return [host for host in hosts if host.cell == cell] + free[cells.index(cell) :: len(cells)]

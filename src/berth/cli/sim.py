"""``berth sim``: break a host of the simulated fleet, or bring it back."""

import argparse
from pathlib import Path

from berth.agent.process import ControlError, break_host, heal_host
from berth.cli.command import CommandError, add_action, add_json
from berth.cli.folder import Folder


def add_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("break", "stop a host: it sends no heartbeats and executes nothing"),
        ("heal", "start a host again, with everything that is on its disk"),
    ):
        action = add_action(actions, name, summary)
        action.add_argument("host", metavar="HOST", help="the host's name, such as host-0001")
        action.add_argument(
            "--data", metavar="DIR", type=Path, default=Path("data"), help="folder of the 'berth up' [data]"
        )
        add_json(action)


def run(arguments: argparse.Namespace) -> int:
    folder, host = Folder(arguments.data), arguments.host
    folder.running()
    try:
        if arguments.action == "break":
            break_host(folder.agents, host)
            text = f"{host} is broken. It is reported down after the heartbeat timeout"
        else:
            heal_host(folder.agents, host)
            text = f"{host} is healed. It is up again when leftovers on it are destroyed"
    except ControlError as error:
        raise CommandError(str(error)) from error
    if arguments.json:
        # Imported here: scripts break and heal many hosts, one after the other.
        from berth.cli.output import Screen

        Screen().print_json({"host": host, "is_broken": arguments.action == "break"})
    else:
        print(text)
    return 0

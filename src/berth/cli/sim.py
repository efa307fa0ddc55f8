"""``berth sim``: a host of the simulated fleet dies, or comes back."""

import argparse
import sys

from berth.agent.control import ControlError, break_host, heal_host
from berth.cli.folder import Folder, FolderError


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 when the host was told, 2 when there is no such host."""
    folder, host = Folder(arguments.data), arguments.host
    try:
        folder.running()
        if arguments.action == "break":
            break_host(folder.agents, host)
            print(f"{host} is dead. It counts as down when it has been silent for long enough")
        else:
            heal_host(folder.agents, host)
            print(f"{host} is back. It is up again when what is no longer to be on it is cleaned up")
        return 0
    except (ControlError, FolderError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2

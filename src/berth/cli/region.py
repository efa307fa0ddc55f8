"""How a command asks a region: where it is, with which token, and how its answers are shown."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from berth.cli.command import add_ca_file, add_token_file, require_secret, url
from berth.cli.folder import Folder
from berth.client import Client
from berth.runtime.settings import BY_NAME


def add_region(command: argparse.ArgumentParser) -> None:
    default = f"http://{BY_NAME['listen'].default}"
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--url", metavar="URL", type=url, default=default, help=f"the region's address [{default}]"
    )
    where.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="folder of a 'berth up': its region is asked, with the admin's token",
    )
    add_ca_file(command)
    add_token_file(command, "--token-file", "BERTH_TOKEN")


def region_client(arguments: argparse.Namespace, role: str) -> Client:
    """A client of the region, with the token of a user with a role."""
    if arguments.data is not None:
        folder = Folder(arguments.data)
        return Client(folder.running().url, {"x-auth-token": folder.secrets().admin})
    what = f"a token that the region knows, of a user with the role {role}"
    token = require_secret("BERTH_TOKEN", arguments.token_file, "--token-file", what)
    return Client(arguments.url, {"x-auth-token": token}, ca_file=arguments.ca_file)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their headings, every column but the last as wide as its widest cell."""
    lines = [columns, *rows]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns) - 1)]
    return "".join(
        "  ".join([*(f"{cell:{width}}" for cell, width in zip(line, widths, strict=False)), line[-1]]) + "\n"
        for line in (columns, tuple("-" * len(name) for name in columns), *rows)
    )

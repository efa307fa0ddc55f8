"""``berth top``: the fullest hosts, live."""

import argparse
import shutil
import sys
from typing import Any, Final

from rich.console import RenderableType

from berth.cli.command import describe, whole
from berth.cli.figures import find_share, format_use, list_classes
from berth.cli.hosts import fetch_hosts, make_table
from berth.cli.output import stack
from berth.cli.question import Question, add_question
from berth.client import Client
from berth.model.counts import count

_LINES_BESIDE: Final = 6
_ROWS_DEFAULT: Final = 20
_ROWS_MAX: Final = 10_000


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "On a terminal it is repeated until interrupted; else it is printed once.")
    command.add_argument(
        "--class",
        dest="resource_class",
        metavar="CLASS",
        help="sort by how much of this resource class is used [the fullest of all classes]",
    )
    command.add_argument("--once", action="store_true", help="print it once, on a terminal too")
    command.add_argument(
        "--rows",
        metavar="N",
        type=whole(1, _ROWS_MAX),
        help=f"how many hosts [1 to {_ROWS_MAX}, default: as many as the terminal has room for]",
    )
    add_question(command)
    command.set_defaults(name=None, state=None, cell=None, driver=None, domain=None)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    hosts = (await fetch_hosts(client, arguments))["hosts"]
    return {"hosts": sorted(hosts, key=lambda host: -_find_fullness(host, arguments.resource_class))}


def _find_fullness(host: dict[str, Any], resource_class: str | None) -> float:
    usage = host["usage"]
    names = usage if resource_class is None else [resource_class]
    return max((find_share(usage, name) for name in names), default=0.0)


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    hosts = data["hosts"]
    states = [host["state"] for host in hosts]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("up", "down", "disabled"))
    totals = "  ".join(f"{name} {format_use(name, _sum_use(hosts, name))}" for name in _list_classes(hosts))
    rows = arguments.rows or (
        shutil.get_terminal_size().lines - _LINES_BESIDE if sys.stdout.isatty() else _ROWS_DEFAULT
    )
    servers = count(sum(host["servers"] for host in hosts), "server")
    heading = f"{count(len(hosts), 'host')}: {counts}; {servers}"
    return stack(heading, totals, "", make_table(hosts[: max(rows, 1)], arguments.now_s))


def _list_classes(hosts: list[dict[str, Any]]) -> list[str]:
    return list_classes([host["usage"] for host in hosts])


def _sum_use(hosts: list[dict[str, Any]], name: str) -> dict[str, int]:
    uses = [host["usage"][name] for host in hosts if name in host["usage"]]
    return {field: sum(use[field] for use in uses) for field in ("capacity", "used")}


QUESTION = Question(_fetch, _render)


def run(arguments: argparse.Namespace) -> int:
    arguments.watch = arguments.watch or (sys.stdout.isatty() and not arguments.once and not arguments.json)
    return QUESTION.run(arguments)

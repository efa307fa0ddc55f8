"""``berth hosts``: the hosts, how they are doing, and how full they are."""

import argparse
from typing import Any
from urllib.parse import urlencode

from rich.console import RenderableType

from berth.cli.figures import format_age, format_use, list_classes
from berth.cli.output import Cell, TableColumn, TableView, mark, stack
from berth.cli.question import Question, add_question
from berth.client import Client
from berth.model.counts import count

_PAGE = 1000


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", nargs="?", help="only hosts of this name; * and ? match any")
    command.add_argument("--state", choices=("up", "down", "disabled"), help="only hosts in this state")
    command.add_argument("--cell", metavar="NAME", help="only hosts of this cell")
    command.add_argument("--driver", metavar="NAME", help="only hosts whose agent has this driver")
    command.add_argument("--domain", metavar="KIND:NAME", help="only hosts in this domain, such as rack:r1")
    add_question(command)


async def fetch_hosts(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    filters = {name: getattr(arguments, name) for name in ("name", "state", "cell", "driver", "domain")}
    query = urlencode({name: value for name, value in filters.items() if value} | {"limit": _PAGE})
    hosts = [host async for host in client.walk(f"/berth/v1/hosts?{query}", "hosts")]
    return {"hosts": sorted(hosts, key=lambda host: str(host["name"]))}


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    hosts = data["hosts"]
    if not hosts:
        return "there are no such hosts" if _is_filtered(arguments) else "there are no hosts"
    states = [host["state"] for host in hosts]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("up", "down", "disabled"))
    return stack(make_table(hosts, arguments.now_s), f"\n{count(len(hosts), 'host')}: {counts}")


def _is_filtered(arguments: argparse.Namespace) -> bool:
    return any(getattr(arguments, name) for name in ("name", "state", "cell", "driver", "domain"))


def make_table(hosts: list[dict[str, Any]], now_s: float) -> TableView:
    classes = list_classes([host["usage"] for host in hosts])
    columns: list[TableColumn | str] = [
        "name",
        "state",
        "cell",
        *(TableColumn(name.partition("_")[0], is_number=True) for name in classes),
        TableColumn("servers", is_number=True),
        TableColumn("note", shrinks=True),
    ]
    return TableView(columns, [_format_row(host, classes, now_s) for host in hosts])


def _format_row(host: dict[str, Any], classes: list[str], now_s: float) -> tuple[Cell, ...]:
    return (
        host["name"],
        mark(host["state"]),
        host["cell"] or "-",
        *(format_use(name, host["usage"].get(name)) for name in classes),
        str(host["servers"]),
        describe_trouble(host, now_s),
    )


def describe_trouble(host: dict[str, Any], now_s: float) -> str:
    """What is unusual about a host, in a line."""
    said = []
    if host["down"] and host["last_heartbeat"]:
        said.append(f"last heartbeat {format_age(host['last_heartbeat'], now_s)} ago")
    said += [host["reason"]] if host["reason"] else []
    if host["down"] and host["disabled"]:
        said.append("disabled too")
    if host["build_failures"]:
        said.append(f"{count(host['build_failures'], 'build')} failed in a row")
    return "; ".join([*said, *host["complaints"]])


QUESTION = Question(fetch_hosts, _render)
run = QUESTION.run

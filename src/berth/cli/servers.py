"""``berth servers``: the servers, where they are and how they are doing.

They are read from the compute API, as it shows them: {"servers": [...]}. Administrators see those of all
projects, others those of their own.
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from rich.console import RenderableType
from rich.text import Text

from berth.cli.command import clean, name_in_path
from berth.cli.figures import format_age
from berth.cli.output import Cell, TableColumn, TableView, mark, stack
from berth.cli.question import Question, add_question
from berth.client import Client
from berth.model.counts import count
from berth.model.servers import STATUSES

_PATH: Final = "/compute/v2.1/servers/detail"
_PAGE: Final = 1000
_FORBIDDEN: Final = 403
_HOST: Final = "OS-EXT-SRV-ATTR:host"
_TASK: Final = "OS-EXT-STS:task_state"


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--name",
        metavar="TEXT",
        help="only servers whose name has this; ^ and $ stand for its ends, .* for any text",
    )
    command.add_argument(
        "--host", metavar="HOST", type=name_in_path, help="only servers on this host, by its name or uuid"
    )
    command.add_argument(
        "--status",
        metavar="STATUS",
        type=str.upper,
        choices=STATUSES,
        help="only servers of this status: ACTIVE, ERROR, ...",
    )
    command.add_argument("--project", metavar="ID", help="only servers of this project")
    add_question(command)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    filters = {
        "name": arguments.name,
        "host": None if arguments.host is None else await _find_host(client, arguments.host),
        "status": arguments.status,
        "project_id": arguments.project,
    }
    return {"servers": await fetch_servers(client, {key: value for key, value in filters.items() if value})}


async def _find_host(client: Client, named: str) -> str:
    """The name of a host that may be given by its uuid. One that does not exist is a mistake, not an empty
    list."""
    found = await client.fetch("GET", f"/berth/v1/hosts/{quote(named, safe='')}")
    return str(found["host"]["name"])


async def fetch_servers(client: Client, filters: Mapping[str, str]) -> list[dict[str, Any]]:
    """The servers of all projects, or else of the caller's own."""
    query: dict[str, Any] = {**filters, "all_tenants": 1, "limit": _PAGE}
    answer = await client.ask("GET", f"{_PATH}?{urlencode({**query, 'limit': 1})}")
    if answer.status == _FORBIDDEN:
        del query["all_tenants"]
    servers: list[dict[str, Any]] = []
    while True:
        page = (await client.fetch("GET", f"{_PATH}?{urlencode(query)}"))["servers"]
        servers += page
        if len(page) < _PAGE:
            return servers
        query["marker"] = page[-1]["id"]


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    servers = data["servers"]
    if not servers:
        is_filtered = any((arguments.name, arguments.host, arguments.status, arguments.project))
        return "there are no such servers" if is_filtered else "there are no servers"
    columns = (
        TableColumn("name", shrinks=True),
        "status",
        "host",
        "flavor",
        TableColumn("age", is_number=True),
        TableColumn("id", shrinks=True),
        TableColumn("note", shrinks=True),
    )
    ordered = sorted(servers, key=lambda one: (one["status"] != "ERROR", one["name"]))
    counts = Counter(one["status"] for one in servers)
    states = ", ".join(f"{number:,} {status}" for status, number in counts.most_common())
    table = TableView(columns, [_format_row(one, arguments.now_s) for one in ordered])
    return stack(table, f"\n{count(len(servers), 'server')}: {states}")


def _format_row(server: dict[str, Any], now_s: float) -> tuple[Cell, ...]:
    return (
        server["name"],
        mark(server["status"]),
        server.get(_HOST) or "-",
        server["flavor"]["original_name"],
        format_age(server["created"], now_s),
        server["id"],
        _describe_trouble(server),
    )


def _describe_trouble(server: dict[str, Any]) -> Text:
    fault = server.get("fault") or {}
    if fault.get("message"):
        return Text(clean(str(fault["message"]).split("\n")[0]), style="red")
    return Text(server.get(_TASK) or "", style="yellow")


QUESTION = Question(_fetch, _render)
run = QUESTION.run

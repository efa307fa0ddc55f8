"""``berth op``: what has been done to a server, operation by operation and step by step.

{"server": {"id", "name", "status", "host", "task", "fault"},
 "operations": [the compute API's instance actions with their events, the newest first]}
"""

import argparse
import re
from typing import Any, Final
from urllib.parse import quote

from rich.console import RenderableType
from rich.text import Text

from berth.cli.command import CommandError, clean, describe, object_name, whole
from berth.cli.figures import format_age, format_duration, read_time
from berth.cli.ops import format_deadline
from berth.cli.output import TableColumn, TableView, mark, stack
from berth.cli.question import Question, add_question
from berth.cli.servers import fetch_servers
from berth.client import Client

_SERVERS: Final = "/compute/v2.1/servers"
UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LIMIT_MAX: Final = 1_000
_MISSING: Final = 404


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "The status is 1 if the server is in the status ERROR.")
    command.add_argument("server", metavar="SERVER", type=object_name, help="id or name of the server")
    command.add_argument(
        "--limit",
        metavar="N",
        type=whole(1, _LIMIT_MAX),
        default=5,
        help=f"how many operations, the newest first [1 to {_LIMIT_MAX}, default 5]",
    )
    add_question(command)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    server = await find_server(client, arguments.server)
    path = f"/berth/v1/operations?server={server['id']}&limit={_LIMIT_MAX}"
    operations = (await client.fetch("GET", path))["operations"]
    return {
        "server": {
            "id": server["id"],
            "name": server["name"],
            "status": server["status"],
            "host": server.get("OS-EXT-SRV-ATTR:host"),
            "task": server.get("OS-EXT-STS:task_state"),
            "fault": (server.get("fault") or {}).get("message"),
        },
        "operations": sorted(operations, key=lambda one: str(one["began"]), reverse=True)[: arguments.limit],
    }


async def find_server(client: Client, named: str) -> dict[str, Any]:
    """A server by its id, or else by its name."""
    if UUID.fullmatch(named):
        answer = await client.ask("GET", f"{_SERVERS}/{quote(named, safe='')}")
        if answer.status != _MISSING:
            found: dict[str, Any] = (await client.fetch("GET", f"{_SERVERS}/{named}"))["server"]
            return found
        raise CommandError(f"{client.endpoint} has no server {named}")
    servers = await fetch_servers(client, {"name": f"^{re.escape(named)}$"})
    if len(servers) > 1:
        ids = ", ".join(server["id"] for server in servers)
        raise CommandError(f"several servers are called {named}: name one by its id, {ids}")
    if not servers:
        raise CommandError(f"{client.endpoint} has no server {named}")
    return servers[0]


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    server = data["server"]
    heading = Text.assemble(
        (clean(server["name"]), "bold"), "  ", mark(server["status"]), f"  {server['id']}"
    )
    if server["host"]:
        heading.append(f"  on {clean(server['host'])}")
    if server["task"]:
        heading.append(f"  {server['task']}", style="yellow")
    parts: list[RenderableType] = [heading]
    if server["fault"] and server["fault"] not in [one["fault"] for one in data["operations"]]:
        parts.append(Text(clean(server["fault"]), style="red"))
    for operation in data["operations"]:
        parts += ["", *_show_operation(operation, arguments.now_s)]
    return stack(*parts)


def _show_operation(operation: dict[str, Any], now_s: float) -> list[RenderableType]:
    heading = Text.assemble(
        (clean(operation["operation"]), "bold"),
        "  ",
        mark("overdue" if operation["overdue"] else operation["state"]),
        f"  {format_age(operation['began'], now_s)} ago  by {clean(operation['user_id'] or '-')}",
        f"  {operation['request_id']}",
    )
    if operation["state"] == "running" and operation["step"]:
        where = f" on {clean(operation['host'])}" if operation["host"] else ""
        words = f"\n{operation['step']}{where}, attempt {operation['attempt']}"
        heading.append(f"{words}, deadline {format_deadline(operation, now_s)}", style="yellow")
    if operation["fault"]:
        heading.append(f"\n{clean(operation['fault'])}", style="red")
    if not operation["steps"]:
        return [heading]
    columns = (
        "step",
        "host",
        "result",
        TableColumn("took", is_number=True),
        TableColumn("details", shrinks=True),
    )
    rows = [
        (
            step["name"],
            step["host"] or "-",
            mark(step["result"] or "running", "red" if step["result"] == "Error" else None),
            _format_time_taken(step, now_s),
            step["details"] or "",
        )
        for step in operation["steps"]
    ]
    return [heading, TableView(columns, rows)]


def _format_time_taken(step: dict[str, Any], now_s: float) -> str:
    began_s = read_time(step["started"]).timestamp()
    end = step["finished"]
    return format_duration(max(0.0, (now_s if end is None else read_time(end).timestamp()) - began_s))


def _judge(data: dict[str, Any]) -> int:
    return 1 if data["server"]["status"] == "ERROR" else 0


QUESTION = Question(_fetch, _render, _judge)
run = QUESTION.run

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

from berth.cli.command import CommandError, describe, whole
from berth.cli.figures import format_age, format_duration, read_time
from berth.cli.output import TableColumn, TableView, clean, mark, stack
from berth.cli.question import Question, add_question
from berth.cli.servers import fetch_servers
from berth.client import Client

_SERVERS: Final = "/compute/v2.1/servers"
_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LIMIT_MAX: Final = 1_000
_MISSING: Final = 404


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "The status is 1 if the server is in the status ERROR.")
    command.add_argument("server", metavar="SERVER", help="id or name of the server")
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
    path = f"{_SERVERS}/{server['id']}/os-instance-actions"
    listed = (await client.fetch("GET", f"{path}?limit={arguments.limit}"))["instanceActions"]
    return {
        "server": {
            "id": server["id"],
            "name": server["name"],
            "status": server["status"],
            "host": server.get("OS-EXT-SRV-ATTR:host"),
            "task": server.get("OS-EXT-STS:task_state"),
            "fault": (server.get("fault") or {}).get("message"),
        },
        "operations": [
            (await client.fetch("GET", f"{path}/{one['request_id']}"))["instanceAction"] for one in listed
        ],
    }


async def find_server(client: Client, named: str) -> dict[str, Any]:
    """A server by its id, or else by its name."""
    if _UUID.fullmatch(named):
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
    if server["fault"]:
        parts.append(Text(clean(server["fault"]), style="red"))
    for operation in data["operations"]:
        parts += ["", *_show_operation(operation, arguments.now_s)]
    return stack(*parts)


def _show_operation(operation: dict[str, Any], now_s: float) -> list[RenderableType]:
    began = format_age(operation["start_time"], now_s)
    heading = Text.assemble(
        (clean(operation["action"]), "bold"),
        f"  {began} ago  by {clean(operation['user_id'] or '-')}  {operation['request_id']}",
    )
    if operation["message"]:
        heading.append(f"  {clean(operation['message'])}", style="red")
    events = operation["events"]
    if not events:
        return [heading, "no step has ended yet"]
    columns = (
        "step",
        "host",
        "result",
        TableColumn("took", is_number=True),
        TableColumn("details", shrinks=True),
    )
    rows = [
        (
            event["event"],
            event.get("host") or "-",
            mark(event["result"] or "running", "red" if event["result"] == "Error" else None),
            _format_time_taken(event, now_s),
            event.get("details") or event.get("traceback") or "",
        )
        for event in sorted(events, key=lambda event: str(event["start_time"]))
    ]
    return [heading, TableView(columns, rows)]


def _format_time_taken(event: dict[str, Any], now_s: float) -> str:
    began_s = read_time(event["start_time"]).timestamp()
    end = event["finish_time"]
    return format_duration(max(0.0, (now_s if end is None else read_time(end).timestamp()) - began_s))


def _judge(data: dict[str, Any]) -> int:
    return 1 if data["server"]["status"] == "ERROR" else 0


QUESTION = Question(_fetch, _render, _judge)
run = QUESTION.run

"""``berth ops``: operations on servers, those that are under way and those that failed last."""

import argparse
from typing import Any, Final
from urllib.parse import urlencode

from rich.console import RenderableType

from berth.cli.command import describe, whole
from berth.cli.figures import format_age, format_duration, read_time
from berth.cli.output import Cell, TableColumn, TableView, mark, stack
from berth.cli.question import Question, add_question
from berth.client import Client

_LIMIT_MAX: Final = 1_000


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "The status is 1 if an operation is overdue.")
    command.add_argument("--host", metavar="HOST", help="only what has to do with this host")
    command.add_argument("--server", metavar="SERVER", help="only of this server, by its id or name")
    command.add_argument(
        "--state",
        choices=("running", "failed", "done"),
        help="only what is in this state [what is running and what has failed]",
    )
    command.add_argument(
        "--limit",
        metavar="N",
        type=whole(1, _LIMIT_MAX),
        default=50,
        help=f"how many [1 to {_LIMIT_MAX}, default 50]",
    )
    add_question(command)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    filters = {name: getattr(arguments, name) for name in ("host", "server", "state", "limit")}
    query = urlencode({name: value for name, value in filters.items() if value})
    found: dict[str, Any] = await client.fetch("GET", f"/berth/v1/operations?{query}")
    return found


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    operations = data["operations"]
    if not operations:
        is_filtered = any((arguments.host, arguments.server, arguments.state))
        return "there are no such operations" if is_filtered else "nothing is under way or has failed"
    columns = (
        TableColumn("server", shrinks=True),
        "operation",
        "state",
        "step",
        "host",
        TableColumn("attempt", is_number=True),
        TableColumn("began", is_number=True),
        "deadline",
        TableColumn("request", shrinks=True),
        TableColumn("fault", shrinks=True),
    )
    table = TableView(columns, [_format_row(one, arguments.now_s) for one in operations])
    return stack(table, "\nthere are more") if data["truncated"] else table


def _format_row(operation: dict[str, Any], now_s: float) -> tuple[Cell, ...]:
    return (
        operation["server_name"] or operation["server"],
        operation["operation"],
        mark("overdue" if operation["overdue"] else operation["state"]),
        operation["step"] or "-",
        operation["host"] or "-",
        str(operation["attempt"]),
        format_age(operation["began"], now_s),
        format_deadline(operation, now_s),
        operation["request_id"],
        operation["fault"] or "",
    )


def format_deadline(operation: dict[str, Any], now_s: float) -> str:
    """When the step at hand should end: in 20s, or 3m ago."""
    if operation["state"] != "running" or operation["deadline"] is None:
        return "-"
    left_s = read_time(operation["deadline"]).timestamp() - now_s
    return f"in {format_duration(left_s)}" if left_s >= 0 else f"{format_duration(-left_s)} ago"


def _judge(data: dict[str, Any]) -> int:
    return 1 if any(one["overdue"] for one in data["operations"]) else 0


QUESTION = Question(_fetch, _render, _judge)
run = QUESTION.run

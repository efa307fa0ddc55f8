"""``berth cells``: the cells, whether they can be reached, and what waits for them."""

import argparse
from typing import Any

from rich.console import RenderableType

from berth.cli.command import describe
from berth.cli.figures import format_age
from berth.cli.output import Cell, TableColumn, TableView, mark
from berth.cli.question import Question, add_question
from berth.client import Client

_STYLES = {"well": "green", "unreachable": "red", "silent": "red", "unconfigured": "yellow"}


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "The status is 1 if a cell is unreachable, unconfigured, or its conductor is silent.")
    add_question(command)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = await client.fetch("GET", "/berth/v1/cells")
    return found


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    if not data["cells"]:
        return "there are no cells"
    columns = (
        "cell",
        "state",
        TableColumn("up", is_number=True),
        TableColumn("down", is_number=True),
        TableColumn("disabled", is_number=True),
        TableColumn("waiting", is_number=True),
        TableColumn("conductor heard", is_number=True),
        TableColumn("note", shrinks=True),
    )
    return TableView(columns, [_format_row(one, arguments.now_s) for one in data["cells"]])


def _format_row(cell: dict[str, Any], now_s: float) -> tuple[Cell, ...]:
    return (
        cell["name"],
        mark(cell["state"], _STYLES.get(cell["state"])),
        f"{cell['hosts']['up']:,}",
        f"{cell['hosts']['down']:,}",
        f"{cell['hosts']['disabled']:,}",
        f"{cell['waiting']:,}",
        f"{format_age(cell['conductor_heard'], now_s)} ago" if cell["conductor_heard"] else "-",
        " ".join(filter(None, (cell["text"], cell["database_text"]))),
    )


def _judge(data: dict[str, Any]) -> int:
    return 1 if any(cell["state"] not in ("well", "unknown") for cell in data["cells"]) else 0


QUESTION = Question(_fetch, _render, _judge)
run = QUESTION.run

"""``berth pools``: what hosts share, and how much of it is used. ``berth pool`` changes it."""

import argparse
from typing import Any

from rich.console import RenderableType

from berth.cli.pool import render_pools
from berth.cli.question import Question, add_question
from berth.client import Client


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_question(command)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    return {"pools": [pool async for pool in client.walk("/berth/v1/pools?limit=1000", "pools")]}


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    return render_pools(data["pools"]) if data["pools"] else "there are no pools"


QUESTION = Question(_fetch, _render)
run = QUESTION.run

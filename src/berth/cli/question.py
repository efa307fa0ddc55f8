"""Questions to a region: what is fetched, how it is shown to people, and whether all is well.

    fetch(client, arguments) -> data     what --json prints, as it is
    render(data, arguments)  -> shown    for people; ``arguments.now_s`` is the time of the answer
    judge(data)              -> 0 or 1   the exit status: 1 if something is not well

With --watch the question is repeated until it is interrupted. A region that is away meanwhile is waited for:
the last answer stays on the terminal, and a line says since when it is old.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from berth.cli.command import CommandError, add_json, seconds
from berth.cli.output import Screen, show_patience, stack
from berth.cli.region import add_region, connect
from berth.client import Client, ClientError, Unreachable
from berth.runtime.clock import Clock, SystemClock

_INTERVAL_S: Final = 2.0
_AWAY: Final = (502, 503, 504)


def all_is_well(data: Any) -> int:
    return 0


class Question(NamedTuple):
    fetch: Callable[[Client, argparse.Namespace], Awaitable[Any]]
    render: Callable[[Any, argparse.Namespace], RenderableType]
    judge: Callable[[Any], int] = all_is_well

    def run(self, arguments: argparse.Namespace) -> int:
        with show_patience("logging in"):
            client = connect(arguments)
        return asyncio.run(self.answer(arguments, client))

    async def answer(
        self,
        arguments: argparse.Namespace,
        client: Client,
        screen: Screen | None = None,
        clock: Clock | None = None,
    ) -> int:
        """Ask, and show the answer; the exit status."""
        screen, clock = screen or Screen(), clock or SystemClock()
        try:
            if getattr(arguments, "watch", False):
                await _Watch(self, arguments, client, screen, clock).run()
            with show_patience(f"asking {client.endpoint}"):
                data = await self.fetch_now(client, arguments, clock)
        except ClientError as error:
            raise CommandError(str(error)) from error
        finally:
            await client.close()
        if arguments.json:
            screen.print_json(data)
        else:
            screen.print(self.render(data, arguments))
        return self.judge(data)

    async def fetch_now(self, client: Client, arguments: argparse.Namespace, clock: Clock) -> Any:
        data = await self.fetch(client, arguments)
        arguments.now_s = clock.now_ns() / 1e9
        return data


def add_question(command: argparse.ArgumentParser) -> None:
    """The options of every question."""
    add_json(command)
    command.add_argument("--watch", action="store_true", help="repeat it until interrupted")
    command.add_argument(
        "--interval",
        metavar="S",
        type=seconds(0.2, 3600),
        default=_INTERVAL_S,
        help=f"with --watch: how often [0.2 to 3600 seconds, default {_INTERVAL_S:g}]",
    )
    add_region(command)


class _Watch:
    def __init__(
        self,
        question: Question,
        arguments: argparse.Namespace,
        client: Client,
        screen: Screen,
        clock: Clock,
    ) -> None:
        self._question = question
        self._arguments = arguments
        self._client = client
        self._screen = screen
        self._clock = clock

    async def run(self) -> None:
        """Ask until interrupted."""
        if not self._screen.is_terminal or self._arguments.json:
            while True:
                try:
                    await self._print_once()
                except ClientError as error:
                    _raise_unless_away(error)
                    print(f"berth: lost, retrying: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(self._arguments.interval)
        with Live(console=self._screen.console, auto_refresh=False, vertical_overflow="crop") as live:
            shown: RenderableType = Text(f"asking {self._client.endpoint} ...")
            while True:
                try:
                    data = await self._question.fetch_now(self._client, self._arguments, self._clock)
                    shown = self._question.render(data, self._arguments)
                    live.update(stack(shown), refresh=True)
                except ClientError as error:
                    _raise_unless_away(error)
                    live.update(stack(shown, Text(f"\nlost, retrying: {error}", style="red")), refresh=True)
                await asyncio.sleep(self._arguments.interval)

    async def _print_once(self) -> None:
        data = await self._question.fetch_now(self._client, self._arguments, self._clock)
        if self._arguments.json:
            self._screen.print_json(data, in_one_line=True)
        else:
            self._screen.print(self._question.render(data, self._arguments), "")


def _raise_unless_away(error: ClientError) -> None:
    is_away = error.is_transient if isinstance(error, Unreachable) else error.status in _AWAY
    if not is_away:
        raise error

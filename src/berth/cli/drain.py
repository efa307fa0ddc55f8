"""``berth drain``: have all servers leave a host; or show how far that is, or stop it.

The plan comes first, and nothing is changed before it is confirmed. With --watch a line is printed for every
change, until no server is left there, or none of those that are left can go.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

from rich.console import RenderableType
from rich.text import Text

from berth.cli.command import DAY_S, CommandError, add_json, add_seconds, clean, describe, name_in_path
from berth.cli.output import (
    Cell,
    Screen,
    TableColumn,
    TableView,
    confirm,
    mark,
    show_patience,
    stack,
)
from berth.cli.region import add_region, connect
from berth.client import Client, ClientError
from berth.model.counts import count
from berth.runtime.clock import Clock, SystemClock

_LOOK_S: Final = 1.0
_WAIT_S: Final = 4 * 3600
_AWAY: Final = (None, 502, 503, 504)


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "berth drain host-0001 --dry-run    the plan: which server goes where, and what does not fit\n"
        "berth drain host-0001 --watch      drain it, and wait until it is empty\n"
        "berth host host-0001 enable        ends the drain, and lets servers in again\n\n"
        "The status is 1 if a server cannot leave, or nothing was done.",
    )
    command.add_argument("host", metavar="HOST", type=name_in_path, help="name or uuid of the host")
    what = command.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="show the plan, and change nothing")
    what.add_argument("--show", action="store_true", help="show the drain of the host")
    what.add_argument("--stop", action="store_true", help="stop it: no other move begins")
    command.add_argument("--yes", action="store_true", help="begin without asking")
    command.add_argument("--reason", metavar="TEXT", help="why the host is disabled, for others")
    command.add_argument("--watch", action="store_true", help="wait until it is done, a line per change")
    add_seconds(command, "--timeout", _WAIT_S, 1, DAY_S, "with --watch: how long to wait")
    add_json(command)
    add_region(command)


def run(arguments: argparse.Namespace) -> int:
    begins = not (arguments.dry_run or arguments.show or arguments.stop)
    if arguments.json and begins and not arguments.yes:
        raise CommandError("--json asks no questions: give --yes too, or --dry-run")
    for name in ("yes", "reason"):
        if getattr(arguments, name) and not begins:
            raise CommandError(f"--{name} is for a drain that begins: leave it out")
    if arguments.watch and (arguments.dry_run or arguments.stop):
        raise CommandError("--watch needs a drain: leave out --dry-run and --stop")
    with show_patience("logging in"):
        client = connect(arguments)
    return asyncio.run(act(arguments, client, Screen()))


async def act(
    arguments: argparse.Namespace,
    client: Client,
    screen: Screen,
    clock: Clock | None = None,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> int:
    """Do what is asked for; the exit status."""
    drain = HostDrain(arguments, client, screen)
    try:
        if arguments.stop:
            await drain.stop()
            return 0
        if arguments.dry_run:
            return drain.show(await drain.plan())
        if not arguments.show and not await drain.begin():
            screen.print("nothing has been changed")
            return 1
        if arguments.watch:
            return drain.show(await drain.watch(clock or SystemClock(), pause))
        return drain.show(await drain.fetch())
    except ClientError as error:
        raise CommandError(str(error)) from error
    finally:
        await client.close()


class HostDrain:
    """The drain of one host."""

    def __init__(self, arguments: argparse.Namespace, client: Client, screen: Screen) -> None:
        self._arguments = arguments
        self._client = client
        self._screen = screen
        self._path = f"/berth/v1/hosts/{quote(arguments.host, safe='')}/drain"

    async def plan(self) -> dict[str, Any]:
        with show_patience(f"asking {self._client.endpoint} for a plan"):
            planned: dict[str, Any] = await self._client.fetch(
                "POST", self._path, {"drain": {"dry_run": True}}, is_read=True
            )
        return planned

    async def fetch(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._client.fetch("GET", self._path)
        return found

    async def begin(self) -> bool:
        """Begin, if that is confirmed; whether it was."""
        if not self._arguments.yes:
            self._screen.print(_render(await self.plan()))
            if not confirm(f"drain {self._arguments.host}?"):
                return False
        asked = {} if self._arguments.reason is None else {"reason": self._arguments.reason}
        await self._client.fetch("POST", self._path, {"drain": asked})
        return True

    async def stop(self) -> None:
        await self._client.fetch("DELETE", self._path)
        if not self._arguments.json:
            self._screen.print(f"the drain of {self._arguments.host} is stopped; the host stays disabled")

    async def watch(self, clock: Clock, pause: Callable[[float], Awaitable[None]]) -> dict[str, Any]:
        """The drain when it is over. A region that is away is waited for."""
        deadline_ns = clock.monotonic_ns() + int(self._arguments.timeout * 1e9)
        said = ""
        while True:
            try:
                data = await self.fetch()
            except ClientError as error:
                if error.status not in _AWAY or clock.monotonic_ns() >= deadline_ns:
                    raise
            else:
                line = summarize(data["drain"])
                if line != said:
                    print(line, file=sys.stderr if self._arguments.json else sys.stdout, flush=True)
                    said = line
                if _is_over(data["drain"]):
                    return data
            if clock.monotonic_ns() >= deadline_ns:
                raise CommandError(f"after {self._arguments.timeout:g} seconds it is not done; {said}")
            await pause(_LOOK_S)

    def show(self, data: dict[str, Any]) -> int:
        if self._arguments.json:
            self._screen.print_json(data)
        else:
            self._screen.print(_render(data))
        return 1 if any(move["state"] == "blocked" for move in data["drain"]["moves"]) else 0


def _is_over(drain: dict[str, Any]) -> bool:
    """Whether nothing more happens by itself."""
    states = {move["state"] for move in drain["moves"]}
    return drain["state"] == "done" or states == {"blocked"}


def summarize(drain: dict[str, Any]) -> str:
    """How far it is, in a line."""
    words = f"{drain['state']}: {count(drain['moved'], 'server')} moved, {len(drain['moves']):,} left"
    under_way = [move for move in drain["moves"] if move["state"] == "moving"]
    for move in under_way[:1]:
        words += f"; {clean(move['name'])} goes to {clean(move['destination'] or 'another host')}"
    blocked = sum(move["state"] == "blocked" for move in drain["moves"])
    return f"{words}; {blocked:,} blocked" if blocked else words


def _render(data: dict[str, Any]) -> RenderableType:
    drain = data["drain"]
    parts: list[RenderableType] = [
        Text.assemble((clean(drain["host_name"]), "bold"), f"  {summarize(drain)}"),
    ]
    if drain["moves"]:
        columns = (
            "server",
            "state",
            "how",
            "to",
            TableColumn("attempts", is_number=True),
            TableColumn("note", shrinks=True),
        )
        parts += ["", TableView(columns, [_format_move(move) for move in drain["moves"]])]
    elif not drain["moved"]:
        parts.append("no server is there")
    if drain["stays"]:
        rows = [(one["name"] or one["consumer"], one["text"]) for one in drain["stays"]]
        parts += ["", TableView(("stays", TableColumn("why", shrinks=True)), rows)]
    more = drain["stays_total"] - len(drain["stays"])
    return stack(*parts, count(more, "more stays", "more stay")) if more > 0 else stack(*parts)


def _format_move(move: dict[str, Any]) -> tuple[Cell, ...]:
    return (
        move["name"],
        mark(move["state"], "red" if move["state"] == "blocked" else None),
        move["how"] or "-",
        move["destination"] or "-",
        str(move["attempts"]),
        move["text"] or "",
    )

"""``berth log``: who changed what, when, and by which request.

    {"events": [...], "looked_back_to": INDEX, "looked_back_at": TIME}

The events are as GET /berth/v1/events has them, the oldest first.
With --follow every event is printed as it comes, with --json in a line of its own. A stream that is lost is
taken up again after the last event that came.
"""

import argparse
import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from rich.console import RenderableType
from rich.text import Text

from berth.cli.changes import format_change
from berth.cli.command import CommandError, add_json, clean, describe, object_name, whole
from berth.cli.figures import read_time
from berth.cli.output import Screen, show_patience, stack
from berth.cli.question import Question
from berth.cli.region import add_region, connect
from berth.client import Client, ClientError, Unreachable
from berth.runtime.clock import SystemClock

_PATH: Final = "/berth/v1/events"
_LIMIT_MAX: Final = 10_000
_PAGE: Final = 1_000
_CHANGES_SHOWN: Final = 8
_QUIET: Final = ("internal", "provider_version", "cell")
"""Kinds of changes that are no news to people, unless they ask for them."""
_PAGES_MAX: Final = 50
"""How far is looked back for news, where there is nothing else."""
_AGE: Final = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PAUSE_S: Final = 1.0
_FILTERS: Final = (
    ("object", "subject"),
    ("request", "request_id"),
    ("kind", "kind"),
    ("user", "user"),
    ("project", "project"),
)
"""Arguments, and the parameters that they become."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "berth log                               the last changes\n"
        "berth log host-0001 --since 1h          of a host, within the last hour\n"
        "berth log --request req-...             what a request has changed\n"
        "berth log --follow                      changes as they come",
    )
    command.add_argument(
        "object",
        metavar="OBJECT",
        nargs="?",
        type=object_name,
        help="only changes about this: a uuid or a name of anything",
    )
    command.add_argument(
        "--since", metavar="TIME", type=_read_moment, help="1h, 30m, or 2026-01-31T09:30:00Z"
    )
    command.add_argument("--until", metavar="TIME", type=_read_moment, help="the same, for the end")
    command.add_argument("--request", metavar="ID", help="only what this request changed")
    command.add_argument("--kind", metavar="KIND", help="only changes of this kind: server, host, ...")
    command.add_argument("--user", metavar="USER", help="only what this user changed")
    command.add_argument("--project", metavar="PROJECT", help="only what was changed in this project")
    command.add_argument(
        "--limit",
        metavar="N",
        type=whole(1, _LIMIT_MAX),
        default=50,
        help=f"how many events, the newest ones [1 to {_LIMIT_MAX}, default 50]",
    )
    command.add_argument(
        "--follow", action="store_true", help="print changes as they come, until interrupted"
    )
    add_json(command)
    add_region(command)


def _read_moment(text: str) -> str:
    """A time as the API takes it, given as one or as an age."""
    match = _AGE.fullmatch(text)
    if match is not None:
        age = timedelta(seconds=int(match[1]) * _UNIT_S[match[2]])
        moment = datetime.fromtimestamp(SystemClock().now_ns() / 1e9, UTC) - age
    else:
        try:
            moment = read_time(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is refused: it must look like 1h, 30m or 2026-01-31T09:30:00Z"
            ) from None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def run(arguments: argparse.Namespace) -> int:
    if arguments.follow and (arguments.since or arguments.until):
        raise CommandError("--follow begins now: leave out --since and --until")
    if not arguments.follow:
        return QUESTION.run(arguments)
    with show_patience("logging in"):
        client = connect(arguments)
    return asyncio.run(follow(arguments, client, Screen()))


# -- what has happened --------------------------------------------------------------------------


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    """The newest events that are asked for, in the order in which they happened."""
    query = _make_query(arguments)
    query |= {name: getattr(arguments, name) for name in ("since", "until") if getattr(arguments, name)}
    events: list[dict[str, Any]] = []
    for number in itertools.count(1):
        room = _PAGE if number > 1 else min(arguments.limit, _PAGE)
        page = await client.fetch("GET", f"{_PATH}?{urlencode({**query, 'newest': 'true', 'limit': room})}")
        # People are shown news, so they are looked for; a program gets what there is.
        events += [one for one in page["events"] if arguments.json or _list_news(one, arguments.kind)]
        if page["complete"] or len(events) >= arguments.limit or number == _PAGES_MAX:
            break
        query["before"] = page["next"]
    return {
        "events": events[: arguments.limit][::-1],
        "looked_back_to": page["looked_back_to"],
        "looked_back_at": page["looked_back_at"],
    }


def _make_query(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(arguments, field) for field, name in _FILTERS}
    return {name: value for name, value in given.items() if value}


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    if not data["events"]:
        looked = f"; looked back to {data['looked_back_at']}" if data["looked_back_at"] else ""
        return f"there are no such changes{looked}"
    return stack(*(show_event(event, arguments.kind) for event in data["events"]))


def _list_news(event: dict[str, Any], kind: str | None) -> list[dict[str, Any]]:
    return [change for change in event["changes"] if change["kind"] == kind or change["kind"] not in _QUIET]


def show_event(event: dict[str, Any], kind: str | None = None) -> Text:
    """A line for the request, and a line for each of the first changes."""
    shown = Text(event["at"], style="bold")
    shown.append(
        f"  {event['index']}  {clean(event['user'] or '-')}  {clean(event['action'])}", style="not bold"
    )
    shown.append(f"  {clean(event['request_id'])}", style="not bold dim")
    changes = _list_news(event, kind)
    for change in changes[:_CHANGES_SHOWN]:
        shown.append(f"\n  {format_change(change, event.get('names', {}))}", style="not bold")
    more = len(changes) - _CHANGES_SHOWN
    if more > 0:
        shown.append(f"\n  {more:,} more", style="not bold")
    return shown


# -- what happens -------------------------------------------------------------------------------


async def follow(arguments: argparse.Namespace, client: Client, screen: Screen) -> int:
    """Print events as they come, until interrupted."""
    try:
        async for event in _stream(client, _make_query(arguments)):
            if arguments.json:
                screen.print_json(event, in_one_line=True)
            elif _list_news(event, arguments.kind):
                screen.print(show_event(event, arguments.kind))
    except ClientError as error:
        raise CommandError(str(error)) from error
    finally:
        await client.close()
    return 0


async def _stream(client: Client, query: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Events from now on, or from where a lost stream ended."""
    last: str | None = None
    while True:
        begin = {} if last is None else {"after": last}
        try:
            async for event in client.follow(f"{_PATH}?{urlencode({**query, **begin, 'stream': 'true'})}"):
                last = event.id or last
                if event.data is not None:
                    yield event.data
        except Unreachable:
            if last is None:
                raise
        await asyncio.sleep(_PAUSE_S)


QUESTION = Question(_fetch, _render)

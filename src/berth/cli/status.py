"""``berth status``: is everything well? The overview of a region in some fifteen lines."""

import argparse
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from berth.cli.changes import find_telling, format_change
from berth.cli.command import clean, describe
from berth.cli.figures import MAIN_CLASSES, format_age, format_use
from berth.cli.output import TableColumn, TableView, stack
from berth.cli.question import Question, add_question
from berth.client import Client
from berth.model.counts import count

_WRONG_SHOWN: Final = 3
_CHANGES_SHOWN: Final = 2
_FLAVORS_SHOWN: Final = 8


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "The status is 0 if nothing is wrong, and 1 if something is.")
    command.add_argument("--all", action="store_true", help="show everything that is wrong, and more changes")
    add_question(command)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    shown: dict[str, Any] = await client.fetch("GET", "/berth/v1/overview")
    return shown


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    overview = data["overview"]
    total = sum(overview["wrong_total"].values())
    heading = Text("all is well", style="bold green")
    if total:
        heading = Text(f"{count(total, 'thing')} {'is' if total == 1 else 'are'} wrong", style="bold red")
    parts: list[RenderableType] = [heading, _make_numbers(overview)]
    if overview["wrong"]:
        parts += ["", *_show_wrong(overview, arguments)]
    changes = overview["last_changes"] if arguments.all else overview["last_changes"][:_CHANGES_SHOWN]
    if changes:
        parts += ["", make_change_table(changes, arguments.now_s)]
    return stack(*parts)


def _make_numbers(overview: dict[str, Any]) -> Text:
    hosts, servers, total = overview["hosts"], overview["servers"], overview["capacity"]["total"]
    by_state = ", ".join(f"{number:,} {state}" for state, number in servers.items())
    fits = [_format_fit(one) for one in overview["flavors"][:_FLAVORS_SHOWN]]
    more = overview["flavors_total"] - len(fits)
    lines = Text(f"hosts     {hosts['up']:,} up")
    for name, style in (("down", "red"), ("disabled", "yellow"), ("complaining", "yellow")):
        lines.append(f", {hosts[name]:,} {name}", style=style if hosts[name] else "")
    lines.append(f"\nservers   {overview['servers_total']:,}" + (f": {by_state}" if by_state else ""))
    lines.append("\nused      ")
    shown = [name for name in MAIN_CLASSES if name in total] or list(total)
    lines.append_text(Text("   ").join(_label_use(name, total[name]) for name in shown))
    if fits:
        fits += [f"and {count(more, 'more flavor')}"] if more > 0 else []
        lines.append("\nmore fit  " + ", ".join(fits))
    return lines


def _label_use(name: str, use: dict[str, int]) -> Text:
    return Text.assemble(f"{name} ", format_use(name, use))


def _format_fit(flavor: dict[str, Any]) -> str:
    number = "?" if flavor["fits"] is None else f"{'' if flavor['exact'] else '>='}{flavor['fits']:,}"
    return f"{clean(flavor['name'])} {number}"


def _show_wrong(overview: dict[str, Any], arguments: argparse.Namespace) -> list[RenderableType]:
    shown = overview["wrong"] if arguments.all else overview["wrong"][:_WRONG_SHOWN]
    lines: list[RenderableType] = []
    for one in shown:
        since = f", since {format_age(one['since'], arguments.now_s)}" if one["since"] else ""
        kind = str(one["kind"]).replace("_", " ")
        name = clean(one["name"] or one["object"])
        lines.append(Text.assemble((f"{kind} {name}{since}: ", "red"), clean(one["text"])))
        lines.append(Text(f"  {clean(one['what_to_do'])}", style="dim"))
    more = sum(overview["wrong_total"].values()) - len(shown)
    if more > 0:
        lines.append(f"{more:,} more" + ("" if arguments.all else ": berth status --all"))
    return lines


def make_change_table(changes: list[dict[str, Any]], now_s: float) -> TableView:
    columns = (
        TableColumn("ago", is_number=True),
        "user",
        TableColumn("change", shrinks=True),
        TableColumn("request", shrinks=True),
    )
    rows = [
        (format_age(one["at"], now_s), one["user"] or "-", _format_changes(one), one["request_id"])
        for one in changes
    ]
    return TableView(columns, rows)


def _format_changes(event: dict[str, Any]) -> str:
    changes = event["changes"]
    more = event.get("changes_total", len(changes)) - 1
    text = format_change(find_telling(changes), event.get("names", {})) if changes else event["action"]
    return f"{text} (and {more} more)" if more > 0 else text


def _judge(data: dict[str, Any]) -> int:
    return 1 if data["overview"]["wrong"] else 0


QUESTION = Question(_fetch, _render, _judge)
run = QUESTION.run

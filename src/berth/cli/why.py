"""``berth why`` and ``berth fit``: why a request fits nowhere, and how many more would fit."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from berth.cli.command import CommandError, clean, describe, object_name, whole
from berth.cli.figures import format_age
from berth.cli.op import find_server
from berth.cli.output import Cell, TableColumn, TableView, stack
from berth.cli.question import Question, add_question
from berth.client import Client
from berth.model.counts import count

_COUNT_MAX: Final = 1_000
_AMOUNT_MAX: Final = 2**31 - 1
_FIT: Final = "fit"


def add_arguments(command: argparse.ArgumentParser) -> None:
    if command.prog.endswith(_FIT):
        describe(
            command,
            "berth fit --flavor m1.small\nThe status is 0 if at least one more fits, and 1 if none does.",
        )
    else:
        describe(
            command,
            "berth why db-3          what a server would need now, and why there is no room\n"
            "berth why --flavor m1.large --group db --zone z1 --count 3\n"
            "berth why --resource VCPU=64 --host host-0001\n"
            "The status is 0 if the request fits, and 1 if it does not.",
        )
        command.add_argument(
            "server",
            metavar="SERVER",
            nargs="?",
            type=object_name,
            help="id or name of a server, in place of a flavor",
        )
        command.add_argument(
            "--count",
            metavar="N",
            type=whole(1, _COUNT_MAX),
            default=1,
            help=f"how many are to be placed [1 to {_COUNT_MAX}, default 1]",
        )
        command.add_argument(
            "--host",
            metavar="HOST",
            action="append",
            default=[],
            help="a host to explain; may be repeated",
        )
    command.add_argument("--flavor", metavar="FLAVOR", help="name or id of a flavor")
    command.add_argument("--image", metavar="IMAGE", help="name or id of an image, beside a flavor")
    command.add_argument(
        "--resource",
        metavar="CLASS=N",
        type=_read_resource,
        action="append",
        default=[],
        help="an amount of a resource class, instead of a flavor or beside it; may be repeated",
    )
    command.add_argument(
        "--trait",
        metavar="TRAIT",
        action="append",
        default=[],
        help="a required trait; may be repeated",
    )
    command.add_argument("--group", metavar="GROUP", help="name or uuid of a server group")
    command.add_argument("--zone", metavar="ZONE", help="name of an availability zone")
    add_question(command)


def _read_resource(text: str) -> tuple[str, int]:
    name, equals, amount = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: it must look like VCPU=4")
    return name, whole(1, _AMOUNT_MAX)(amount)


# -- what is asked ------------------------------------------------------------------------------


def _make_ask(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.flavor is None and not arguments.resource:
        raise CommandError("what is to be placed is missing: give --flavor FLAVOR or --resource CLASS=N")
    ask: dict[str, Any] = {}
    for name in ("flavor", "image", "group", "zone"):
        if getattr(arguments, name) is not None:
            ask[name] = getattr(arguments, name)
    if arguments.resource:
        ask["resources"] = dict(arguments.resource)
    if arguments.trait:
        ask["required"] = arguments.trait
    return ask


# -- why ----------------------------------------------------------------------------------------


async def _fetch_explanation(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.server is None:
        asked = {**_make_ask(arguments), "count": arguments.count}
    else:
        _refuse_beside_server(arguments)
        server = await find_server(client, arguments.server)
        asked = {"server": server["id"]}
    asked["hosts"] = arguments.host
    explained: dict[str, Any] = await client.fetch("POST", "/berth/v1/explain", asked, is_read=True)
    return explained if arguments.server is None else explained | {"fault": server.get("fault")}


def _refuse_beside_server(arguments: argparse.Namespace) -> None:
    for name in ("flavor", "image", "resource", "trait", "group", "zone"):
        if getattr(arguments, name):
            raise CommandError(f"a server says what it needs: leave out --{name}")
    if arguments.count != 1:
        raise CommandError("a server is one: leave out --count")


def _render_explanation(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    explanation = data["explanation"]
    fitting, needed = explanation["fitting"], explanation["needed"]
    fault = data.get("fault")
    now = "" if fault is None else "now "
    fits = "it fits" if fault is None else "it would fit"
    words = f"{now}{fitting:,} of {needed:,} fit" if fitting < needed else f"{now}{fits}"
    parts: list[RenderableType] = [
        *(() if fault is None else _describe_fault(fault, arguments.now_s)),
        Text(words, style="bold red" if fitting < needed else "bold green"),
        "",
        _make_funnel(explanation),
    ]
    if explanation["refused"]:
        parts += ["", explanation["refused"]]
    if explanation["change"] is not None:
        parts += ["", Text(clean(explanation["change"]["text"]), style="bold")]
    for host in explanation["hosts"]:
        parts += ["", _explain_host(host)]
    return stack(*parts)


def _describe_fault(fault: dict[str, Any], now_s: float) -> Iterator[RenderableType]:
    """Why a server is in the status ERROR, as it was recorded then."""
    yield Text(f"in error for {format_age(fault['created'], now_s)}: {clean(fault['message'])}", style="red")
    if fault.get("details"):
        yield Text(f"then: {clean(fault['details'])}")
    yield ""


def _make_funnel(explanation: dict[str, Any]) -> TableView:
    columns = (
        "constraint",
        TableColumn("removed", is_number=True),
        TableColumn("left", is_number=True),
        TableColumn("removed hosts", shrinks=True),
    )
    rows: list[tuple[Cell, ...]] = [("all hosts", "", f"{explanation['hosts_total']:,}", "")]
    for step in explanation["steps"]:
        style = "red" if step["removed"] and not step["left"] else ""
        removed = Text(f"{step['removed']:,}" if step["removed"] else "-", style=style)
        asked = Text(clean(step["asked"]), style=style)
        rows.append((asked, removed, f"{step['left']:,}", _name_removed(step)))
    return TableView(columns, rows)


def _name_removed(step: dict[str, Any]) -> str:
    """The first of the hosts that a constraint removed, and which came nearest."""
    hosts = step.get("hosts") or []
    more = step["removed"] - len(hosts)
    names = ", ".join([*hosts, f"{more:,} more"] if hosts and more > 0 else hosts)
    return f"{names}; {step['nearest']}" if names and step["nearest"] else names or step["nearest"]


def _explain_host(host: dict[str, Any]) -> Text:
    shown = Text(clean(host["host"]), style="bold")
    shown.append(
        ": it fits" if host["fits"] else ": it does not fit", style="green" if host["fits"] else "red"
    )
    for check in host["checks"]:
        if not check["ok"]:
            shown.append(f"\n  {clean(check['asked'])}: {clean(check['found'])}", style="not bold")
    if host["refused"]:
        shown.append(f"\n  {clean(host['refused'])}", style="not bold")
    return shown


def _judge_explanation(data: dict[str, Any]) -> int:
    explanation = data["explanation"]
    return 0 if explanation["fitting"] >= explanation["needed"] else 1


# -- fit ----------------------------------------------------------------------------------------


async def _fetch_capacity(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    asked = _make_ask(arguments)
    counted: dict[str, Any] = await client.fetch("POST", "/berth/v1/capacity", asked, is_read=True)
    return counted


def _render_capacity(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    capacity = data["capacity"]
    least = "" if capacity["exact"] else "at least "
    words = f"{least}{capacity['count']:,} more fit, on {count(capacity['hosts'], 'host')}"
    heading = Text(words, style="bold" if capacity["count"] else "bold red")
    if not capacity["places"]:
        return heading
    columns = ("kind", "name", TableColumn("fit", is_number=True), TableColumn("hosts", is_number=True))
    rows = [
        (one["kind"] or "-", clean(one["name"] or one["aggregate"]), f"{one['count']:,}", f"{one['hosts']:,}")
        for one in capacity["places"]
    ]
    return stack(heading, "", TableView(columns, rows))


def _judge_capacity(data: dict[str, Any]) -> int:
    return 0 if data["capacity"]["count"] else 1


EXPLANATION = Question(_fetch_explanation, _render_explanation, _judge_explanation)
CAPACITY = Question(_fetch_capacity, _render_capacity, _judge_capacity)


def run(arguments: argparse.Namespace) -> int:
    return (CAPACITY if arguments.command == _FIT else EXPLANATION).run(arguments)

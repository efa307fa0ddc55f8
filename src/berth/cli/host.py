"""``berth host``: one host with all that it has and who holds it; to disable it, and to enable it again."""

import argparse
from typing import Any
from urllib.parse import quote

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from berth.cli.command import CommandError, clean, describe, name_in_path
from berth.cli.figures import format_amount, format_amounts
from berth.cli.hosts import describe_trouble
from berth.cli.output import TableColumn, TableView, mark, stack
from berth.cli.question import Question, add_question
from berth.client import Client
from berth.model.counts import count

_CPU_TRAITS = ("HW_CPU_", "HW_ARCH_")


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "berth host host-0001\n"
        "berth host host-0001 disable --reason 'new disks'\n"
        "berth host host-0001 enable\n\n"
        "A host that is disabled keeps what it has, and nothing new is scheduled to it.",
    )
    command.add_argument("host", metavar="HOST", type=name_in_path, help="name or uuid of the host")
    command.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        choices=("show", "enable", "disable"),
        default="show",
        help="show, enable or disable [show]",
    )
    command.add_argument("--reason", metavar="TEXT", help="with disable: why, for those who meet it")
    add_question(command)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    path = f"/berth/v1/hosts/{quote(arguments.host, safe='')}"
    if arguments.reason is not None and arguments.action != "disable":
        raise CommandError("--reason needs disable: berth host HOST disable --reason TEXT")
    if arguments.action != "show":
        if arguments.watch:
            raise CommandError(f"--watch would {arguments.action} the host every time: leave it out")
        change: dict[str, Any] = {"disabled": arguments.action == "disable"}
        if arguments.reason is not None:
            change["reason"] = arguments.reason
        await client.fetch("PATCH", path, {"host": change})
    shown: dict[str, Any] = await client.fetch("GET", path)
    return shown


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    host = data["host"]
    parts: list[RenderableType] = [_make_heading(host, arguments.now_s), _make_tree(host)]
    if host["consumers"]:
        parts += ["", make_holders(host["consumers"])]
        more = host["consumers_total"] - len(host["consumers"])
        if more:
            parts.append(f"{count(more, 'more is', 'more are')} not shown")
    else:
        parts.append("nobody holds anything on it")
    return stack(*parts)


def _make_heading(host: dict[str, Any], now_s: float) -> Text:
    heading = Text.assemble((clean(host["name"]), "bold"), "  ", mark(host["state"]), f"  {host['uuid']}")
    others = [one for one in host["domains"] if one["kind"] != "cell"]
    facts = [f"cell {host['cell']}"] if host["cell"] else []
    facts += [f"driver {host['driver']}"] if host["driver"] else []
    facts += [f"{one['kind']} {one['name'] or one['uuid']}" for one in others]
    facts += [count(host["servers"], "server")]
    heading.append(f"\n{clean(', '.join(facts))}\n")
    trouble = describe_trouble(host, now_s)
    if trouble:
        heading.append(f"{clean(trouble)}\n", style="yellow")
    return heading


def _make_tree(host: dict[str, Any]) -> RenderableType:
    """The provider tree; parents come before their children."""
    trees: dict[str, Tree] = {}
    for provider in host["providers"]:
        parent = trees.get(provider["parent"] or "")
        label = _label_provider(provider)
        trees[provider["uuid"]] = Tree(label) if parent is None else parent.add(label)
    if not trees:
        return "it has no providers"
    more = host["providers_total"] - len(host["providers"])
    tree = next(iter(trees.values()))
    return stack(tree, f"{count(more, 'more provider is', 'more providers are')} not shown") if more else tree


def _label_provider(provider: dict[str, Any]) -> Text:
    label = Text(clean(provider["name"]), style="bold")
    for name, one in provider["inventories"].items():
        capacity = int((one["total"] - one["reserved"]) * one["allocation_ratio"])
        words = f"{format_amount(name, one['used'])} of {format_amount(name, capacity)}"
        if one["reserved"]:
            words += f" ({format_amount(name, one['reserved'])} reserved)"
        if one["allocation_ratio"] != 1:
            words += f" (x{one['allocation_ratio']:g})"
        label.append(f"\n{name}: {words}", style="not bold")
    shown = [name for name in provider["traits"] if not name.startswith(_CPU_TRAITS)]
    if shown:
        label.append(f"\n{', '.join(shown)}", style="not bold cyan")
    return label


def make_holders(consumers: list[dict[str, Any]]) -> TableView:
    """Who holds what, however many providers it is on."""
    columns = ("holder", "type", "project", "holds", TableColumn("id", shrinks=True))
    rows = [
        (
            one["name"] or "-",
            one["type"],
            one["project_id"],
            format_amounts(sum_amounts(one["allocations"].values())),
            one["uuid"],
        )
        for one in consumers
    ]
    return TableView(columns, sorted(rows))


def sum_amounts(held: Any) -> dict[str, int]:
    """Amounts on several providers, by resource class."""
    total: dict[str, int] = {}
    for amounts in held:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


QUESTION = Question(_fetch, _render)
run = QUESTION.run

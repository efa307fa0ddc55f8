"""``berth cluster``: create, watch, scale, repair and delete clusters of servers.

A cluster that is described in a file or by options is checked as the API would check it before it is sent.
The status is 0 on success, and 1 when a cluster that was waited for is not active in the end.
"""

import argparse
import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from berth.cli.command import (
    DAY_S,
    CommandError,
    add_action,
    add_json,
    add_seconds,
    is_part_of_path,
    name_in_path,
    object_name,
    whole,
)
from berth.cli.heat_template import write
from berth.cli.output import Cell, Screen, TableColumn, TableView, mark
from berth.cli.region import add_region, connect
from berth.client import Client, ClientError

if TYPE_CHECKING:
    from berth.cli.command import Commands

from typing import Annotated, TypeVar

from msgspec import Meta

from berth.api.native.cluster_bodies import (
    CreateCluster,
    NewCluster,
    NewNodeGroup,
    objection,
    objection_to_groups,
)
from berth.model.clusters import NODE_GROUPS_MAX, NODES_MAX, RATIO_MAX
from berth.model.counts import count
from berth.runtime.clock import Clock, SystemClock

_PATH: Final = "/berth/v1/clusters"
_COLUMNS: Final = ("name", "state", "ready", "ratio", TableColumn("id", shrinks=True))
_NODE_COLUMNS: Final = (
    "node",
    "status",
    "host",
    "group",
    TableColumn("server", shrinks=True),
    TableColumn("note", shrinks=True),
)
_WAIT_S: Final = 3600
_GROUP_KEYS: Final = ("name", "flavor", "image", "count", "process")
_FILE_IS: Final = "TOML or JSON: what POST /berth/v1/clusters takes, {'cluster': {...}}"
SETTLED: Final = ("active", "degraded", "error")
PAUSE_S: Final = 0.5
_GONE: Final = 404
_AWAY: Final = (None, 503)
_BYTES_MAX: Final = 4 << 20


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "template":
        return _template(arguments)
    return asyncio.run(_act(arguments, connect(arguments)))


async def _act(arguments: argparse.Namespace, client: Client) -> int:
    try:
        return await _ACTIONS[arguments.action](client, arguments)
    except ClientError as error:
        raise CommandError(str(error)) from error
    finally:
        await client.close()


# -- actions ------------------------------------------------------------------------------------


async def _create(client: Client, arguments: argparse.Namespace) -> int:
    body = {"cluster": msgspec.to_builtins(read_description(arguments))}
    return await _report(client, arguments, (await client.fetch("POST", _PATH, body))["cluster"])


async def _list(client: Client, arguments: argparse.Namespace) -> int:
    clusters = [cluster async for cluster in client.walk(_PATH, "clusters")]
    _print(arguments, {"clusters": clusters}, TableView(_COLUMNS, [_format_row(one) for one in clusters]))
    return 0


async def _show(client: Client, arguments: argparse.Namespace) -> int:
    path = await _find_path(client, arguments.cluster)
    if arguments.wait:
        return await _wait(client, arguments, path)
    cluster = (await client.fetch("GET", path))["cluster"]
    _print(arguments, {"cluster": cluster}, *_render(cluster))
    return 0


async def _scale(client: Client, arguments: argparse.Namespace) -> int:
    counts = dict(arguments.counts)
    if len(counts) < len(arguments.counts):
        raise CommandError("a node group is given two counts: give it one")
    groups = () if arguments.add is None else read_node_groups(arguments.add)
    body: dict[str, Any] = {"counts": counts, "add": msgspec.to_builtins(groups), "remove": arguments.remove}
    if arguments.ratio is not None:
        body["anti_affinity_ratio"] = arguments.ratio
    path = await _find_path(client, arguments.cluster)
    scaled = await client.fetch("POST", f"{path}/scale", body)
    return await _report(client, arguments, scaled["cluster"])


async def _replace(client: Client, arguments: argparse.Namespace) -> int:
    path = await _find_path(client, arguments.cluster)
    node = quote(arguments.node, safe="")
    replaced = await client.fetch("POST", f"{path}/nodes/{node}/replace", {"force": arguments.force})
    return await _report(client, arguments, replaced["cluster"])


async def _delete(client: Client, arguments: argparse.Namespace) -> int:
    deleted = await client.fetch("DELETE", await _find_path(client, arguments.cluster))
    return await _report(client, arguments, deleted["cluster"])


_ACTIONS: Final[dict[str, Callable[[Client, argparse.Namespace], Awaitable[int]]]] = {
    "create": _create,
    "list": _list,
    "show": _show,
    "scale": _scale,
    "replace": _replace,
    "delete": _delete,
}


def _template(arguments: argparse.Namespace) -> int:
    made = write(read_description(arguments), arguments.output, overwrite=arguments.force)
    files = [str(file) for file in made.files]
    _print(arguments, {"files": files, "command": made.command}, "\n".join(files), f"\n{made.command}")
    return 0


# -- what they have in common -------------------------------------------------------------------


async def _find_path(client: Client, named: str) -> str:
    """The path of a cluster, given its id or its name."""
    found = (await client.fetch("GET", f"{_PATH}?limit=10&name={quote(named, safe='')}"))["clusters"]
    if len(found) > 1:
        ids = ", ".join(cluster["uuid"] for cluster in found)
        raise CommandError(f"several clusters are called {named}: name one by its id, {ids}")
    if not found and not is_part_of_path(named):
        raise CommandError(f"{client.endpoint} has no cluster {named}")
    return f"{_PATH}/{found[0]['uuid'] if found else quote(named, safe='')}"


async def _report(client: Client, arguments: argparse.Namespace, cluster: Any) -> int:
    """Print the cluster after a request; with --wait, wait until it is settled."""
    if not arguments.wait:
        heading = f"{cluster['uuid']}  {cluster['name']}"
        _print(arguments, {"cluster": cluster}, heading, summarize(cluster))
        return 0
    if not arguments.json:
        print(f"{cluster['uuid']}  {cluster['name']}")
    return await _wait(client, arguments, f"{_PATH}/{cluster['uuid']}")


async def _wait(client: Client, arguments: argparse.Namespace, path: str) -> int:
    # Where JSON is printed, it is alone on standard output.
    say = functools.partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    cluster = await watch(client, path, arguments.timeout, say=say)
    _print(arguments, {"cluster": cluster}, *(() if cluster is None else ("", *_render(cluster))))
    return 0 if cluster is None or cluster["state"] == "active" else 1


def _print(arguments: argparse.Namespace, data: Any, *shown: str | TableView) -> None:
    screen = Screen()
    if arguments.json:
        screen.print_json(data)
    else:
        screen.print(*shown)


def _format_row(cluster: Any) -> tuple[Cell, ...]:
    progress = cluster["progress"]
    ready = f"{progress['ready']}/{progress['wanted']}"
    return cluster["name"], mark(cluster["state"]), ready, _format_ratio(cluster), cluster["uuid"]


def _format_ratio(cluster: Any) -> str:
    if not cluster["anti_affinity"]:
        return "-"
    return f"{cluster['anti_affinity_ratio']} per {cluster['anti_affinity_domain']}"


def _render(cluster: Any) -> tuple[str, TableView]:
    heading = f"{cluster['uuid']}  {cluster['name']}  {_format_ratio(cluster)}\n{summarize(cluster)}\n"
    numbers = {group: str(number) for number, group in enumerate(cluster["groups"], 1)}
    rows = [
        (
            node["name"],
            mark(node["status"]),
            node["host_name"] or (node["host_id"] or "-")[:8],
            numbers.get(node["group_uuid"], "-"),
            node["server_uuid"],
            _format_note(node),
        )
        for node in cluster["nodes"]
    ]
    return heading, TableView(_NODE_COLUMNS, rows)


def _format_note(node: Any) -> str:
    said = [] if node["state"] == "wanted" else [node["state"]]
    said += ["host is down"] if node["host_down"] else []
    return "; ".join([*said, *([node["fault"]] if node["fault"] else [])])


# -- arguments -----------------------------------------------------------------------------------


def add_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_create(actions)
    _add_list(actions)
    _add_show(actions)
    _add_scale(actions)
    _add_replace(actions)
    _add_delete(actions)
    _add_template(actions)


def _add_create(actions: "Commands") -> None:
    create = add_action(
        actions,
        "create",
        "create a cluster, from a file or from flags",
        "berth cluster create --name db --anti-affinity voter \\\n"
        "  --node-group name=voters,flavor=m1.small,image=cirros,count=5,process=voter",
    )
    _add_description(create)
    _add_wait(create, "wait until it is built")
    _add_asking(create)


def _add_list(actions: "Commands") -> None:
    _add_asking(add_action(actions, "list", "list clusters"))


def _add_show(actions: "Commands") -> None:
    show = add_action(
        actions,
        "show",
        "show a cluster and its nodes",
        "With --watch the status is 0 if the cluster is active in the end, and 1 if it is not.",
    )
    _add_which(show)
    _add_wait(show, "print a line per change until the cluster is settled", "--watch")
    _add_asking(show)


def _add_scale(actions: "Commands") -> None:
    scale = add_action(actions, "scale", "give node groups more or fewer nodes, add and remove node groups")
    _add_which(scale)
    scale.add_argument(
        "counts",
        metavar="NODE_GROUP=COUNT",
        nargs="*",
        type=_read_count,
        help=f"number of nodes of the node group [0 to {NODES_MAX}]",
    )
    scale.add_argument(
        "--add", metavar="FILE", type=Path, help="node groups to add: {'node_groups': [...]} in TOML or JSON"
    )
    scale.add_argument(
        "--remove",
        metavar="NODE_GROUP",
        action="append",
        default=[],
        help="remove a node group with all its nodes",
    )
    scale.add_argument(
        "--ratio",
        metavar="N",
        type=whole(1, RATIO_MAX),
        help="refused unless it is the ratio that the cluster was created with",
    )
    _add_wait(scale, "wait until it has that many nodes")
    _add_asking(scale)


def _add_replace(actions: "Commands") -> None:
    replace = add_action(actions, "replace", "replace the server of a failed node")
    _add_which(replace)
    replace.add_argument(
        "node", metavar="NODE", type=name_in_path, help="name of the node (berth cluster show)"
    )
    replace.add_argument("--force", action="store_true", help="replace it even if it has not failed")
    _add_wait(replace, "wait until the node is ready again")
    _add_asking(replace)


def _add_delete(actions: "Commands") -> None:
    delete = add_action(actions, "delete", "delete a cluster and all its servers")
    _add_which(delete)
    _add_wait(delete, "wait until it is gone")
    _add_asking(delete)


def _add_template(actions: "Commands") -> None:
    template = add_action(
        actions,
        "template",
        "write a cluster as Heat templates, for a stock OpenStack",
        "No region is asked. Existing files are kept, unless --force is given.",
    )
    _add_description(template)
    template.add_argument(
        "--output", metavar="DIR", type=Path, default=Path(), help="folder for the templates [here]"
    )
    template.add_argument("--force", action="store_true", help="overwrite existing files")
    add_json(template)


# -- what several of them take ------------------------------------------------------------------


def _add_asking(command: argparse.ArgumentParser) -> None:
    add_json(command)
    add_region(command)


def _add_which(command: argparse.ArgumentParser) -> None:
    command.add_argument("cluster", metavar="ID|NAME", type=object_name, help="id or name of the cluster")


def _add_wait(command: argparse.ArgumentParser, what: str, flag: str = "--wait") -> None:
    command.add_argument(flag, dest="wait", action="store_true", help=what)
    add_seconds(command, "--timeout", _WAIT_S, 1, DAY_S, "how long to wait")


def _add_description(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", type=Path, nargs="?", help=_FILE_IS)
    flags = command.add_argument_group("instead of a file")
    flags.add_argument("--name", help="name of the cluster")
    flags.add_argument(
        "--anti-affinity",
        metavar="PROCESS",
        action="append",
        default=[],
        help="process whose nodes are kept apart; may be repeated",
    )
    flags.add_argument(
        "--ratio",
        metavar="N",
        type=whole(1, RATIO_MAX),
        help=f"how many of these nodes may share a host [1 to {RATIO_MAX}, default 1]",
    )
    flags.add_argument(
        "--domain", metavar="KIND", help="domain over which they are kept apart: host, rack, zone, ... [host]"
    )
    flags.add_argument(
        "--node-group",
        dest="node_groups",
        metavar="KEY=VALUE,...",
        type=_read_node_group,
        action="append",
        default=[],
        help=f"keys: {', '.join(_GROUP_KEYS)}; process and the option itself may be repeated",
    )


# -- values -------------------------------------------------------------------------------------


def _read_count(text: str) -> tuple[str, int]:
    name, equals, count = text.rpartition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: NODE_GROUP=COUNT is expected")
    return name, whole(0, NODES_MAX)(count)


def _read_node_group(text: str) -> dict[str, object]:
    """A node group as the API has it."""
    found: dict[str, object] = {}
    processes: list[str] = []
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if key not in _GROUP_KEYS or not equals or not value:
            raise argparse.ArgumentTypeError(
                f"{part!r} is refused: KEY=VALUE is expected, with one of the keys {', '.join(_GROUP_KEYS)}"
            )
        if key == "process":
            processes.append(value)
        elif key in found:
            raise argparse.ArgumentTypeError(f"{key} is given more than once in {text!r}")
        else:
            found[key] = whole(0, NODES_MAX)(value) if key == "count" else value
    return {**found, "processes": processes}


# -- descriptions: files and options -------------------------------------------------------------


class NodeGroups(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A file of node groups to add."""

    node_groups: Annotated[tuple[NewNodeGroup, ...], Meta(min_length=1, max_length=NODE_GROUPS_MAX)]


def read_description(arguments: argparse.Namespace) -> NewCluster:
    """The cluster in a file, or else in the options."""
    flags = _collect_flags(arguments)
    if arguments.file is not None and flags:
        raise CommandError(
            f"{arguments.file}: a file describes all of it: leave out --name, --node-group and the like"
        )
    where = "the options" if arguments.file is None else str(arguments.file)
    given = {"cluster": flags} if arguments.file is None else _read(arguments.file)
    cluster = _convert(given, CreateCluster, where).cluster
    _refuse(where, objection(cluster))
    return cluster


def read_node_groups(file: Path) -> tuple[NewNodeGroup, ...]:
    """The node groups in a file."""
    found = _convert(_read(file), NodeGroups, str(file)).node_groups
    _refuse(str(file), objection_to_groups(found))
    return found


def _collect_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        "name": arguments.name,
        "anti_affinity": arguments.anti_affinity,
        "anti_affinity_ratio": arguments.ratio,
        "anti_affinity_domain": arguments.domain,
        "node_groups": arguments.node_groups,
    }
    return {name: value for name, value in given.items() if value not in (None, [])}


def _read(file: Path) -> Any:
    try:
        with file.open("rb") as opened:
            content = opened.read(_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > _BYTES_MAX:
        raise CommandError(f"{file} is too large: {_BYTES_MAX} bytes are the most there can be")
    is_json = file.suffix == ".json" or content.lstrip().startswith(b"{")
    try:
        return msgspec.json.decode(content) if is_json else msgspec.toml.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        kind = "JSON" if is_json else "TOML"
        raise CommandError(f"{file}: this is not {kind}: {error}") from error


T = TypeVar("T", CreateCluster, NodeGroups)


def _convert(given: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise CommandError(f"{where}: {error}") from None


def _refuse(where: str, problem: str | None) -> None:
    if problem is not None:
        raise CommandError(f"{where}: {problem}")


# -- waiting -------------------------------------------------------------------------------------


async def watch(
    client: Client,
    path: str,
    timeout_s: float,
    clock: Clock | None = None,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    say: Callable[[str], None] = print,
) -> Any:
    """Print a line for every change until the cluster is settled, and return it; None when it is gone. A
    region that is unreachable is retried until the deadline."""
    clock = clock or SystemClock()
    deadline_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    said = ""
    while True:
        try:
            cluster = (await client.fetch("GET", path))["cluster"]
        except ClientError as error:
            if error.status == _GONE:
                say("deleted")
                return None
            if error.status not in _AWAY or clock.monotonic_ns() >= deadline_ns:
                raise
        else:
            line = summarize(cluster)
            if line != said:
                say(line)
                said = line
            if cluster["state"] in SETTLED:
                return cluster
        if clock.monotonic_ns() >= deadline_ns:
            raise CommandError(f"after {timeout_s:g} seconds the cluster is not settled; it is {said}")
        await pause(PAUSE_S)


def summarize(cluster: Any) -> str:
    """The state and the progress of a cluster, in a line."""
    progress = cluster["progress"]
    line = f"{cluster['state']}: {progress['ready']} of {count(progress['wanted'], 'node')} ready"
    if progress["leaving"]:
        line += f", {progress['leaving']} leaving"
    return line if cluster["fault"] is None else f"{line}; {cluster['fault']}"

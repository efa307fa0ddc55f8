"""``berth cluster``: clusters of servers, from the command line.

The status is 0 when it was done, 1 when a cluster that was waited for is not well, and 2 when something was
refused or nobody could be asked.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from berth.cli import cluster_file
from berth.cli.cluster_file import ClusterFileError
from berth.cli.cluster_watch import Overdue, sentence, watch
from berth.cli.doctor import table
from berth.cli.heat_template import TemplateError, write
from berth.cli.whom import FolderError, SecretError, region_client
from berth.client import Client, ClientError

_PATH: Final = "/berth/v1/clusters"
_COLUMNS: Final = ("id", "name", "state", "ready", "ratio")
_NODE_COLUMNS: Final = ("node", "status", "host", "group", "server", "note")


class _Which(Exception):
    """No cluster is meant, or several could be. The message is for the user."""


def run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.action == "template":
            return _template(arguments)
        return asyncio.run(_act(arguments, region_client(arguments, "member")))
    except (ClientError, ClusterFileError, FolderError, Overdue, SecretError, TemplateError, _Which) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2


async def _act(arguments: argparse.Namespace, client: Client) -> int:
    try:
        return await _ACTIONS[arguments.action](client, arguments)
    finally:
        await client.close()


# -- the commands -------------------------------------------------------------------------------


async def _create(client: Client, arguments: argparse.Namespace) -> int:
    body = {"cluster": msgspec.to_builtins(cluster_file.described(arguments))}
    return await _told(client, arguments, (await client.fetch("POST", _PATH, body))["cluster"])


async def _list(client: Client, arguments: argparse.Namespace) -> int:
    rows: list[tuple[str, ...]] = []
    path: str | None = _PATH
    while path is not None:
        page = await client.fetch("GET", path)
        rows += [_row(cluster) for cluster in page["clusters"]]
        path = page["next"]
    sys.stdout.write(table(_COLUMNS, rows))
    return 0


async def _show(client: Client, arguments: argparse.Namespace) -> int:
    path = await _which(client, arguments.cluster)
    if arguments.wait:
        return await _waited(client, arguments, path)
    _print((await client.fetch("GET", path))["cluster"])
    return 0


async def _scale(client: Client, arguments: argparse.Namespace) -> int:
    counts = dict(arguments.counts)
    if len(counts) < len(arguments.counts):
        raise _Which("a node group is given two counts: give it one")
    groups = () if arguments.add is None else cluster_file.node_groups(arguments.add)
    body: dict[str, Any] = {"counts": counts, "add": msgspec.to_builtins(groups), "remove": arguments.remove}
    if arguments.ratio is not None:
        body["anti_affinity_ratio"] = arguments.ratio
    path = await _which(client, arguments.cluster)
    scaled = await client.fetch("POST", f"{path}/scale", body)
    return await _told(client, arguments, scaled["cluster"])


async def _replace(client: Client, arguments: argparse.Namespace) -> int:
    path = await _which(client, arguments.cluster)
    node = quote(arguments.node, safe="")
    replaced = await client.fetch("POST", f"{path}/nodes/{node}/replace", {"force": arguments.force})
    return await _told(client, arguments, replaced["cluster"])


async def _delete(client: Client, arguments: argparse.Namespace) -> int:
    deleted = await client.fetch("DELETE", await _which(client, arguments.cluster))
    return await _told(client, arguments, deleted["cluster"])


_ACTIONS: Final[dict[str, Callable[[Client, argparse.Namespace], Awaitable[int]]]] = {
    "create": _create,
    "list": _list,
    "show": _show,
    "scale": _scale,
    "replace": _replace,
    "delete": _delete,
}


def _template(arguments: argparse.Namespace) -> int:
    made = write(cluster_file.described(arguments), arguments.output, overwrite=arguments.force)
    print("\n".join(map(str, made.files)))
    print(f"\n{made.command}")
    return 0


# -- what they have in common -------------------------------------------------------------------


async def _which(client: Client, named: str) -> str:
    """The path of a cluster that is named by its id or its name."""
    found: list[Any] = []
    if named:
        found = (await client.fetch("GET", f"{_PATH}?limit=10&name={quote(named, safe='')}"))["clusters"]
    if len(found) > 1:
        ids = ", ".join(cluster["uuid"] for cluster in found)
        raise _Which(f"several clusters are called {named}: name one by its id, {ids}")
    return f"{_PATH}/{found[0]['uuid'] if found else quote(named, safe='')}"


async def _told(client: Client, arguments: argparse.Namespace, cluster: Any) -> int:
    """What was begun; with --wait, what comes of it."""
    print(f"{cluster['uuid']}  {cluster['name']}")
    if arguments.wait:
        return await _waited(client, arguments, f"{_PATH}/{cluster['uuid']}")
    print(sentence(cluster))
    return 0


async def _waited(client: Client, arguments: argparse.Namespace, path: str) -> int:
    cluster = await watch(client, path, arguments.timeout)
    if cluster is None:
        return 0
    print()
    _print(cluster)
    return 0 if cluster["state"] == "active" else 1


def _row(cluster: Any) -> tuple[str, ...]:
    progress = cluster["progress"]
    ready = f"{progress['ready']}/{progress['wanted']}"
    return cluster["uuid"], cluster["name"], cluster["state"], ready, _ratio(cluster)


def _ratio(cluster: Any) -> str:
    if not cluster["anti_affinity"]:
        return "-"
    return f"{cluster['anti_affinity_ratio']} per {cluster['anti_affinity_domain']}"


def _print(cluster: Any) -> None:
    print(f"{cluster['uuid']}  {cluster['name']}  {_ratio(cluster)}\n{sentence(cluster)}\n")
    numbers = {group: str(number) for number, group in enumerate(cluster["groups"], 1)}
    rows = [
        (
            node["name"],
            node["status"],
            node["host_name"] or (node["host_id"] or "-")[:8],
            numbers.get(node["group_uuid"], "-"),
            node["server_uuid"],
            _note(node),
        )
        for node in cluster["nodes"]
    ]
    sys.stdout.write(table(_NODE_COLUMNS, rows))


def _note(node: Any) -> str:
    said = [] if node["state"] == "wanted" else [node["state"]]
    said += ["host is down"] if node["host_down"] else []
    return "; ".join([*said, *([node["fault"]] if node["fault"] else [])])

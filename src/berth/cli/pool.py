"""``berth pool``: list, show, create, change and delete pools, and make them what a fleet file says.

A pool is named by its name or its uuid, and so are the aggregates whose hosts can use it; a name must be that
of one aggregate.
"""

import argparse
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from berth.agent.fleet import FleetError, SimPool, aggregate_id, read_pools
from berth.cli.command import CommandError, add_action, add_json, object_name
from berth.cli.output import Screen, TableColumn, TableView, show_patience
from berth.cli.region import add_region, connect
from berth.client import Client, ClientError
from berth.model.counts import count
from berth.model.placement import AMOUNT_MAX

if TYPE_CHECKING:
    from berth.cli.command import Commands

_PATH: Final = "/berth/v1/pools"
_COLUMNS: Final = (
    "name",
    "resource class",
    TableColumn("used", is_number=True),
    TableColumn("capacity", is_number=True),
    TableColumn("hosts", is_number=True),
    TableColumn("id", shrinks=True),
)
_FIELDS: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_RESOURCE: Final = re.compile(
    rf"([A-Z][A-Z0-9_]*)(?::({'|'.join(_FIELDS)}))?=([0-9]{{1,10}}(?:\.[0-9]{{1,6}})?)"
)
_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

Resource = tuple[str, str, float]
"""A resource class, a field of its inventory, and the value."""


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(act(arguments, connect(arguments)))


async def act(arguments: argparse.Namespace, client: Client) -> int:
    screen = Screen()
    try:
        with show_patience(f"asking {client.endpoint}"):
            data, shown = await _ACTIONS[arguments.action](client, arguments)
    except (ClientError, FleetError) as error:
        raise CommandError(str(error)) from error
    finally:
        await client.close()
    if data is not None and arguments.json:
        screen.print_json(data)
    elif data is not None:
        screen.print(shown)
    return 0


async def apply_pools(client: Client, pools: Iterable[SimPool]) -> None:
    """Make pools what a fleet file says; ClientError if the region refuses one."""
    for pool in pools:
        described = {
            "name": pool.name,
            "inventories": {
                name: msgspec.structs.asdict(one.on_the_wire()) for name, one in pool.inventories.items()
            },
            "traits": pool.traits,
            "aggregates": tuple(dict.fromkeys(map(aggregate_id, pool.aggregates))),
        }
        await client.fetch("PUT", f"{_PATH}/{pool.id}", {"pool": described})


# -- actions: what --json prints, and what is shown to people -----------------------------------

Shown = tuple[Any, str | TableView]


async def _list(client: Client, arguments: argparse.Namespace) -> Shown:
    pools = [pool async for pool in client.walk(_PATH, "pools")]
    return {"pools": pools}, render_pools(pools)


def render_pools(pools: Iterable[Any]) -> TableView:
    return TableView(_COLUMNS, [row for pool in pools for row in _format_rows(pool)])


async def _show(client: Client, arguments: argparse.Namespace) -> Shown:
    pool = await _find(client, arguments.pool)
    hosts = sorted([host["name"] async for host in client.walk(f"{_PATH}/{pool['uuid']}/hosts", "hosts")])
    return {"pool": pool, "hosts": hosts}, f"{_describe(pool)}\nhosts: {', '.join(hosts) or 'none'}"


async def _create(client: Client, arguments: argparse.Namespace) -> Shown:
    described = {
        "name": arguments.name,
        "inventories": _amend({}, arguments.resource),
        "traits": arguments.trait or [],
        "aggregates": await _find_aggregates(client, arguments.aggregate or []),
    }
    created = await client.fetch("POST", _PATH, {"pool": described})
    return created, _describe(created["pool"])


async def _set(client: Client, arguments: argparse.Namespace) -> Shown:
    """What is not given stays. The region refuses it if the pool has changed meanwhile."""
    pool = await _find(client, arguments.pool)
    there = {name: _format_inventory(one) for name, one in pool["inventories"].items()}
    inventories = _amend(there, arguments.resource)
    for name in arguments.without:
        if inventories.pop(name, None) is None:
            raise CommandError(f"the pool {pool['name']} has no {name}")
    aggregates = [one["uuid"] for one in pool["aggregates"]]
    if arguments.aggregate is not None:
        aggregates = await _find_aggregates(client, arguments.aggregate)
    described = {
        "name": arguments.name or pool["name"],
        "generation": pool["generation"],
        "inventories": inventories,
        "traits": pool["traits"] if arguments.trait is None else arguments.trait,
        "aggregates": aggregates,
    }
    changed = await client.fetch("PUT", f"{_PATH}/{pool['uuid']}", {"pool": described})
    return changed, _describe(changed["pool"])


async def _delete(client: Client, arguments: argparse.Namespace) -> Shown:
    pool = await _find(client, arguments.pool)
    await client.fetch("DELETE", f"{_PATH}/{pool['uuid']}")
    return None, ""


async def _apply(client: Client, arguments: argparse.Namespace) -> Shown:
    pools = read_pools(arguments.fleet)
    if not pools:
        raise CommandError(f"{arguments.fleet}: there is no [[pool]] entry in it")
    await apply_pools(client, pools)
    applied = [{"uuid": pool.id, "name": pool.name} for pool in pools]
    return {"pools": applied}, "\n".join(f"{pool.id}  {pool.name}" for pool in pools)


_ACTIONS: Final[dict[str, Callable[[Client, argparse.Namespace], Awaitable[Shown]]]] = {
    "list": _list,
    "show": _show,
    "create": _create,
    "set": _set,
    "delete": _delete,
    "apply": _apply,
}


# -- what they have in common -------------------------------------------------------------------


async def _find(client: Client, named: str) -> Any:
    async for pool in client.walk(_PATH, "pools"):
        if named.lower() == pool["uuid"] or named == pool["name"]:
            return pool
    raise CommandError(f"there is no pool {named}")


async def _find_aggregates(client: Client, named: list[str]) -> list[str]:
    """The uuids of aggregates that are named by their uuids or names."""
    if all(_UUID.fullmatch(one) for one in named):
        return named
    ids: dict[str, list[str]] = {}
    async for aggregate in client.walk("/berth/v1/aggregates", "aggregates"):
        ids.setdefault(aggregate["name"], []).append(aggregate["uuid"])
    return [one if _UUID.fullmatch(one) else _choose(one, ids.get(one, [])) for one in named]


def _choose(name: str, ids: list[str]) -> str:
    if not ids:
        raise CommandError(f"no aggregate is called {name}: name it by its uuid")
    if len(ids) > 1:
        raise CommandError(f"several aggregates are called {name}: name one by its uuid, {', '.join(ids)}")
    return ids[0]


def _amend(inventories: dict[str, dict[str, float]], given: list[Resource]) -> dict[str, dict[str, float]]:
    after = {name: dict(fields) for name, fields in inventories.items()}
    for name, field, value in given:
        after.setdefault(name, {})[field] = value
    for name, fields in after.items():
        if "total" not in fields:
            raise CommandError(f"--resource: {name} has no total: give {name}=TOTAL too")
    return after


def _format_inventory(inventory: dict[str, float]) -> dict[str, float]:
    """What a pool is described by, of what is shown of it."""
    return {field: inventory[field] for field in _FIELDS}


def _format_rows(pool: Any) -> Iterable[tuple[str, ...]]:
    for name, one in pool["inventories"].items():
        yield (pool["name"], name, str(one["used"]), str(one["capacity"]), str(pool["hosts"]), pool["uuid"])


def _describe(pool: Any) -> str:
    lines = [f"{pool['uuid']}  {pool['name']}"]
    for name, one in pool["inventories"].items():
        lines.append(f"{name}: {one['used']} of {one['capacity']} used, {one['free']} free")
    if pool["traits"]:
        lines.append(f"traits: {', '.join(pool['traits'])}")
    aggregates = [one["uuid"] + (f" ({one['name']})" if one["name"] else "") for one in pool["aggregates"]]
    lines.append(f"aggregates: {', '.join(aggregates) or 'none'}; {count(pool['hosts'], 'host')} can use it")
    return "\n".join(lines)


# -- arguments ----------------------------------------------------------------------------------


def add_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_asking(add_action(actions, "list", "list pools, with what is used of them"))
    _add_named(actions, "show", "show a pool and the hosts that can use it")
    _add_create(actions)
    _add_set(actions)
    _add_named(actions, "delete", "delete a pool of which nothing is in use")
    _add_apply(actions)


def _add_asking(action: argparse.ArgumentParser) -> None:
    add_json(action)
    add_region(action)


def _add_named(actions: "Commands", name: str, summary: str) -> argparse.ArgumentParser:
    action = add_action(actions, name, summary)
    action.add_argument("pool", metavar="POOL", type=object_name, help="name or uuid of the pool")
    _add_asking(action)
    return action


def _add_create(actions: "Commands") -> None:
    create = add_action(
        actions,
        "create",
        "create a pool",
        "berth pool create nas --resource DISK_GB=10000 --resource DISK_GB:reserved=500 --aggregate rack-7",
    )
    create.add_argument("name", metavar="NAME", help="name of the pool")
    _add_parts(create, is_required=True)
    _add_asking(create)


def _add_set(actions: "Commands") -> None:
    change = _add_named(actions, "set", "change a pool; what is not given stays as it is")
    change.add_argument("--name", metavar="NAME", help="new name of the pool")
    change.add_argument(
        "--without",
        metavar="CLASS",
        action="append",
        default=[],
        help="remove a resource class of which nothing is in use; may be repeated",
    )
    _add_parts(change, is_required=False)


def _add_parts(action: argparse.ArgumentParser, *, is_required: bool) -> None:
    action.add_argument(
        "--resource",
        metavar="CLASS[:FIELD]=N",
        type=_read_resource,
        action="append",
        required=is_required,
        default=[],
        help=f"total of a resource class, or another field of it ({', '.join(_FIELDS[1:])}); may be repeated",
    )
    action.add_argument(
        "--trait", metavar="TRAIT", action="append", help="a trait of the pool; may be repeated"
    )
    action.add_argument(
        "--aggregate",
        metavar="AGGREGATE",
        action="append",
        help="name or uuid of an aggregate whose hosts can use the pool; may be repeated",
    )


def _add_apply(actions: "Commands") -> None:
    apply = add_action(
        actions,
        "apply",
        "create pools, or change them, so that they are what a fleet file says",
        "A pool that the file does not name stays as it is.",
    )
    apply.add_argument(
        "--fleet", metavar="FILE", type=Path, required=True, help="TOML file with [[pool]] entries"
    )
    _add_asking(apply)


def _read_resource(text: str) -> Resource:
    match = _RESOURCE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is refused: it must look like DISK_GB=100 or DISK_GB:reserved=10"
        )
    name, field, value = match[1], match[2] or "total", match[3]
    if field == "allocation_ratio":
        return name, field, float(value)
    if "." in value or int(value) > AMOUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: {field} is a whole number from 0 to {AMOUNT_MAX}")
    return name, field, int(value)

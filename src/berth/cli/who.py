"""``berth who``: who holds a host or a provider, or what a consumer holds.

    {"held": {"kind": "host" | "provider" | "consumer", "uuid", "name"},
     "holders": [{"uuid", "type", "project_id", "name", "allocations": {provider: amounts}}],
     "providers": {uuid: name}}

A consumer has itself as its only holder.
"""

import argparse
from typing import Any, Final
from urllib.parse import quote, urlencode

from rich.console import RenderableType

from berth.cli.command import CommandError, describe, is_part_of_path, object_name
from berth.cli.figures import format_amounts
from berth.cli.host import make_holders
from berth.cli.op import UUID
from berth.cli.output import TableView, stack
from berth.cli.question import Question, add_question
from berth.client import Client, ClientError

_NOT_A_HOST: Final = (400, 404, 409)


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "berth who host-0001                               who holds what on a host\n"
        "berth who 5a8f6d1e-4c1b-4c57-9d2b-0f1c2d3e4f50    what a server, or any consumer, holds",
    )
    command.add_argument(
        "object",
        metavar="HOST|UUID",
        type=object_name,
        help="a host or provider by name or uuid, or a consumer by uuid",
    )
    add_question(command)


async def _fetch(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    named = arguments.object
    found = await _find_on_host(client, named) or await _find_on_provider(client, named)
    if found is None and UUID.fullmatch(named):
        found = await _find_consumer(client, named.lower())
    if found is None:
        raise CommandError(f"{client.endpoint} knows no host, provider or consumer {named}")
    return found


async def _find_on_host(client: Client, named: str) -> dict[str, Any] | None:
    if not is_part_of_path(named):
        return None
    try:
        host = (await client.fetch("GET", f"/berth/v1/hosts/{quote(named, safe='')}"))["host"]
    except ClientError as error:
        if error.status in _NOT_A_HOST:
            return None
        raise
    return {
        "held": {"kind": "host", "uuid": host["uuid"], "name": host["name"]},
        "holders": host["consumers"],
        "providers": {one["uuid"]: one["name"] for one in host["providers"]},
    }


async def _find_on_provider(client: Client, named: str) -> dict[str, Any] | None:
    key = "uuid" if UUID.fullmatch(named) else "name"
    known = await client.fetch("GET", f"/resource_providers?{urlencode({key: named})}")
    if not known["resource_providers"]:
        return None
    [provider] = known["resource_providers"]
    uuid, name = provider["uuid"], provider["name"]
    path = f"/berth/v1/allocations?limit=1000&provider={uuid}"
    holders = [
        {
            "uuid": row["consumer_uuid"],
            "type": row["consumer_type"],
            "project_id": row["project_id"],
            "name": row["consumer_name"],
            "allocations": {uuid: row["resources"]},
        }
        async for row in client.walk(path, "allocations")
    ]
    held = {"kind": "provider", "uuid": uuid, "name": name}
    return {"held": held, "holders": holders, "providers": {uuid: name}}


async def _find_consumer(client: Client, id: str) -> dict[str, Any] | None:
    found = await client.fetch("GET", f"/allocations/{id}")
    if not found["allocations"]:
        return None
    names = {
        provider: (await client.fetch("GET", f"/resource_providers/{provider}"))["name"]
        for provider in found["allocations"]
    }
    holder = {
        "uuid": id,
        "type": found["consumer_type"],
        "project_id": found["project_id"],
        "name": await _find_server_name(client, id),
        "allocations": {
            provider: held["resources"] for provider, held in sorted(found["allocations"].items())
        },
    }
    held = {"kind": "consumer", "uuid": id, "name": holder["name"]}
    return {"held": held, "holders": [holder], "providers": names}


async def _find_server_name(client: Client, id: str) -> str | None:
    answer = await client.ask("GET", f"/compute/v2.1/servers/{id}")
    return str(answer.body["server"]["name"]) if answer.status == 200 else None


def _render(data: dict[str, Any], arguments: argparse.Namespace) -> RenderableType:
    held = data["held"]
    if held["kind"] != "consumer":
        if not data["holders"]:
            return f"nobody holds anything on {held['name']}"
        return make_holders(data["holders"])
    [holder] = data["holders"]
    rows = [
        (data["providers"][provider], format_amounts(amounts), provider)
        for provider, amounts in holder["allocations"].items()
    ]
    name = f"{holder['name']}  " if holder["name"] else ""
    heading = f"{name}{holder['uuid']}  {holder['type']} of project {holder['project_id']} holds\n"
    return stack(heading, TableView(("provider", "holds", "id"), sorted(rows)))


QUESTION = Question(_fetch, _render)
run = QUESTION.run

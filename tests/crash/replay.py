"""The journal replayed offline, beside what a running server says."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from berth.engine import replay
from berth.journal import SqliteAddress, open_journal
from berth.view import ProviderRecord, View
from tests.placement import PlacementClient


def replayed(database: Path) -> View:
    """A view made from nothing but the journal. The files are copied: a running server holds their lock."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, database.name)
        for suffix in ("", "-wal"):
            part = database.with_name(database.name + suffix)
            if part.exists():
                shutil.copy(part, copy.with_name(copy.name + suffix))
        journal = open_journal(SqliteAddress(copy), shared=False)
        try:
            view = View()
            replay(journal, view)
            return view
        finally:
            journal.close()


def assert_replay_equals_server(database: Path, url: str) -> None:
    """A quiet server's providers and consumers are those that follow from its journal."""
    view = replayed(database)
    client = PlacementClient(url, "1.39")
    listed = client("GET", "/resource_providers")["resource_providers"]
    assert {row["uuid"] for row in listed} == set(view.providers)
    for row in listed:
        record = view.providers[row["uuid"]]
        assert server_provider(client, row) == replayed_provider(view, record)
    for consumer, holder in view.consumers.items():
        body = client("GET", f"/allocations/{consumer}")
        held = {
            provider: {view.classes.name_of(id): amount for id, amount in amounts}
            for provider, amounts in holder.held
        }
        assert {id: part["resources"] for id, part in body["allocations"].items()} == held
        if held:
            assert body["consumer_generation"] == holder.consumer.generation
            assert body["consumer_type"] == (holder.consumer.type or "unknown")
            assert (body["project_id"], body["user_id"]) == (holder.consumer.project, holder.consumer.user)
    client.close()


def server_provider(client: PlacementClient, row: Any) -> dict[str, object]:
    path = f"/resource_providers/{row['uuid']}"
    return {
        "name": row["name"],
        "generation": row["generation"],
        "parent": row["parent_provider_uuid"],
        "root": row["root_provider_uuid"],
        "inventories": {
            name: (inventory["total"], inventory["reserved"], inventory["allocation_ratio"])
            for name, inventory in client("GET", f"{path}/inventories")["inventories"].items()
        },
        "usages": client("GET", f"{path}/usages")["usages"],
        "traits": sorted(client("GET", f"{path}/traits")["traits"]),
        "aggregates": sorted(client("GET", f"{path}/aggregates")["aggregates"]),
        "consumers": sorted(client("GET", f"{path}/allocations")["allocations"]),
    }


def replayed_provider(view: View, record: ProviderRecord) -> dict[str, object]:
    name_of = view.classes.name_of
    return {
        "name": record.name,
        "generation": record.generation,
        "parent": record.parent.id if record.parent else None,
        "root": record.root.id,
        "inventories": {
            name_of(id): (inventory.total, inventory.reserved, inventory.allocation_ratio)
            for id, inventory in record.inventories.items()
        },
        "usages": {name_of(id): record.used.get(id, 0) for id in record.inventories},
        "traits": sorted(record.traits),
        "aggregates": sorted(record.aggregates),
        "consumers": sorted(record.consumers),
    }

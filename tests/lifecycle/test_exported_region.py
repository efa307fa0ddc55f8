"""What a region with servers leaves behind when its ledger is exported, and what it does not."""

from berth.exporting import count_unplaced
from berth.exporting.rows import LedgerRows
from berth.sim.cloud import SimCloud
from tests.lifecycle.stories import beginning, done, new_server


async def test_what_servers_and_migrations_hold_is_exported_and_they_are_not() -> None:
    async with SimCloud(seed=3, hosts=3).running() as cloud:
        server = new_server(cloud)
        await done(cloud, "create", server)
        assert await cloud.begin(beginning(cloud, "resize", server)) is None
        resized = await cloud.at_rest(server.id)
        assert resized is not None
        tables, unplaced = await cloud.read(
            lambda view: (
                {name: list(rows) for name, rows in LedgerRows(view, {}, {}, 5).tables()},
                count_unplaced(view),
            )
        )
    assert unplaced == {
        "servers": 1,
        "migrations": 1,
        "hosts with agents (whether they are up)": 3,
        "cells": 1,
        "labels of aggregates (racks, zones, cells)": 1,
    }
    types = {row["id"]: row["name"] for row in tables["consumer_types"]}
    consumers = {row["uuid"]: types[row["consumer_type_id"]] for row in tables["consumers"]}
    assert consumers == {server.id: "INSTANCE", resized.migration: "MIGRATION"}
    assert {row["consumer_id"] for row in tables["allocations"]} == consumers.keys()
    providers = {row["id"]: row["root_provider_id"] for row in tables["resource_providers"]}
    assert len({providers[row["resource_provider_id"]] for row in tables["allocations"]}) == 2

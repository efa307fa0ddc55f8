"""A fleet written straight into the tables of OpenStack Placement, as its API would have left them.

Through the API it would take upstream minutes for every thousand hosts. ``measure.check_fleet`` asks the API
afterwards whether it is the same fleet.
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from placement.db.sqlalchemy import models

from bench.fleets import FleetProvider
from berth.exporting.rows import make_inventory_row

Row = dict[str, Any]
Ids = dict[str, int]


def write_fleet(connection: sa.Connection, providers: Iterable[FleetProvider]) -> None:
    """Into a database that has the schema and the standard names, and no providers."""
    fleet = list(providers)
    rows = {provider.name: number for number, provider in enumerate(fleet, 1)}
    classes = _ids(connection, models.ResourceClass)
    _insert(connection, models.ResourceProvider, _providers(fleet, rows))
    _insert(
        connection,
        models.Inventory,
        [
            make_inventory_row(rows[provider.name], classes[name], inventory)
            for provider in fleet
            for name, inventory in provider.inventories.items()
        ],
    )
    _write_traits(connection, fleet, rows)
    _write_aggregates(connection, fleet, rows)


def _providers(fleet: list[FleetProvider], rows: Ids) -> list[Row]:
    roots: Ids = {}
    found = []
    for provider in fleet:
        row = rows[provider.name]
        roots[provider.name] = row if provider.parent is None else roots[provider.parent]
        found.append(
            {
                "id": row,
                "uuid": provider.id,
                "name": provider.name,
                "generation": provider.generation,
                "root_provider_id": roots[provider.name],
                "parent_provider_id": None if provider.parent is None else rows[provider.parent],
            }
        )
    return found


def _write_traits(connection: sa.Connection, fleet: list[FleetProvider], rows: Ids) -> None:
    known = _ids(connection, models.Trait)
    custom = {name for provider in fleet for name in provider.traits} - known.keys()
    _insert(connection, models.Trait, [{"name": name} for name in sorted(custom)])
    traits = _ids(connection, models.Trait)
    has = [
        {"resource_provider_id": rows[provider.name], "trait_id": traits[name]}
        for provider in fleet
        for name in provider.traits
    ]
    _insert(connection, models.ResourceProviderTrait, has)


def _write_aggregates(connection: sa.Connection, fleet: list[FleetProvider], rows: Ids) -> None:
    uuids = sorted({uuid for provider in fleet for uuid in provider.aggregates})
    aggregates = {uuid: number for number, uuid in enumerate(uuids, 1)}
    ids = [{"id": number, "uuid": uuid} for uuid, number in aggregates.items()]
    _insert(connection, models.PlacementAggregate, ids)
    members = [
        {"resource_provider_id": rows[provider.name], "aggregate_id": aggregates[uuid]}
        for provider in fleet
        for uuid in provider.aggregates
    ]
    _insert(connection, models.ResourceProviderAggregate, members)


def _ids(connection: sa.Connection, model: Any) -> Ids:
    table = model.__table__
    return {row.name: row.id for row in connection.execute(sa.select(table.c.name, table.c.id))}


def _insert(connection: sa.Connection, model: Any, rows: list[Row]) -> None:
    if rows:
        connection.execute(sa.insert(model.__table__), rows)

"""What must hold in a cloud that rests, whatever has happened in it before.

* Every process has the same view of a journal as one that reads it anew; and what a view derives from its
  facts is what follows from them.
* A server holds what its flavor says, at the place where it is, and nothing if it is nowhere.
* A migration holds something only while its server can still go back, or its host has not come back.
"""

import asyncio
from collections.abc import Iterator

from berth.engine import Engine
from berth.engine.snapshots import start_view
from berth.model.ids import Index
from berth.model.servers import Migration, Server
from berth.sim.audit import Ledger
from berth.sim.database import Database
from berth.sim.simulation import Simulation
from berth.view import View
from berth.view.snapshot import dump, load

_LOOK_S = 1.0


async def check_views(simulation: Simulation) -> None:
    cloud = simulation.cloud
    for worker in cloud.workers:
        if worker.parts is not None:
            await _check_view(simulation, worker.name, worker.parts.services.engine, cloud.database)
    for cell in cloud.cells.values():
        if cell.engine is not None:
            await _check_view(simulation, cell.name, cell.engine, cell.database)


async def _check_view(simulation: Simulation, name: str, engine: Engine, database: Database) -> None:
    def read(view: View) -> tuple[Index, dict[str, object], dict[str, object]]:
        return view.index, view.state(), load(dump(view)).state()

    while True:
        truth = start_view(database.open(simulation.cloud.outside))
        index, state, derived = await engine.read(read)
        if index == truth.index:
            break
        await asyncio.sleep(_LOOK_S)
    anew = truth.state()
    for part, found in state.items():
        if found != anew[part]:
            simulation.fail(f"{name} has another view of {part} than the journal")
        if found != derived[part]:
            simulation.fail(f"what {name} has of {part} does not follow from the facts")


async def check_holdings(simulation: Simulation) -> None:
    ledger = simulation.ledger
    for server in ledger.servers.values():
        for wrong in _judge_server(ledger, server):
            simulation.fail(f"server {server.id} ({server.state}) {wrong}")
    for migration in ledger.records(Migration).values():
        owner = ledger.servers.get(migration.server)
        may_return = owner is not None and owner.migration == migration.id and migration.status != "error"
        if ledger.held(migration.id) and not may_return:
            simulation.fail(f"migration {migration.id} ({migration.status}) holds something")


def _judge_server(ledger: Ledger, server: Server) -> Iterator[str]:
    held = ledger.held(server.id)
    if server.place is None:
        if held:
            yield "is nowhere and holds something"
        return
    roots = {ledger.root(provider) for provider, _ in held}
    if roots != {server.place.id} and server.migration is None:
        yield f"is at {server.place.id} and holds something at {sorted(roots)}"
    total = ledger.sum_held(server.id)
    said = {"VCPU": server.flavor.vcpus, "MEMORY_MB": server.flavor.memory_mb}
    if any(total.get(name, 0) != amount for name, amount in said.items()):
        yield f"holds {total}, and its flavor says {said}"

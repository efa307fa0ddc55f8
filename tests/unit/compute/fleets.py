"""Hosts as a region comes to know them: by what their cell says of their agents."""

from berth.model.commands import Enact
from berth.model.saga_runs import Agent
from berth.region.cell_records import apply_host
from berth.sagas.hosts import cell_aggregate
from tests.worlds import INVENTORY, LARGE, SMALL, RegionWorld, uuid_of

CELL = "cell-1"


async def hear(region: RegionWorld, number: int, *, is_down: bool = False, cell: str = CELL) -> None:
    """The status sync brings up what the cell knows of a host."""
    agent = Agent(id=uuid_of(number), name=f"host-{number}", driver="sim", is_down=is_down)
    await region.enact(lambda view, now_s: apply_host(view, agent, cell, now_s) or Enact(()))


async def known_fleet(region: RegionWorld, count: int = 3) -> None:
    """Hosts host-1.. of one cell, with agents; and flavors."""
    for number in range(1, count + 1):
        await region.host(number, INVENTORY)
        await region.join(number, cell_aggregate(CELL))
        await hear(region, number)
    await region.put(SMALL, LARGE)

"""The operations of the lifecycle profile in small cells, of which servers move from one to the other.

Each cell has few hosts, so that a resize often finds none in its own; cold migrations name a host of any
cell.
"""

import random
from typing import Final

from berth.cell.conductor import Deadlines
from berth.model.servers import Server
from berth.sim.cloud import SimCloud
from berth.sim.profiles.lifecycle import LifecycleProfile, Operation, make_fleet
from berth.sim.simulation import Act

_HOSTS: Final = 8


class CrossingProfile(LifecycleProfile):
    name = "crossing"

    def cloud(self, seed: int) -> SimCloud:
        return SimCloud(
            seed=seed,
            cells=4,
            fleet=make_fleet(_HOSTS, every=2),
            racks=2,
            workers=2,
            deadlines=Deadlines(60, 300, 600),
            quota_instances=16,
            cross_cell_moves=True,
        )

    def choices(self) -> list[tuple[float, str, Act]]:
        return [*super().choices(), (12, "migrate to a host", Operation("migrate", _choose_host))]


def _choose_host(rng: random.Random, server: Server) -> dict[str, str]:
    return {"host": f"host-{rng.randint(1, _HOSTS):04d}"}

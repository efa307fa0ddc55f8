"""What an engine tells the metrics all the time: that its process is at work, how far it has read, whether it
can use its database, and which snapshot is the newest."""

import asyncio
import contextlib
from typing import Final

from berth.engine.engine import Engine, Overloaded, Unavailable
from berth.runtime.telemetry import Telemetry

_BEAT_S: Final = 1.0
_PROBE_S: Final = 5.0
"""How often the database is used on behalf of the metrics: where nobody asks for anything, nobody else would
find out that it is away."""
_PROBES_PER_SNAPSHOT: Final = 6


async def keep_figures(engine: Engine, telemetry: Telemetry) -> None:
    """Tell it until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_beat(engine, telemetry))
        group.create_task(_probe(engine, telemetry))


async def _beat(engine: Engine, telemetry: Telemetry) -> None:
    while True:
        telemetry.beat(int(engine.view.index), is_database_up=engine.ready is None)
        await asyncio.sleep(_BEAT_S)


async def _probe(engine: Engine, telemetry: Telemetry) -> None:
    probes = 0
    while True:
        with contextlib.suppress(Unavailable, Overloaded):
            # It only reads: a database whose disk is full may not survive one more write.
            await engine.read(lambda view: None)
            if probes % _PROBES_PER_SNAPSHOT == 0:
                newest = await engine.newest_snapshot()
                if newest is not None:
                    telemetry.set_snapshot(newest.index, newest.at_ns / 1e9)
            probes += 1
        await asyncio.sleep(_PROBE_S)

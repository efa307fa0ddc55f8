"""A client of the event stream. It reconnects where it was cut, from the last index that it was told whole.

What it is told is held against the rows that have got into the region's journal: each of them once, in order,
and none that is not there. Where it is told that the journal does not reach back so far, that must be so.
"""

import asyncio
import contextlib
from typing import Any, Final

import httpx
import msgspec

from berth.client import WireRequest
from berth.journal import JournalRow
from berth.model.events import Batch
from berth.sim.cloud import REGION
from berth.sim.simulation import Simulation
from berth.sim.world import Process

_RETRY_S: Final = 1.0
_LOOK_S: Final = 5.0
_HEADERS: Final = ((b"x-auth-token", b"admin"), (b"accept", b"text/event-stream"))

Told = list[tuple[str, int]]
"""Of each request that has written at an index: its id, and how many changes."""


def watch_events(simulation: Simulation) -> None:
    """Have a client follow the event stream from now on."""
    watcher = simulation.facts["watcher"] = EventWatcher(simulation)
    watcher.start()


async def check_events(simulation: Simulation) -> None:
    """At rest that client is told of everything."""
    await simulation.facts["watcher"].check_caught_up()


class EventWatcher:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._cloud = simulation.cloud
        self._rows: dict[int, Told] = {}
        self._at = 0
        # What was told of the index behind that one, so far.
        self._told: Told = []
        self._cloud.database.appended.append(self._on_row)

    def start(self) -> None:
        """Begin at the journal's end."""
        self._at = self._simulation.ledger.index
        self._cloud.outside.spawn(self._run())

    async def check_caught_up(self) -> None:
        """Return when it was told of everything."""
        while self._at < self._simulation.ledger.index:
            self._simulation.waits_for = f"the event stream is at index {self._at}"
            await asyncio.sleep(_LOOK_S)

    def _on_row(self, process: Process, row: JournalRow, batch: Batch) -> None:
        self._rows[row.index] = [(entry.origin.request_id, len(entry.events)) for entry in batch.entries]

    # -- following ------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                with contextlib.suppress(httpx.TransportError, TimeoutError):
                    await self._follow()
                await asyncio.sleep(_RETRY_S)
        except Exception as error:
            # A client that is killed while it waits for the stream cannot close it.
            if self._cloud.outside.is_alive:
                self._simulation.fail(f"the client of the event stream ends: {error!r}")

    async def _follow(self) -> None:
        """Read one stream to its end. A connection on which nothing comes is given up."""
        headers = [*_HEADERS, (b"last-event-id", b"%d" % self._at)]
        request = WireRequest("GET", "/berth/v1/events", headers)
        quiet_s = 3 * self._cloud.settings.event_heartbeat_seconds
        messages = self._cloud.network.stream(self._cloud.outside, REGION, request)
        self._told = []
        status, unread = 0, b""
        try:
            while True:
                async with asyncio.timeout(quiet_s):
                    message = await anext(messages, None)
                if message is None:
                    break
                status = message.get("status", status)
                unread += message.get("body", b"")
                if status == 200:
                    *blocks, unread = unread.split(b"\n\n")
                    for block in blocks:
                        self._take(block.decode())
        finally:
            await messages.aclose()
        if status != 200:
            self._take_refusal(msgspec.json.decode(unread)["errors"][0])

    def _take(self, block: str) -> None:
        """One event."""
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        match fields.get("event"):
            case "error":
                self._take_refusal(msgspec.json.decode(fields["data"]))
            case "change":
                event = msgspec.json.decode(fields["data"])
                self._told.append((event["request_id"], len(event["changes"])))
        if "id" in fields:
            self._advance(int(fields["id"]))

    def _advance(self, index: int) -> None:
        told, self._told = self._told, []
        written = self._rows.get(index)
        if index != self._at + 1:
            self._simulation.fail(f"the event stream goes from index {self._at} to {index}")
        elif told != written:
            self._simulation.fail(f"the event stream tells {told} of index {index}, and {written} is there")
        self._at = index

    def _take_refusal(self, error: dict[str, Any]) -> None:
        """Why there is no stream, or no more of it."""
        if error["status"] == 410:
            oldest = error["oldest_index"]
            kept = self._cloud.database.connect().execute("SELECT min(idx) FROM journal").fetchone()[0]
            if not self._at + 1 < oldest <= kept:
                self._simulation.fail(
                    f"the event stream ends at {self._at}, as if the journal began at {oldest}, not at {kept}"
                )
            self._at = oldest - 1
        elif error["status"] != 503:
            self._simulation.fail(f"the event stream after {self._at} is refused: {error}")

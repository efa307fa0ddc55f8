"""Journals written by the ledger itself: real events, without a server in between.

Loading a large fleet through the API would take longer than measuring it.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

from bench.fleets import FleetProvider
from berth.journal import Journal
from berth.ledger import decide
from berth.model import commands as c
from berth.model.events import Batch, Entry, Origin
from berth.model.ids import AggregateId, Index, ProviderId
from berth.runtime.ids import Ids
from berth.view import View

COMMANDS_PER_BATCH: Final = 500
_ORIGIN: Final = Origin("req-bench", "bench", "bench", "bench")


def fleet_commands(providers: Iterable[FleetProvider]) -> Iterator[c.Command]:
    """What makes a fleet."""
    for provider in providers:
        id = ProviderId(provider.id)
        parent_id = provider.parent_id
        yield c.CreateProvider(id, provider.name, None if parent_id is None else ProviderId(parent_id))
        yield c.SetInventories(id, 0, provider.inventories)
        if provider.aggregates:
            yield c.SetAggregates(id, 1, tuple(map(AggregateId, provider.aggregates)))
        if provider.traits:
            yield from (c.CreateTrait(name) for name in provider.traits if name.startswith("CUSTOM_"))
            yield c.SetTraits(id, 2 if provider.aggregates else 1, frozenset(provider.traits))


def write_journal(journal: Journal, commands: Iterable[c.Command]) -> View:
    """Let the ledger judge the commands in turn, and append what it grants. What it refuses is left out."""
    view, ids = View(), Ids(2)
    entries: list[Entry] = []

    def flush() -> None:
        batch = Batch(Index(view.index + 1), ids.batch_id(), time.time_ns(), tuple(entries))
        journal.append(batch)
        view.index = batch.index
        entries.clear()

    for number, command in enumerate(commands, 1):
        verdict = decide(view, command, 1_700_000_000)
        if not isinstance(verdict, list):
            continue
        for event in verdict:
            view.apply(event)
        entries.append(Entry(_ORIGIN, tuple(verdict)))
        if len(entries) == COMMANDS_PER_BATCH:
            flush()
        if number % 100_000 == 0:
            print(f"  {number:,} commands", file=sys.stderr, flush=True)
    if entries:
        flush()
    return view

"""The ledger that an import fills: empty before, and either whole or unusable afterwards.

An append is atomic, an import of many appends is not. So its first batch is written last: until that is
there the journal has no beginning, no server starts on it and no second import writes into it. The
rejected alternative is a mark that an import is under way, which every reader of a journal would have to
know of.
"""

from typing import Final

from berth.engine import start_view
from berth.importing.events import Batches
from berth.importing.progress import ImportProgress
from berth.importing.upstream import CannotImport
from berth.journal import Conflict, Journal, JournalError, JournalRow, Pruned, Snapshots
from berth.model.batches import Batch, Entry, Origin
from berth.model.ids import Index
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids

ACTION: Final = "berth:import"

START_OVER: Final = "drop the target database and import into a fresh one"


def refuse_unless_empty(journal: Journal) -> None:
    if journal.tail() == 0 and not Snapshots(journal).all():
        return
    if _is_unfinished(journal):
        raise CannotImport(f"an earlier import into the target did not finish: {START_OVER}")
    view = start_view(journal)
    classes = sum(1 for _ in view.classes.custom())
    raise CannotImport(
        f"the target is not empty: its journal ends at index {view.index}, with {len(view.providers)} "
        f"providers, {len(view.consumers)} consumers, {classes} custom resource classes and "
        f"{len(view.custom_traits)} custom traits. An import needs an empty database; nothing was changed"
    )


def _is_unfinished(journal: Journal) -> bool:
    """Whether an import broke off: its later batches are there, and the first is not."""
    if Snapshots(journal).all():
        # What a server prunes, a snapshot stands in for.
        return False
    try:
        next(journal.read(Index(0), 1))
    except Pruned as pruned:
        first = next(journal.read(Index(pruned.oldest - 1), 1))
        return any(entry.origin.action == ACTION for entry in first.entries)
    return False


def append_all(journal: Journal, batches: Batches, ids: Ids, clock: Clock, progress: ImportProgress) -> None:
    """Write the batches at the indices 1, 2, ...; the first of them last."""
    origin = Origin(ids.request_id(), None, None, ACTION)

    def row(number: int, previous: str | None) -> JournalRow:
        entry = Entry(origin, batches[number])
        batch = Batch(Index(number + 1), ids.batch_id(), clock.now_ns(), (entry,))
        return journal.row_of(batch, previous)

    if not batches:
        return
    try:
        first = row(0, None)
        previous = first.digest
        for number in progress.over("batches written", len(batches), [*range(1, len(batches)), 0]):
            written = row(number, previous) if number else first
            journal.fill(written)
            previous = written.digest
    except Conflict as error:
        raise CannotImport(
            f"another process writes to the target: stop every server that uses it, {START_OVER}"
        ) from error
    except JournalError as error:
        raise CannotImport(f"the import failed: {error}; {START_OVER}") from error

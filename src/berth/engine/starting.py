"""How a view comes to be: from the newest snapshot that can be read, and the journal behind it."""

import gc
import logging
from collections.abc import Iterable

from berth.journal import DamagedSnapshot, Journal, JournalError, Pruned, Snapshot, Snapshots
from berth.model.events import Entry
from berth.model.ids import Index
from berth.view import View
from berth.view.snapshot import FORMAT, SnapshotInvalid, load

_log = logging.getLogger(__name__)


def start_view(journal: Journal) -> View:
    """A view at the end of the journal."""
    # Millions of objects are made, and none of them is garbage: looking for some would take half the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _read_view(journal)
    finally:
        if collects:
            gc.enable()


def _read_view(journal: Journal) -> View:
    snapshots = Snapshots(journal)
    for snapshot in snapshots.all():
        view = _load(snapshots, snapshot)
        if view is not None:
            break
    else:
        view = View()
    try:
        replay(journal, view)
    except Pruned as pruned:
        raise JournalError(
            f"no readable snapshot reaches the start of the journal (index {pruned.oldest}): "
            "restore the database from a backup, or, if an import into it did not finish, drop it and import "
            "again"
        ) from pruned
    return view


def replay(journal: Journal, view: View) -> None:
    """Bring a view up to the end of the journal."""
    for batch in journal.read(view.index):
        apply_entries(view, batch.index, batch.entries)


def apply_entries(view: View, index: Index, entries: Iterable[Entry]) -> None:
    """Bring a view to an index, by what was appended there."""
    for entry in entries:
        for event in entry.events:
            view.apply(event)
    view.index = index


def _load(snapshots: Snapshots, snapshot: Snapshot) -> View | None:
    """The view of a snapshot; None if it cannot be read, which is logged."""
    if snapshot.format != FORMAT:
        _log.warning(
            "snapshot %d skipped: it has format %d, this release reads %d",
            snapshot.index,
            snapshot.format,
            FORMAT,
        )
        return None
    try:
        return load(snapshots.read(snapshot))
    except (DamagedSnapshot, SnapshotInvalid) as damage:
        _log.warning("snapshot %d skipped: %s", snapshot.index, damage)
        return None

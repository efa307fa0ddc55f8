"""Views from snapshots, and snapshots from views.

A view is read from the newest snapshot that is not damaged, and the journal behind it. Snapshots keep that
short: one is written from time to time, and the journal before it is pruned. A snapshot is made from the
database alone, by a process of its own: servers are not disturbed, and hold nothing twice. If another process
does the same at the same time, the work is done twice at worst.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from berth.journal import (
    Conflict,
    Damaged,
    DamagedSnapshot,
    Journal,
    JournalError,
    Pruned,
    Snapshot,
    Snapshots,
    WrittenByNewer,
)
from berth.model.counts import count
from berth.model.events import Batch
from berth.model.ids import Index
from berth.model.saga_runs import Instance
from berth.model.servers import Server
from berth.view import View
from berth.view.snapshot import SnapshotInvalid, dump, load

_log = logging.getLogger(__name__)


def start_view(journal: Journal) -> View:
    """A view at the end of the journal."""
    with pause_collector():
        return _read_view(journal)


@contextmanager
def pause_collector() -> Iterator[None]:
    """Turn garbage collection off while millions of objects are made and none of them is garbage: looking for
    some would take half the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
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
            "restore the database from a backup. If a restore into it did not finish, repeat the restore; if "
            "an import did not, drop the database and import again"
        ) from pruned
    return view


def replay(journal: Journal, view: View) -> None:
    """Bring a view up to the end of the journal."""
    for batch in journal.read(view.index):
        apply_batch(view, batch)


def apply_batch(view: View, batch: Batch) -> None:
    """Bring a view to an index, by what was appended there."""
    for entry in batch.entries:
        for event in entry.events:
            view.apply(event)
    view.index = batch.index
    view.format = batch.format


def _load(snapshots: Snapshots, snapshot: Snapshot) -> View | None:
    """The view of a snapshot; None if it cannot be read, which is logged."""
    try:
        return load(snapshots.read(snapshot), snapshot.format)
    except (DamagedSnapshot, SnapshotInvalid, WrittenByNewer) as damage:
        _log.warning("snapshot %d skipped: %s", snapshot.index, damage)
        return None


def describe(view: View) -> str:
    """What a journal holds, in a few words."""
    classes = sum(1 for _ in view.classes.custom())
    servers = view.records.count(Server) + view.records.count(Instance)
    return (
        f"its journal ends at index {view.index}, with {count(len(view.providers), 'provider')}, "
        f"{count(len(view.consumers), 'consumer')}, "
        f"{count(classes, 'custom resource class', 'custom resource classes')}, "
        f"{count(len(view.custom_traits), 'custom trait')} and {count(servers, 'server')}"
    )


def is_due(journal: Journal, every: int) -> bool:
    """Whether so many batches have come since the newest snapshot."""
    newest = next((snapshot.index for snapshot in Snapshots(journal).all()), 0)
    return journal.tail() - newest >= every


def take_snapshot(journal: Journal, now_ns: int, keep: int) -> Index:
    """Write a snapshot of the journal's end, and prune; the snapshot's index.

    The journal keeps at least ``keep`` batches, and everything behind the older of the snapshots that are
    kept: if the newest turns out to be damaged, a start falls back on that.
    """
    view = start_view(journal)
    snapshots = Snapshots(journal)
    try:
        snapshots.write(view.index, view.format, now_ns, dump(view))
    except Conflict:
        _log.info("snapshot %d: another process is writing it, skipped", view.index)
        return view.index
    snapshots.drop_old()
    kept = snapshots.all()
    until = min(kept[-1].index, view.index - keep)
    if len(kept) > 1 and until > 0:
        journal.prune(Index(until))
    _log.info(
        "snapshot %d written: %d providers, %d consumers",
        view.index,
        len(view.providers),
        len(view.consumers),
    )
    return view.index


def problems(journal: Journal) -> list[str]:
    """What is wrong with a database, in words; nothing, if every entry that is kept is as it was written and
    a server can start on it."""
    try:
        journal.check()
    except JournalError as error:
        return [str(error)]
    snapshots = Snapshots(journal)
    found = []
    for snapshot in snapshots.all():
        try:
            load(snapshots.read(snapshot))
        except (DamagedSnapshot, SnapshotInvalid, WrittenByNewer) as error:
            found.append(f"snapshot {snapshot.index} cannot be used: {error}")
    try:
        for _ in journal.read(Index(journal.head() - 1)):
            pass
        unknown = journal.find_unknown()
        if unknown is not None:
            found.append(unknown)
    except Damaged as damage:
        found.append(str(damage))
    try:
        start_view(journal)
    except (JournalError, Pruned) as error:
        found.append(f"a server cannot start: {error}")
    return found

"""Keeping the journal short: a snapshot now and then, and no more of the journal than is asked for.

A snapshot is made from the database alone, by a process of its own: whoever serves is not disturbed, and
holds nothing twice. What another process does at the same time is at worst done twice.
"""

import logging

from berth.engine.starting import start_view
from berth.journal import Conflict, Damaged, DamagedSnapshot, Journal, JournalError, Pruned, Snapshots
from berth.model.ids import Index
from berth.view.snapshot import FORMAT, SnapshotInvalid, dump, load

_log = logging.getLogger(__name__)


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
        snapshots.write(view.index, FORMAT, now_ns, dump(view))
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
        if snapshot.format != FORMAT:
            found.append(
                f"snapshot {snapshot.index} has format {snapshot.format}, this release reads {FORMAT}"
            )
            continue
        try:
            load(snapshots.read(snapshot))
        except (DamagedSnapshot, SnapshotInvalid) as error:
            found.append(f"snapshot {snapshot.index} cannot be used: {error}")
    try:
        for _ in journal.read(Index(journal.head() - 1)):
            pass
    except Damaged as damage:
        found.append(str(damage))
    try:
        start_view(journal)
    except (JournalError, Pruned) as error:
        found.append(f"a server cannot start: {error}")
    return found

"""Backups: a journal in one file, and back into an empty database of any kind (docs/decisions/037).

    berth-backup 1\\n
    frame: length (4 bytes), checksum (16 bytes), content (msgpack)
    frame ...

Frames are, in this order: one *head* (which program, which indices), *rows* of the journal, deflated; *parts*
of snapshots; one *end* with the snapshots' names. The checksum of a frame covers the checksum of the one
before. So a bit that changed, and a frame that is missing or moved, shows where it is; and a file without its
end was not finished.

A backup is made of the database at one moment: it has all rows and snapshots that are kept then. It is
written under another name, and has its own only when it is whole and on the disk. It can be restored to every
index from the first that a server could start at (its own first row, or its oldest snapshot) to its last.

A restore reads all of a file before it writes anything. Then it writes the rows, but the first; the parts of
snapshots; the first row; and the names of snapshots. Until the last but one of these a server finds no
beginning of the journal, and does not start; a second restore of the same file finds what is there, and goes
on behind it. (An import does the same: ``importing.target``.)
"""

import contextlib
import fcntl
import hashlib
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol, TypeVar

import msgspec

from berth.journal.database import Conflict, JournalError
from berth.journal.journal import ROWS_BYTES, Journal
from berth.journal.schema import VERSION, JournalRow, verify
from berth.journal.snapshots import DamagedSnapshot, Snapshot, SnapshotPart, Snapshots
from berth.model.formats import THIS_PROGRAM
from berth.model.ids import Index

FORMAT: Final = 1
PARTIAL: Final = ".partial"
"""How the name ends that a backup is written under."""

_MARK: Final = b"berth-backup "
_FRAME: Final = struct.Struct(">I16s")
_FRAME_BYTES_MAX: Final = 1 << 30
"""More than the largest row of any database."""
_RAW: Final = -15
_ROWS_MAX: Final = 1000

T = TypeVar("T")


class BackupError(JournalError):
    """The file or the database cannot be used for this. The message is for the operator, and says what to
    do."""


class NotEmpty(BackupError):
    """The database to restore into holds a journal."""


class Over(Protocol):
    """Hands things on, and shows how many of ``total`` have gone by."""

    def __call__(self, what: str, total: int, things: Iterable[T]) -> Iterator[T]: ...


# -- the file -----------------------------------------------------------------------------------


class BackupHead(msgspec.Struct, frozen=True, tag="head"):
    """``before`` is the digest of the row before ``first``, which was pruned. ``format`` is the journal's at
    ``last``."""

    program: str
    schema: int
    made_at_ns: int
    first: Index
    last: Index
    before: str | None
    format: int = 1


class BackupRows(msgspec.Struct, frozen=True, tag="rows"):
    """``size``: how many bytes ``deflated`` is in full: rows in msgpack."""

    size: int
    deflated: bytes


class BackupPart(msgspec.Struct, frozen=True, tag="part"):
    part: SnapshotPart


class BackupEnd(msgspec.Struct, frozen=True, tag="end"):
    """``snapshots``, the newest first."""

    snapshots: tuple[Snapshot, ...]


Frame = BackupHead | BackupRows | BackupPart | BackupEnd

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Frame).decode
_decode_rows: Final = msgspec.msgpack.Decoder(list[JournalRow]).decode


class Backup(NamedTuple):
    """What a file holds that was read to its end."""

    path: Path
    head: BackupHead
    end: BackupEnd
    size: int

    def earliest(self, format: int) -> Index | None:
        """The first index that it can be restored to, by a program that reads up to a format; None
        if to none."""
        if self.head.first == 1:
            return Index(1)
        oldest = min((one.index for one in self.end.snapshots if one.format <= format), default=None)
        return None if oldest is None else max(oldest, self.head.first)

    def choose_last(self, index: Index | None, format: int) -> Index:
        """The index to restore it to: the one that is given, or its last. BackupError if that cannot be."""
        earliest = self.earliest(format)
        if earliest is None:
            raise BackupError(
                f"{self.path} was made by {self.head.program}, and has no snapshot that this release reads: "
                "restore it with that release"
            )
        last = self.head.last if index is None else index
        if not earliest <= last <= self.head.last:
            raise BackupError(
                f"{self.path} can be restored to any index from {earliest} to {self.head.last}; {last} is "
                "not among them"
            )
        return last


def _checksum(previous: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(previous + content, digest_size=16).digest()


def _inflate(rows: BackupRows) -> list[JournalRow]:
    inflating = zlib.decompressobj(_RAW)
    try:
        content = inflating.decompress(rows.deflated, min(rows.size, _FRAME_BYTES_MAX) + 1)
        if len(content) == rows.size and inflating.eof:
            return _decode_rows(content)
    except (msgspec.MsgspecError, zlib.error):
        pass
    raise BackupError("the backup has entries that cannot be read: use another copy")


# -- writing a file -----------------------------------------------------------------------------


def write_backup(journal: Journal, path: Path, format: int, program: str, now_ns: int, over: Over) -> Backup:
    """Write all that a database holds now into a new file. ``format``: the newest of snapshots that this
    program can read."""
    with _new_file(path) as file, journal.stand_still():
        journal.check()
        first, last = journal.head(), journal.tail()
        if last == 0:
            raise BackupError("the journal is empty: there is nothing to back up")
        before = journal.digest_at(Index(first - 1))
        head = BackupHead(program, VERSION, now_ns, first, last, before, journal.format())
        writer = _Writer(file)
        writer.write(head)
        rows = journal.read_rows(Index(first - 1), last)
        for some in _group_rows(over("entries written", last - first + 1, rows)):
            content = _encode(some)
            writer.write(BackupRows(len(content), zlib.compress(content, 1, _RAW)))
        end = BackupEnd(tuple(_write_snapshots(writer, Snapshots(journal), format, over)))
        backup = Backup(path, head, end, writer.size)
        if backup.earliest(format) is None:
            raise BackupError(
                "no server could start on this database: `berth db check` lists what is wrong with it"
            )
        writer.write(end)
        return backup._replace(size=writer.size)


def _write_snapshots(writer: "_Writer", snapshots: Snapshots, format: int, over: Over) -> Iterator[Snapshot]:
    """The snapshots that were written. One that is damaged is not."""
    for snapshot in snapshots.all():
        if snapshot.format > format:
            continue
        with contextlib.suppress(DamagedSnapshot):
            parts = snapshots.read_parts(snapshot)
            for part in over(f"snapshot {snapshot.index}", snapshot.parts, parts):
                writer.write(BackupPart(part))
            yield snapshot


def _group_rows(rows: Iterable[JournalRow]) -> Iterator[list[JournalRow]]:
    """Rows that are written together: not many, and not large, unless one is."""
    some: list[JournalRow] = []
    size = 0
    for row in rows:
        if some and (size + len(row.body) > ROWS_BYTES or len(some) == _ROWS_MAX):
            yield some
            some, size = [], 0
        some.append(row)
        size += len(row.body)
    if some:
        yield some


class _Writer:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._previous = b""
        self.size = 0
        self._put(_MARK + b"%d\n" % FORMAT)

    def write(self, frame: Frame) -> None:
        content = _encode(frame)
        self._previous = _checksum(self._previous, content)
        self._put(_FRAME.pack(len(content), self._previous) + content)

    def _put(self, content: bytes) -> None:
        self._file.write(content)
        self.size += len(content)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that has its name when it is whole and on the disk, and does not replace another."""
    if not path.name or path.name == "..":
        raise BackupError(f"{path} is a folder: name a file in it")
    partial = path.with_name(path.name + PARTIAL)
    try:
        # For its owner alone: a journal has the names and data of all projects.
        file = os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o600), "wb")
        os.fchmod(file.fileno(), 0o600)
    except OSError as error:
        raise BackupError(f"cannot write {partial}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BackupError(f"another backup is being written to {partial}: wait for it") from error
        try:
            _refuse_existing(path)
            file.truncate()
            yield file
            file.flush()
            os.fsync(file.fileno())
            _refuse_existing(path)
            partial.rename(path)
            _sync_folder(path.parent)
        except BaseException as error:
            partial.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise BackupError(f"cannot write {partial}: {error.strerror or error}") from error
            raise


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise BackupError(f"{path} exists, and is not overwritten: choose another name")


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# -- reading a file -----------------------------------------------------------------------------


def read_backup(path: Path, over: Over) -> Backup:
    """What a file holds; BackupError unless all of it is as it was written."""
    frames = _Frames(path)
    remaining = iter(frames)
    head = next(remaining)
    assert isinstance(head, BackupHead), "it is the first"
    if head.schema > VERSION:
        raise BackupError(
            f"{path} was made by {head.program}, whose databases have schema {head.schema}; this release "
            f"supports {VERSION}: use the newer release"
        )
    if head.format > THIS_PROGRAM.format:
        raise BackupError(
            f"{path} was made by {head.program} of a journal of format {head.format}; this is Berth "
            f"{THIS_PROGRAM.version}, which reads up to format {THIS_PROGRAM.format}: use the newer release"
        )
    found = _Contents(path, head)
    for _ in over("entries verified", head.last - head.first + 1, found.verify_rows(remaining)):
        pass
    return Backup(path, head, found.end(), frames.size)


class _Contents:
    """What a file was found to hold, and whether that is all that it says."""

    def __init__(self, path: Path, head: BackupHead) -> None:
        self._path = path
        self._head = head
        self._expected = head.first
        self._parts: Counter[Index] = Counter()
        self._end: BackupEnd | None = None

    def verify_rows(self, frames: Iterable[Frame]) -> Iterator[JournalRow]:
        previous = self._head.before
        for frame in frames:
            if isinstance(frame, BackupPart):
                self._parts[frame.part.index] += 1
            elif isinstance(frame, BackupEnd):
                self._end = frame
            for row in _inflate(frame) if isinstance(frame, BackupRows) else ():
                if row.index != self._expected:
                    raise BackupError(f"{self._path} has entry {row.index} instead of {self._expected}")
                # What the first row follows is unknown where that was pruned before there were checksums.
                if previous is not None or row.index == 1 or row.index > self._head.first:
                    verify(previous, row)
                self._expected, previous = Index(row.index + 1), row.digest
                yield row

    def end(self) -> BackupEnd:
        assert self._end is not None, "it is the last frame"
        is_whole = all(self._parts[one.index] == one.parts for one in self._end.snapshots)
        if self._expected != self._head.last + 1 or not is_whole:
            raise BackupError(f"{self._path} does not hold all that it names: use another copy")
        return self._end


class _Frames:
    """The frames of a file, each as it was written; BackupError at the first that is not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size = 0

    def __iter__(self) -> Iterator[Frame]:
        try:
            with self._path.open("rb") as file:
                yield from self._read(file)
        except OSError as error:
            raise BackupError(f"cannot read {self._path}: {error.strerror or error}") from error

    def _read(self, file: IO[bytes]) -> Iterator[Frame]:
        self._check_mark(file)
        previous = b""
        frame: Frame | None = None
        while not isinstance(frame, BackupEnd):
            at = self.size
            length, checksum = _FRAME.unpack(self._take(file, _FRAME.size))
            if length > _FRAME_BYTES_MAX:
                raise self._damaged(at)
            content = self._take(file, length)
            previous = _checksum(previous, content)
            if checksum != previous:
                raise self._damaged(at)
            is_first = frame is None
            try:
                frame = _decode(content)
            except msgspec.MsgspecError as error:
                raise self._damaged(at) from error
            if isinstance(frame, BackupHead) != is_first:
                raise self._damaged(at)
            yield frame
        if file.read(1):
            raise BackupError(f"{self._path} is damaged: something follows its end, at byte {self.size}")

    def _check_mark(self, file: IO[bytes]) -> None:
        line = file.readline(64)
        self.size += len(line)
        if not line.startswith(_MARK):
            raise BackupError(f"{self._path} is not a backup of Berth")
        format = line.removeprefix(_MARK).rstrip(b"\n")
        if format != b"%d" % FORMAT or not line.endswith(b"\n"):
            raise BackupError(
                f"{self._path} is a backup of format {format.decode(errors='replace')}; this release reads "
                f"format {FORMAT}: use the newer release that wrote it"
            )

    def _take(self, file: IO[bytes], length: int) -> bytes:
        content = file.read(length)
        if len(content) < length:
            raise BackupError(
                f"{self._path} is cut off after {self.size + len(content)} bytes: it was not finished, or "
                "not copied whole"
            )
        self.size += length
        return content

    def _damaged(self, at: int) -> BackupError:
        return BackupError(
            f"{self._path} is damaged at byte {at}: its checksum does not match its content. Use another copy"
        )


# -- restoring ----------------------------------------------------------------------------------


def restore_backup(backup: Backup, journal: Journal, last: Index, format: int, over: Over) -> None:
    """Write a backup, that was read to its end, into an empty database, up to an index that it can be
    restored to."""
    head, snapshots = backup.head, Snapshots(journal)
    names = [one for one in backup.end.snapshots if one.index <= last and one.format <= format]
    there = _find_last_there(journal, snapshots, head, last)
    rows = _rows_until(backup, last)
    try:
        first = next(rows)
        for some in _group_rows(over("entries restored", last - head.first, _skip_there(rows, there))):
            journal.fill(*some)
        for one in names:
            snapshots.delete_parts(one.index)
            parts = _parts_of(backup, one.index)
            for part in over(f"snapshot {one.index}", one.parts, parts):
                snapshots.write_part(part)
        if head.before is not None:
            journal.keep_digest(Index(head.first - 1), head.before)
        # From here on a server may start: all else is there.
        if journal.tail() == 0 or journal.head() != head.first:
            journal.fill(first)
        for one in reversed(names):
            snapshots.name(one)
    except Conflict as error:
        raise BackupError(
            "another process writes to the database: stop every server that uses it, and restore into a "
            "fresh database"
        ) from error


def _find_last_there(
    journal: Journal, snapshots: Snapshots, head: BackupHead, last: Index
) -> JournalRow | None:
    """The last row that an earlier restore has written, which did not finish; None in an empty database.
    NotEmpty if there is anything else."""
    tail, named = journal.tail(), snapshots.all()
    if tail == 0 and not named:
        return None
    # As long as it has no beginning, no server has started on it.
    begins_at = journal.head()
    is_begun = not named and begins_at > 1 and begins_at in (head.first, head.first + 1) and tail <= last
    if not is_begun:
        raise NotEmpty(f"the database is not empty: its journal ends at index {tail}")
    return next(journal.read_rows(Index(tail - 1), tail))


def _skip_there(rows: Iterable[JournalRow], there: JournalRow | None) -> Iterator[JournalRow]:
    """The rows behind the last that is there; BackupError if that is not the one of the file."""
    for row in rows:
        if there is None or row.index > there.index:
            yield row
        elif row.index == there.index and (row.batch_id, row.digest) != (there.batch_id, there.digest):
            raise NotEmpty(
                "the database holds part of another journal: an earlier import or restore of another file "
                "did not finish. Restore into a fresh database"
            )


def _rows_until(backup: Backup, last: Index) -> Iterator[JournalRow]:
    for frame in _Frames(backup.path):
        for row in _inflate(frame) if isinstance(frame, BackupRows) else ():
            if row.index > last:
                return
            yield row


def _parts_of(backup: Backup, index: Index) -> Iterator[SnapshotPart]:
    return (
        frame.part
        for frame in _Frames(backup.path)
        if isinstance(frame, BackupPart) and frame.part.index == index
    )

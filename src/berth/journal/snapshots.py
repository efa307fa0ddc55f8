"""Images of the view, kept in the journal's own database.

An image is stored in parts, each with a checksum, and named last: one that was not finished has no name and
is not found, one that was damaged does not pass its checksums. ``newest`` then falls back to the one
before. The last two are kept. An image has the digest of the journal's row at its index: one that was made
from another journal counts as damaged too. It has the format of the journal at its index, and its parts say
which program wrote them; one that is too new for this program is not read.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import sqlalchemy as sa

from berth.journal.body import Signature, encode_signature, split_signature
from berth.journal.database import JournalError
from berth.journal.journal import Journal
from berth.journal.schema import SNAPSHOT, SNAPSHOT_PART
from berth.model.ids import Index

KEPT: Final = 2
_COMPRESSION: Final = 1


class Snapshot(msgspec.Struct, frozen=True):
    index: Index
    format: int
    parts: int
    at_ns: int
    digest: str | None = None


class SnapshotPart(msgspec.Struct, frozen=True, gc=False):
    """``number`` counts from 1. ``body`` is compressed, and ``checksum`` is that of the compressed body."""

    index: Index
    number: int
    checksum: str
    body: bytes


class DamagedSnapshot(JournalError):
    """A part is missing or is not what was written."""


class Snapshots:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def all(self) -> list[Snapshot]:
        """What there is, the newest first."""
        columns = (SNAPSHOT.c.idx, SNAPSHOT.c.format, SNAPSHOT.c.parts, SNAPSHOT.c.at_ns, SNAPSHOT.c.digest)
        query = sa.select(*columns).order_by(SNAPSHOT.c.idx.desc())
        rows = self._journal.execute(query).fetchall()
        return [Snapshot(row.idx, row.format, row.parts, row.at_ns, row.digest) for row in rows]

    def write(self, index: Index, format: int, at_ns: int, parts: Iterable[bytes]) -> None:
        """Store an image; ``Conflict`` if another process stores one of the same index."""
        # What an unfinished attempt at the same index has left is in the way.
        if all(snapshot.index != index for snapshot in self.all()):
            self.delete_parts(index)
        count = 0
        signature = encode_signature(Signature(format, self._journal.program.version))
        for count, part in enumerate(parts, 1):
            body = zlib.compress(signature + part, _COMPRESSION)
            self.write_part(SnapshotPart(index, count, _checksum(body), body))
        self.name(Snapshot(index, format, count, at_ns, self._journal.digest_at(index)))

    def write_part(self, part: SnapshotPart) -> None:
        """Store a part of an image that has no name yet."""
        row = {"idx": part.index, "part": part.number, "checksum": part.checksum, "body": part.body}
        self._journal.execute(sa.insert(SNAPSHOT_PART), row)

    def name(self, snapshot: Snapshot) -> None:
        """Have an image found, whose parts are all there."""
        values = {
            "idx": snapshot.index,
            "format": snapshot.format,
            "parts": snapshot.parts,
            "at_ns": snapshot.at_ns,
            "digest": snapshot.digest,
        }
        self._journal.execute(sa.insert(SNAPSHOT), values)

    def read(self, snapshot: Snapshot) -> Iterator[bytes]:
        """The parts of an image, one by one; ``DamagedSnapshot`` as soon as one is not as written, and
        ``WrittenByNewer`` if this program does not read its format."""
        name = f"snapshot {snapshot.index}"
        self._journal.refuse_newer(name, Signature(snapshot.format))
        for stored in self.read_parts(snapshot):
            signature, part = split_signature(zlib.decompress(stored.body))
            self._journal.refuse_newer(name, signature)
            yield part

    def read_parts(self, snapshot: Snapshot) -> Iterator[SnapshotPart]:
        """The parts of an image as they are stored."""
        if snapshot.digest not in (None, self._journal.digest_at(snapshot.index)):
            raise DamagedSnapshot(f"snapshot {snapshot.index} was made from another journal")
        where = sa.and_(SNAPSHOT_PART.c.idx == snapshot.index, SNAPSHOT_PART.c.part == sa.bindparam("number"))
        query = sa.select(SNAPSHOT_PART.c.checksum, SNAPSHOT_PART.c.body).where(where)
        for number in range(1, snapshot.parts + 1):
            row = self._journal.execute(query, {"number": number}).fetchone()
            if row is None or _checksum(row.body) != row.checksum:
                raise DamagedSnapshot(f"part {number} of snapshot {snapshot.index} is missing or damaged")
            yield SnapshotPart(snapshot.index, number, row.checksum, row.body)

    def drop_old(self) -> None:
        """Keep the newest ones only."""
        for snapshot in self.all()[KEPT:]:
            self._journal.execute(sa.delete(SNAPSHOT).where(SNAPSHOT.c.idx == snapshot.index))
            self.delete_parts(snapshot.index)

    def delete_parts(self, index: Index) -> None:
        """Remove what is stored of an image that has no name."""
        self._journal.execute(sa.delete(SNAPSHOT_PART).where(SNAPSHOT_PART.c.idx == index))


def _checksum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()

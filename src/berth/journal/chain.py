"""A row of the journal, and the checksum that ties it to the row before.

``digest`` = blake2b(digest of the row before, index, batch id, time, body). So a byte that changed, a row
that was removed, inserted or exchanged with another shows at the first index where it matters. What the chain
cannot show is a journal that ends too early: nothing follows there that could disagree.

Rows that were written before there were checksums have none. They stand only at the beginning: behind a row
with a checksum every row has one.
"""

import hashlib

import msgspec

from berth.journal.errors import Damaged
from berth.model.ids import Index

DIGEST_LENGTH = 32
_DIGEST_BYTES = DIGEST_LENGTH // 2


class JournalRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the table holds of one batch. ``digest`` is None where it was written before there were any."""

    index: Index
    batch_id: str
    at_ns: int
    body: bytes
    digest: str | None


def digest_of(previous: str | None, index: int, batch_id: str, at_ns: int, body: bytes) -> str:
    """``previous`` is None before the first row, and behind rows that have no checksum."""
    head = f"{previous or ''} {index} {batch_id} {at_ns} "
    digest = hashlib.blake2b(head.encode(), digest_size=_DIGEST_BYTES)
    digest.update(body)
    return digest.hexdigest()


def verify(previous: str | None, row: JournalRow) -> None:
    """``Damaged`` if the row is not what was written behind the row whose digest is ``previous``."""
    if row.digest is None:
        if previous is None:
            return
        raise Damaged(
            f"journal entry {row.index} is damaged: it has no checksum, and entry {row.index - 1} has one. "
            "Restore the database from a backup"
        )
    try:
        found = digest_of(previous, row.index, row.batch_id, row.at_ns, row.body)
    except TypeError:
        found = None  # SQLite gives a column of any type back as it was put in
    if found != row.digest:
        raise Damaged(
            f"journal entry {row.index} is damaged: its checksum does not match its content and "
            f"entry {row.index - 1}. Restore the database from a backup"
        )

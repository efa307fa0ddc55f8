"""Which programs use a journal: a table beside it, in which each of them says so, now and then.

Nothing relies on it but the question whether an upgrade can be finished. A program that is not listed and is
too old stops at the first row of the new format, and has harmed nothing; the list is there so that nobody is
surprised. Programs from before format 2 are not listed.
"""

from contextlib import suppress
from typing import Final

import msgspec
import sqlalchemy as sa

from berth.journal.database import Conflict
from berth.journal.journal import Journal
from berth.journal.schema import PROGRAM
from berth.model.formats import Program

ANNOUNCE_S: Final = 30.0
"""How often a program says that it uses the journal."""
_GONE_AFTER_NS: Final = 120_000_000_000
_FORGOTTEN_AFTER_NS: Final = 86_400_000_000_000


class AttachedProgram(msgspec.Struct, frozen=True):
    """``part`` is what the process is for, ``place`` where it runs; ``seen_at_ns`` is when it last said so,
    by its own clock."""

    id: str
    program: Program
    part: str
    place: str
    seen_at_ns: int


class Programs:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def announce(self, attached: AttachedProgram) -> None:
        """Say that a program uses the journal, and forget those that have not said so for a day."""
        row = {
            "version": attached.program.version,
            "format": attached.program.format,
            "part": attached.part,
            "place": attached.place,
            "seen_at_ns": attached.seen_at_ns,
        }
        # Another process may be doing the same to its own row, and on Galera one of the two is told so.
        with suppress(Conflict):
            if (
                self._journal.execute(sa.update(PROGRAM).where(PROGRAM.c.id == attached.id), row).rowcount
                == 0
            ):
                self._journal.execute(sa.insert(PROGRAM), {"id": attached.id, **row})
                long_ago_ns = attached.seen_at_ns - _FORGOTTEN_AFTER_NS
                self._journal.execute(sa.delete(PROGRAM).where(PROGRAM.c.seen_at_ns < long_ago_ns))

    def withdraw(self, id: str) -> None:
        """Say that a program does not use the journal any more."""
        with suppress(Conflict):
            self._journal.execute(sa.delete(PROGRAM).where(PROGRAM.c.id == id))

    def attached(self, now_ns: int) -> list[AttachedProgram]:
        """The programs that have said within two minutes that they use the journal, the oldest first."""
        query = (
            sa.select(PROGRAM)
            .where(PROGRAM.c.seen_at_ns > now_ns - _GONE_AFTER_NS)
            .order_by(PROGRAM.c.format, PROGRAM.c.place, PROGRAM.c.part)
        )
        return [
            AttachedProgram(row.id, Program(row.version, row.format), row.part, row.place, row.seen_at_ns)
            for row in self._journal.execute(query)
        ]

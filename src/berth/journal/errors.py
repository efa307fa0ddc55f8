"""What can go wrong with a journal, by its consequence for the writer."""

from berth.model.ids import Index


class JournalError(Exception):
    """The root of everything that is wrong with a journal; by itself: it cannot be used, and a person must
    look at it."""


class Damaged(JournalError):
    """An entry is not what was written. The message names its index; a person must restore the database."""


class Conflict(JournalError):
    """Another writer was first; nothing was written. Read what it wrote, and decide anew."""


class NotWritten(JournalError):
    """The database refuses to write (its disk is full, it is read-only), and nothing was written."""


class RowRefused(NotWritten):
    """The database takes no row of this size, and nothing was written. A smaller batch may get in."""


class FileGone(NotWritten):
    """The file that is open is not the one that its path names any more: what is written to it is lost."""


class JournalFailure(JournalError):
    """The database did not do its part. Whether an append got in is unknown until it is read again."""


class Pruned(JournalError):
    """What was asked for is older than what is kept; ``oldest`` is the first index still there."""

    def __init__(self, after: Index, oldest: Index) -> None:
        super().__init__(f"entries after {after} were requested, the oldest kept is {oldest}")
        self.oldest = oldest

"""A file that is read again when it changes. Only that is found out here; reading is its owner's business."""

from pathlib import Path
from typing import Final

from berth.runtime.clock import Clock

_CHECK_EVERY_NS: Final = 1_000_000_000


class FollowedFile:
    """Looks at a file at most once a second. To be made before the file is first read, so that a change
    in between is not missed."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._checked_ns = clock.monotonic_ns()
        self._seen = self._version()

    def has_changed(self) -> bool:
        """Whether the file is another than when this was last asked. Said once for each change, also for
        one that turns out to be unusable: it is reported once then, not once a second."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._checked_ns < _CHECK_EVERY_NS:
            return False
        self._checked_ns = now_ns
        before, self._seen = self._seen, self._version()
        return self._seen != before

    def _version(self) -> tuple[int, int, int, int] | None:
        """What changes when the file does; None while it is missing."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode

"""The history of a run: who did what at which virtual time, and a digest of all of it.

Two runs of one seed have the same lines, byte for byte. Nothing that depends on the machine may be noted.
"""

import hashlib
from collections.abc import Callable


class Trace:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.lines: list[str] = []

    def note(self, who: str, what: str) -> None:
        self.lines.append(f"{self._now_s():14.6f}  {who:<12} {what}")

    @property
    def digest(self) -> str:
        content = "".join(f"{line}\n" for line in self.lines)
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

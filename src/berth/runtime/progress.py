"""How far a long command is: on a terminal a line that is rewritten, elsewhere a line every few seconds."""

from collections.abc import Iterable, Iterator
from typing import Final, TextIO, TypeVar

from berth.runtime.clock import Clock

_LOOK_EVERY: Final = 500
"""How many things go by between two looks at the clock."""

_LIVE_S: Final = 0.2
_PLAIN_S: Final = 5.0
_LONG_S: Final = 1.0
"""What took less than this is not worth a line in a log."""

T = TypeVar("T")


class ProgressLine:
    """Written to ``out``, which may be a terminal."""

    def __init__(self, clock: Clock, out: TextIO) -> None:
        self._clock = clock
        self._out = out
        self._live = out.isatty()

    def over(self, what: str, total: int, things: Iterable[T]) -> Iterator[T]:
        """The things themselves, while it is reported how many of ``total`` have gone by."""
        started_s = said_s = self._now_s()
        count = 0
        for count, thing in enumerate(things, 1):
            yield thing
            if count % _LOOK_EVERY == 0:
                now_s = self._now_s()
                if now_s - said_s >= (_LIVE_S if self._live else _PLAIN_S):
                    self._say(what, count, total, now_s - started_s, done=False)
                    said_s = now_s
        took_s = self._now_s() - started_s
        if self._live or took_s >= _LONG_S:
            self._say(what, count, total, took_s, done=True)

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _say(self, what: str, count: int, total: int, took_s: float, *, done: bool) -> None:
        rate = f"{count / took_s:,.0f}/s" if took_s > 0.001 else ""
        amount = f"{count:,}" if done else f"{count:,} of {total:,}"
        line = f"{what:<30} {amount:>24}  {rate:>12}  {took_s:.1f} s"
        if self._live:
            # The line is written over, and what a longer one left of itself is cleared.
            line = f"\r{line}\x1b[K" + ("\n" if done else "")
        else:
            line += "\n"
        self._out.write(line)
        self._out.flush()

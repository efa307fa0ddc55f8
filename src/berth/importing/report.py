"""What an import tells its operator: how far it is, and what is odd about the rows of the source.

A row is *left out* if Berth's ledger has no place for it: it refers to something that does not exist, or
contradicts another row. A row is *unused* if nothing refers to it; Berth keeps no such thing, and no client
can tell the difference. A *note* is about something that is imported as it is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TextIO, TypeVar

import msgspec

from berth.runtime.clock import Clock

EXAMPLES_MAX: Final = 1000
"""How many of a kind are kept to be listed; all are counted."""

_EXAMPLES_SHOWN: Final = 3

_LOOK_EVERY: Final = 500
"""How many things go by between two looks at the clock."""

_LIVE_S: Final = 0.2
_PLAIN_S: Final = 5.0
_LONG_S: Final = 1.0
"""What took less than this is not worth a line in a log."""

T = TypeVar("T")


class ImportFinding(msgspec.Struct):
    """All of one kind; ``kind`` reads after a number: "3 allocations of ..."."""

    table: str
    kind: str
    count: int = 0
    examples: list[str] = []


class ImportFindings:
    def __init__(self) -> None:
        self.left_out: dict[tuple[str, str], ImportFinding] = {}
        self.notes: dict[tuple[str, str], ImportFinding] = {}
        self.unused: Counter[str] = Counter()

    def leave_out(self, table: str, kind: str, example: str, count: int = 1) -> None:
        _add(self.left_out, table, kind, example, count)

    def note(self, table: str, kind: str, example: str) -> None:
        _add(self.notes, table, kind, example, 1)

    def left_out_of(self, table: str) -> int:
        return sum(finding.count for finding in self.left_out.values() if finding.table == table)


def _add(
    findings: dict[tuple[str, str], ImportFinding], table: str, kind: str, example: str, count: int
) -> None:
    finding = findings.get((table, kind))
    if finding is None:
        finding = findings[table, kind] = ImportFinding(table, kind)
    finding.count += count
    if len(finding.examples) < EXAMPLES_MAX:
        finding.examples.append(example)


def findings_text(findings: ImportFindings, *, complete: bool) -> str:
    """What was found, with a few examples of each; ``complete``: with all that were kept."""
    shown = None if complete else _EXAMPLES_SHOWN
    parts = []
    if findings.left_out:
        parts.append("cannot be imported:\n")
        parts += [_finding_text(finding, shown) for finding in findings.left_out.values()]
    if findings.notes:
        parts.append("imported, but worth checking:\n")
        parts += [_finding_text(finding, _EXAMPLES_SHOWN) for finding in findings.notes.values()]
    return "".join(parts)


def _finding_text(finding: ImportFinding, shown: int | None) -> str:
    examples = finding.examples[:shown]
    lines = [f"  {finding.count:,} {finding.table} {finding.kind}", *(f"    {text}" for text in examples)]
    if finding.count > len(examples):
        lines.append("    ...")
    return "\n".join(lines) + "\n"


class ImportProgress:
    """On a terminal a line that is rewritten, elsewhere a line every few seconds."""

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

"""What an import tells its operator: what is odd about the rows of the source.

A row is *left out* if Berth's ledger has no place for it: it refers to something that does not exist, or
contradicts another row. A row is *unused* if nothing refers to it; Berth keeps no such thing, and no client
can tell the difference. A *note* is about something that is imported as it is.
"""

from collections import Counter
from typing import Final

import msgspec

EXAMPLES_MAX: Final = 1000
"""How many of a kind are kept to be listed; all are counted."""

_EXAMPLES_SHOWN: Final = 3


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

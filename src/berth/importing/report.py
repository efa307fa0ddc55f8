"""The report of an import: what was odd, and how many rows of each table there are on both sides.

Berth's side is counted on a view that was read from its database, not on the one that was written there. So
a row that was lost on the way shows.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from berth.importing import upstream
from berth.importing.events import Transcript
from berth.importing.findings import ImportFinding, ImportFindings
from berth.importing.upstream import TABLES
from berth.model.ids import AggregateId
from berth.view import View

_EXAMPLES_SHOWN: Final = 3


def counts_of(view: View, transcript: Transcript) -> dict[str, int]:
    """How many rows Placement would need for what a view holds, by table."""
    counts: Counter[str] = Counter()
    aggregates: set[AggregateId] = set()
    consumers = [holder.consumer for holder in view.consumers.values()]
    for record in view.providers.values():
        counts[upstream.INVENTORIES.name] += len(record.inventories)
        counts[upstream.PROVIDER_TRAITS.name] += len(record.traits)
        counts[upstream.PROVIDER_AGGREGATES.name] += len(record.aggregates)
        aggregates.update(record.aggregates)
    for holder in view.consumers.values():
        counts[upstream.ALLOCATIONS.name] += sum(len(amounts) for _, amounts in holder.held)
    return {
        **counts,
        upstream.RESOURCE_CLASSES.name: sum(
            view.classes.id_of(name) is not None for name in transcript.class_names
        ),
        upstream.TRAITS.name: sum(view.has_trait(name) for name in transcript.trait_names),
        upstream.PROVIDERS.name: len(view.providers),
        upstream.AGGREGATES.name: len(aggregates),
        upstream.PROJECTS.name: len({consumer.project for consumer in consumers}),
        upstream.USERS.name: len({consumer.user for consumer in consumers}),
        upstream.CONSUMER_TYPES.name: len({consumer.type for consumer in consumers} - {None}),
        upstream.CONSUMERS.name: len(view.consumers),
    }


Line = tuple[str, int, int, int, int, int | None]
"""A table: rows stored, read, left out and unused, and what Berth has (None: nothing was written)."""


def _lines(transcript: Transcript, findings: ImportFindings, view: View | None) -> Iterator[Line]:
    counts = None if view is None else counts_of(view, transcript)
    for table in TABLES:
        name = table.name
        yield (
            name,
            transcript.stored[name],
            transcript.read[name],
            findings.left_out_of(name),
            findings.unused[name],
            None if counts is None else counts.get(name, 0),
        )


def _is_complete(line: Line) -> bool:
    _, stored, read, left_out, unused, berth = line
    return stored == read and (berth is None or berth == read - left_out - unused)


def differs(transcript: Transcript, findings: ImportFindings, view: View | None) -> bool:
    """Whether anything was lost."""
    return not all(_is_complete(line) for line in _lines(transcript, findings, view))


def table_text(transcript: Transcript, findings: ImportFindings, view: View | None) -> str:
    """The counts on both sides, a line per table."""
    heads = ("table", "in Placement", "read", "left out", "unused", "in Berth", "")
    rows = [
        (*(_number(value) for value in line), "" if _is_complete(line) else "DIFFERS")
        for line in _lines(transcript, findings, view)
    ]
    return "".join(_align(row) for row in (heads, *rows))


def _number(value: str | int | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,}"


def _align(cells: Sequence[str]) -> str:
    name, *numbers, remark = cells
    return f"{name:<28}{''.join(f'{number:>14}' for number in numbers)}  {remark}".rstrip() + "\n"


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

"""The ledger that an import fills: empty before, either whole or unusable afterwards, and then compared with
the source.

An append is atomic, an import of many appends is not. So its first batch is written last: until that is
there the journal has no beginning, no server starts on it and no second import writes into it. The
rejected alternative is a mark that an import is under way, which every reader of a journal would have to
know of.

Rows are counted by table on both sides. Berth's side is counted on a view that was read from its database,
not on the one that was written there. So a row that was lost on the way shows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from berth.engine import start_view
from berth.engine.snapshots import describe
from berth.importing import upstream
from berth.importing.events import Batches, ConvertedSource
from berth.importing.report import ImportFindings
from berth.importing.upstream import TABLES, CannotImport
from berth.journal import Conflict, Journal, JournalError, JournalRow, Pruned, Snapshots
from berth.model.events import Batch, Entry, Origin
from berth.model.ids import AggregateId, Index
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.progress import ProgressLine
from berth.view import View

ACTION: Final = "berth:import"

START_OVER: Final = "drop the target database and import into a fresh one"


def refuse_unless_empty(journal: Journal) -> None:
    if journal.tail() == 0 and not Snapshots(journal).all():
        return
    if _is_unfinished(journal):
        raise CannotImport(f"an earlier import into the target did not finish: {START_OVER}")
    raise CannotImport(
        f"the target is not empty: {describe(start_view(journal))}. An import needs an empty database; "
        "nothing was changed"
    )


def _is_unfinished(journal: Journal) -> bool:
    """Whether an import broke off: its later batches are there, and the first is not."""
    if Snapshots(journal).all():
        # What a server prunes, a snapshot stands in for.
        return False
    try:
        next(journal.read(Index(0), 1))
    except Pruned as pruned:
        first = next(journal.read(Index(pruned.oldest - 1), 1))
        return any(entry.origin.action == ACTION for entry in first.entries)
    return False


def append_all(journal: Journal, batches: Batches, ids: Ids, clock: Clock, progress: ProgressLine) -> None:
    """Write the batches at the indices 1, 2, ...; the first of them last."""
    origin = Origin(ids.request_id(), None, None, ACTION)

    def row(number: int, previous: str | None) -> JournalRow:
        entry = Entry(origin, batches[number])
        batch = Batch(
            Index(number + 1), ids.batch_id(), clock.now_ns(), (entry,), format=journal.program.format
        )
        return journal.row_of(batch, previous)

    if not batches:
        return
    try:
        first = row(0, None)
        previous = first.digest
        for number in progress.over("batches written", len(batches), [*range(1, len(batches)), 0]):
            written = row(number, previous) if number else first
            journal.fill(written)
            previous = written.digest
    except Conflict as error:
        raise CannotImport(
            f"another process writes to the target: stop every server that uses it, {START_OVER}"
        ) from error
    except JournalError as error:
        raise CannotImport(f"the import failed: {error}; {START_OVER}") from error


# -- comparison ----------------------------------------------------------------------------------


def count_rows_of(view: View, class_names: Iterable[str], trait_names: Iterable[str]) -> dict[str, int]:
    """How many rows Placement needs for what a view holds, by table: of the vocabularies, for these names."""
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
        upstream.RESOURCE_CLASSES.name: sum(view.classes.id_of(name) is not None for name in class_names),
        upstream.TRAITS.name: sum(view.has_trait(name) for name in trait_names),
        upstream.PROVIDERS.name: len(view.providers),
        upstream.AGGREGATES.name: len(aggregates),
        upstream.PROJECTS.name: len({consumer.project for consumer in consumers}),
        upstream.USERS.name: len({consumer.user for consumer in consumers}),
        upstream.CONSUMER_TYPES.name: len({consumer.type for consumer in consumers} - {None}),
        upstream.CONSUMERS.name: len(view.consumers),
    }


Line = tuple[str, int, int, int, int, int | None]
"""A table: rows stored, read, left out and unused, and what Berth has (None: nothing was written)."""


def _lines(converted: ConvertedSource, findings: ImportFindings, view: View | None) -> Iterator[Line]:
    counts = None if view is None else count_rows_of(view, converted.class_names, converted.trait_names)
    for table in TABLES:
        name = table.name
        yield (
            name,
            converted.stored[name],
            converted.read[name],
            findings.left_out_of(name),
            findings.unused[name],
            None if counts is None else counts.get(name, 0),
        )


def _is_complete(line: Line) -> bool:
    _, stored, read, left_out, unused, berth = line
    return stored == read and (berth is None or berth == read - left_out - unused)


def differs(converted: ConvertedSource, findings: ImportFindings, view: View | None) -> bool:
    """Whether anything was lost."""
    return not all(_is_complete(line) for line in _lines(converted, findings, view))


def count_rows(
    converted: ConvertedSource, findings: ImportFindings, view: View | None
) -> list[dict[str, str | int | None]]:
    """The counts on both sides, an entry per table."""
    names = ("table", "stored", "read", "left_out", "unused", "written")
    return [dict(zip(names, line, strict=True)) for line in _lines(converted, findings, view)]


def table_text(converted: ConvertedSource, findings: ImportFindings, view: View | None) -> str:
    """The counts on both sides, a line per table."""
    heads = ("table", "in Placement", "read", "left out", "unused", "in Berth", "")
    rows = [
        (*(_number(value) for value in line), "" if _is_complete(line) else "DIFFERS")
        for line in _lines(converted, findings, view)
    ]
    return "".join(_align(row) for row in (heads, *rows))


def _number(value: str | int | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,}"


def _align(cells: Sequence[str]) -> str:
    name, *numbers, remark = cells
    return f"{name:<28}{''.join(f'{number:>14}' for number in numbers)}  {remark}".rstrip() + "\n"

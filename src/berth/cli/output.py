"""What commands print: tables and JSON, and a sign of life while something takes longer than a second.

A table is cut to the width of a terminal; the columns that ``shrink`` give way first. Where standard output
is no terminal nothing is cut, whatever COLUMNS says, and nothing is coloured: a program that reads it gets
whole ids. NO_COLOR switches colours off. Names and texts of
others cannot control the terminal: only printable characters of them are shown.
"""

import contextlib
import io
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Final, NamedTuple

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.status import Status
from rich.text import Text

from berth.cli.command import clean

_ENDLESS: Final = 100_000
_GAP: Final = 2
_SHRUNK: Final = 8
_PATIENCE_S: Final = 1.0

_STYLES: Final = {
    "green": ("up", "enabled", "active", "done", "ok", "reachable"),
    "red": ("down", "error", "failed", "overdue", "unreachable", "lost"),
    "yellow": ("disabled", "building", "build", "running", "degraded", "complaining", "draining"),
}
_STYLE_OF: Final = {word: style for style, words in _STYLES.items() for word in words}

Cell = str | Text


class TableColumn(NamedTuple):
    """``shrinks``: it is cut first where there is too little room."""

    name: str
    is_number: bool = False
    shrinks: bool = False


class TableView:
    """Rows below their headings, as wide as they need to be, or as the terminal is."""

    def __init__(self, columns: Sequence[TableColumn | str], rows: Sequence[Sequence[Cell]]) -> None:
        self._columns = [TableColumn(one) if isinstance(one, str) else one for one in columns]
        self._rows = [[_make_text(cell) for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._fit(options.max_width)
        heading = [Text(one.name.upper(), style="bold") for one in self._columns]
        for row in (heading, *self._rows):
            line = self._join(row, widths)
            # Columns are not made so narrow that nothing can be read in them: the last ones are cut off.
            line.truncate(options.max_width, overflow="ellipsis")
            yield line

    def _join(self, row: Sequence[Text], widths: Sequence[int]) -> Text:
        line = Text(no_wrap=True, overflow="ignore")
        last = len(row) - 1
        for number, (cell, column, width) in enumerate(zip(row, self._columns, widths, strict=True)):
            cell = cell.copy()
            cell.truncate(width, overflow="ellipsis")
            room = width - cell.cell_len
            if column.is_number:
                cell.pad_left(room)
            elif number < last:
                cell.pad_right(room)
            line.append_text(cell)
            if number < last:
                line.append(" " * _GAP)
        line.rstrip()
        return line

    def _fit(self, room: int) -> list[int]:
        """The width of each column: columns that shrink give way first, then the widest; last the first one,
        which says what a row is about."""
        needed = [len(one.name) for one in self._columns]
        for row in self._rows:
            needed = [max(width, cell.cell_len) for width, cell in zip(needed, row, strict=True)]
        excess = sum(needed) + _GAP * (len(needed) - 1) - room
        shrinking = [number for number, one in enumerate(self._columns) if one.shrinks]
        for chosen in (shrinking, range(1, len(needed)), range(len(needed))):
            while excess > 0:
                widest = max(chosen, key=needed.__getitem__, default=None)
                if widest is None or needed[widest] <= _SHRUNK:
                    break
                needed[widest] -= 1
                excess -= 1
        return needed


class Screen:
    """Standard output, and a terminal if it is one."""

    def __init__(self, stream: IO[str] | None = None, *, width: int | None = None) -> None:
        console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
        if width is None and not console.is_terminal:
            console.width = _ENDLESS
        self.console = console
        if isinstance(console.file, io.TextIOWrapper):
            # A name may have characters that the locale has not.
            console.file.reconfigure(errors="backslashreplace")

    @property
    def is_terminal(self) -> bool:
        return self.console.is_terminal

    def print(self, *shown: RenderableType) -> None:
        self.console.print(stack(*shown))

    def print_json(self, value: object, *, in_one_line: bool = False) -> None:
        content = msgspec.json.encode(value)
        text = content if in_one_line else msgspec.json.format(content)
        stream = self.console.file
        if isinstance(stream, io.TextIOWrapper):
            # JSON is UTF-8, whatever the locale is.
            stream.flush()
            stream.buffer.write(text + b"\n")
        else:
            stream.write(text.decode() + "\n")
        stream.flush()


def stack(*parts: RenderableType) -> Group:
    """One below the other; texts as they are, without what a terminal would act on."""
    return Group(*(_make_lines(one) if isinstance(one, str) else one for one in parts))


def _make_lines(text: str) -> Text:
    return Text("\n".join(map(clean, text.split("\n"))))


def mark(word: str, style: str | None = None) -> Text:
    """A state in its colour. The word says the same."""
    return Text(clean(word), style=style or _STYLE_OF.get(word.lower(), ""))


@contextlib.contextmanager
def show_patience(words: str) -> Iterator[None]:
    """Show on a terminal that something is going on, once it has taken a second."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield
        return
    status = Status(words, console=console, spinner="line")
    timer = threading.Timer(_PATIENCE_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def confirm(question: str) -> bool:
    """Whether a person says yes. An interrupt ends the question: an event loop that runs would keep it until
    the question is answered."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(f"\n{question} [y/N] ", end="", flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    finally:
        signal.signal(signal.SIGINT, before)


def _make_text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(clean(cell))

"""What commands print: tables that fit, colours where they belong, and nothing that controls a terminal."""

import io
import json
import re

import pytest
from rich.text import Text

from berth.cli.output import Screen, TableColumn, TableView, mark

pytestmark = pytest.mark.fast

COLUMNS = (
    "name",
    TableColumn("used", is_number=True),
    TableColumn("id", shrinks=True),
    TableColumn("note", shrinks=True),
)
ROWS = [
    ("host-1", "7", "00000000-0000-0000-0000-000000000001", "short"),
    ("host-22", "1,024", "00000000-0000-0000-0000-000000000022", "a note that is rather long, as notes are"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(width: int | None, *rows: tuple[str | Text, ...]) -> str:
    stream = io.StringIO()
    Screen(stream, width=width).print(TableView(COLUMNS, rows or ROWS))
    return stream.getvalue()


def test_a_table_is_not_cut_where_there_is_no_terminal() -> None:
    assert shown(None) == (
        "NAME      USED  ID                                    NOTE\n"
        "host-1       7  00000000-0000-0000-0000-000000000001  short\n"
        "host-22  1,024  00000000-0000-0000-0000-000000000022  a note that is rather long, as notes are\n"
    )


def test_a_table_is_cut_to_the_terminal_where_it_hurts_least() -> None:
    assert shown(50) == (
        "NAME      USED  ID                NOTE\n"
        "host-1       7  00000000-0000-0…  short\n"
        "host-22  1,024  00000000-0000-0…  a note that is …\n"
    )
    assert all(len(line) <= 30 for line in shown(30).splitlines())


def test_what_a_row_is_about_is_cut_last() -> None:
    rows = [(f"host-{number:04}", "4/128 3%", "8/124 GiB 6%", "80/2,000 GB 4%") for number in (1, 2)]
    stream = io.StringIO()
    Screen(stream, width=40).print(TableView(("name", "vcpu", "memory", "disk"), rows))
    assert [line.split()[0] for line in stream.getvalue().splitlines()] == ["NAME", "host-0001", "host-0002"]


def test_what_is_too_narrow_for_all_columns_has_no_longer_lines() -> None:
    columns = [TableColumn(f"column-{number}") for number in range(8)]
    stream = io.StringIO()
    Screen(stream, width=40).print(TableView(columns, [[f"value-{number}" for number in range(8)]]))
    heading, row = stream.getvalue().splitlines()
    assert (len(heading), len(row)) == (40, 40)
    assert row.endswith("…")


def test_columns_count_for_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a pipe wants whole ids. Some programs export their width to all that they run."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    uncut, cut = shown(None), shown(50)
    monkeypatch.setenv("COLUMNS", "50")
    assert shown(None) == uncut
    stream = Terminal()
    Screen(stream).print(TableView(COLUMNS, ROWS))
    assert re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue()) == cut


def test_wide_characters_take_their_room() -> None:
    _, row = shown(None, ("日本", "1", "x", "y")).splitlines()
    assert row == "日本     1  x   y"


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\x9bb", "a\rb", "a\u202eb"])
def test_names_cannot_control_the_terminal(text: str) -> None:
    [_, row] = shown(None, (text, "1", "x", "y")).splitlines()
    assert row.isprintable()
    stream = io.StringIO()
    Screen(stream).print(text.replace("\n", ""), mark(text))
    assert all(line.isprintable() for line in stream.getvalue().splitlines())


def test_colour_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLORTERM", raising=False)
    for stream, is_coloured in ((Terminal(), True), (io.StringIO(), False)):
        Screen(stream, width=80).print(mark("down"))
        assert ("\x1b[31m" in stream.getvalue()) is is_coloured
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    Screen(stream, width=80).print(mark("down"))
    assert "\x1b[31m" not in stream.getvalue()


def test_json_is_indented_or_in_one_line() -> None:
    stream = io.StringIO()
    Screen(stream).print_json({"a": [1]})
    assert stream.getvalue() == '{\n  "a": [\n    1\n  ]\n}\n'
    stream = io.StringIO()
    Screen(stream).print_json({"a": "x" * 300}, in_one_line=True)
    assert json.loads(stream.getvalue()) == {"a": "x" * 300}
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_name_can_be_printed_in_any_locale(encoding: str) -> None:
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding=encoding)
    Screen(stream, width=80).print(TableView(("name",), [("日本",)]))
    stream.flush()
    assert content.getvalue() == b"NAME\n\\u65e5\\u672c\n"


def test_json_is_utf_8_in_any_locale() -> None:
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding="latin-1")
    stream.write("first\n")
    Screen(stream).print_json({"name": "日本"}, in_one_line=True)
    first, shown = content.getvalue().splitlines()
    assert first == b"first"
    assert json.loads(shown.decode("utf-8")) == {"name": "日本"}

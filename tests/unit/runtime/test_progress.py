"""The progress that a long command shows while it runs."""

import io
from collections.abc import Iterator

import pytest

from berth.runtime.progress import ProgressLine
from tests.clocks import FakeClock

pytestmark = pytest.mark.fast


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress_of(out: io.StringIO, seconds: float) -> str:
    """What is shown of 2,000 things that take so long, evenly."""
    clock = FakeClock()

    def things() -> Iterator[int]:
        for number in range(2000):
            clock.advance(seconds / 2000)
            yield number

    assert list(ProgressLine(clock, out).over("allocations", 2000, things())) == list(range(2000))
    return out.getvalue()


def test_a_log_gets_a_line_every_few_seconds_and_one_at_the_end() -> None:
    lines = progress_of(io.StringIO(), 20).splitlines()
    assert [line.split()[1:4] for line in lines[:-1]] == [
        ["500", "of", "2,000"],
        ["1,000", "of", "2,000"],
        ["1,500", "of", "2,000"],
        ["2,000", "of", "2,000"],
    ]
    assert lines[-1].split() == ["allocations", "2,000", "100/s", "20.0", "s"]


def test_a_log_gets_no_line_for_what_takes_no_time() -> None:
    assert progress_of(io.StringIO(), 0.5) == ""


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    text = progress_of(Terminal(), 2)
    assert text.count("\n") == 1
    assert text.count("\r") == 5
    assert text.endswith("2.0 s\x1b[K\n")

"""The list of tests that do not pass: well-formed, compared as it says; the guide is written from it."""

from typing import NamedTuple

import pytest

from tests.servers import ROOT
from tests.tempest.expectations import Expectations, read_expectations
from tests.tempest.page import TOTALS, render_page


class Ended(NamedTuple):
    test: str
    outcome: str
    why: str = ""


LIST = Expectations([{"why": "No volumes.", "skipped": ["a.one"], "failed": ["a.two"]}])


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ((Ended("a.one", "skipped"), Ended("a.two", "failed"), Ended("a.three", "passed")), []),
        ((Ended("a.one", "passed"), Ended("a.two", "failed")), ["a.one passed, and it is listed as skipped"]),
        ((Ended("a.one", "failed"), Ended("a.two", "failed")), ["a.one failed, and it is listed as skipped"]),
        (
            (Ended("a.one", "skipped"), Ended("a.two", "failed"), Ended("a.three", "failed", "a 409")),
            ["a.three failed, and it is listed as passed: a 409"],
        ),
        ((Ended("a.one", "skipped"),), ["a.two is listed, and there is no such test"]),
    ],
)
def test_the_list_is_compared(ended: tuple[Ended, ...], words: list[str]) -> None:
    assert list(LIST.compare(ended, ("a.",))) == words


def test_a_test_is_listed_once_and_words_are_known() -> None:
    with pytest.raises(ValueError, match=r"a\.one is listed twice"):
        Expectations([{"why": "x", "failed": ["a.one"], "skipped": ["a.one"]}])
    with pytest.raises(ValueError, match="colour is not known"):
        Expectations([{"why": "x", "colour": "red"}])


def test_every_reason_is_a_sentence_and_every_test_one_of_tempests() -> None:
    expectations = read_expectations()
    assert expectations.tests
    assert [one["why"] for one in expectations.reasons if not one["why"].endswith(".")] == []
    assert [name for name in expectations.tests if not name.startswith(tuple(TOTALS))] == []


def test_the_guide_is_written_from_the_list() -> None:
    guide = ROOT / "docs" / "guides" / "what-of-nova.md"
    assert guide.read_text() == render_page(read_expectations())

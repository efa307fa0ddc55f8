"""``expected.toml``: which of Tempest's tests do not pass, and why not.

    [[reason]]
    why = "It needs Cinder: there are no volumes."
    skipped = ["tempest.api.compute.volumes. ..."]
    failed = ["tempest. ..."]

A test is listed once. It is an error if a test does not pass and is not listed, passes though it is listed,
fails though it is listed as skipped, or the other way around.
"""

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

PATH: Final = Path(__file__).with_name("expected.toml")


class Ended(Protocol):
    """A test that has ended."""

    @property
    def test(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def why(self) -> str: ...


class Expectation(NamedTuple):
    outcome: str
    why: str


class Expectations:
    """What does not pass, by the name of the test."""

    def __init__(self, reasons: list[dict[str, Any]]) -> None:
        self.reasons = reasons
        self.tests: dict[str, Expectation] = {}
        for reason in reasons:
            unknown = reason.keys() - {"why", "skipped", "failed"}
            if unknown:
                raise ValueError(f"{PATH.name}: {', '.join(sorted(unknown))} is not known in a reason")
            for outcome in ("skipped", "failed"):
                for test in reason.get(outcome, ()):
                    if test in self.tests:
                        raise ValueError(f"{PATH.name}: {test} is listed twice")
                    self.tests[test] = Expectation(outcome, reason["why"])

    def compare(self, ended: Iterable[Ended], patterns: Iterable[str]) -> Iterator[str]:
        """What is not as it is listed, of the tests that begin like a pattern."""
        seen = set()
        for one in ended:
            seen.add(one.test)
            expected = self.tests.get(one.test, Expectation("passed", ""))
            if one.outcome != expected.outcome:
                said = f": {one.why.strip()}" if one.why else ""
                yield f"{one.test} {one.outcome}, and it is listed as {expected.outcome}{said}"
        for test in self.tests:
            if test not in seen and test.startswith(tuple(patterns)):
                yield f"{test} is listed, and there is no such test"


def read_expectations() -> Expectations:
    return Expectations(tomllib.loads(PATH.read_text())["reason"])

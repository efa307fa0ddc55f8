"""Run Tempest's tests, in its own environment: ``python worker.py [--at-once N] PATTERN ...``.

A pattern is the beginning of the name of a test: ``tempest.api.compute``. Every test that has ended is one
line of JSON: its name, ``passed``, ``failed`` or ``skipped``, and why.

Two things of Tempest are changed. It skips a class that wants a default network where there is no Neutron:
here servers have an address without one, so these classes are told that they need none. And it creates
projects for classes that want to be alone in theirs: here every class is, in one that was made before.
"""

import argparse
import json
import re
import sys
import traceback
import unittest
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

_MARKS = re.compile(r"\[.*\]$")
_NAME_OF_CLASS = re.compile(r"\(([\w.]+)\)")
_WHY_MAX = 2_000


class Outcomes(unittest.TestResult):
    """What became of every test, by name. What befalls a class befalls all of its tests."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}

    def _note(self, test: Any, outcome: str, why: str = "") -> None:
        self.found[_MARKS.sub("", test.id())] = (outcome, why[-_WHY_MAX:])

    def addSuccess(self, test: Any) -> None:
        if self.found.get(_MARKS.sub("", test.id()), ("passed", ""))[0] == "passed":
            self._note(test, "passed")

    def addError(self, test: Any, err: Any) -> None:
        self._note(test, "failed", "".join(traceback.format_exception(*err)))

    addFailure = addError

    def addSkip(self, test: Any, reason: str) -> None:
        self._note(test, "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._note(test, "passed")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._note(test, "failed", "it was expected to fail")


def load_classes(patterns: list[str]) -> dict[str, list[str]]:
    """The names of the tests that begin like a pattern, by class."""
    import tempest

    classes: dict[str, list[str]] = {}
    for package in ("compute", "image"):
        if any(pattern.startswith(f"tempest.api.{package}") for pattern in patterns):
            suite = unittest.TestLoader().discover(
                str(Path(tempest.__path__[0]) / "api" / package),
                top_level_dir=str(Path(tempest.__path__[0]).parent),
            )
            for test in _list_tests(suite):
                name = _MARKS.sub("", test.id())
                if any(name.startswith(pattern) for pattern in patterns):
                    classes.setdefault(name.rpartition(".")[0], []).append(name)
    return classes


def _list_tests(suite: Any) -> Iterator[Any]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from _list_tests(one)
        else:
            yield one


def run_class(name: str, wanted: list[str]) -> dict[str, tuple[str, str]]:
    """What became of the tests of a class."""
    from tempest.api.compute import base

    module, _, class_name = name.rpartition(".")
    __import__(module)
    kind = getattr(sys.modules[module], class_name)
    if issubclass(kind, base.BaseV2ComputeTest):
        kind.create_default_network = False
        kind.force_tenant_isolation = False
    suite = unittest.TestLoader().loadTestsFromTestCase(kind)
    outcomes = Outcomes()
    unittest.TestSuite(
        [test for test in suite if _MARKS.sub("", test.id()) in wanted]  # type: ignore[union-attr]
    ).run(outcomes)
    of_class = [found for test, found in outcomes.found.items() if _NAME_OF_CLASS.search(test)]
    missing = of_class[0] if of_class else ("failed", "it was not run")
    failed = next((found for found in of_class if found[0] == "failed"), None)
    if failed is not None and outcomes.found.keys() & {*wanted}:
        # The class could not be torn down: no test is to blame, but it must be seen.
        missing = failed
        last = wanted[-1]
        outcomes.found[last] = failed
    return {test: outcomes.found.get(test, missing) for test in wanted}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("patterns", nargs="+")
    options = parser.parse_args()
    classes = load_classes(options.patterns)
    if options.list:
        print("\n".join(test for tests in classes.values() for test in tests))
        return 0
    with ProcessPoolExecutor(options.at_once) as pool:
        under_way = [pool.submit(run_class, name, tests) for name, tests in classes.items()]
        for future in as_completed(under_way):
            for test, (outcome, why) in future.result().items():
                print(json.dumps({"test": test, "outcome": outcome, "why": why}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

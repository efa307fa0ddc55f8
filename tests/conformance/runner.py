"""Run OpenStack Placement's own gabbi API tests against any HTTP server.

The YAML files come from the installed openstack-placement distribution. Every file gets a fresh server
process, whose starting state is built through the public Placement API alone. No file and no test is left
out unless the command line says so. See README.md.
"""

import argparse
import contextlib
import fnmatch
import functools
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import shlex
import signal
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from gabbi import handlers, suitemaker, utils

from tests.conformance.fixtures import FIXTURES, FixtureError, StateWriter, basic_environ
from tests.conformance.wire import WireTransport
from tests.servers import HOST, ServerProcess, ServerStartError, running
from tests.warm_start import BERTH

OUTCOMES = ("passed", "failed", "skipped")


class ResultRow(NamedTuple):
    """What became of one test."""

    test: str
    outcome: str
    message: str = ""


class FileResult(NamedTuple):
    name: str
    rows: list[ResultRow]
    seconds: float

    def count(self, outcome: str) -> int:
        return sum(row.outcome == outcome for row in self.rows)


class RowRecorder(unittest.TestResult):
    """Keeps a row for every test, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[ResultRow] = []

    def _add(self, test: Any, outcome: str, message: str = "") -> None:
        self.rows.append(ResultRow(test.test_data["name"], outcome, message))

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._add(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._add(test, "failed", str(err[1]))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._add(test, "failed", f"{err[0].__name__}: {err[1]}")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._add(test, "skipped", reason)


# -- one file ----------------------------------------------------------------------------------


@contextlib.contextmanager
def launched(args: argparse.Namespace, settings: dict[str, str]) -> Iterator[str]:
    """Start a server with a directory of its own; yield its URL."""
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch, "data")
        directory.mkdir()

        def command(port: int) -> list[str]:
            text = args.launch.replace("{host}", HOST).replace("{port}", str(port))
            return shlex.split(text.replace("{dir}", str(directory)))

        env = {name: value for name, value in os.environ.items() if not name.startswith("CONFORMANCE_")}
        env |= {"CONFORMANCE_" + name.upper(): value for name, value in settings.items()}
        server = ServerProcess(command, Path(scratch, "server.log"), env, args.entry)
        with running(server, args.startup_timeout):
            yield server.url


def run_file(path: Path, args: argparse.Namespace) -> FileResult:
    content = utils.load_yaml(yaml_file=str(path))
    start_s = time.monotonic()

    def all_tests(outcome: str, message: str) -> FileResult:
        rows = [ResultRow(test["name"], outcome, message) for test in content["tests"]]
        return FileResult(path.stem, rows, time.monotonic() - start_s)

    try:
        (wanted,) = content["fixtures"]
        settings, build = FIXTURES[wanted]
    except (ValueError, KeyError):
        return all_tests("failed", f"there is no way here to make the fixtures {content.get('fixtures')}")
    settings = {**settings, "fixture": wanted, "file": path.stem}
    try:
        with launched(args, settings) as url:
            api = StateWriter(url, os.environ)
            check_empty(api)
            basic_environ(os.environ)
            build(api, os.environ)
            rows = run_tests(path, content, url, args.skip)
    except (FixtureError, ServerStartError, OSError, httpx.HTTPError, ValueError) as problem:
        return all_tests("failed", f"could not prepare: {problem!r}")
    return FileResult(path.stem, rows, time.monotonic() - start_s)


def check_empty(api: StateWriter) -> None:
    try:
        found = api("GET", "/resource_providers", "1.0")
    except FixtureError:
        return  # The tests will tell.
    if found["resource_providers"]:
        raise FixtureError("the launched server already has providers")


def run_tests(path: Path, content: Any, url: str, skip: Sequence[str]) -> list[ResultRow]:
    # gabbi would make an HTTP client for every test. The intercept only keeps that cheap: all tests get
    # the client made here.
    parts = httpx.URL(url)
    suite = suitemaker.test_suite_from_dict(
        unittest.defaultTestLoader,
        path.stem,
        content,
        str(path.parent),
        parts.host,
        parts.port,
        fixture_module=None,
        intercept=lambda: None,
        handlers=[handler() for handler in handlers.RESPONSE_HANDLERS],
    )
    client = httpx.Client(transport=WireTransport())
    for test in suite:
        test.http.client = client
        if f"{path.stem}:{test.test_data['name']}" in skip:
            test.test_data["skip"] = "skipped on the command line"
    recorder = RowRecorder()
    suite.run(recorder)
    return recorder.rows


# -- all files ---------------------------------------------------------------------------------


def find_files(patterns: Sequence[str] | None) -> list[Path]:
    spec = importlib.util.find_spec("placement")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("openstack-placement is not installed here")
    folder = Path(spec.submodule_search_locations[0], "tests", "functional", "gabbits")
    return [
        path
        for path in sorted(folder.glob("*.yaml"))
        if not patterns or any(p in path.stem or fnmatch.fnmatch(path.stem, p) for p in patterns)
    ]


def list_files(paths: Sequence[Path]) -> None:
    for path in paths:
        content = utils.load_yaml(yaml_file=str(path))
        print(f"{path.stem:<45} {len(content['tests']):4}  {' '.join(content['fixtures'])}")


def show(result: FileResult) -> None:
    notes = "".join(f"  {n} {outcome}" for outcome in OUTCOMES[1:] if (n := result.count(outcome)))
    passed = f"{result.count('passed'):4}/{len(result.rows):<4}"
    print(f"{result.name:<45} {passed} {result.seconds:5.1f}s{notes}", flush=True)
    problems = [row for row in result.rows if row.outcome != "passed"]
    if len({row[1:] for row in result.rows}) == 1:
        # One reason for all, such as a server that does not start.
        problems = [row._replace(test="all tests") for row in problems[:1]]
    for row in problems:
        print(f"    {row.outcome}: {row.test}")
        for line in row.message.splitlines():
            print("        " + line)


def report(results: Sequence[FileResult]) -> dict[str, object]:
    return {
        "placement": importlib.metadata.version("openstack-placement"),
        "gabbi": importlib.metadata.version("gabbi"),
        "totals": {outcome: sum(result.count(outcome) for result in results) for outcome in OUTCOMES},
        "files": [
            {
                "file": result.name,
                "seconds": round(result.seconds, 1),
                **{outcome: result.count(outcome) for outcome in OUTCOMES},
                "tests": [
                    {"name": row.test, "outcome": row.outcome}
                    | ({"message": row.message} if row.message else {})
                    for row in result.rows
                ],
            }
            for result in results
        ],
    }


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run", description="Run OpenStack Placement's own gabbi API tests against any HTTP server."
    )
    parser.add_argument(
        "--launch",
        metavar="COMMAND",
        help="command that serves Placement in the foreground; {host}, {port} and {dir} (an empty directory) "
        "are replaced",
    )
    parser.add_argument(
        "--entry",
        metavar="MODULE:FUNCTION",
        help="what the command calls, if it is a Python program: it is imported once, and for each file "
        "called in a process of its own, in place of the command",
    )
    parser.add_argument(
        "--filter",
        metavar="NAME",
        action="append",
        help="only files whose name contains or matches NAME; repeatable",
    )
    parser.add_argument(
        "--skip",
        metavar="FILE:TEST",
        action="append",
        default=[],
        help="leave one test out; repeatable",
    )
    parser.add_argument("--report", metavar="PATH", type=Path, help="write every result as JSON")
    parser.add_argument(
        "-j", "--jobs", type=int, default=2, metavar="N", help="files to run at a time (default 2)"
    )
    parser.add_argument(
        "--startup-timeout",
        type=float,
        default=60,
        metavar="SECONDS",
        help="until GET / must answer (default 60)",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the files with their numbers of tests and fixtures"
    )
    return parser


def run_files(paths: Sequence[Path], args: argparse.Namespace) -> list[FileResult]:
    results = []
    if args.entry:
        _ = BERTH.address
    # One process per file: the tests read their variables from os.environ.
    with multiprocessing.get_context("fork").Pool(
        args.jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN), maxtasksperchild=1
    ) as pool:
        for result in pool.imap(functools.partial(run_file, args=args), paths, chunksize=1):
            show(result)
            results.append(result)
    return results


def main() -> None:
    parser = arguments()
    args = parser.parse_args()
    paths = find_files(args.filter)
    if not paths:
        sys.exit("no such files")
    if args.list:
        list_files(paths)
        return
    if not args.launch:
        parser.error("--launch is required")
    # However this ends, workers leave through SystemExit: servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = run_files(paths, args)
    if args.report:
        args.report.write_text(json.dumps(report(results), indent=1) + "\n")
    totals = {outcome: sum(result.count(outcome) for result in results) for outcome in OUTCOMES}
    print(", ".join(f"{count} {outcome}" for outcome, count in totals.items()))
    sys.exit(bool(totals["failed"]))

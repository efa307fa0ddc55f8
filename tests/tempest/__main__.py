"""``make tempest``: run Tempest's tests of the compute and the image API against ``berth up``.

``python -m tests.tempest [PATTERN ...]``; a pattern is the beginning of the names of tests. What does not
pass is listed in ``expected.toml`` with the reason. The run fails if a test fails that is not listed, or
passes though it is listed; if a request ended in 500; if the doctor finds anything afterwards.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.clouds import PROGRAMS, Cloud, cloud_running
from tests.tempest.environment import find_python
from tests.tempest.expectations import read_expectations
from tests.tempest.settings import prepare_region

PATTERNS: Final = ("tempest.api.compute", "tempest.api.image")
_OPTIONS: Final = ("--hosts", "8", "--cells", "1", "--build-seconds", "0.1", "--live-migrate-seconds", "0.1")
_WORKER: Final = Path(__file__).with_name("worker.py")


class Outcome(NamedTuple):
    test: str
    outcome: str
    why: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tempest", description=__doc__)
    parser.add_argument("--at-once", type=int, default=4, help="classes that run at the same time [4]")
    parser.add_argument("--keep", type=Path, help="a new folder for the region and for outcomes.jsonl")
    parser.add_argument("patterns", nargs="*", default=PATTERNS)
    options = parser.parse_args()
    python = find_python()
    with _make_folder(options.keep) as folder, cloud_running(folder, *_OPTIONS, is_warm=False) as cloud:
        outcomes = list(run_tests(python, cloud, folder, options.patterns, options.at_once))
        troubles = [*find_troubles(cloud)]
    troubles += read_expectations().compare(outcomes, options.patterns)
    counts = Counter(outcome.outcome for outcome in outcomes)
    print(", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "skipped")))
    for trouble in troubles:
        print(trouble)
    return 1 if troubles else 0


@contextlib.contextmanager
def _make_folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="berth-tempest-") as folder:
        yield Path(folder)


def run_tests(
    python: Path, cloud: Cloud, folder: Path, patterns: tuple[str, ...], at_once: int
) -> Iterator[Outcome]:
    """What became of the tests that begin like a pattern, one by one. All are kept in outcomes.jsonl."""
    secrets = json.loads((cloud.data / "secrets.json").read_text())
    config = prepare_region(cloud, secrets["admin"], folder)
    env = {**os.environ, "TEMPEST_CONFIG_DIR": str(config.parent), "TEMPEST_CONFIG": config.name}
    words = [str(python), str(_WORKER), "--at-once", str(at_once), *patterns]
    with (
        (folder / "outcomes.jsonl").open("w") as kept,
        subprocess.Popen(words, env=env, cwd=folder, stdout=subprocess.PIPE, text=True) as worker,
    ):
        assert worker.stdout is not None
        for line in worker.stdout:
            kept.write(line)
            yield Outcome(**json.loads(line))
    if worker.returncode != 0:
        raise SystemExit(f"Tempest ended with status {worker.returncode}")


def find_troubles(cloud: Cloud) -> Iterator[str]:
    """Requests that ended in 500, and what the doctor finds."""
    for line in cloud.everything.splitlines():
        if '"status": 500' in line or '"status":500' in line or "Traceback" in line:
            yield f"the region logged: {line}"
    words = [str(PROGRAMS / "berth"), "doctor", "--data", str(cloud.data)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield f"the doctor found: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    sys.exit(main())

"""Time comes from a ``Clock``: the machine's clock is read only where runtime/clock.py says so."""

import re
from pathlib import Path

import pytest

import berth

pytestmark = pytest.mark.fast

SOURCE = Path(berth.__file__).parent
READS = re.compile(
    r"\btime\.(time|monotonic|perf_counter|process_time)(_ns)?\(|\bdatetime\.(now|utcnow|today)\("
)
ALLOWED = {
    "runtime/clock.py",
    # The deadlines of processes, connections and databases, and the Date header of a response.
    "serving",
    "cli/housekeeper.py",
    "journal/sqlite.py",
    "journal/database.py",
    "runtime/log_output.py",
    # How fast the simulator was.
    "sim/__main__.py",
    "sim/soak.py",
}


def test_the_clock_of_the_machine_is_read_only_where_no_decision_depends_on_it() -> None:
    reading = {path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if READS.search(path.read_text())}
    assert reading, "the search finds nothing"
    others = [path for path in reading if not {str(path), path.parts[0]} & ALLOWED]
    assert not others, "give these a Clock"

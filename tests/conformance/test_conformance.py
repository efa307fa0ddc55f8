"""Upstream's own API tests, all 1316 of them, against Berth."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).resolve().parent
TESTS: Final = 1316
ENTRY: Final = "tests.conformance.berth_server:main"


@pytest.mark.conformance
@pytest.mark.timeout(1200)
def test_every_upstream_api_test_passes(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    launch = f"'{FOLDER / 'launch'}' {{port}} {{dir}}"
    command = [sys.executable, str(FOLDER / "run"), "-j", "2", "--launch", launch, "--entry", ENTRY]
    done = subprocess.run([*command, "--report", str(path)], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert path.exists(), done.stderr

    rows = [
        (f"{file['file']}:{test['name']}", test["outcome"])
        for file in json.loads(path.read_text())["files"]
        for test in file["tests"]
    ]
    assert [name for name, outcome in rows if outcome != "passed"] == []
    assert len(rows) == TESTS
    assert done.returncode == 0

"""Everything that is installed is pinned, and known by its hash: nothing else gets in."""

import re
from pathlib import Path

import pytest

from tools.hashes import FILES

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"[A-Za-z0-9._-]+==[^\s;]+( --hash=sha256:[0-9a-f]{64})+|-r requirements\.txt")


@pytest.mark.parametrize("name", FILES)
def test_every_requirement_is_pinned_and_has_hashes(name: str) -> None:
    text = re.sub(r"\\\n\s*", "", (ROOT / name).read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(lines) > 30
    assert [line for line in lines if not LINE.fullmatch(line)] == []


@pytest.mark.parametrize("name", FILES)
def test_no_address_is_recorded(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()


def test_what_installs_them_wants_the_hashes() -> None:
    installing = re.findall(r"^.*requirements.*\.txt.*$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert any("--require-hashes --requirement requirements-dev.txt" in line for line in installing)
    assert "--require-hashes" in (ROOT / "tests/package_folders.py").read_text()

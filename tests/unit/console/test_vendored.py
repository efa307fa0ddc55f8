"""What is vendored is what npm has, byte for byte, and the types are those of the program."""

import hashlib
from pathlib import Path

import pytest

import berth.console
from tests.packages import PackageMissing, require_npm_packages
from tools.console_types import write_types

CONSOLE = Path(berth.console.__file__).parent
VENDORED = CONSOLE / "static" / "vendor"


def checksums() -> dict[str, str]:
    """As the file says, which ``sha256sum --check`` reads too."""
    lines = (VENDORED / "SHA256SUMS").read_text().splitlines()
    return {path: digest for digest, path in (line.split("  ") for line in lines if not line.startswith("#"))}


def test_vendored_files_have_their_checksums() -> None:
    found = {
        str(path.relative_to(VENDORED)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDORED.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    assert found == checksums()


def test_vendored_files_are_those_of_npm() -> None:
    try:
        packages = require_npm_packages()
    except PackageMissing as missing:
        pytest.skip(str(missing))
    assert len(checksums()) > 5
    for path in checksums():
        assert (VENDORED / path).read_bytes() == (packages / path).read_bytes(), path


def test_the_types_are_those_of_the_program() -> None:
    """If they are not: make docs."""
    assert (CONSOLE / "api.d.ts").read_text() == write_types()

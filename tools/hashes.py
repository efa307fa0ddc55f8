"""Write the hashes of the pinned distributions into the requirements files: ``make hashes``.

For every pin the index is asked for the files of that version. Kept are source distributions and the wheels
that a CPython from 3.11 on can use on Linux or macOS, on x86_64 or 64-bit ARM. Which index was asked is not
recorded: pip checks what it downloads, from wherever. The rest of a file stays as it is.
"""

import hashlib
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).resolve().parents[1]
FILES: Final = (
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-glance.txt",
    "requirements-heat.txt",
    "requirements-keystone.txt",
    "requirements-tempest.txt",
)
_DEFAULT_INDEX: Final = "https://pypi.org/simple"
_PYTHON_OLDEST: Final = (3, 11)
_TIMEOUT_S: Final = 60
_AT_ONCE: Final = 8

_PIN: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s\\;]+)")
_PLATFORM: Final = re.compile(
    r"any|(?:many|musl)?linux.*_(?:x86_64|aarch64)|macosx_.*_(?:x86_64|arm64|universal2)"
)


class _Links(HTMLParser):
    """The addresses on a page of an index."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def main() -> int:
    indexes = list(_indexes())
    pins = {
        match[0]: (match[1], match[2])
        for name in FILES
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
        if (match := _PIN.match(line))
    }
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(pins, pool.map(lambda pin: _hashes(indexes, *pin), pins.values()), strict=True))
    missing = sorted(pin for pin, hashes in found.items() if not hashes)
    if missing:
        print(f"no file is offered of: {', '.join(missing)}", file=sys.stderr)
        return 1
    for name in FILES:
        _write(ROOT / name, found)
    print(f"{len(found)} distributions, {sum(map(len, found.values()))} hashes")
    return 0


def _indexes() -> Iterator[str]:
    """Where pip is set to look."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    given = dict(re.findall(r"^[\w:.]*\.([\w-]+)='(.*)'$", settings, re.MULTILINE))
    yield given.get("index-url", os.environ.get("PIP_INDEX_URL", _DEFAULT_INDEX))
    yield from given.get("extra-index-url", "").split()


def _hashes(indexes: list[str], name: str, version: str) -> list[str]:
    page_name = re.sub(r"[-_.]+", "-", name).lower()
    found = set()
    for index in indexes:
        page = f"{index.rstrip('/')}/{page_name}/"
        for link in _links(page):
            address, _, fragment = urllib.parse.urljoin(page, link).partition("#")
            file = urllib.parse.unquote(address.rpartition("/")[2])
            if _is_wanted(file, version):
                algorithm, _, digest = fragment.partition("=")
                found.add(digest if algorithm == "sha256" else _hash(address))
    return sorted(found)


def _links(page: str) -> list[str]:
    address = page + "index.html" if page.startswith("file:") else page
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
            parser = _Links()
            parser.feed(answer.read().decode())
            return parser.found
    except OSError as error:
        if isinstance(error, urllib.error.HTTPError) and error.code != 404:
            raise
        if not isinstance(error, urllib.error.URLError | FileNotFoundError):
            raise
        return []  # this index does not have it


def _hash(address: str) -> str:
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
        return hashlib.sha256(answer.read()).hexdigest()


def _is_wanted(file: str, version: str) -> bool:
    try:
        if file.endswith(".whl"):
            _, found, _, tags = parse_wheel_filename(file)
            return found == Version(version) and any(map(_is_usable, tags))
        if not file.endswith((".tar.gz", ".zip")):
            return False
        return parse_sdist_filename(file)[1] == Version(version)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return False


def _is_usable(tag: Tag) -> bool:
    if not _PLATFORM.fullmatch(tag.platform):
        return False
    if tag.interpreter.startswith("py"):
        return "3" in tag.interpreter
    version = re.fullmatch(r"cp(\d)(\d+)", tag.interpreter)
    if version is None:
        return False
    return tag.abi == "abi3" or (
        (int(version[1]), int(version[2])) >= _PYTHON_OLDEST and not tag.abi.endswith("t")
    )


def _write(path: Path, found: dict[str, list[str]]) -> None:
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        pin = _PIN.match(line)
        if pin:
            hashes = [f"    --hash=sha256:{digest}" for digest in found[pin[0]]]
            lines.append(" \\\n".join([pin[0], *hashes]))
        elif not line.lstrip().startswith("--hash="):
            lines.append(line)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

"""Upstream's Placement on a database of ours, and its answers beside those of Berth."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.servers import HOST, ServerProcess
from tests.warm_start import COMMANDS

PROGRAMS: Final = Path(sys.executable).parent

DRIVERS: Final = {
    "postgresql": ("postgresql+psycopg", ""),
    "mysql": ("mysql+pymysql", "?charset=utf8mb4"),
}


# Upstream asks a cursor for an attribute that psycopg 3 no longer has, and does not use what it gets.
LAUNCH: Final = f"""\
import sys
from wsgiref import simple_server
import psycopg
psycopg.Cursor.lastrowid = 0
from placement.wsgi.api import application
simple_server.make_server("{HOST}", int(sys.argv[1]), application).serve_forever()
"""


def connection_of(url: str) -> str:
    """How upstream spells a URL of Berth's."""
    scheme, _, rest = url.partition("://")
    driver, options = DRIVERS.get(scheme, (scheme, ""))
    return f"{driver}://{rest}{options}"


def write_config(folder: Path, url: str, *more: str) -> None:
    """Upstream's configuration. ``more``: lines about its database."""
    config = ["[api]", "auth_strategy = noauth2", "[placement_database]", *more]
    config += [f"connection = {connection_of(url)}"]
    (folder / "placement.conf").write_text("\n".join(config) + "\n")


def placement_server(folder: Path) -> ServerProcess:
    """``folder``: where its configuration is."""
    env = {**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(folder)}
    return ServerProcess(lambda port: [sys.executable, "-c", LAUNCH, str(port)], folder / "server.log", env)


def run(words: list[str], **env: str) -> "subprocess.CompletedProcess[str]":
    """A program, as its name says, without the settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    if words[0] in COMMANDS:
        return COMMANDS[words[0]].run(words[1:], kept | env, timeout_s=120)
    return subprocess.run(
        [str(PROGRAMS / words[0]), *words[1:]], env=kept | env, capture_output=True, text=True, timeout=120
    )


def compare(upstream: str, database: str, berth: str, questions: Iterable[tuple[str, str]]) -> None:
    """Every question, a version and a path, has the same answer from Placement, which serves ``database``,
    and from Berth."""
    for version, path in questions:
        expected, answer = ask(upstream, version, path), ask(berth, version, path)
        if expected[0] == 500:
            # Placement 16.0 cannot tell usages by type on PostgreSQL, which misses a GROUP BY.
            assert database.startswith("postgresql:")
            assert path.startswith("/usages")
            assert answer[0] == 200
        else:
            assert answer == expected, f"{version} {path}"


def ask(url: str, version: str, path: str) -> tuple[int, str | None, Any]:
    """Status, the time of the last change, and the body."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    headers = {"x-auth-token": "admin", "openstack-api-version": f"placement {version}"}
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    body = json.loads(text) if text and response.status < 300 else None
    # Of other things, one of the two says that they have changed just now.
    is_dated = path.startswith(("/resource_providers/", "/allocations/")) and not path.endswith(
        ("/traits", "/usages", "/aggregates")
    )
    holds = body and any(body.get(key) for key in ("uuid", "inventories", "allocations"))
    return response.status, response.getheader("last-modified") if is_dated and holds else None, ordered(body)


def ordered(value: Any) -> Any:
    """Lists in an order of their own: that of upstream's is its database's."""
    if isinstance(value, dict):
        return {key: ordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(ordered, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value

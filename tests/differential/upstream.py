"""OpenStack Placement itself, called in this process, on a SQLite file of its own.

A process can have one: upstream keeps its database in a global. ``reset`` empties it for the next world.
"""

import contextlib
import logging
import os
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tests.differential.exchange import ComparedAnswer, WireRequest, answer_of

_KEPT: Final = frozenset(("alembic_version", "resource_classes", "traits"))
"""Tables that hold what every installation has."""


class Upstream:
    def __init__(self, directory: Path) -> None:
        self._database = directory / "upstream.db"
        (directory / "policy.yaml").write_text("")
        (directory / "placement.conf").write_text(
            "[api]\nauth_strategy = noauth2\n[placement_database]\n"
            f"connection = sqlite:///{self._database}\nsync_on_startup = True\nsqlite_synchronous = False\n"
            f"[oslo_policy]\npolicy_file = {directory / 'policy.yaml'}\nenforce_new_defaults = False\n"
        )
        with _tolerant(), mock.patch.dict(os.environ, {"OS_PLACEMENT_CONFIG_DIR": str(directory)}):
            from placement import wsgi
            from webob import Request as WebRequest

            # Its own logging would take the place of whoever runs this.
            with mock.patch.object(wsgi, "setup_logging"):
                self._application: Any = wsgi.init_application()
        self._request: Any = WebRequest
        logging.getLogger("placement").setLevel(logging.CRITICAL + 1)

    def ask(self, request: WireRequest) -> ComparedAnswer:
        sent = self._request.blank(
            request.path,
            method=request.method,
            headers=request.headers,
            body=request.content or b"",
        )
        with _tolerant():
            got = sent.get_response(self._application)
        return answer_of(got.status_int, dict(got.headers), got.body)

    def consumers(self) -> frozenset[str]:
        with self._connected() as connection:
            return frozenset(row[0] for row in connection.execute("SELECT uuid FROM consumers"))

    def forget_consumers_beside(self, kept: frozenset[str]) -> None:
        """Take back the consumers that a refused claim has left behind: in Berth it leaves none."""
        with self._connected() as connection:
            for id in self.consumers() - kept:
                connection.execute("DELETE FROM consumers WHERE uuid = ?", (id,))

    def reset(self) -> None:
        """Forget everything that was ever written."""
        with self._connected() as connection:
            tables = [
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            ]
            for table in tables:
                if table not in _KEPT and not table.startswith("sqlite_"):
                    connection.execute(f"DELETE FROM {table}")
            for table in ("resource_classes", "traits"):
                connection.execute(f"DELETE FROM {table} WHERE name LIKE 'CUSTOM_%'")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._database)) as connection, connection:
            yield connection


@contextlib.contextmanager
def _tolerant() -> Iterator[None]:
    """Upstream's warnings are upstream's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

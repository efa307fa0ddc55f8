"""A throwaway MariaDB server on loopback, with its data in one directory.

A commit is durable when it is answered: innodb_flush_log_at_trx_commit is 1. Two accounts: ``berth`` may do
everything in its databases and nothing with the server, so that read_only binds it as it binds an
operator's service; ``admin`` may do everything.
"""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests import packages
from tests.databases.processes import Database
from tests.servers import HOST

INSTALL: Final = "/usr/bin/mariadb-install-db"
SERVER: Final = "/usr/sbin/mariadbd"
USER: Final = "mysql"

SETTINGS: Final = {
    "bind-address": HOST,
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-dump-at-shutdown": "OFF",
    "innodb-buffer-pool-size": "64M",
    "innodb-flush-log-at-trx-commit": "1",
    "innodb-log-file-size": "32M",
    "max-connections": "200",
    "performance-schema": "OFF",
    "skip-name-resolve": "ON",
}

# The bootstrap that runs these takes one statement a line, and knows no accounts until it is told to.
ACCOUNTS: Final = """\
FLUSH PRIVILEGES;
CREATE USER berth@'%' IDENTIFIED BY 'berth';
CREATE USER admin@'%' IDENTIFIED BY 'admin';
GRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;
CREATE DATABASE berth;
GRANT ALL ON berth.* TO berth@'%';
"""


class MariaDB(Database):
    """``settings`` are those of an option file, over ours."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, name: str = "mariadb"
    ) -> None:
        packages.require(*packages.MARIADB)
        super().__init__(directory, name, USER)
        self.option_path = directory / "my.cnf"
        self.settings = {
            **SETTINGS,
            "datadir": str(self.data),
            "pid-file": str(directory / "server.pid"),
            "port": str(self.port),
            "socket": str(directory / "server.sock"),
            "tmpdir": str(directory),
            **(settings or {}),
        }

    @property
    def admin_url(self) -> str:
        return f"mysql://admin:admin@{HOST}:{self.port}/mysql"

    def database_url(self, name: str) -> str:
        return f"mysql://berth:berth@{HOST}:{self.port}/{name}"

    def install(self) -> None:
        """Make the system tables and the accounts."""
        self.prepare()
        accounts_path = self.directory / "accounts.sql"
        accounts_path.write_text(ACCOUNTS)
        self.daemon.run(
            [
                INSTALL,
                f"--defaults-file={self.option_path}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                f"--extra-file={accounts_path}",
                # Nothing is worth keeping yet. The server itself syncs.
                "--innodb-flush-method=nosync",
                "--wsrep-on=OFF",
            ]
        )

    def prepare(self) -> None:
        """Make the directories and the option file, and no data."""
        self.daemon.own(self.directory)
        self.daemon.own(self.data)
        lines = [f"{name} = {value}" for name, value in self.settings.items()]
        self.option_path.write_text("\n".join(["[mysqld]", *lines, ""]))

    def launch(self, *options: str) -> None:
        """Run the server, without waiting for it."""
        self.daemon.start([SERVER, f"--defaults-file={self.option_path}", *options])

    def stop(self) -> None:
        """Ask it to end, as an operator would."""
        self.daemon.stop(signal.SIGTERM)

    def create_database(self, name: str) -> str:
        """A new database that belongs to ``berth``. Its URL."""
        self.execute(f"CREATE DATABASE `{name}`")
        self.execute(f"GRANT ALL ON `{name}`.* TO berth@'%'")
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE `{name}`")

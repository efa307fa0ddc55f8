"""A throwaway PostgreSQL primary and a standby that follows it, on loopback.

A commit is answered when it is on the disks of both: the primary waits for its standby
(synchronous_standby_names). So whatever was acknowledged is there when the primary is lost and the standby is
promoted, which is left to whoever runs the database; here, to the test. A promoted standby waits for nobody
until it is followed itself.

    primary, standby --lose_primary--> standby --promote--> primary --rejoin--> primary, standby

The two swap their parts when it is done. Their addresses do not change, and a URL names both.
"""

import shutil
import time
from pathlib import Path
from typing import Final

from tests import packages
from tests.databases.postgresql import PostgreSQL
from tests.servers import HOST

WAIT_S: Final = 120


class StandbyNode(PostgreSQL):
    """One of the two. What it is follows from its data: there are no fixed parts."""

    def follow(self, primary: "StandbyNode") -> None:
        """Copy the primary's data and receive what it writes from then on; return when it waits for us."""
        assert not self.is_running, f"{self.daemon.name} is running"
        shutil.rmtree(self.data, ignore_errors=True)
        self.daemon.own(self.directory)
        source = ["--host", HOST, "--port", str(primary.port), "--username=postgres"]
        self.run(
            "pg_basebackup",
            *source,
            *("--pgdata", str(self.data)),
            # The copy is told whom to follow, and the primary not to take its time.
            *("--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
        )
        self.start()
        primary.wait_for_standbys()

    def wait_for_standbys(self) -> None:
        """Answer no commit from now on before a standby has it; return when there is one."""
        self._set("synchronous_standby_names", "'*'")
        deadline_s = time.monotonic() + WAIT_S
        self.daemon.wait_until(self.has_standby, "followed by a standby in step", deadline_s)

    def has_standby(self) -> bool:
        rows = self.execute(
            "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'"
        )
        return bool(rows)

    def promote(self) -> None:
        """Stop following, and take writes; return when it does."""
        # Set before it takes the first write, which would wait for a standby that it does not have.
        self._set("synchronous_standby_names", "''")
        assert self.execute(f"SELECT pg_promote(wait_seconds => {WAIT_S})") == [(True,)]

    def is_standby(self) -> bool:
        return self.execute("SELECT pg_is_in_recovery()") == [(True,)]

    def disconnect(self, role: str) -> None:
        """End all connections of a role."""
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")

    def _set(self, name: str, value: str) -> None:
        self.execute(f"ALTER SYSTEM SET {name} = {value}")
        self.execute("SELECT pg_reload_conf()")


class Pair:
    """A primary and its standby. In a URL the one that was the primary first is named first."""

    def __init__(self, directory: Path) -> None:
        packages.require(*packages.POSTGRESQL)
        self.nodes = [StandbyNode(directory / f"node{number}", f"node{number}") for number in range(2)]
        self.primary, self.standby = self.nodes

    @property
    def url(self) -> str:
        return self.database_url("berth")

    def database_url(self, name: str) -> str:
        hosts = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return f"postgresql://berth@{hosts}/{name}"

    @property
    def is_running(self) -> bool:
        """Any of it."""
        return any(node.is_running for node in self.nodes)

    def start(self) -> None:
        self.primary.start()
        self.standby.follow(self.primary)

    def stop(self) -> None:
        for node in self.nodes:
            if node.is_running:
                node.stop()

    def lose_primary(self) -> None:
        """End the primary in the middle of whatever it does. Nobody takes writes from now on."""
        self.primary.kill()

    def promote(self) -> None:
        """The standby takes over."""
        self.primary, self.standby = self.standby, self.primary
        self.primary.promote()

    def rejoin(self) -> None:
        """The one that was lost follows the other, with a new copy of its data."""
        self.standby.follow(self.primary)

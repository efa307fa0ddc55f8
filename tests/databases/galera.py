"""A throwaway Galera cluster: MariaDB servers on loopback that replicate to each other before they commit.

The first node is bootstrapped, the others join it and copy its data (rsync). Timeouts of the group are
short, so that a node that is gone is noticed within seconds.

A partition is made inside the node: with gmcast.isolate its group communication neither sends nor receives.
The others find it silent and go on without it, it finds that it has lost the majority, and its clients
still reach it. That needs neither root nor a firewall. A proxy before each node was not chosen: nodes tell
each other the addresses they listen on, which leads past it.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa

from tests import packages
from tests.databases import statements
from tests.databases.mariadb import SERVER, MariaDB
from tests.servers import HOST, free_port

START_S: Final = 120

PROVIDER: Final = {
    "evs.inactive_check_period": "PT0.25S",
    "evs.inactive_timeout": "PT4S",
    "evs.install_timeout": "PT4S",
    "evs.keepalive_period": "PT0.5S",
    "evs.suspect_timeout": "PT2S",
    "gcache.size": "32M",
    "gmcast.peer_timeout": "PT2S",
    "gmcast.time_wait": "PT1S",
    "pc.announce_timeout": "PT1S",
}
"""Options of the group: when a silent node is suspected, and when it is out."""


class GaleraNode(MariaDB):
    """One server of a cluster. It is ready when it is in step with the majority."""

    def __init__(self, directory: Path, name: str) -> None:
        self.group_port, self.incremental_port, self.copy_port = free_port(), free_port(), free_port()
        provider = {
            **PROVIDER,
            "base_port": str(self.group_port),
            "gmcast.listen_addr": f"tcp://{HOST}:{self.group_port}",
            "ist.recv_addr": f"{HOST}:{self.incremental_port}",
        }
        settings = {
            "binlog-format": "ROW",
            "default-storage-engine": "InnoDB",
            "innodb-autoinc-lock-mode": "2",
            "wsrep-on": "ON",
            "wsrep-cluster-name": "berth",
            "wsrep-node-address": f"{HOST}:{self.group_port}",
            "wsrep-node-name": name,
            "wsrep-provider": packages.EVIDENCE["galera-4"],
            "wsrep-provider-options": '"' + "; ".join(f"{key}={provider[key]}" for key in provider) + '"',
            "wsrep-slave-threads": "2",
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": f"{HOST}:{self.copy_port}",
        }
        super().__init__(directory, settings, name)

    @property
    def group_address(self) -> str:
        return f"{HOST}:{self.group_port}"

    @property
    def admin_url(self) -> str:
        """A node without a majority would refuse even to begin; what is only read, it tells the admin."""
        return f"{super().admin_url}?init_command={quote('SET SESSION wsrep_dirty_reads = ON')}"

    def bootstrap(self) -> None:
        """Be the first node of a new cluster."""
        self.install()
        self.launch("--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster")

    def join(self, others: Sequence["GaleraNode"]) -> None:
        """Enter the cluster that the others are in, from where this node was when it ended."""
        if not self.data.exists():
            self.prepare()
        address = ",".join(node.group_address for node in others)
        self.launch(f"--wsrep-cluster-address=gcomm://{address}", *self._position())

    def _position(self) -> list[str]:
        """What the storage engine has committed. Without it a killed node would copy everything anew."""
        if not (self.data / "ibdata1").exists():
            return []
        # The address is asked for, and not used.
        words = ["--wsrep-recover", "--wsrep-cluster-address=gcomm://"]
        report = self.daemon.run([SERVER, f"--defaults-file={self.option_path}", *words])
        positions = [
            line.rpartition("Recovered position:")[2].strip()
            for line in report.splitlines()
            if "Recovered position:" in line
        ]
        return [f"--wsrep-start-position={positions[-1]}"] if positions else []

    def status(self) -> dict[str, str]:
        """What the node says of itself and the cluster, by the names of SHOW STATUS without wsrep_."""
        rows = self.execute("SHOW GLOBAL STATUS LIKE 'wsrep\\_%'")
        return {name.lower().removeprefix("wsrep_"): value for name, value in rows}

    def is_synced(self, size: int | None = None) -> bool:
        """In the majority, in step with it, and of that many nodes."""
        try:
            status = self.status()
        except sa.exc.DBAPIError:
            return False
        return (
            status.get("ready") == "ON"
            and status.get("cluster_status") == "Primary"
            and status.get("local_state_comment") == "Synced"
            and size in (None, int(status["cluster_size"]))
        )

    def set_isolated(self, isolated: bool) -> None:
        self.execute(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={int(isolated)}'")


class Galera:
    """A cluster; nodes are named by their number, from 0."""

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        packages.require(*packages.GALERA)
        directory.chmod(0o755)
        self.nodes = [GaleraNode(directory / f"node{number}", f"node{number}") for number in range(nodes)]

    @property
    def urls(self) -> list[str]:
        """Of the nodes, one each."""
        return [node.url for node in self.nodes]

    @property
    def url(self) -> str:
        """Of the cluster: all its nodes."""
        return self.database_url("berth")

    def database_url(self, name: str) -> str:
        hosts = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return f"mysql://berth:berth@{hosts}/{name}"

    @property
    def is_running(self) -> bool:
        """Any of it."""
        return any(node.is_running for node in self.nodes)

    def start(self, timeout_s: float = START_S) -> None:
        """Make a new cluster; return when all nodes are in step."""
        deadline_s = time.monotonic() + timeout_s
        first, *others = self.nodes
        first.bootstrap()
        self._wait_synced(first, 1, deadline_s)
        for size, node in enumerate(others, start=2):
            node.join([first])
            self._wait_synced(node, size, deadline_s)

    def stop(self) -> None:
        for node in reversed(self.nodes):
            if node.is_running:
                node.stop()

    def kill_node(self, number: int) -> None:
        self.nodes[number].kill()

    def stop_node(self, number: int) -> None:
        self.nodes[number].stop()

    def start_node(self, number: int, timeout_s: float = START_S) -> None:
        """Let a node that was ended rejoin; return when it is in step."""
        node = self.nodes[number]
        others = [other for other in self.nodes if other is not node and other.is_running]
        assert others, "nobody is left to join"
        node.join(others)
        self._wait_synced(node, None, time.monotonic() + timeout_s)

    def partition(self, number: int, timeout_s: float = START_S) -> None:
        """Cut a node off from the others; return when both sides have noticed."""
        node = self.nodes[number]
        self.isolate(number)
        deadline_s = time.monotonic() + timeout_s
        others = [other for other in self.nodes if other is not node and other.is_running]
        node.daemon.wait_until(lambda: node.status()["cluster_status"] != "Primary", "cut off", deadline_s)
        for other in others:
            self._wait_synced(other, len(others), deadline_s)

    def isolate(self, number: int) -> None:
        """Cut a node off, and return before anybody has noticed."""
        self.nodes[number].set_isolated(True)

    def heal(self, number: int, timeout_s: float = START_S) -> None:
        """Join what was cut; return when all running nodes are in step again."""
        self.nodes[number].set_isolated(False)
        deadline_s = time.monotonic() + timeout_s
        running = [node for node in self.nodes if node.is_running]
        for node in running:
            self._wait_synced(node, len(running), deadline_s)

    def restore(self) -> None:
        """Undo what a test did to the cluster: all nodes run, together."""
        for number, node in enumerate(self.nodes):
            if not node.is_running:
                self.start_node(number)
            elif not node.is_synced(len(self.nodes)):
                node.set_isolated(False)
        deadline_s = time.monotonic() + START_S
        for node in self.nodes:
            self._wait_synced(node, len(self.nodes), deadline_s)

    def create_database(self, name: str) -> str:
        """A new database on all nodes. Its URL, with all of them."""
        self.nodes[0].create_database(name)
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        self.nodes[0].drop_database(name)

    def execute(self, number: int, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement on a node as ``admin``, after all that the cluster has committed before."""
        return statements.execute(
            self.nodes[number].admin_url, statement, prelude=["SET SESSION wsrep_sync_wait = 1"]
        )

    def _wait_synced(self, node: GaleraNode, size: int | None, deadline_s: float) -> None:
        node.daemon.wait_until(lambda: node.is_synced(size), "in step with the cluster", deadline_s)

"""What operations on servers add to the journals of a region and of a cell, in bytes.

    python -m bench.journal_growth [--servers N]

``berth up`` runs them for real, with a simulated host for each two servers. What is written without being
asked for (signs that a conductor is at work) is told too.
"""

import argparse
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import openstack
from openstack.config import OpenStackConfig

from tests.clouds import Cloud, cloud_running
from tests.databases.processes import scratch

IDLE_S: Final = 60
WAIT_S: Final = 120
JOURNALS: Final = ("region", "cell1")
OPERATIONS: Final = ("stop", "start", "live migration", "resize", "confirm", "delete")


class Sizes:
    """How much has been written, until somebody asked last."""

    def __init__(self, data: Path) -> None:
        self._paths = [data / f"{name}.db" for name in JOURNALS]
        self._last = self._read()

    def read_growth(self) -> list[tuple[int, int]]:
        """Entries and bytes that were added to each journal since."""
        before, self._last = self._last, self._read()
        return [(now[0] - then[0], now[1] - then[1]) for now, then in zip(self._last, before, strict=True)]

    def _read(self) -> list[tuple[int, int]]:
        return [self._read_one(path) for path in self._paths]

    def _read_one(self, path: Path) -> tuple[int, int]:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            count, size = database.execute("SELECT count(*), sum(length(entries)) FROM journal").fetchone()
        finally:
            database.close()
        return count, size or 0


def operate(compute: Any, name: str, servers: list[Any], flavor: Any) -> None:
    """One operation on every server, to its end."""
    begin: dict[str, Callable[[Any], object]] = {
        "stop": compute.stop_server,
        "start": compute.start_server,
        "resize": lambda server: compute.resize_server(server, flavor),
        "confirm": compute.confirm_server_resize,
        "live migration": compute.live_migrate_server,
        "delete": compute.delete_server,
    }
    status = {"stop": "SHUTOFF", "resize": "VERIFY_RESIZE"}.get(name, "ACTIVE")
    for server in servers:
        begin[name](server)
    for server in servers:
        if name == "delete":
            compute.wait_for_delete(server, interval=0.1, wait=WAIT_S)
        else:
            wait_until_idle(compute, server, status)


def wait_until_idle(compute: Any, server: Any, status: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while (now := compute.get_server(server)).task_state is not None or now.status != status:
        assert time.monotonic() < end_s, now
        time.sleep(0.1)


def measure(cloud: Cloud, count: int) -> None:
    config = OpenStackConfig(config_files=[str(cloud.data / "clouds.yaml")], load_envvars=False)
    connection = openstack.connection.Connection(config=config.get_one("berth"))
    compute = connection.compute
    small, large, *_ = sorted(compute.flavors(), key=lambda flavor: (flavor.vcpus, flavor.ram))
    image = next(iter(connection.image.images()))
    sizes = Sizes(cloud.data)
    print(f"operation | {' | '.join(f'{name}: entries, bytes' for name in JOURNALS)}")

    def show(name: str, among: int) -> None:
        # Until the region knows how it ended.
        time.sleep(2)
        growth = " | ".join(f"{rows / among:.1f}, {size / among:,.0f}" for rows, size in sizes.read_growth())
        print(f"{name} | {growth}", flush=True)

    time.sleep(IDLE_S)
    show(f"nothing, for {IDLE_S} s", 1)
    fields = {"flavor_id": small.id, "image_id": image.id, "networks": "none"}
    servers = [compute.create_server(name=f"s{number}", **fields) for number in range(count)]
    for server in servers:
        wait_until_idle(compute, server, "ACTIVE")
    show("create", count)
    for name in OPERATIONS:
        operate(compute, name, servers, large)
        show(name, count)


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.journal_growth", description="Bytes an operation adds.")
    parser.add_argument("--servers", type=int, default=20)
    given = parser.parse_args()
    with scratch("growth") as directory:
        options = ("--hosts", str(given.servers // 2 + 1), "--cells", "1")
        with cloud_running(directory, *options) as cloud:
            measure(cloud, given.servers)


if __name__ == "__main__":
    main()

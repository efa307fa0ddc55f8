"""How many claims one, two and three servers write into one database that survives the loss of a machine.

    python -m bench.writers [--hosts N] [--seconds S]

A claim is acknowledged when the database has it on more than one machine: all nodes of a Galera cluster of
three, or a PostgreSQL primary and its standby. Here all of it shares one machine, the clients too.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from bench.client import load
from bench.journals import write_journal
from bench.large_region import LargeRegion
from bench.operations import Clients
from bench.workload import Claims
from berth.journal import open_journal, parse_address
from tests.databases.galera import Galera
from tests.databases.processes import scratch
from tests.databases.standby import Pair
from tests.servers import HOST, ServerProcess, berth, running

CLIENTS: Final = 16
"""Of each server."""
SERVERS: Final = (1, 2, 3)


class Database(Protocol):
    @property
    def url(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


DATABASES: Final[dict[str, Callable[[Path], Database]]] = {
    "PostgreSQL with a standby": Pair,
    "Galera, three nodes": Galera,
}


def measure(directory: Path, database: Database, hosts: int, seconds: float) -> Iterator[str]:
    """A line for each number of servers."""
    journal = open_journal(parse_address(database.url), shared=True)
    write_journal(journal, LargeRegion(hosts, 0).commands())
    with contextlib.closing(journal), contextlib.ExitStack() as stack:
        servers: list[ServerProcess] = []
        for number in SERVERS:
            folder = directory / f"server{number}"
            folder.mkdir()
            options = ("--log-level", "warning")
            servers.append(stack.enter_context(running(berth(folder, *options, database=database.url))))
            before = journal.tail()
            claims = asyncio.run(_load(servers, hosts, seconds))
            appends = journal.tail() - before
            yield f"{number} | {claims / seconds:,.0f} | {appends / seconds:,.0f} | {claims / appends:.1f}"


async def _load(servers: list[ServerProcess], hosts: int, seconds: float) -> int:
    # Others than those of fewer servers.
    seeds = (10 * len(servers) + number for number in range(len(servers)))
    clients = [Clients(Claims(hosts), CLIENTS, seed) for seed in seeds]
    results = await asyncio.gather(
        *(
            load(HOST, server.port, some.operations, seconds=seconds)
            for server, some in zip(servers, clients, strict=True)
        )
    )
    assert not any(result.failures for result in results), [result.failures for result in results]
    return sum(some.claimed for some in clients)


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.writers", description="Servers that write together.")
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10, help="how long each load lasts [10]")
    given = parser.parse_args()
    for name, make in DATABASES.items():
        with scratch("writers") as data, scratch("writers-servers") as directory:
            database = make(data)
            try:
                database.start()
                print(f"{name}: servers | claims/s | journal entries/s | claims in an entry")
                for line in measure(directory, database, given.hosts, given.seconds):
                    print(f"  {line}", flush=True)
            finally:
                database.stop()


if __name__ == "__main__":
    main()

"""A large region, started and worked with: what an operator plans memory, disks and pauses by.

    python -m bench.scale [--hosts N] [--servers N] [--cells N] [--seconds S]

The journals are written by the ledger itself, so that the numbers are those of real events: the region's in
PostgreSQL, those of its cells in SQLite. Conductors and agents do not run; hosts count as up. Everything
shares this machine: clients, servers and the database.
"""

import argparse
import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench import meter
from bench.client import BenchConnection, load, request_bytes
from bench.databases import PostgreSQLStore, postgresql
from bench.fleets import host_id
from bench.journals import write_journal
from bench.large_region import LargeRegion
from bench.measurement import Measurement, measure_operations
from bench.operations import Clients
from bench.scheduling import one_by_one, plain
from bench.workload import Claims
from berth.journal import SqliteAddress, open_journal, parse_address
from tests.databases import statements
from tests.servers import HOST, ServerProcess, berth

BERTH: Final = str(Path(sys.executable).with_name("berth"))
CLIENTS: Final = 16
STREAMS: Final = 10
START_S: Final = 900
NO_SNAPSHOTS: Final = ("--snapshot-every-batches", "10000000", "--worker-hung-seconds", "300")
"""None is taken while something is measured, and who sleeps is not replaced."""
A_DAY_S: Final = 86_400
STREAM_S: Final = 60
CLAIM: Final = b'"before":null'
"""Stands once in the event of each claim: of a consumer that was not there before."""


class Scale:
    def __init__(self, directory: Path, store: PostgreSQLStore, fleet: LargeRegion, seconds: float) -> None:
        self._directory = directory
        self._store = store
        self._fleet = fleet
        self._seconds = seconds
        self._database = store.url("region")
        self._seeds = itertools.count()

    def measure(self) -> None:
        self._write()
        self._start("the journal alone", self._region()).stop()
        self._take_snapshots()
        region = self._start("snapshots", self._region())
        sleeper = self._start("the snapshot, without cells", self._sleeper())
        try:
            asyncio.run(self._work(region, sleeper))
        finally:
            sleeper.stop()
            region.stop()

    def _write(self) -> None:
        began_s = time.monotonic()
        self._store.create("region")
        journal = open_journal(parse_address(self._database), shared=True)
        view = write_journal(journal, self._fleet.commands())
        journal.close()
        print(
            f"{len(view.providers):,} hosts, {len(view.consumers):,} servers, {len(self._fleet.cells)} cells"
        )
        for cell in self._fleet.cells:
            journal = open_journal(SqliteAddress(self._path(cell)), shared=False)
            write_journal(journal, self._fleet.cell_commands(cell))
            journal.close()
        print(f"journals written by the ledger in {time.monotonic() - began_s:.0f} s")

    def _take_snapshots(self) -> None:
        began_s = time.monotonic()
        subprocess.run([BERTH, "db", "snapshot", "--database", self._database], check=True)
        print(f"snapshot of the region taken in {time.monotonic() - began_s:.1f} s, {self._snapshot_size()}")
        for cell in self._fleet.cells:
            url = f"sqlite:///{self._path(cell)}"
            quiet = subprocess.DEVNULL
            subprocess.run([BERTH, "db", "snapshot", "--database", url], check=True, stdout=quiet)

    def _snapshot_size(self) -> str:
        ((size,),) = self._ask("SELECT sum(octet_length(body)) FROM snapshot_part")
        return f"{int(size) / 2**20:,.0f} MiB"

    def _region(self) -> ServerProcess:
        cells = ",".join(f"{cell}=sqlite:///{self._path(cell)}" for cell in self._fleet.cells)
        words = [BERTH, "region", "--auth", "noauth", "--database", self._database, "--cells", cells]
        return ServerProcess(
            lambda port: [*words, "--log-level", "warning", *NO_SNAPSHOTS, "--listen", f"{HOST}:{port}"],
            self._directory / "region.log",
            {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")},
        )

    def _sleeper(self) -> ServerProcess:
        folder = self._directory / "sleeper"
        folder.mkdir(exist_ok=True)
        return berth(folder, "--log-level", "warning", *NO_SNAPSHOTS, database=self._database)

    def _start(self, what: str, server: ServerProcess) -> ServerProcess:
        began_s = time.monotonic()
        server.start(timeout_s=START_S)
        ready_s = time.monotonic() - began_s
        print(f"start from {what}: ready after {ready_s:.1f} s, {_worker_mb(server):,.0f} MiB in the worker")
        return server

    async def _work(self, region: ServerProcess, sleeper: ServerProcess) -> None:
        await self._wait_for_cells(region)
        await self._measure_claims(region)
        schedule = [one_by_one(plain)] * CLIENTS
        pid = self._store.pid
        _show("schedule and claim", await measure_operations(region, pid, schedule, self._seconds))
        _show("the same, one client", await measure_operations(region, pid, schedule[:1], self._seconds))
        await self._measure_streams(region)
        await self._measure_sleep(region, sleeper)
        print(f"in the end: {_worker_mb(region):,.0f} MiB in the worker")

    async def _wait_for_cells(self, region: ServerProcess) -> None:
        """A region is ready before it has read all of its cells."""
        began_s, connection = time.monotonic(), await BenchConnection.open(HOST, region.port)
        while await _count_cells(connection) < len(self._fleet.cells):
            assert time.monotonic() - began_s < START_S, "the region does not reach its cells"
            await asyncio.sleep(0.2)
        connection.close()
        spent_s = time.monotonic() - began_s
        print(f"all cells read {spent_s:.1f} s later, {_worker_mb(region):,.0f} MiB in the worker")

    async def _measure_claims(self, region: ServerProcess) -> None:
        first, clients = self._last_index(), self._clients()
        _show("claims", await measure_operations(region, self._store.pid, clients.operations, self._seconds))
        behind = f"FROM journal WHERE idx > {first}"
        ((rows, size),) = self._ask(f"SELECT count(*), sum(octet_length(entries)) {behind}")
        bytes_each = int(size) / clients.claimed
        print(
            f"  {clients.claimed / rows:.1f} claims in a journal entry, {bytes_each:.0f} bytes a claim: "
            f"{bytes_each * A_DAY_S / 2**20:.0f} MiB a day for each claim a second, until it is pruned"
        )

    async def _measure_streams(self, region: ServerProcess) -> None:
        """What watchers of the event stream receive while claims come."""
        clients = self._clients()
        streams = [await _Stream.open(region.port) for _ in range(STREAMS)]
        result = await load(HOST, region.port, clients.operations, seconds=self._seconds)
        assert not result.failures, result.failures
        deadline_s = time.monotonic() + STREAM_S
        while min(stream.claims for stream in streams) < clients.claimed:
            assert time.monotonic() < deadline_s, "events are missing in a stream"
            await asyncio.sleep(0.05)
        for stream in streams:
            stream.close()
        rate = clients.claimed / result.seconds
        print(f"{STREAMS} event streams, {rate:,.0f} claims/s: each received all of them")

    async def _measure_sleep(self, region: ServerProcess, sleeper: ServerProcess) -> None:
        """How long the first request waits at a server that slept while another one wrote."""
        path = f"/resource_providers/{host_id(0)}/usages"
        connection = await BenchConnection.open(HOST, sleeper.port)
        assert (await connection.ask(request_bytes("GET", path))).status == 200
        before, pids = self._last_index(), meter.processes_of(sleeper.pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            clients = self._clients()
            result = await load(HOST, region.port, clients.operations, seconds=self._seconds)
            assert not result.failures, result.failures
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        began_s = time.monotonic()
        assert (await connection.ask(request_bytes("GET", path))).status == 200
        spent_s = time.monotonic() - began_s
        connection.close()
        entries = self._last_index() - before
        print(
            f"a server slept for {clients.claimed:,} claims in {entries:,} journal entries: its first answer "
            f"came after {spent_s:.2f} s, {clients.claimed / spent_s:,.0f} claims/s"
        )

    def _clients(self) -> Clients:
        return Clients(Claims(self._fleet.hosts), CLIENTS, next(self._seeds))

    def _last_index(self) -> int:
        ((last,),) = self._ask("SELECT max(idx) FROM journal")
        return int(last)

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return statements.execute(self._database, statement)

    def _path(self, cell: str) -> Path:
        return self._directory / f"{cell}.db"


class _Stream:
    """A watcher of the event stream, which counts claims and keeps nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.claims = 0
        self._writer = writer
        self._task = asyncio.create_task(self._count(reader))

    @classmethod
    async def open(cls, port: int) -> "_Stream":
        reader, writer = await asyncio.open_connection(HOST, port, limit=2**26)
        writer.write(request_bytes("GET", "/berth/v1/events?stream=true&kind=consumer"))
        status = await reader.readline()
        assert b" 200 " in status, status
        await reader.readuntil(b"\r\n\r\n")
        return cls(reader, writer)

    async def _count(self, reader: asyncio.StreamReader) -> None:
        rest = b""
        while data := await reader.read(2**20):
            whole = rest + data
            self.claims += whole.count(CLAIM)
            # The text may be cut in two.
            rest = whole[-len(CLAIM) + 1 :]

    def close(self) -> None:
        self._task.cancel()
        self._writer.close()


async def _count_cells(connection: BenchConnection) -> int:
    answer = await connection.ask(request_bytes("GET", "/metrics"))
    lines = answer.body.decode().splitlines()
    return sum(line.startswith("berth_cell_up{") and float(line.split()[-1]) == 1 for line in lines)


def _show(what: str, measured: Measurement) -> None:
    assert not measured.failures, measured
    assert measured.throughput_per_s is not None, measured
    print(
        f"{what}: {measured.throughput_per_s:,.0f}/s; {measured.latency_ms:.1f} ms, "
        f"99 % {measured.latency_p99_ms:.1f}, longest {measured.latency_max_ms:.0f}; "
        f"{measured.cpu_ms:.2f} ms of the server's CPU each, {measured.database_cpu_ms:.2f} of the database's"
    )


def _worker_mb(server: ServerProcess) -> float:
    """What the largest process of a server has in memory."""
    return max(map(meter.memory_mb, meter.processes_of(server.pid)))


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.scale", description="A large region, started and used.")
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--servers", type=int, default=1_000_000)
    parser.add_argument("--cells", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10, help="how long each load lasts [10]")
    given = parser.parse_args()
    fleet = LargeRegion(given.hosts, given.servers, given.cells)
    with postgresql() as store, tempfile.TemporaryDirectory() as scratch:
        Scale(Path(scratch), store, fleet, given.seconds).measure()


if __name__ == "__main__":
    main()

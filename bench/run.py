"""Measure Berth beside OpenStack Placement: same machine, same run, same data, same database server.

    python -m bench.run [--only NAME] [--quick] [--threads N]
                        [--embedded | --growth | --scheduling | --devices]
    python -m bench.run --against REVISION [--only NAME]: Berth beside an earlier Berth, three rounds in turn

Every fleet is loaded once on each side and checked through the API. Every workload that writes starts from a
copy of that, so that no measurement sees what another one wrote.
"""

import argparse
import contextlib
import math
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from bench import databases, report, scheduling
from bench.client import load, request_bytes
from bench.fleets import providers
from bench.measurement import Measurement, check_fleet, measure
from bench.operations import constant
from bench.sides import PROCESSES, Berth, EarlierBerth, Side, UpstreamSide
from bench.workload import CandidateQuery, Claims, Devices, Flat, Fleet, Request, Workload, all_workloads
from tests.packages import PackageMissing
from tests.servers import HOST, ServerProcess, running

QUICK_S: Final = 0.5
QUICK_DEADLINE_S: Final = 5
GROWTH_S: Final = 3.0

SIZES: Final = (1_000, 10_000, 100_000)
PLAIN: Final = "resources=VCPU:1,DISK_GB:10,MEMORY_MB:256"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Bench:
    """The databases of a run and the directory for all else, with every fleet loaded when first asked for."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._loaded: dict[tuple[str, Fleet], str] = {}
        self._count = 0

    def directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.scratch))

    async def fleet(self, side: Side, fleet: Fleet) -> str:
        """The name of the side's database that holds the fleet."""
        database = self._loaded.get((side.name, fleet))
        if database is None:
            database = self._loaded[side.name, fleet] = self._new_name()
            say(f"  loading {fleet} for {side.name}")
            side.load(database, fleet)
            with running(side.server(database, self.directory())) as server:
                await check_fleet(list(providers(fleet)), server.port)
        return database

    @contextlib.contextmanager
    def copy(self, side: Side, database: str) -> Iterator[str]:
        """A scratch database to write to."""
        copied = self._new_name()
        side.store.copy(database, copied)
        yield copied
        side.store.drop(copied)

    def _new_name(self) -> str:
        self._count += 1
        return f"bench_{self._count}"

    async def measure(self, side: Side, workload: Workload) -> Measurement:
        database = await self.fleet(side, workload.fleet)
        with contextlib.ExitStack() as stack:
            if workload.writes:
                database = stack.enter_context(self.copy(side, database))
            server = side.server(database, self.directory(), limited=workload.hostile)
            stack.enter_context(running(server))
            result = await measure(
                server,
                side.store.pid,
                workload.request,
                concurrency=workload.concurrency,
                seconds=workload.seconds,
                deadline_s=workload.deadline_s,
            )
            if result.problem is not None:
                # It is still busy with a request that nobody waits for any more.
                server.kill()
        say(f"  {side.name}: {describe(result)}")
        return result


def describe(result: Measurement) -> str:
    if result.problem is not None:
        return f"{result.problem} ({result.memory_peak_mb or 0:,.0f} MB)"
    failed = f", failed: {result.failures}" if result.failures else ""
    return (
        f"{result.latency_ms:.3g} ms median, {result.throughput_per_s:,.0f}/s, {result.cpu_ms:.3g} ms CPU, "
        f"{result.database_cpu_ms or 0:.3g} ms of the database, client busy {result.client_busy:.0%}{failed}"
    )


async def client_ceiling_per_s() -> float:
    """How many answers a second the load client can take, from a server that does nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "bench.static_server"]
        static = ServerProcess(lambda port: [*command, str(port)], Path(scratch, "static.log"))
        with running(static):
            clients = [constant(request_bytes("GET", "/allocation_candidates?resources=VCPU:1"))] * 16
            rates = []
            for _ in range(3):
                seen = await load(HOST, static.port, clients, seconds=0.7)
                rates.append(len(seen.latencies_ns) / seen.seconds)
    return statistics.median(rates)


async def compare_embedded(workloads: Sequence[Workload], threads: int, scratch: Path) -> report.Results:
    """Both on a SQLite file each, on fleets of a size for that."""
    with databases.sqlite() as upstream_files, databases.sqlite() as berth_files:
        bench = Bench(scratch)
        sides: list[Side] = [UpstreamSide(upstream_files, bench.directory(), threads), Berth(berth_files, 1)]
        small = [workload for workload in workloads if workload.fleet.hosts <= SIZES[0]]
        return await _measure_all(bench, sides, small)


async def compare_versions(workloads: Sequence[Workload], revision: str, scratch: Path) -> report.Results:
    """Berth as it is and as it was, on a SQLite file each."""
    with databases.sqlite() as earlier_files, databases.sqlite() as files:
        bench = Bench(scratch)
        sides: list[Side] = [
            EarlierBerth(earlier_files, 1, revision, bench.directory()),
            Berth(files, 1),
        ]
        small = (one for one in workloads if one.fleet.hosts <= SIZES[1] and not one.hostile)
        return await _measure_all(bench, sides, [msgspec.structs.replace(one, rounds=3) for one in small])


async def compare(workloads: Sequence[Workload], threads: int, scratch: Path) -> report.Results:
    with databases.mariadb() as mariadb, databases.postgresql() as postgresql, databases.sqlite() as sqlite:
        bench = Bench(scratch)
        sides: list[Side] = [
            UpstreamSide(mariadb, bench.directory(), threads),
            Berth(mariadb, PROCESSES),
            Berth(postgresql, PROCESSES),
            # A file is for one process, by default.
            Berth(sqlite, 1),
        ]
        return await _measure_all(bench, sides, workloads)


async def _measure_all(bench: Bench, sides: list[Side], workloads: Sequence[Workload]) -> report.Results:
    machine, ceiling_per_s = report.machine(), await client_ceiling_per_s()
    say(f"the load client's ceiling: {ceiling_per_s:,.0f} requests/s")
    rows = []
    for workload in workloads:
        say(workload.title)
        rounds: dict[str, list[Measurement]] = {side.name: [] for side in sides}
        # One after the other in each round: a noisy minute of the machine's meets all sides.
        for _ in range(workload.rounds):
            for side in sides:
                rounds[side.name].append(await bench.measure(side, workload))
        measured = {name: middle(measurements) for name, measurements in rounds.items()}
        rows.append(
            report.ReportRow(workload.name, workload.title, workload.concurrency, measured, workload.aim)
        )
    return report.Results(machine, {side.name: side.about() for side in sides}, ceiling_per_s, rows)


def middle(rounds: Sequence[Measurement]) -> Measurement:
    """The round whose operations cost neither the most nor the least; one that failed counts as the most."""
    return sorted(rounds, key=lambda result: math.inf if result.cpu_ms is None else result.cpu_ms)[
        len(rounds) // 2
    ]


Measured = list[tuple[str, int, Measurement]]
"""Title, clients, and what came of it."""


async def grow(server: ServerProcess, database_pid: int | None, hosts: int, seconds: float) -> Measured:
    """What is asked of a fleet of any size. It is written to last."""
    asked: list[tuple[str, Request, int]] = [
        ("candidates, limit=10", CandidateQuery(f"{PLAIN}&limit=10", 10), 1),
        ("candidates, limit=1000", CandidateQuery(f"{PLAIN}&limit=1000", 1000), 1),
        ("claims, any host", Claims(hosts), 16),
    ]
    return [
        (
            title,
            clients,
            await measure(server, database_pid, request, concurrency=clients, seconds=seconds, deadline_s=60),
        )
        for title, request, clients in asked
    ]


async def by_size(
    name: str,
    measure_fleet: Callable[[ServerProcess, int | None, int, float], Awaitable[Measured]],
    fleet_of: Callable[[int], Fleet],
    sizes: Sequence[int],
    seconds: float,
    scratch: Path,
) -> report.Results:
    """The same work for Berth alone, on fleets of several sizes."""
    machine, ceiling_per_s = report.machine(), await client_ceiling_per_s()
    rows: dict[str, report.ReportRow] = {}
    with databases.mariadb() as mariadb:
        bench, side = Bench(scratch), Berth(mariadb, PROCESSES)
        for hosts in sizes:
            database = await bench.fleet(side, fleet_of(hosts))
            with running(side.server(database, bench.directory())) as server:
                measured = await measure_fleet(server, mariadb.pid, hosts, seconds)
            for title, clients, result in measured:
                say(f"  {hosts:,} hosts, {title}: {describe(result)}")
                row = rows.setdefault(title, report.ReportRow(name, title, clients, {}))
                row.measurements[f"{hosts:,} hosts"] = result
        about = {side.name: side.about()}
    return report.Results(machine, about, ceiling_per_s, list(rows.values()))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.run", description="Measure Berth beside OpenStack Placement."
    )
    parser.add_argument("--only", metavar="NAME", help="only workloads whose name contains NAME")
    parser.add_argument("--quick", action="store_true", help="only to see that it works: half a second each")
    parser.add_argument("--embedded", action="store_true", help="only both on SQLite")
    parser.add_argument("--growth", action="store_true", help="only how cost grows, for Berth alone")
    parser.add_argument("--scheduling", action="store_true", help="only the scheduler, for Berth alone")
    parser.add_argument("--devices", action="store_true", help="only requests for devices")
    parser.add_argument("--against", metavar="REVISION", help="only Berth beside what it was at a revision")
    parser.add_argument("--threads", type=int, default=1, help="threads in each process of upstream")
    args = parser.parse_args()
    workloads = [one for one in all_workloads() if args.only is None or args.only in one.name]
    if not workloads:
        parser.error(f"no workload is called {args.only}")
    if args.quick:
        changes = {"seconds": QUICK_S, "deadline_s": QUICK_DEADLINE_S, "rounds": 1}
        workloads = [msgspec.structs.replace(workload, **changes) for workload in workloads]
    with tempfile.TemporaryDirectory(prefix="berth-bench-", ignore_cleanup_errors=True) as scratch:
        try:
            _run(args, workloads, Path(scratch))
        except PackageMissing as missing:
            sys.exit(f"bench: {missing}")


def _run(args: argparse.Namespace, workloads: Sequence[Workload], scratch: Path) -> None:
    if args.against is not None:
        print(report.versions_table(uvloop.run(compare_versions(workloads, args.against, scratch))))
        return
    # What is kept is a whole run.
    is_whole = args.only is None and not args.quick
    chosen = [part for part in ("embedded", "growth", "scheduling", "devices") if getattr(args, part)]
    if not chosen:
        chosen = ["embedded", "compared"] + (["growth", "scheduling", "devices"] if args.only is None else [])
    # They are kept apart: a fleet with devices is a question of its own.
    with_devices = [one for one in workloads if isinstance(one.fleet, Devices)]
    if args.only is None:
        workloads = [one for one in workloads if one not in with_devices]
    if "embedded" in chosen:
        embedded = uvloop.run(compare_embedded(workloads, args.threads, scratch))
        print(f"{report.tables(embedded)}\n")
        if is_whole:
            report.keep(embedded, report.EMBEDDED)
    if "compared" in chosen:
        results = uvloop.run(compare(workloads, args.threads, scratch))
        print(report.tables(results))
        if is_whole:
            report.keep(results, report.COMPARISON)
    if "devices" in chosen:
        compared = uvloop.run(compare(with_devices, args.threads, scratch))
        print(f"\n{report.tables(compared)}")
        if is_whole:
            report.keep(compared, report.DEVICES_COMPARED)
    seconds = QUICK_S if args.quick else GROWTH_S
    for part, measure_fleet, fleet_of, sizes, path in (
        ("growth", grow, Flat, SIZES[:2] if args.quick else SIZES, report.GROWTH),
        ("scheduling", scheduling.measure_all, Flat, SIZES[:2], report.SCHEDULING),
        ("devices", scheduling.measure_devices, Devices, SIZES[:2], report.DEVICES),
    ):
        if part in chosen:
            grown = uvloop.run(by_size(part, measure_fleet, fleet_of, sizes, seconds, scratch))
            print(f"\n{report.growth_table(grown)}")
            if is_whole:
                report.keep(grown, path)


if __name__ == "__main__":
    main()

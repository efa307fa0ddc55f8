"""Measure Berth beside OpenStack Placement: same machine, same run, same data.

    python -m bench.run [--only NAME] [--seconds S] [--deadline S]

For every fleet each side is loaded once through the API; then every workload starts from a copy of that,
so that no measurement sees what another one wrote.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from bench import report
from bench.client import load, request_bytes, send_all
from bench.fleets import fleet_requests
from bench.measure import Measurement, measure
from bench.sides import Berth, Side, Upstream
from bench.workload import Claims, Fleet, Workload, all_workloads
from tests.servers import HOST, Server, running

RESULTS: Final = Path(__file__).with_name("results")
SIDES: Final[tuple[Side, ...]] = (Upstream(), Berth())
LANES: Final = 2


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Data:
    """The fleets of both sides, loaded when first asked for."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._loaded: dict[tuple[str, Fleet], Path] = {}

    async def copy(self, side: Side, fleet: Fleet) -> Path:
        """A directory with the side's data of the fleet, to be used by one server."""
        source = self._loaded.get((side.name, fleet))
        if source is None:
            source = self._loaded[side.name, fleet] = await self._load(side, fleet)
        target = Path(tempfile.mkdtemp(dir=self.scratch))
        side.copy_data(source, target)
        return target

    async def _load(self, side: Side, fleet: Fleet) -> Path:
        say(f"loading {fleet} into {side.name}")
        directory = Path(tempfile.mkdtemp(dir=self.scratch))
        hosts = fleet_requests(fleet)
        lanes = [[request for host in hosts[lane::LANES] for request in host] for lane in range(LANES)]
        with running(side.server(directory, writes=True)) as server:
            await send_all(HOST, server.port, lanes)
        return directory


async def run_workload(data: Data, side: Side, workload: Workload) -> list[Measurement]:
    directory = await data.copy(side, workload.fleet)
    writes = isinstance(workload.request, Claims)
    results: list[Measurement] = []
    with running(side.server(directory, writes=writes, limited=workload.hostile)) as server:
        for concurrency in workload.concurrency:
            result = await measure(side.name, server, workload, concurrency, check=not results)
            results.append(result)
            say(f"  {side.name}, {concurrency} at a time: {describe(result)}")
        if results[-1].problem is not None:
            # It is still busy with a request that nobody waits for any more.
            server.kill()
    return results


def describe(result: Measurement) -> str:
    if result.problem is not None:
        return f"{result.problem} ({result.memory_peak_mb or 0:,.0f} MB)"
    failed = f", failed: {result.failures}" if result.failures else ""
    return (
        f"{result.latency_ms:.3g} ms median, {result.throughput_per_s:,.0f}/s, "
        f"{result.cpu_ms:.3g} ms CPU each{failed}"
    )


async def client_ceiling_per_s() -> float:
    """How many answers a second the load client can take, from a server that does nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "bench.static"]
        static = Server(lambda port: [*command, str(port)], Path(scratch, "static.log"))
        with running(static):
            request = request_bytes("GET", "/allocation_candidates?resources=VCPU:1")
            rates = []
            for _ in range(3):
                seen = await load(HOST, static.port, lambda: request, concurrency=16, seconds=0.7)
                rates.append(len(seen.latencies_ns) / seen.seconds)
    return statistics.median(rates)


async def run(workloads: Sequence[Workload], scratch: Path) -> report.Results:
    ceiling_per_s = await client_ceiling_per_s()
    say(f"the load client's ceiling: {ceiling_per_s:,.0f} requests/s")
    data = Data(scratch)
    rows = []
    for workload in workloads:
        say(workload.title)
        upstream, berth = [await run_workload(data, side, workload) for side in SIDES]
        rows += [
            report.Row(workload.name, workload.title, concurrency, *pair)
            for concurrency, *pair in zip(workload.concurrency, upstream, berth, strict=True)
        ]
    sides = {
        f"{side.name}, {'writes' if writes else 'reads'}": side.about(writes=writes)
        for side in SIDES
        for writes in (False, True)
    }
    return report.Results(report.machine(), sides, ceiling_per_s, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.run", description="Measure Berth beside OpenStack Placement."
    )
    parser.add_argument("--only", metavar="NAME", help="only workloads whose name contains NAME")
    parser.add_argument("--seconds", type=float, help="how long to send each workload")
    parser.add_argument("--deadline", type=float, help="how long to wait for one answer")
    args = parser.parse_args()
    changes = {"seconds": args.seconds, "deadline_s": args.deadline}
    changes = {name: value for name, value in changes.items() if value is not None}
    workloads = [
        msgspec.structs.replace(workload, **changes)
        for workload in all_workloads()
        if args.only is None or args.only in workload.name
    ]
    if not workloads:
        parser.error(f"no workload is called {args.only}")
    with tempfile.TemporaryDirectory(prefix="berth-bench-", ignore_cleanup_errors=True) as scratch:
        results = uvloop.run(run(workloads, Path(scratch)))
    print(report.table(results.rows))
    if not sys.argv[1:]:
        # What is kept is a whole run.
        report.write(results, workloads, RESULTS)
        say(f"written to {RESULTS}")


if __name__ == "__main__":
    main()

"""Start-up and memory of a large fleet: what a snapshot is for.

    python -m bench.scale [--hosts N] [--consumers N]

The journal is written by the ledger itself, in SQLite, so that the numbers are those of real
events. Then a snapshot is taken, and a server is started from it and from the journal alone.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.journals import write_journal
from berth.journal import SqliteAddress, open_journal
from berth.model import commands as c
from berth.model.ids import AggregateId, ConsumerId, ProviderId
from berth.model.placement import Inventory
from berth.runtime.ids import Ids
from tests.servers import berth

FLAVORS: Final = ((1, 2048, 10), (2, 4096, 20), (4, 8192, 40), (8, 16384, 80))


def commands(hosts: int, consumers: int) -> Iterator[c.Command]:
    ids, rng = Ids(1), random.Random(1)
    providers = [ProviderId(ids.uuid()) for _ in range(hosts)]
    for number, provider in enumerate(providers):
        yield c.CreateProvider(provider, f"host-{number:06d}")
        inventories = {"VCPU": Inventory(128), "MEMORY_MB": Inventory(1 << 20), "DISK_GB": Inventory(10_000)}
        yield c.SetInventories(provider, 0, inventories)
        yield c.SetTraits(provider, 1, frozenset(("COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42")))
        yield c.SetAggregates(provider, 2, (AggregateId(f"00000000-0000-4000-8000-{number // 40:012d}"),))
    projects = [ids.uuid() for _ in range(500)]
    users = [ids.uuid() for _ in range(2000)]
    for _ in range(consumers):
        cpus, memory_mb, disk_gb = rng.choice(FLAVORS)
        wanted = (("VCPU", cpus), ("MEMORY_MB", memory_mb), ("DISK_GB", disk_gb))
        claim = c.Claim(
            ConsumerId(ids.uuid()),
            ((rng.choice(providers), wanted),),
            rng.choice(projects),
            rng.choice(users),
            None,
            "INSTANCE",
        )
        yield c.ReplaceAllocations((claim,))


def start(directory: Path, database: Path, what: str) -> None:
    server = berth(directory, "--log-level", "warning", database=database)
    began_s = time.monotonic()
    server.start(timeout_s=600)
    ready_s = time.monotonic() - began_s
    children = ["pgrep", "-P", str(server.pid)]
    workers = subprocess.run(children, capture_output=True, text=True, check=True).stdout.split()
    resident_mb = max(_resident_mb(int(pid)) for pid in workers)
    print(f"start from {what}: ready after {ready_s:.1f} s, {resident_mb:,.0f} MiB resident in the worker")
    server.stop()


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Start-up and memory of a large fleet.")
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--consumers", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        database = directory / "berth.db"
        journal = open_journal(SqliteAddress(database), shared=False)
        began_s = time.monotonic()
        view = write_journal(journal, commands(arguments.hosts, arguments.consumers))
        journal.close()
        print(f"{len(view.providers):,} hosts, {len(view.consumers):,} allocations, {view.index:,} batches")
        print(f"written by the ledger in {time.monotonic() - began_s:.0f} s")
        start(directory, database, "the journal alone")
        began_s = time.monotonic()
        program = str(Path(sys.executable).with_name("berth"))
        subprocess.run([program, "db", "snapshot", "--database", f"sqlite:///{database}"], check=True)
        print(f"snapshot taken in {time.monotonic() - began_s:.1f} s")
        start(directory, database, "the snapshot")


if __name__ == "__main__":
    main()

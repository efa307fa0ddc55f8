"""Several ``berth serve`` over one database, and what tests of faults have in common."""

import contextlib
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from berth.engine.snapshots import take_snapshot
from berth.journal import open_journal, parse_address
from tests.servers import ServerProcess, berth
from tests.waiting import WITHIN_S

SOAK: Final = bool(os.environ.get("BERTH_SOAK"))
"""Whether to look for what is rare: everything ten times as often."""


def rounds(count: int) -> int:
    return 10 * count if SOAK else count


def seeded() -> random.Random:
    """The dice of a test, with the seed printed. It gives the same choices again, not the same race."""
    seed = int(os.environ.get("BERTH_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"to make the same choices again: BERTH_TEST_SEED={seed}")
    return random.Random(seed)


@contextlib.contextmanager
def fleet(directory: Path, urls: Sequence[str], *options: str) -> Iterator[list[ServerProcess]]:
    """A server for each URL; in the end those still running are stopped, and must stop in order."""
    servers = []
    for number, url in enumerate(urls):
        own = directory / f"server{number}"
        own.mkdir()
        servers.append(berth(own, *options, database=url))
    with ThreadPoolExecutor(len(servers)) as pool:
        try:
            for done in [pool.submit(server.start) for server in servers]:
                done.result()
            yield servers
        except BaseException:
            for server in servers:
                print(f"{server.log_path.parent.name}:\n{words_of(server)}")
            raise
        finally:
            running = [server for server in servers if server.process is not None]
            statuses = list(pool.map(lambda server: server.stop(WITHIN_S), running))
    assert statuses == [0] * len(running)


def take_snapshot_of(database_url: str, keep_batches: int) -> None:
    """As the housekeeper has it done: an image of the journal's end, and then pruned."""
    with contextlib.closing(open_journal(parse_address(database_url), shared=None)) as journal:
        take_snapshot(journal, time.time_ns(), keep_batches)


def words_of(server: ServerProcess) -> str:
    """The last lines that are not about ordinary requests."""
    return "\n".join(server.complaints()[-20:])

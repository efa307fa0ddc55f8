"""``python -m tests.differential --seeds 1000``: random sequences on Berth and on upstream, and what differs.

Every difference is shrunk and printed with its seed. The exit status says whether there was any.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.differential.comparison import compare, shrink
from tests.differential.upstream import Upstream
from tests.differential.worlds import Author


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument(
        "--requests", type=int, default=100, help="requests of each, after the world is built"
    )
    parser.add_argument("--differences", type=int, default=5, help="stop after so many")
    return asyncio.run(search(parser.parse_args()))


async def search(arguments: argparse.Namespace) -> int:
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        upstream = Upstream(Path(folder))
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            difference = await compare(upstream, Author(seed).sequence(arguments.requests))
            if difference is None:
                continue
            found += 1
            print(f"seed {seed}:\n{await shrink(upstream, difference)}\n", flush=True)
            if found >= arguments.differences:
                break
    print(f"{seed - arguments.first + 1} seeds, {found} with a difference")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

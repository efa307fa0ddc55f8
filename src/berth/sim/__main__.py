"""Play one seed of a profile: ``python -m berth.sim --seed N [--minutes M] [--profile NAME]``.

Exit status 0 when every check held, 1 when one failed. What is printed depends on the seed alone, and ends
with a digest of the history; figures of real time go to standard error. After a failure the shortest
beginning of the history that still fails is looked for, and its trace is printed.
"""

import argparse
import os
import sys
import time
from typing import Final

from berth.sim.profiles import PROFILES
from berth.sim.simulation import Profile, SeedOutcome, simulate

_TRACE_LINES: Final = 60
_HASH_SEED: Final = "PYTHONHASHSEED"


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    profile = PROFILES[given.profile]
    started_s = time.process_time()
    outcome = simulate(profile, given.seed, minutes=given.minutes, first=given.first)
    spent_s = time.process_time() - started_s
    ratio = outcome.virtual_s / spent_s
    print(
        f"{outcome.virtual_s:.0f} virtual seconds in {spent_s:.1f} s of CPU: {ratio:.0f} times real time",
        file=sys.stderr,
    )
    print(f"profile {profile.name}, seed {given.seed}, {given.minutes:g} minutes, {outcome.actions} actions")
    print(", ".join(f"{name}: {count}" for name, count in outcome.counts.items()))
    for crash in outcome.crashes:
        print(f"hit: {crash}")
    if given.trace:
        print("\n".join(outcome.trace))
    if outcome.failure is None:
        print("every check held")
    else:
        _explain(profile, given.seed, given.minutes, outcome)
    print(f"digest {outcome.digest}")
    return 0 if outcome.failure is None else 1


def _explain(profile: Profile, seed: int, minutes: float, outcome: SeedOutcome) -> None:
    count, shortest = shorten(profile, seed, minutes, outcome)
    print(f"FAILED: {outcome.failure}")
    print(
        f"The first {count} of {outcome.actions} actions fail too: {shortest.failure}\n"
        f"  python -m berth.sim --profile {profile.name} --seed {seed} --minutes {minutes:g} --first {count}"
    )
    print(f"The last {_TRACE_LINES} lines of the trace (all of it: --trace):")
    print("\n".join(shortest.trace[-_TRACE_LINES:]))


def shorten(profile: Profile, seed: int, minutes: float, failed: SeedOutcome) -> tuple[int, SeedOutcome]:
    """The fewest first actions that still fail, as far as halving finds them, and how they do."""
    low, high, shortest = 0, failed.actions, failed
    while low < high:
        middle = (low + high) // 2
        outcome = simulate(profile, seed, minutes=minutes, first=middle)
        if outcome.failure is None:
            low = middle + 1
        else:
            high, shortest = middle, outcome
    return high, shortest


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m berth.sim", description="Play one seed in the simulator.")
    parser.add_argument("--seed", type=int, required=True, metavar="N", help="what the history follows from")
    parser.add_argument("--minutes", type=float, default=30, metavar="M", help="virtual minutes [30]")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="lifecycle", help="[lifecycle]")
    parser.add_argument("--first", type=int, metavar="N", help="play the first N actions alone")
    parser.add_argument("--trace", action="store_true", help="print all that has happened")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    if os.environ.get(_HASH_SEED) != "0":
        # The order of a set of strings is another one in each process, unless this is set.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "berth.sim", *sys.argv[1:]],
            {**os.environ, _HASH_SEED: "0"},
        )
    sys.exit(main())

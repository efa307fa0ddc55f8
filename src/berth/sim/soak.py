"""Play many seeds on all cores: ``python -m berth.sim.soak [--seeds N] [--profile NAME]``.

Without a profile, all of them. Exit status 0 when every check of every seed held. A seed that failed is told
with the command that plays it again.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from berth.sim.profiles import PROFILES
from berth.sim.simulation import simulate

_SEEDS_PER_PROCESS: Final = 500
"""To start a process takes as long as ten short seeds."""


class Played(NamedTuple):
    """How one seed went."""

    profile: str
    seed: int
    minutes: float
    failure: str | None
    virtual_s: float
    cpu_s: float

    @property
    def command(self) -> str:
        return f"python -m berth.sim --profile {self.profile} --seed {self.seed} --minutes {self.minutes:g}"


def play(task: tuple[str, int, float]) -> Played:
    profile, seed, minutes = task
    started_s = time.process_time()
    outcome = simulate(PROFILES[profile], seed, minutes=minutes)
    return Played(profile, seed, minutes, outcome.failure, outcome.virtual_s, time.process_time() - started_s)


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    profiles = [given.profile] if given.profile else sorted(PROFILES)
    tasks = [
        (profile, seed, given.minutes)
        for seed in range(given.first, given.first + given.seeds)
        for profile in profiles
    ]
    console = Console(stderr=True)
    played = []
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(given.processes, maxtasksperchild=_SEEDS_PER_PROCESS) as pool:
        for one in _shown(console, len(tasks), pool.imap_unordered(play, tasks)):
            played.append(one)
            if one.failure is not None:
                print(f"FAILED: {one.command}\n  {one.failure.splitlines()[0]}", flush=True)
    for profile in profiles:
        print(_summary(profile, [one for one in played if one.profile == profile]))
    return 1 if any(one.failure is not None for one in played) else 0


def _summary(profile: str, played: list[Played]) -> str:
    failed = sum(one.failure is not None for one in played)
    virtual_s, cpu_s = sum(one.virtual_s for one in played), sum(one.cpu_s for one in played)
    return (
        f"{profile}: {len(played)} seeds, {failed} failed; {virtual_s / 3600:.1f} virtual hours in "
        f"{cpu_s:.0f} s of CPU, {virtual_s / cpu_s:.0f} times real time"
    )


def _shown(console: Console, count: int, played: Iterator[Played]) -> Iterator[Played]:
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task, failed = progress.add_task("", total=count, failed=0), 0
        for one in played:
            failed += one.failure is not None
            progress.update(task, advance=1, failed=failed)
            yield one


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m berth.sim.soak", description="Play many seeds on all cores.")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many of each profile [100]")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="the first seed [1]")
    parser.add_argument("--minutes", type=float, default=30, metavar="M", help="virtual minutes of each [30]")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="one profile [all]")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N", help="[one a core]")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # Workers are to play as ``python -m berth.sim`` does.
    os.environ["PYTHONHASHSEED"] = "0"
    sys.exit(main())

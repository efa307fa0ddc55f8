"""What a server's processes have used, as the kernel counts it."""

import contextlib
import os
from collections import defaultdict
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def _tree(pid: int) -> list[list[str]]:
    """The ``stat`` fields behind the name, of a process and all its descendants, each with its number first.

    Not of its session: PostgreSQL gives every process of its own one.
    """
    processes, children = {}, defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, fields = path.parent.name, path.read_text().rpartition(")")[2].split()
            processes[number] = [number, *fields]
            children[fields[1]].append(number)
    found, waiting = [], [str(pid)]
    while waiting:
        number = waiting.pop()
        waiting += children[number]
        if number in processes:
            found.append(processes[number])
    return found


def cpu_s(pid: int) -> float:
    """User and system time of a server and all its workers, including those that ended."""
    ticks = 0
    for process in _tree(pid):
        user, system, children_user, children_system = process[12:16]
        ticks += int(user) + int(system) + int(children_user) + int(children_system)
    return ticks / _TICKS_PER_S


def processes_of(pid: int) -> list[int]:
    """A server and its workers."""
    return [int(process[0]) for process in _tree(pid)]


def cpu_ns(pids: list[int]) -> int:
    """What these processes have run for, to the nanosecond; of children that have ended, to a tick."""
    total_ns = 0
    for pid in pids:
        folder = Path("/proc", str(pid))
        for path in folder.glob("task/*/schedstat"):
            with contextlib.suppress(OSError):
                total_ns += int(path.read_text().split()[0])
        with contextlib.suppress(OSError):
            fields = folder.joinpath("stat").read_text().rpartition(")")[2].split()
            total_ns += (int(fields[13]) + int(fields[14])) * 1_000_000_000 // _TICKS_PER_S
    return total_ns


def memory_peak_mb(pid: int) -> float:
    """The largest resident sizes that the processes of a server ever had, together."""
    return sum(_read_mb(int(process[0]), "VmHWM:") for process in _tree(pid))


def memory_mb(pid: int) -> float:
    """What one process has in memory now."""
    return _read_mb(pid, "VmRSS:")


def _read_mb(pid: int, name: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path("/proc", str(pid), "status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
    return 0.0

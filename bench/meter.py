"""What a server's processes have used, as the kernel counts it."""

import contextlib
import os
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def _session(pid: int) -> list[list[str]]:
    """The ``stat`` fields behind the name, of every process in the session that this one leads."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == pid:
                found.append([path.parent.name, *fields])
    return found


def cpu_s(pid: int) -> float:
    """User and system time of a server and all its workers, including those that ended."""
    ticks = 0
    for process in _session(pid):
        user, system, children_user, children_system = process[12:16]
        ticks += int(user) + int(system) + int(children_user) + int(children_system)
    return ticks / _TICKS_PER_S


def memory_peak_mb(pid: int) -> float:
    """The largest resident sizes that the processes of a server ever had, together."""
    total_kb = 0
    for process in _session(pid):
        with contextlib.suppress(OSError):
            for line in Path("/proc", process[0], "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total_kb += int(line.split()[1])
    return total_kb / 1024

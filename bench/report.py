"""What was measured, for people: a table on the terminal, the same as Markdown, everything as JSON."""

import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.measure import Measurement
from bench.workload import Workload


class Row(msgspec.Struct, frozen=True):
    """One workload at one concurrency, on both sides."""

    workload: str
    title: str
    concurrency: int
    upstream: Measurement
    berth: Measurement

    @property
    def latency_ratio(self) -> str:
        return _ratio(_latency_ms(self.upstream), _latency_ms(self.berth), self.upstream.problem)

    @property
    def throughput_ratio(self) -> str:
        return _ratio(self.berth.throughput_per_s, self.upstream.throughput_per_s)

    @property
    def cpu_ratio(self) -> str:
        return _ratio(self.upstream.cpu_ms, self.berth.cpu_ms)


class Results(msgspec.Struct, frozen=True):
    machine: dict[str, str]
    sides: dict[str, str]
    client_ceiling_per_s: float
    rows: list[Row]


def machine() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "cpu": _cpu_model(),
        "python": platform.python_version(),
        **{
            name: importlib.metadata.version(name)
            for name in ("berth", "openstack-placement", "gunicorn", "granian", "SQLAlchemy", "numpy")
        },
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _latency_ms(side: Measurement) -> float | None:
    if side.problem is not None and side.waited_s is not None:
        return side.waited_s * 1000
    return side.latency_ms


def _ratio(large: float | None, small: float | None, at_least: str | None = None) -> str:
    if large is None or small is None or not small:
        return "-"
    return f"{'> ' if at_least else ''}{large / small:.0f}x"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _latency(side: Measurement) -> str:
    return side.problem or _number(side.latency_ms)


def _throughput(side: Measurement) -> str:
    failed = sum(side.failures.values())
    note = f" ({failed / (failed + side.operations):.0%} failed)" if failed else ""
    return _number(side.throughput_per_s) + note


COLUMNS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("workload", lambda row: row.title),
    ("at a time", lambda row: str(row.concurrency)),
    ("upstream median ms", lambda row: _latency(row.upstream)),
    ("berth median ms", lambda row: _latency(row.berth)),
    ("ratio", lambda row: row.latency_ratio),
    ("upstream /s", lambda row: _throughput(row.upstream)),
    ("berth /s", lambda row: _throughput(row.berth)),
    ("ratio", lambda row: row.throughput_ratio),
    ("upstream CPU ms", lambda row: _number(row.upstream.cpu_ms)),
    ("berth CPU ms", lambda row: _number(row.berth.cpu_ms)),
    ("ratio", lambda row: row.cpu_ratio),
    ("berth peak MB", lambda row: _number(row.berth.memory_peak_mb)),
)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table that is also readable as it stands."""
    cells = [[name for name, _ in COLUMNS], *([cell(row) for _, cell in COLUMNS] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def markdown(results: Results, workloads: Sequence[Workload]) -> str:
    about = [f"- {name}: {value}" for name, value in (results.machine | results.sides).items()]
    seconds = ", ".join(sorted({f"{workload.seconds:g}" for workload in workloads}))
    return "\n".join(
        [
            "# Berth beside OpenStack Placement",
            "",
            "Both servers on the same machine in the same run, one after the other, each on a SQLite file, "
            "each writing durably, both holding the same data. The load client runs on the same machine. "
            f"Each measurement takes {seconds} s after a warm-up. CPU is user and system time of all "
            "processes of the server, divided by operations that succeeded. Ratios are how many times "
            "better Berth is. The load client's own ceiling, against a server that always gives the same "
            f"answer, is {results.client_ceiling_per_s:,.0f} requests/s.",
            "",
            *about,
            "",
            table(results.rows),
            "",
        ]
    )


def write(results: Results, workloads: Sequence[Workload], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(results), indent=1)
    (folder / "results.json").write_bytes(content + b"\n")
    (folder / "results.md").write_text(markdown(results, workloads))

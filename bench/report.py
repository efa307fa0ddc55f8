"""What was measured, for people: tables on the terminal, the same as Markdown and in the README.

    python -m bench.report

The figures are kept as JSON, and everything else is made from that; the command above makes it again.
"""

import importlib.metadata
import os
import platform
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.measurement import Measurement

FOLDER: Final = Path(__file__).with_name("results")
COMPARISON: Final = FOLDER / "results.json"
EMBEDDED: Final = FOLDER / "embedded.json"
GROWTH: Final = FOLDER / "growth.json"
SCHEDULING: Final = FOLDER / "scheduling.json"
DEVICES: Final = FOLDER / "devices.json"
DEVICES_COMPARED: Final = FOLDER / "devices-compared.json"
PAGE: Final = FOLDER / "results.md"
README: Final = Path(__file__).parent.parent / "README.md"
BEGIN: Final = "<!-- bench: begin. Written by bench/report.py, as is all up to the end. -->"
END: Final = "<!-- bench: end -->"

UPSTREAM: Final = "upstream"
PEER: Final = "berth on MariaDB"
"""Whose figures the README sets against upstream's: all else is equal."""

BUSY: Final = 0.9
"""From here on the load client may be what was measured."""


class ReportRow(msgspec.Struct, frozen=True):
    """One workload, on every side; or on one side, at every size of the fleet."""

    workload: str
    title: str
    concurrency: int
    measurements: dict[str, Measurement]
    aim: int | None = None

    @property
    def peers(self) -> tuple[str, str]:
        """Upstream, and the Berth that stands on the same database: the first of those measured."""
        return UPSTREAM, next(name for name in self.measurements if name != UPSTREAM)

    def ratios(self) -> list[str]:
        """How many times better than upstream: in latency, in throughput, in CPU time."""
        upstream, berth = (self.measurements[name] for name in self.peers)
        return [
            _ratio(_latency_ms(upstream), _latency_ms(berth), at_least=upstream.problem is not None),
            _ratio(berth.throughput_per_s, upstream.throughput_per_s),
            _ratio(_cpu_ms(upstream), berth.cpu_ms, at_least=upstream.problem is not None),
        ]


class Results(msgspec.Struct, frozen=True):
    machine: dict[str, str]
    sides: dict[str, str]
    client_ceiling_per_s: float
    rows: list[ReportRow]


def machine() -> dict[str, str]:
    packages = (
        "berth",
        "openstack-placement",
        "pyuwsgi",
        "PyMySQL",
        "httptools",
        "uvloop",
        "SQLAlchemy",
        "numpy",
    )
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": f"{os.cpu_count()} x {_first('/proc/cpuinfo', 'model name') or platform.machine()}",
        "memory": f"{int(_first('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _first(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


# -- cells --------------------------------------------------------------------------------------


def _latency_ms(side: Measurement) -> float | None:
    if side.problem is not None and side.waited_s is not None:
        return side.waited_s * 1000
    return side.latency_ms


def _cpu_ms(side: Measurement) -> float | None:
    return side.cpu_ms if side.problem is None else side.spent_cpu_ms


def _ratio(large: float | None, small: float | None, *, at_least: bool = False) -> str:
    if large is None or not small:
        return "-"
    return f"{'> ' if at_least else ''}{_number(large / small)}x"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _latency(side: Measurement) -> str:
    return side.problem or _number(side.latency_ms)


def _cpu(side: Measurement) -> str:
    has_ended = side.problem is None or side.spent_cpu_ms is None
    return f"{'' if has_ended else '> '}{_number(_cpu_ms(side))}"


def _throughput(side: Measurement) -> str:
    failed = sum(side.failures.values())
    note = f" ({failed / (failed + side.operations):.0%} failed)" if failed else ""
    mark = "*" if (side.client_busy or 0) > BUSY else ""
    return _number(side.throughput_per_s) + mark + note


FIGURES: Final[Sequence[tuple[str, Callable[[Measurement], str]]]] = (
    ("median ms", _latency),
    ("p99 ms", lambda side: _number(side.latency_p99_ms)),
    ("longest ms", lambda side: _number(side.latency_max_ms)),
    ("per second", _throughput),
    ("server CPU ms", _cpu),
    ("longest CPU ms", lambda side: _number(side.cpu_max_ms)),
    ("database CPU ms", lambda side: _number(side.database_cpu_ms)),
)


# -- tables -------------------------------------------------------------------------------------


def comparison(rows: Sequence[ReportRow]) -> str:
    """Upstream and Berth, on the same kind of database."""
    ratios = ["latency", "throughput", "CPU", "aim"]
    lines = [["work", "clients", *(name for name, _ in FIGURES), *ratios]]
    for row in rows:
        aim = "" if row.aim is None else f"{row.aim}x"
        lines.append([*_figures(row, row.peers), *row.ratios(), aim])
    return _table(lines)


def side_by_side(rows: Sequence[ReportRow], names: Sequence[str]) -> str:
    """The same figures for each of the names, in one cell each."""
    return _table(
        [["work", "clients", *(name for name, _ in FIGURES)], *(_figures(row, names) for row in rows)]
    )


def _figures(row: ReportRow, names: Iterable[str]) -> list[str]:
    measured = [row.measurements[name] for name in names]
    return [
        row.title,
        str(row.concurrency),
        *(" / ".join(show(one) for one in measured) for _, show in FIGURES),
    ]


def _table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also readable as it stands. A column in which nothing was measured is left
    out: results that were kept before it was there have none of it."""
    columns = [
        column for column in zip(*lines, strict=True) if any(set(text) - set("-/ ") for text in column[1:])
    ]
    lines = list(zip(*columns, strict=True))
    widths = [max(map(len, column)) for column in columns]
    texts = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])


def tables(results: Results) -> str:
    """All that can be shown of a comparison."""
    berths = [name for name in results.sides if name != UPSTREAM]
    compared = f"upstream / {berths[0]}; then how many times better Berth is\n\n{comparison(results.rows)}"
    if len(berths) == 1:
        return compared
    return f"{compared}\n\n{' / '.join(berths)}\n\n{side_by_side(results.rows, berths)}"


def growth_table(growth: Results) -> str:
    sizes = list(growth.rows[0].measurements)
    return f"{' / '.join(sizes)}\n\n{side_by_side(growth.rows, sizes)}"


def versions_table(results: Results) -> str:
    """Server CPU of an earlier version and this one, the middle of the rounds, and the change."""
    earlier, now = results.sides
    lines = [("work", "clients", f"{earlier}, ms CPU", "now, ms CPU", "change")]
    for row in results.rows:
        before, after = row.measurements[earlier].cpu_ms, row.measurements[now].cpu_ms
        change = "-" if not before or not after else f"{after / before - 1:+.0%}"
        lines.append((row.title, str(row.concurrency), f"{before or 0:.3g}", f"{after or 0:.3g}", change))
    return _table(lines)


# -- pages --------------------------------------------------------------------------------------

LEGEND: Final = (
    "CPU is user and system time of all processes of the server for each operation, and the database "
    "server's apart. Only operations that succeeded count, and where some failed it says how many. A star "
    "marks a rate at which the load client, one thread on the same machine, was itself busy all the time. "
    "Longest, where it is told, is what a client waited at most, whatever else the machine did; longest CPU "
    "is the most that the server itself spent on one operation. "
    "The aim is what we want of the CPU ratio at least; where 10 of 10,000 hosts are asked for without a "
    "claim, of the latency ratio."
)


def page(results: Results, embedded: Results | None) -> str:
    parts = [
        "# Berth beside OpenStack Placement",
        "",
        *_wrapped(
            "All servers on the same machine in the same run, one after the other, holding the same data, "
            "and driven by the same client over kept connections. Upstream and Berth use the same kind of "
            "database, each one of its own. Every commit is durable. Settings that are not named here "
            f"are the defaults. {LEGEND} {_ceiling(results)}"
        ),
        "",
        *_about(results),
        "",
        tables(results),
        "",
    ]
    if embedded is not None:
        parts += ["## Both on SQLite", "", *_about(embedded), "", tables(embedded), ""]
    compared = _kept(DEVICES_COMPARED)
    if compared is not None:
        title = "## Requests for devices, on hosts of 8 GPUs, 8 network cards and 2 NUMA cells"
        parts += [title, "", *_about(compared), "", tables(compared), ""]
    for title, path in (
        ("How cost grows with the fleet", GROWTH),
        ("The scheduler", SCHEDULING),
        ("The scheduler, on hosts of 8 GPUs, 8 network cards and 2 NUMA cells", DEVICES),
    ):
        grown = _kept(path)
        if grown is not None:
            parts += [f"## {title}", "", *_about(grown), "", growth_table(grown), ""]
    return "\n".join(parts)


def _about(results: Results) -> list[str]:
    return [f"- {name}: {value}" for name, value in (results.machine | results.sides).items()]


def section(results: Results) -> str:
    """What the README shows."""
    machine = results.machine
    return "\n".join(
        [
            "",
            *_wrapped(
                f"Measured {machine['date']} on {machine['cpu']}, {machine['memory']}. "
                f"Upstream: {results.sides[UPSTREAM]}. Berth: {results.sides[PEER]}, the same server. "
                "Cells are upstream / Berth; then how many times better Berth is. "
                f"{LEGEND} {_ceiling(results)}"
            ),
            "",
            comparison(results.rows),
            "",
        ]
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110, break_on_hyphens=False)


def _ceiling(results: Results) -> str:
    return (
        "The load client's own ceiling, against a server that always gives the same answer, is "
        f"{results.client_ceiling_per_s:,.0f} requests/s."
    )


def keep(results: Results, path: Path) -> None:
    """Write the figures down, and the pages anew."""
    FOLDER.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    write_pages()


def write_pages() -> None:
    results, embedded = _kept(COMPARISON), _kept(EMBEDDED)
    if results is None:
        # Nobody has run the whole yet: what there is stands for itself.
        if embedded is not None:
            PAGE.write_text(page(embedded, None))
        return
    PAGE.write_text(page(results, embedded))
    before, begin, rest = README.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, "the README has lost the mark where the table begins"
    assert end, "the README has lost the mark where the table ends"
    README.write_text(f"{before}{BEGIN}\n{section(results)}\n{END}{after}")


def _kept(path: Path) -> Results | None:
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else None


if __name__ == "__main__":
    write_pages()

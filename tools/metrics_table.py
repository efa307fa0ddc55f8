"""The table of metrics in docs/guides/observing.md, from the families that are declared in code."""

from pathlib import Path
from typing import Final

from berth.agent import metrics as agent
from berth.cell import figures as cell
from berth.region import figures as region
from berth.runtime.metrics import Family
from berth.runtime.telemetry import CELL, REGION, WORKER_LAG

GUIDE: Final = Path(__file__).resolve().parents[1] / "docs" / "guides" / "observing.md"
HEAD: Final = "| metric | kind | labels | where | what it is |\n| --- | --- | --- | --- | --- |\n"

PLACES: Final[dict[str, tuple[Family, ...]]] = {
    "region": (*REGION, WORKER_LAG, *region.FAMILIES),
    "cell": (*CELL, WORKER_LAG, *cell.FAMILIES),
    "agent": agent.FAMILIES,
}


def list_families() -> dict[str, Family]:
    return {family.name: family for families in PLACES.values() for family in families}


def name_series(family: Family) -> str:
    """What Prometheus calls it."""
    return f"{family.name}_total" if family.kind == "counter" else family.name


def render_table() -> str:
    rows = []
    for name, family in sorted(list_families().items()):
        where = [place for place, families in PLACES.items() if any(one.name == name for one in families)]
        labels = (*family.labels, "worker") if family.merge == "each" else family.labels
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append(
            f"| `{name_series(family)}` | {family.kind} | {shown} | {', '.join(where)} | {family.help} |\n"
        )
    return HEAD + "".join(rows)


def write_page(page: str) -> str:
    """The guide with the table of now."""
    before, _, rest = page.partition(HEAD)
    lines = rest.splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before + render_table() + "".join(lines[end:])


if __name__ == "__main__":
    GUIDE.write_text(write_page(GUIDE.read_text()))

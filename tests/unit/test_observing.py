"""The guide, the dashboard and the alerts name the metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools.metrics_table import GUIDE, list_families, name_series, write_page

pytestmark = pytest.mark.fast

OPS: Final = Path(__file__).resolve().parents[2] / "ops"
RULES: Final = yaml.safe_load((OPS / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD: Final[dict[str, Any]] = json.loads((OPS / "grafana.json").read_text())


def list_series() -> set[str]:
    found = set()
    for family in list_families().values():
        name = name_series(family)
        ends = ("_bucket", "_count", "_sum") if family.kind == "histogram" else ("",)
        found |= {name + end for end in ends}
    return found


def name_metrics(expression: str) -> set[str]:
    return set(re.findall(r"\bberth_[a-z_]+", expression))


def list_expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def test_the_table_of_the_guide_is_that_of_the_code() -> None:
    page = GUIDE.read_text()
    assert write_page(page) == page, "run `make docs`"


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    series = list_series()
    for expression in (*(rule["expr"] for rule in RULES), *list_expressions()):
        assert name_metrics(expression) <= series, expression


def test_every_metric_is_in_the_dashboard() -> None:
    asked = set().union(*map(name_metrics, list_expressions()))
    shown = {re.sub("_(bucket|count|sum)$", "", name) for name in asked} | asked
    # What only others are calculated from.
    apart = {"berth_worker_pid", "berth_worker_index", "berth_snapshot_every_entries"}
    assert {name_series(family) for family in list_families().values()} - shown == apart


def test_every_alert_is_in_the_guide_and_says_what_to_do() -> None:
    page = GUIDE.read_text()
    for rule in RULES:
        assert f"| `{rule['alert']}` |" in page
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "action"}


def test_panels_have_numbers_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)

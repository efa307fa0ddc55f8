"""Patterns end where the text ends: ``$`` would let a line break through."""

import ast
from pathlib import Path
from typing import Any

import pytest

import berth
from tests.unit.native.clusters import CLUSTERS, cluster, data
from tests.worlds import ApplicationWorld, uuid_of

SOURCE = Path(berth.__file__).parent
UPSTREAM = {SOURCE / "api/placement/schemas.py", SOURCE / "api/placement/query.py"}
"""Placement's own patterns. They are part of its error texts, and what they let through is its own too."""

SCHEDULE = {"resources": {"VCPU": 1}}


def texts_of(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [value for value in constants if isinstance(value, str)]


def test_no_pattern_lets_a_line_break_through() -> None:
    found = {
        f"{path.relative_to(SOURCE)}: {text}"
        for path in SOURCE.rglob("*.py")
        if path not in UPSTREAM
        for text in texts_of(path)
        if text.startswith("^") and text.endswith("$") and len(text) > 2
    }
    assert found == set()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/berth/v1/schedule", {**SCHEDULE, "consumers": [uuid_of(1) + "\n"]}),
        ("/berth/v1/schedule", {**SCHEDULE, "consumer_type": "A\n"}),
        (CLUSTERS, cluster(data(1), name="nl\n")),
        (CLUSTERS, cluster(data(1, name="nl\n"))),
        (CLUSTERS, cluster(data(1, processes=["nl\n"]))),
    ],
)
async def test_a_line_break_is_refused_by_name(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    async with ApplicationWorld(tmp_path).running() as world:
        answer = await world.ask("POST", path, body)
    assert answer.status == 400
    assert "matching regex" in answer.error["detail"]


async def test_the_description_has_patterns_of_json_schemas(tmp_path: Path) -> None:
    """There the end of a text is ``$``, and ``\\Z`` is nothing."""
    async with ApplicationWorld(tmp_path).running() as world:
        answer = await world.get("/berth/v1/openapi.json")
    assert rb"\\Z" not in answer.body
    assert b'{12}$"' in answer.body

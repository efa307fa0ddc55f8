"""What runs, applies and describes sagas knows none of them by name: a new saga touches its own file only."""

import ast
from pathlib import Path
from typing import get_args

import pytest

import berth
from berth.sagas.saga import ClaimChange, Verb, all_sagas

pytestmark = pytest.mark.fast

SOURCE = Path(berth.__file__).parent
READERS = [
    *(SOURCE / "sagas" / f"{name}.py" for name in ("runner", "saga", "table")),
    *(SOURCE / "cell" / f"{name}.py" for name in ("conductor", "placement", "saga_runs")),
    *sorted((SOURCE / "region").glob("*.py")),
    *sorted((SOURCE / "doctor").glob("*.py")),
]
WORDS = {*get_args(Verb), *get_args(ClaimChange)}
"""Of agents and of Placement: some sagas are called like what they have done."""


@pytest.mark.parametrize("path", READERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_saga_is_known_by_its_name(path: Path) -> None:
    names = {name for saga in all_sagas() for name in (saga.name, saga.key)} - WORDS
    assert names, "there are sagas that are not called like a verb"
    tree = ast.parse(path.read_text())
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    }
    assert not texts & names
    assert not {f"berth.sagas.{name}" for name in (saga.name for saga in all_sagas())} & imported

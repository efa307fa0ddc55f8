"""No class name stands for two things: whoever searches for a word finds one meaning."""

import ast
from collections import defaultdict
from pathlib import Path

import berth

SOURCES = Path(berth.__file__).parent


def test_no_class_name_stands_twice_in_the_sources() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCES)))
    assert len(found) > 500
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}

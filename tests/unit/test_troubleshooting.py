"""The guide for the night: every alert leads to a section, and what it quotes and tells to run exists."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from berth.cli.program import make_parser
from berth.runtime.settings import BY_NAME
from tests.servers import ROOT
from tools.metrics_table import list_families, name_series

pytestmark = pytest.mark.fast

GUIDE: Final = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
ALERTS: Final = yaml.safe_load((ROOT / "ops" / "alerts.yml").read_text())["groups"][0]["rules"]
SOURCE: Final = ROOT / "src" / "berth"
VIEWS: Final = SOURCE / "console" / "static" / "views.js"
_PLACEHOLDER: Final = re.compile(r"%(?:\.\d+)?[sdgrf]|\{[^{}]*\}")


def find_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


def find_sections() -> set[str]:
    titles = re.findall("^## (.*)$", GUIDE, re.MULTILINE)
    return {re.sub("[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_alert_leads_to_a_section() -> None:
    _, _, rows = GUIDE.partition("| alert | section |")
    led = {
        name: anchor
        for names, anchor in re.findall(r"^\| (`.*?) \| \[.*\]\(#([a-z-]+)\) \|$", rows, re.MULTILINE)
        for name in re.findall("`(Berth[A-Za-z]+)`", names)
    }
    assert led.keys() == {rule["alert"] for rule in ALERTS}
    assert set(led.values()) <= find_sections()


def test_every_section_is_found_by_what_one_sees() -> None:
    linked = set(re.findall(r"\]\(#([a-z-]+)\)", GUIDE))
    assert linked == find_sections() - {"where-to-look"}


def test_links_to_other_guides_lead_somewhere() -> None:
    links = re.findall(r"\]\(([a-z-]+\.md)#?([a-z-]*)\)", GUIDE)
    assert len(links) > 10
    for page, anchor in links:
        text = (ROOT / "docs" / "guides" / page).read_text()
        titles = re.findall("^#+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub("[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, (page, anchor)


# -- what is quoted -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts() -> str:
    """Every text of the source, with "..." for what is filled in."""
    texts = (_PLACEHOLDER.sub("...", text) for file in SOURCE.rglob("*.py") for text in read_texts(file))
    return re.sub(r"(\.\.\.){2,}", "...", "\n".join(texts))


def read_texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_line_that_is_quoted_is_in_the_source(texts: str) -> None:
    lines = [line for block in find_blocks("log") for line in block.splitlines()]
    assert len(lines) > 40
    assert not is_there("the database: went for a walk: ...", texts)
    assert [line for line in lines if not is_there(line, texts)] == []


def is_there(line: str, texts: str) -> bool:
    """As a whole, or in the parts that it is put together from."""
    return line in texts or all(part in texts for part in re.split(": |; ", line))


# -- what is to be run --------------------------------------------------------------------------


def find_commands() -> list[str]:
    blocks = [line for block in find_blocks("sh") for line in block.splitlines()]
    named = re.findall(r"`(berth [a-z][^`]*)`", GUIDE)
    return sorted({line for line in (*blocks, *named) if line.startswith("berth ")})


@pytest.mark.parametrize("command", [line for line in find_commands() if "COMMAND" not in line])
def test_every_command_is_one(command: str) -> None:
    parser, [_, *words] = make_parser(), shlex.split(command.replace("URL", "sqlite:///x.db"))
    if words not in [[name] for name in parser.actions]:
        parser.parse_args(words)


def test_every_metric_and_setting_is_one() -> None:
    series = {name_series(family) for family in list_families().values()}
    named = set(re.findall(r"`(berth_[a-z_]+)`", GUIDE))
    assert len(named) > 8
    assert named - series == set()
    settings = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", GUIDE)) - named
    assert settings - BY_NAME.keys() == {"max_per_domain"}


def test_every_view_is_one() -> None:
    views = set(re.findall(r'label: "([A-Z][a-z]+)"', VIEWS.read_text()))
    rows = re.findall(r"^\| .*\? \| .* \| (.*) \|$", GUIDE, re.MULTILINE)
    assert len(rows) > 30
    named = {word for row in rows for word in re.findall(r"\b[A-Z][a-z]+\b", re.sub(r"\*.*?\*", "", row))}
    assert named
    assert named - views == set()

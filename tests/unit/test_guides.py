"""What the guides show can be used as it stands: every block of settings, tokens and policy is tried."""

import re
from pathlib import Path

import msgspec
import pytest

from berth.agent.discovery import Discovery, DiscoverySettings
from berth.agent.discovery import settings as discovery
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.auth.tokens import Tokens
from berth.cli import main
from berth.cli.settings import page
from berth.runtime.settings import TABLE, gather, resolve
from berth.scheduler.devices import read_catalog
from tests.clocks import FakeClock
from tests.servers import ROOT
from tests.sysroots import two_pfs
from tools import extra_specs_page

GUIDES = ROOT / "docs" / "guides"
DEVICES = "devices.md"
EXAMPLE = "src/berth/sagas/restart.py"
"""What the guide about operations shows."""


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for guide in sorted(GUIDES.glob("*.md")):
        texts = re.findall(rf"^ *```{language}\n(.*?)^ *```", guide.read_text(), re.DOTALL | re.MULTILINE)
        found += [(guide.name, re.sub(r"(?m)^   ", "", text)) for text in texts]
    return found


def test_there_are_blocks_to_try() -> None:
    assert len(blocks("toml")) >= 4
    assert len(blocks("yaml")) == 2


@pytest.mark.parametrize(("guide", "text"), [b for b in blocks("toml") if "[[token]]" not in b[1]])
def test_settings_are_accepted(guide: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "berth.toml"
    file.write_text(text)
    is_of_agent = guide == DEVICES and "pci_aliases" not in text
    assert gather(discovery.TABLE if is_of_agent else TABLE, str(file))[1]


def test_the_devices_of_the_guide_can_be_asked_for() -> None:
    (text,) = (text for guide, text in blocks("toml") if guide == DEVICES and "pci_aliases" in text)
    given = msgspec.toml.decode(text)
    catalog = read_catalog(given["pci_aliases"], given["device_profiles"])
    assert set(catalog.aliases) == {"nic", "vf", "gpu"}
    assert set(catalog.profiles) == {"render"}


def test_the_file_of_tokens_is_accepted(tmp_path: Path) -> None:
    (text,) = (text for _, text in blocks("toml") if "[[token]]" in text)
    file = tmp_path / "tokens.toml"
    file.touch(mode=0o600)
    file.write_text(text)
    Tokens(str(file), FakeClock())


def test_the_policy_does_what_the_guide_says(tmp_path: Path) -> None:
    (text,) = (text for guide, text in blocks("yaml") if guide != DEVICES)
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    policy = Policy(str(file), "secure", FakeClock())
    monitor = Caller("m", "p", ("monitor",))
    assert policy.allows("placement:resource_providers:list", monitor)
    assert not policy.allows("placement:resource_providers:delete", monitor)
    assert policy.allows("os_compute_api:os-hypervisors:list", monitor)
    member = Caller("m", "p", ("member", "reader"))
    assert policy.allows("os_compute_api:os-migrate-server:migrate_live", member, "p")
    assert not policy.allows("os_compute_api:os-migrate-server:migrate_live", member, "q")
    assert not policy.allows("os_compute_api:os-migrate-server:migrate", member, "p")


def test_the_provider_config_of_the_guide_is_accepted(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (GUIDES / DEVICES).read_text(), re.DOTALL)
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "mine.yaml").write_text(text)
    two_pfs(tmp_path / "root")
    settings = DiscoverySettings(sysroot=str(tmp_path / "root"), provider_config=str(tmp_path / "providers"))
    root = Discovery(settings).look().providers[0]
    assert root.inventories["CUSTOM_LICENSE"].total == 10
    assert "CUSTOM_GOLD" in root.traits


def test_the_picture_of_the_guide_is_that_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Line by line; "..." stands for anything."""
    (picture,) = re.findall(r"```\n\$ berth (inspect .*?)```", (GUIDES / DEVICES).read_text(), re.DOTALL)
    command, *lines = picture.splitlines()
    two_pfs(tmp_path)
    assert main([*command.split(), "--sysroot", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert len(lines) >= 4
    for line in lines:
        assert re.search(re.escape(line).replace(re.escape("..."), ".*"), shown), line


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_what_is_said_to_make_can_be_made(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^ +)make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/glossary.md"])
def test_the_files_that_are_named_exist(page: str) -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", (ROOT / page).read_text()))
    assert len(named) >= 10
    there = {name for name in named if (ROOT / "src" / "berth" / name).exists() or (ROOT / name).exists()}
    assert named - there == set()


@pytest.mark.parametrize(
    "page", sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}), ids=lambda page: page.name
)
def test_a_file_that_a_page_names_without_its_folder_exists_too(page: Path) -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page.read_text())) - {EXAMPLE}
    files = {file for folder in ("src", "tests", "bench", "tools") for file in (ROOT / folder).rglob("*.py")}
    assert {name for name in named if not any(file.match(name) for file in files)} == set()


def test_every_guide_is_in_a_list() -> None:
    lists = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    assert {guide.name for guide in GUIDES.glob("*.md") if f"docs/guides/{guide.name})" not in lists} == set()


def test_every_package_is_in_the_architecture() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    packages = {file.parent.name for file in (ROOT / "src" / "berth").glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}/`" not in page} == set()


def test_every_behaviour_of_the_glossary_has_a_file() -> None:
    """Ten things that a newcomer asks for, each found by the names of folder and file."""
    _, _, rows = (ROOT / "docs" / "glossary.md").read_text().partition("## Where to look")
    behaviours = re.findall(r"^\| (?!behaviour|---)(.*?) \| .*`[a-z_/]+\.py`", rows, re.MULTILINE)
    assert len(behaviours) == 10


def test_the_page_of_settings_is_that_of_the_program() -> None:
    assert (GUIDES / "settings.md").read_text() == page(), "run: make docs"


def test_the_page_of_extra_specs_is_that_of_the_program() -> None:
    assert (GUIDES / "extra-specs.md").read_text() == extra_specs_page.page(), "run: make docs"


def test_the_limits_of_the_guide_are_those_of_the_settings() -> None:
    """The guide once said 10 MiB of what was 4."""
    rows = re.findall(
        r"^\| .* \| ([\d,]+)( MiB)?.* \| `(\w+)` \|$", (GUIDES / "compatibility.md").read_text(), re.MULTILINE
    )
    documented = {name: int(number.replace(",", "")) << (20 if unit else 0) for number, unit, name in rows}
    assert len(documented) == 5
    settings = resolve(None).settings
    assert documented == {name: getattr(settings, name) for name in documented}


def test_the_figures_of_the_comparison_are_those_of_the_newest_run() -> None:
    """Within a third: runs differ, and the page says how many times, not how fast."""
    results = (ROOT / "bench" / "results" / "results.md").read_text()
    measured: dict[str, tuple[float, float]] = {}
    for line in results.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 11 and cells[7].endswith("x"):
            measured.setdefault(cells[0], (_read_times(cells[7]), _read_times(cells[8])))
    guide = (GUIDES / "comparison.md").read_text()
    rows = re.findall(r"^\| (.*?) \| ([\d,]+) \| ([\d,]+) \|$", guide, re.MULTILINE)
    assert len(rows) == 6
    for work, latency, throughput in rows:
        told = (_read_times(latency), _read_times(throughput))
        for one, other in zip(told, measured[work], strict=True):
            assert one == pytest.approx(other, rel=1 / 3), work


def _read_times(cell: str) -> float:
    number = re.sub("[^0-9.]", "", cell)
    return float(number) if number else 0.0

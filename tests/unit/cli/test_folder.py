"""The folder of ``berth up``: secrets are made once and are for their owner alone."""

import stat
from pathlib import Path

import pytest
import yaml

from berth.agent.fleet import SimHost, simulated_fleet
from berth.api.kernel.auth.caller import TOKEN_HEADER
from berth.api.kernel.auth.tokens import Tokens
from berth.cli.agent import hosts_of_cell
from berth.cli.command import CommandError
from berth.cli.folder import Folder, Running
from tests.clocks import FakeClock

pytestmark = pytest.mark.fast

RUNNING = Running(url="http://127.0.0.1:8778", cells=("cell1", "cell2"), hosts=("host-0001",))


def test_secrets_are_made_once(tmp_path: Path) -> None:
    first = Folder(tmp_path / "data").prepare()
    assert len({first.admin, first.demo, first.conductor, first.agent}) == 4
    (tmp_path / "data" / "tokens.toml").unlink()
    assert Folder(tmp_path / "data").prepare() == first
    assert (tmp_path / "data" / "tokens.toml").exists()


def test_users_that_were_added_stay(tmp_path: Path) -> None:
    Folder(tmp_path).prepare()
    with (tmp_path / "tokens.toml").open("a") as file:
        file.write("# mine\n")
    Folder(tmp_path).prepare()
    assert (tmp_path / "tokens.toml").read_text().endswith("# mine\n")


def test_secrets_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.note(RUNNING, folder.prepare())
    for name in ("secrets.json", "tokens.toml", "clouds.yaml"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


async def _roles(tokens: Tokens, secret: str) -> tuple[str, ...]:
    caller = await tokens.identify({TOKEN_HEADER: secret})
    assert caller is not None
    return caller.roles


async def test_the_region_knows_the_users(tmp_path: Path) -> None:
    known = Folder(tmp_path).prepare()
    tokens = Tokens(str(tmp_path / "tokens.toml"), FakeClock())
    assert set(await _roles(tokens, known.admin)) == {"admin", "manager", "member", "reader"}
    assert await _roles(tokens, known.demo) == ("member", "reader")
    assert await _roles(tokens, known.conductor) == ("service",)


def test_clouds_for_the_openstack_command(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    known = folder.prepare()
    folder.note(RUNNING, known)
    clouds = yaml.safe_load(folder.clouds.read_text())["clouds"]
    assert set(clouds) == {"berth", "berth-demo"}
    assert clouds["berth"]["auth"]["password"] == known.admin
    assert clouds["berth-demo"]["auth"]["project_name"] == "demo"
    assert clouds["berth"]["auth"]["auth_url"] == "http://127.0.0.1:8778/identity/v3"
    assert clouds["berth"]["compute_api_version"] == "2.94"


def test_cells_cannot_be_changed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.note(RUNNING, folder.prepare())
    folder.refuse_other_cells(RUNNING.cells)
    with pytest.raises(CommandError, match=r"has 2 cells, .* use --cells 2"):
        folder.refuse_other_cells(("cell1",))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.prepare()
    (tmp_path / "secrets.json").write_text("{}")
    with pytest.raises(CommandError, match=r"secrets\.json is not what 'berth up' has written"):
        folder.secrets()


def test_hosts_are_spread_evenly() -> None:
    hosts = simulated_fleet(5)
    shares = [[host.name for host in hosts_of_cell(hosts, ("a", "b"), cell)] for cell in ("a", "b")]
    assert shares == [["host-0001", "host-0003", "host-0005"], ["host-0002", "host-0004"]]
    # More hosts do not move those that are there.
    more = [host.name for host in hosts_of_cell(simulated_fleet(6), ("a", "b"), "b")]
    assert more == ["host-0002", "host-0004", "host-0006"]


def test_a_host_that_names_its_cell_is_there() -> None:
    hosts = [SimHost(name="x", cell="b"), SimHost(name="y"), SimHost(name="z")]
    assert [host.name for host in hosts_of_cell(hosts, ("a", "b"), "a")] == ["y"]
    assert [host.name for host in hosts_of_cell(hosts, ("a", "b"), "b")] == ["x", "z"]
    with pytest.raises(CommandError, match="the host x is to be in the cell b; there are a"):
        hosts_of_cell(hosts, ("a",), "a")

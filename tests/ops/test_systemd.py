"""What is in ``ops/systemd``: systemd's own tools accept it, and the commands in it run."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.ops.machines import BERTH, PROGRAM, Machine, pick_network
from tests.ops.machines import UNITS as FOLDER
from tests.packages import SYSTEMD, PackageMissing, require
from tests.servers import running
from tests.waiting import WITHIN_S

UNITS: Final = sorted(FOLDER.glob("*.service"))
EXPOSURE_MAX: Final = 30
"""Of systemd's scale, in tenths."""


@pytest.fixture(autouse=True, scope="module")
def tools() -> None:
    try:
        require(*SYSTEMD)
    except PackageMissing as missing:
        pytest.skip(str(missing))


def systemd(*words: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    """With the program where it is here; on a machine of an operator it is in /opt."""
    name = unit.name.replace("@", "@cell1")
    Path(tmp_path, name).write_text(unit.read_text().replace(PROGRAM, BERTH))
    assert systemd("systemd-analyze", "verify", "--man=no", tmp_path / name) == ""


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_may_do_little(unit: Path) -> None:
    systemd("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit)


def test_a_unit_that_may_do_anything_would_be_found(tmp_path: Path) -> None:
    unit = tmp_path / "loose.service"
    unit.write_text(f"[Service]\nExecStart={BERTH} region\n")
    with pytest.raises(AssertionError, match=r"loose\.service"):
        test_a_unit_may_do_little(unit)


def test_users_and_folders_are_made(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: folders are given to another user")
    for source, folder in (("berth.sysusers", "sysusers.d"), ("berth.tmpfiles", "tmpfiles.d")):
        target = tmp_path / "usr/lib" / folder / "berth.conf"
        target.parent.mkdir(parents=True)
        shutil.copy(FOLDER / source, target)
    (tmp_path / "etc").mkdir()
    systemd("systemd-sysusers", f"--root={tmp_path}", "berth.conf")
    systemd("systemd-tmpfiles", f"--root={tmp_path}", "--create", "berth.conf")
    (user,) = re.findall(r"^berth:x:(\d+):(\d+):Berth:/var/lib/berth:", (tmp_path / "etc/passwd").read_text())
    state = (tmp_path / "var/lib/berth").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (int(user[0]), int(user[1]), 0o700)
    settings = (tmp_path / "etc/berth").stat()
    assert (settings.st_uid, settings.st_gid, settings.st_mode & 0o777) == (0, int(user[1]), 0o750)


# -- the commands -------------------------------------------------------------------------------


def test_units_and_examples_are_a_region(tmp_path: Path) -> None:
    examples = {name: FOLDER / name for name in ("region.toml", "tokens.toml", "agent.env")}
    examples["cell-cell1.env"] = FOLDER / "cell.env"
    network = pick_network()
    machine = Machine(tmp_path, examples, {"127.0.0.1": f"{network}1"})
    region = machine.make_server("berth-region.service", (f"{network}1", 8778), entry=None)
    cell = machine.make_server("berth-cell@.service", (f"{network}1", 8780), "cell1", entry=None)
    agent = machine.make_server("berth-agent.service", None, entry=None)
    with running(region), running(cell), httpx.Client(base_url=region.url, timeout=WITHIN_S) as client:
        client.headers["x-auth-token"] = "the-token-of-an-operator"
        agent.launch()
        try:
            deadline_s = time.monotonic() + WITHIN_S
            while len(client.get("/berth/v1/hosts", params={"state": "up"}).json()["hosts"]) < 4:
                assert time.monotonic() < deadline_s, agent.log
                time.sleep(0.1)
            metrics = httpx.get(f"http://{network}1:9178/metrics", timeout=WITHIN_S).text
            assert "\nberth_agent_hosts_registered 4.0\n" in metrics
        finally:
            assert agent.stop(WITHIN_S) == 0
    assert region.complaints() == []

"""What is in ``ops/systemd``: systemd's own tools accept it, and the commands in it run."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.packages import SYSTEMD, PackageMissing, require
from tests.servers import HOST, ROOT, ServerProcess, running
from tests.waiting import WITHIN_S

FOLDER: Final = ROOT / "ops" / "systemd"
UNITS: Final = sorted(FOLDER.glob("*.service"))
PROGRAM: Final = "/opt/berth/bin/berth"
BERTH: Final = str(Path(sys.executable).with_name("berth"))
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

EXAMPLES: Final = {
    "region.toml": "region.toml",
    "tokens.toml": "tokens.toml",
    "cell.env": "cell-cell1.env",
    "agent.env": "agent.env",
}
"""Where an example belongs, in /etc/berth."""


class Machine:
    """The units and examples, with folders below another one and ports that are free here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, int] = {}
        for name in ("etc", "var"):
            Path(folder, name).mkdir()

    def make_server(self, unit: str, port: str) -> ServerProcess:
        """A unit that listens on a port of the examples."""
        env: dict[str, str] = {}

        def command(free: int) -> list[str]:
            self.ports[port] = free
            words, variables = self.read(unit)
            env.update(variables)
            return words

        return ServerProcess(command, self.folder / f"{unit}.log", env)

    def read(self, unit: str) -> tuple[list[str], dict[str, str]]:
        """What systemd would run, and its environment."""
        for example, target in EXAMPLES.items():
            path = self.folder / "etc" / target
            path.touch(0o600)
            path.write_text(self._translate((FOLDER / example).read_text()))
        values = _read_values(self._translate((FOLDER / unit).read_text()).replace("%i", "cell1"))
        env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        if "EnvironmentFile" in values:
            env |= _read_values(Path(values["EnvironmentFile"]).read_text())
        # A variable that is a word of its own is as many words as it has.
        words = (
            env[word[1:]].split() if word.startswith("$") else [word] for word in values["ExecStart"].split()
        )
        return [word for some in words for word in some], env

    def _translate(self, text: str) -> str:
        for there, here in (("/var/lib/berth", "var"), ("/etc/berth", "etc")):
            text = text.replace(there, str(self.folder / here))
        for port, free in self.ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"{HOST}:{free}")
        return text.replace(PROGRAM, BERTH)


def _read_values(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def test_units_and_examples_are_a_region(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    region = machine.make_server("berth-region.service", "8778")
    cell = machine.make_server("berth-cell@.service", "8780")
    with running(region), running(cell), httpx.Client(base_url=region.url) as client:
        words, env = machine.read("berth-agent.service")
        client.headers["x-auth-token"] = "the-token-of-an-operator"
        with (tmp_path / "agent.log").open("wb") as log:
            agent = subprocess.Popen(words, env=env, stdout=log, stderr=log)
        try:
            deadline_s = time.monotonic() + WITHIN_S
            while len(client.get("/berth/v1/hosts", params={"state": "up"}).json()["hosts"]) < 4:
                assert time.monotonic() < deadline_s, (tmp_path / "agent.log").read_text()
                time.sleep(0.1)
        finally:
            agent.terminate()
            assert agent.wait(WITHIN_S) == 0
    assert region.complaints() == []

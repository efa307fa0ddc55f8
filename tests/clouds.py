"""A whole cloud for tests: ``berth up`` with a small simulated fleet, in a process of its own."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.servers import ENTRY, HOST, ServerProcess, running
from tests.waiting import WITHIN_S
from tests.warm_start import BERTH, COMMANDS, WarmProcess

PROGRAMS: Final = Path(sys.executable).parent


class Cloud(ServerProcess):
    """``berth up`` on the folder ``data`` in a directory. ``is_warm``: it and its parts have been imported
    already."""

    def __init__(self, directory: Path, *options: str, is_warm: bool = True) -> None:
        self.directory = directory
        self.data = directory / "data"
        program = str(PROGRAMS / "berth")

        def command(port: int) -> list[str]:
            return [program, "up", "--listen", f"{HOST}:{port}", "--data", str(self.data), *options]

        entry = "tests.warm_up:main" if is_warm else None
        super().__init__(command, directory / "up.log", _environment(), entry)
        self._starts = 0

    def start(self, timeout_s: float = WITHIN_S) -> None:
        """Start it, and wait until everything is there."""
        super().start(timeout_s)
        self._starts += 1
        wait_for(lambda: self.log.count("Ctrl-C stops it.") >= self._starts, lambda: self.everything, self)

    @property
    def everything(self) -> str:
        """What it and all of its parts have said."""
        logs = sorted(self.data.glob("log/*.log"))
        return "\n".join([self.log, *(f"{path.name}:\n{path.read_text()}" for path in logs)])

    def shell(self, script: str, timeout_s: float = 120) -> str:
        """What a script prints that is run as a newcomer would run it, beside the folder. Its ``berth`` and
        its ``openstack`` have been imported already."""
        programs = self.directory / "programs"
        programs.mkdir(exist_ok=True)
        for name, command in COMMANDS.items():
            if name in script and not (programs / name).exists():
                command.write(programs / name)
        env = {**_environment(), "PATH": f"{programs}:{PROGRAMS}:{os.environ['PATH']}"}
        words = ["sh", "-ec", script]
        done = subprocess.run(
            words, cwd=self.directory, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


class MachineAgent:
    """``berth agent --discover`` for a machine whose ``sys`` and ``proc`` ``tree`` writes, in the cell
    of a cloud that logs from level info on."""

    def __init__(self, cloud: Cloud, name: str, tree: Callable[[Path], None], *options: str) -> None:
        self.name = name
        self.root = cloud.directory / name
        self.data = cloud.directory / f"{name}-data"
        tree(self.root)
        found = re.search(r"conductor (http://[0-9.:]+)", cloud.everything)
        assert found is not None, cloud.everything
        words = f"agent --discover --driver sim --conductor {found[1]} --data {self.data}"
        words += f" --sysroot {self.root} --host-name {name} --disk-gb 1000 --build-seconds 0"
        self._words = [*words.split(), *options]
        token = json.loads((cloud.data / "secrets.json").read_text())["agent"]
        self._env = {**_environment(), "BERTH_AGENT_TOKEN": token}
        self._log = cloud.data / "log" / f"{name}.log"
        self._process: WarmProcess | None = None

    def start(self) -> None:
        self._process = BERTH.start(ENTRY, self._words, self._env, self._log)

    def look_again(self) -> None:
        """Have it look at its machine now."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """Take its power away."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        assert self._end(signal.SIGTERM) == 0, self._log.read_text()

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        process, self._process = self._process, None
        return process.wait(WITHIN_S)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            if self._process is not None:
                self.stop()


def _environment() -> dict[str, str]:
    """Settings and clouds of whoever runs the tests are none of this one's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "OS_"))}


def wait_for(
    is_so: Callable[[], bool],
    explain: Callable[[], str],
    cloud: ServerProcess | None = None,
    within_s: float = WITHIN_S,
) -> None:
    """Until something is so; a failure that explains itself, if it does not become so."""
    end_s = time.monotonic() + within_s
    while not is_so():
        has_ended = cloud is not None and (cloud.process is None or cloud.process.poll() is not None)
        assert not has_ended, explain()
        assert time.monotonic() < end_s, explain()
        time.sleep(0.05)


@contextlib.contextmanager
def cloud_running(directory: Path, *options: str, is_warm: bool = True) -> Iterator[Cloud]:
    cloud = Cloud(directory, *options, is_warm=is_warm)
    with running(cloud):
        yield cloud

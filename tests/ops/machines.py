"""Machines as the examples in ``ops`` describe them: the commands of the units, run here.

Addresses of the examples become loopback addresses of a network of the test's own, so that ports stay as they
are, and a test can have several machines. ``/etc/berth`` and ``/var/lib/berth`` are folders of each machine.
"""

import os
import random
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.servers import ENTRY, ROOT, ServerProcess

OPS: Final = ROOT / "ops"
UNITS: Final = OPS / "systemd"
PROGRAM: Final = "/opt/berth/bin/berth"
BERTH: Final = str(Path(sys.executable).with_name("berth"))


def pick_network() -> str:
    """The first three numbers of addresses that nobody else uses, as far as one can tell."""
    dice = random.SystemRandom()
    return f"127.{dice.randint(2, 250)}.{dice.randint(2, 250)}."


class Machine:
    """``examples``: what belongs into /etc/berth, by name. ``replaced``: what is another text here."""

    def __init__(self, folder: Path, examples: Mapping[str, Path], replaced: Mapping[str, str]) -> None:
        self.folder = folder
        self.replaced = {
            "/var/lib/berth": str(folder / "var"),
            "/etc/berth": str(folder / "etc"),
            PROGRAM: BERTH,
            **replaced,
        }
        for name in ("etc", "var"):
            Path(folder, name).mkdir(parents=True)
        for name, example in examples.items():
            path = folder / "etc" / name
            path.touch(0o600)
            path.write_text(self.translate(example.read_text()))

    def translate(self, text: str) -> str:
        for there, here in self.replaced.items():
            text = text.replace(there, here)
        return text

    def read(self, unit: str, instance: str = "") -> tuple[list[str], dict[str, str]]:
        """What systemd would run, and its environment."""
        values = _read_values(self.translate((UNITS / unit).read_text()).replace("%i", instance))
        env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        if "EnvironmentFile" in values:
            env |= _read_values(Path(values["EnvironmentFile"]).read_text())
        # A variable that is a word of its own is as many words as it has.
        words = (
            env[word[1:]].split() if word.startswith("$") else [word] for word in values["ExecStart"].split()
        )
        return [word for some in words for word in some], env

    def make_server(
        self, unit: str, address: tuple[str, int] | None, instance: str = "", entry: str | None = ENTRY
    ) -> ServerProcess:
        """The process of a unit, and where it listens, if it does. Without ``entry`` its program is
        started by its name."""
        words, env = self.read(unit, instance)
        log = self.folder / f"{unit}{instance}.log"
        return ServerProcess(lambda _: words, log, env, entry, address)


def _read_values(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))

"""A folder through which a simulated fleet is controlled while it runs.

    DATA/control/HOST.dead        exists: the host is dead. Removed: it is healed
    DATA/control/behaviour.toml   how all of them behave, in place of how they were started

The folder is looked at several times a second. A behaviour (``SimBehaviour``) that cannot be read changes
nothing.
"""

import asyncio
import logging
import re
from pathlib import Path
from typing import Final

from berth.agent.drivers.behaviour import BehaviourError, Behaviours, SimBehaviour, read_behaviour
from berth.agent.state import FOLDER, state_path

CONTROL: Final = "control"
BEHAVIOUR: Final = "behaviour.toml"
LOOK_EVERY_S: Final = 0.2
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z"
"""Names of hosts are names of files too."""

_DEAD: Final = ".dead"
_BEHAVIOUR_BYTES_MAX: Final = 1 << 20
_NAMES_SHOWN: Final = 5

_log = logging.getLogger(__name__)


class ControlError(Exception):
    """What was asked of a simulated fleet cannot be done. The message is for the operator."""


def break_host(data: Path, name: str) -> None:
    """Have a simulated host die: it says and does nothing, and what is on its disk stays there."""
    path = _dead_path(data, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise ControlError(f"{path}: cannot be written: {error.strerror}") from error


def heal_host(data: Path, name: str) -> None:
    """Have a simulated host come back, as it was. One that is not dead stays as it is."""
    path = _dead_path(data, name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ControlError(f"{path}: cannot be removed: {error.strerror}") from error


def _dead_path(data: Path, name: str) -> Path:
    if re.match(NAME, name) is None or not state_path(data, name).exists():
        known = sorted(path.stem for path in (data / FOLDER).glob("*.json"))
        some = ", ".join(known[:_NAMES_SHOWN]) + (", ..." if len(known) > _NAMES_SHOWN else "")
        there = f"there are {some}" if known else "no agent has kept anything there"
        raise ControlError(f"there is no simulated host {name!r} in {data}: {there}")
    return data / CONTROL / f"{name}{_DEAD}"


class Control:
    """What the folder says now. ``look`` reads it; ``watch`` does so for ever."""

    def __init__(self, data: Path, behaviour: SimBehaviour) -> None:
        self._folder = data / CONTROL
        self._first = behaviour
        self.behaviours = Behaviours(behaviour)
        self._marks: frozenset[str] = frozenset()
        self._seen: tuple[int, int, int] | None = None
        self._news = asyncio.Event()

    def is_dead(self, host: str) -> bool:
        return host in self._marks or self.behaviours.now.is_dead(host)

    async def until(self, host: str, *, dead: bool) -> None:
        """Wait until a host is dead, or alive."""
        while self.is_dead(host) is not dead:
            await self._news.wait()

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        try:
            marks = frozenset(path.stem for path in self._folder.iterdir() if path.suffix == _DEAD)
        except FileNotFoundError:
            marks = frozenset()
        except OSError as error:
            _log.warning("%s: cannot be read: %s", self._folder, error)
            return
        is_new = marks != self._marks
        self._marks = marks
        if self._look_at_behaviour() or is_new:
            news, self._news = self._news, asyncio.Event()
            news.set()

    def _look_at_behaviour(self) -> bool:
        """Whether how they behave has changed."""
        path = self._folder / BEHAVIOUR
        try:
            about = path.stat()
            seen = (about.st_mtime_ns, about.st_size, about.st_ino)
            if seen == self._seen:
                return False
            self._seen = seen
            if about.st_size > _BEHAVIOUR_BYTES_MAX:
                raise BehaviourError(f"{about.st_size} bytes are more than {_BEHAVIOUR_BYTES_MAX}")
            behaviour = read_behaviour(path.read_bytes())
        except FileNotFoundError:
            if self._seen is None:
                return False
            self._seen = None
            behaviour = self._first
        except (OSError, BehaviourError) as error:
            _log.warning("%s: ignored, the behaviour is unchanged: %s", path, error)
            return False
        _log.info("simulated hosts behave as %s says", path if self._seen else "the command line")
        self.behaviours.replace(behaviour)
        return True

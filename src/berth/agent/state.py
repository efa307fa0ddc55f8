"""What an agent must keep over a restart: a small file per host.

The file is replaced as a whole, and is durable before anything in it is reported to the conductor. Writes are
shared: all callers that come while a write is under way wait for the next one.
"""

import asyncio
import os
import threading
from pathlib import Path
from typing import Final, Literal

import msgspec

from berth.agent.drivers.sim import Disk, UnitsOnDisk
from berth.cell.protocol import Fence

RESULTS_MAX: Final = 1_000
FENCES_MAX: Final = 2_000
"""How many fences of servers that have left the host are kept."""

FOLDER: Final = "hosts"
HOST_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z"
"""Names of hosts are names of files too."""


class StateError(Exception):
    """A host's file cannot be used. The message is for the operator."""


class Files:
    """The files of a host, on its disk."""

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def replace(self, path: Path, content: bytes) -> None:
        """Replace a file as a whole, durably, and for its owner alone."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}~new")
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


DISK: Final = Files()


class StoredState(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``results`` of commands, oldest first; None is success. ``fences``: the greatest seen of each
    server, oldest first."""

    format: Literal[1] = 1
    servers: Disk = {}
    fences: dict[str, Fence] = {}
    results: dict[str, str | None] = {}
    units: UnitsOnDisk = {}


class AgentState:
    """The state of one host, in memory and in its file."""

    def __init__(self, path: Path, files: Files = DISK) -> None:
        self._path = path
        self._files = files
        self._kept = read_state(path, files)
        self._lock = asyncio.Lock()
        self._writing = threading.Lock()
        self._asked = 0
        self._written = 0

    @property
    def disk(self) -> Disk:
        return self._kept.servers

    @property
    def units(self) -> UnitsOnDisk:
        return self._kept.units

    @property
    def results(self) -> dict[str, str | None]:
        return self._kept.results

    def fence_of(self, server: str) -> Fence:
        return self._kept.fences.get(server, (-1, 0))

    def note_fence(self, server: str, fence: Fence) -> None:
        fences = self._kept.fences
        fences.pop(server, None)
        fences[server] = fence
        if len(fences) > FENCES_MAX + len(self.disk):
            oldest = next(id for id in fences if id not in self.disk)
            del fences[oldest]

    def note_result(self, command: str, error: str | None) -> None:
        results = self._kept.results
        results.pop(command, None)
        results[command] = error
        if len(results) > RESULTS_MAX:
            del results[next(iter(results))]

    async def save(self) -> None:
        """Return when everything noted so far is durable."""
        self._asked += 1
        wanted = self._asked
        async with self._lock:
            if self._written >= wanted:
                return
            await asyncio.to_thread(self._write, self._asked, msgspec.json.encode(self._kept))

    def _write(self, number: int, content: bytes) -> None:
        # A write that was cancelled may end after the next one: the later content stays.
        with self._writing:
            if number > self._written:
                self._files.replace(self._path, content)
                self._written = number


def state_path(data: Path, host: str) -> Path:
    return data / FOLDER / f"{host}.json"


def read_state(path: Path, files: Files = DISK) -> StoredState:
    """What a host's file holds; StateError if it cannot be used."""
    try:
        return msgspec.json.decode(files.read(path), type=StoredState)
    except FileNotFoundError:
        return StoredState()
    except OSError as error:
        raise StateError(f"{path}: the host's state cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise StateError(
            f"{path}: this is not the state of a host: {error}. Without the file the host is empty"
        ) from error

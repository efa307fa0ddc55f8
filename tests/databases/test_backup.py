"""Backup and restore on real databases, between kinds of them, under load and with processes that are killed:
the state that is restored is that of the index, whole."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from berth.engine import start_view
from berth.engine.snapshots import apply_batch, problems, take_snapshot
from berth.journal import Journal, JournalError, connect, open_journal, parse_address
from berth.model.events import Batch, Entry, Origin, TraitChanged
from berth.model.ids import Index
from berth.view import View
from berth.view.snapshot import dump
from tests.placement import PlacementClient
from tests.servers import ServerStartError, berth, running
from tests.waiting import WITHIN_S
from tests.warm_start import COMMANDS

KINDS = ["sqlite", "postgresql", "mariadb", "galera"]
WRITERS = 3


@pytest.fixture
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    def make(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / uuid.uuid4().hex}.db"
        return str(request.getfixturevalue(f"{kind}_url"))

    return make


@contextlib.contextmanager
def opened(url: str, *, shared: bool | None = True) -> Iterator[Journal]:
    with contextlib.closing(open_journal(parse_address(url), shared=shared)) as journal:
        yield journal


def command(*words: object) -> list[str]:
    return [str(Path(sys.executable).with_name("berth")), "db", *map(str, words)]


def run(*words: object) -> str:
    done = COMMANDS["berth"].run(command(*words)[1:], environment(), timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}


def replay_until(url: str, index: Index) -> list[bytes]:
    """The state at an index, by the journal that it is in, from its first entry."""
    view = View()
    with opened(url, shared=None) as journal:
        for batch in journal.read(Index(0), index):
            apply_batch(view, batch)
    return list(dump(view))


def state(url: str) -> list[bytes]:
    with opened(url, shared=None) as journal:
        assert problems(journal) == []
        return list(dump(start_view(journal)))


class Writer(threading.Thread):
    """Claims and releases until it is told to stop; notes which claims were acknowledged."""

    def __init__(self, url: str, provider: str) -> None:
        super().__init__()
        self._client = PlacementClient(url)
        self._provider = provider
        self.stopping = threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            consumer = str(uuid.uuid4())
            claim = {
                "allocations": {self._provider: {"resources": {"VCPU": 1}}},
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            self._client("PUT", f"/allocations/{consumer}", claim)
            self.acknowledged.append(consumer)
        self._client.close()


def wait_until(is_so: Callable[[], bool], writers: list[Writer]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert all(writer.is_alive() for writer in writers), "a writer has failed"
        assert time.monotonic() < deadline_s, [len(writer.acknowledged) for writer in writers]
        time.sleep(0.02)


@contextlib.contextmanager
def under_load(url: str) -> Iterator[list[Writer]]:
    placement = PlacementClient(url)
    writers = []
    for number in range(WRITERS):
        provider = str(uuid.uuid4())
        placement("POST", "/resource_providers", {"uuid": provider, "name": f"host-{number}"})
        inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 100_000}}}
        placement("PUT", f"/resource_providers/{provider}/inventories", inventories)
        writers.append(Writer(url, provider))
    placement.close()
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join(WITHIN_S)


@pytest.mark.parametrize(
    ("source", "target"),
    [("sqlite", "postgresql"), ("postgresql", "mariadb"), ("mariadb", "sqlite"), ("sqlite", "galera")],
)
def test_a_busy_region_is_backed_up_and_comes_back_in_another_database(
    source: str, target: str, databases: Callable[[str], str], tmp_path: Path
) -> None:
    before, after, file = databases(source), databases(target), tmp_path / "file"
    with running(berth(tmp_path, "--workers", "2", database=before)) as server:
        with under_load(server.url) as writers:
            wait_until(lambda: sum(len(writer.acknowledged) for writer in writers) >= 300, writers)
            known = [len(writer.acknowledged) for writer in writers]
            made = msgspec.json.decode(run("backup", file, "--database", before, "--json"))
            wait_until(
                lambda: all(
                    len(writer.acknowledged) > count + 5 for writer, count in zip(writers, known, strict=True)
                ),
                writers,
            )
        server.stop()
        assert server.complaints() == []
    index = Index(made["index"])
    with opened(before, shared=None) as journal:
        assert journal.tail() > index, "it was busy meanwhile"
    assert f"{index}" in run("restore", file, "--database", after)
    assert state(after) == replay_until(before, index)
    with running(berth(tmp_path, database=after)) as server:
        placement = PlacementClient(server.url)
        for writer, count in zip(writers, known, strict=True):
            # What was acknowledged before the backup began is in it.
            for consumer in (*writer.acknowledged[:3], *writer.acknowledged[count - 3 : count]):
                assert placement("GET", f"/allocations/{consumer}")["consumer_generation"] == 1
        placement.close()


def long_journal(url: str, count: int) -> None:
    """Written quickly: as a restore writes."""
    dice = random.Random(1)
    with opened(url) as journal:
        previous: str | None = None
        rows = []
        for index in range(1, count + 1):
            events = (TraitChanged(f"CUSTOM_{index}_{dice.randbytes(500).hex()}", None, 7),)
            batch = Batch(
                Index(index), f"batch-{index}", index, (Entry(Origin("r", None, None, "a"), events),)
            )
            row = journal.row_of(batch, previous)
            previous = row.digest
            rows.append(row)
            if len(rows) == 500:
                journal.fill(*rows)
                rows = []


HANGING = """
import sys, time
from berth.cli import main
from berth.journal import Journal, backup

def hang_after(owner, name, times):
    real, calls = getattr(owner, name), []

    def call(*given):
        calls.append(real(*given))
        if len(calls) == times:
            print("hanging", flush=True)
            time.sleep(600)
        return calls[-1]

    setattr(owner, name, call)

hang_after(backup._Writer if sys.argv[2] == "backup" else Journal, *{place!r})
main(sys.argv[1:])
"""
"""A command that hangs in the middle of its work, however fast or slow the machine is."""


def kill_after(name: str, times: int, words: list[str]) -> None:
    """Run a command, and kill it when it has called something so many times."""
    program = [sys.executable, "-c", HANGING.format(place=(name, times)), *words[1:]]
    with subprocess.Popen(program, env=environment(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"hanging\n", "it has ended before"
        finally:
            process.kill()
        assert process.wait(WITHIN_S) == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_backup_and_restore_are_killed_in_the_middle(
    kind: str, databases: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, file = databases("sqlite"), databases(kind), tmp_path / "file"
    long_journal(source, 5000)
    with opened(source) as journal:
        take_snapshot(journal, 1, keep=10_000)
    partial = tmp_path / "file.partial"
    kill_after("write", 4, command("backup", file, "--database", source))
    assert not file.exists()
    assert partial.exists()
    run("backup", file, "--database", source)
    assert not partial.exists()

    kill_after("fill", 3, command("restore", file, "--database", target))
    assert 0 < count_rows(target) < 4999
    with pytest.raises(ServerStartError, match="If a restore into it did not finish, repeat the restore"):
        berth(tmp_path, database=target).start()
    run("restore", file, "--database", target)
    assert state(target) == state(source)
    with running(berth(tmp_path, database=target)):
        pass


def count_rows(url: str) -> int:
    """How many entries are there but the first; none while there is no table."""
    try:
        with contextlib.closing(connect(parse_address(url), shared=None, creates=False)) as journal:
            return max(0, journal.tail() - journal.head())
    except JournalError:
        return 0

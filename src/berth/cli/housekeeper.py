"""The process beside a server that sees to it that snapshots are taken.

It looks at the journal now and then, and has ``berth db snapshot`` run when enough has come: the memory that
takes is given back when it ends. It ends with the server.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

from berth.engine.housekeeping import is_due
from berth.journal import JournalError, connect, parse_address
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging

_log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 10
_NICENESS: Final = 10


@contextlib.contextmanager
def housekeeper(settings: Settings) -> Iterator[None]:
    """A housekeeper beside whatever is done meanwhile."""
    # Forked: a process that begins afresh spends half a second on reading the program, which those who come
    # first would feel.
    process = multiprocessing.get_context("fork").Process(
        target=keep_house, args=(settings, os.getpid()), name="housekeeper", daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def keep_house(settings: Settings, parent: int) -> None:
    """Until told to stop, or until the server is gone."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    configure_logging(settings)
    os.nice(_NICENESS)
    while not stop.wait(_LOOK_EVERY_S) and os.getppid() == parent:
        try:
            if _is_due(settings):
                _take_snapshot(settings)
        except JournalError as error:
            _log.warning("no snapshot was taken: %s", error)


def _is_due(settings: Settings) -> bool:
    journal = connect(parse_address(settings.database), shared=None)
    try:
        return is_due(journal, settings.snapshot_every_batches)
    finally:
        journal.close()


def _take_snapshot(settings: Settings) -> None:
    # In the environment, and not on the command line: the address may hold a password.
    env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    env["BERTH_DATABASE"] = settings.database
    env["BERTH_JOURNAL_KEEP_BATCHES"] = str(settings.journal_keep_batches)
    words = [sys.executable, "-m", "berth.cli", "db", "snapshot"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        _log.warning("no snapshot was taken: %s", done.stderr.strip()[-500:])

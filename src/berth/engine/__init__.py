"""The writer of a process: queue, batch, decide, append, publish."""

from berth.engine.engine import ASKER, Asker, Engine, Overloaded, Planned, Unavailable, Wish
from berth.engine.forks import Forks
from berth.engine.starting import replay, start_view
from berth.journal import Pruned

__all__ = [
    "ASKER",
    "Asker",
    "Engine",
    "Forks",
    "Overloaded",
    "Planned",
    "Pruned",
    "Unavailable",
    "Wish",
    "replay",
    "start_view",
]

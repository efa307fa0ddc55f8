"""The writer of a process: queue, batch, decide, append, publish."""

from berth.engine.engine import ASKER, Asker, Engine, Overloaded, Planned, Proposal, Unavailable
from berth.engine.forks import Forks
from berth.engine.snapshots import replay, start_view
from berth.journal import Pruned

__all__ = [
    "ASKER",
    "Asker",
    "Engine",
    "Forks",
    "Overloaded",
    "Planned",
    "Proposal",
    "Pruned",
    "Unavailable",
    "replay",
    "start_view",
]

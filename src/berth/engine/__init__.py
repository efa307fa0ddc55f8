"""The writer of a process: queue, batch, decide, append, publish."""

from berth.engine.engine import Engine, Overloaded, Unavailable, Wish
from berth.engine.starting import replay, start_view
from berth.journal import Pruned

__all__ = ["Engine", "Overloaded", "Pruned", "Unavailable", "Wish", "replay", "start_view"]

"""The writer of a process: queue, batch, decide, append, publish."""

from berth.engine.engine import Engine, Overloaded, Unavailable, replay

__all__ = ["Engine", "Overloaded", "Unavailable", "replay"]

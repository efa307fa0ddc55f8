"""The rules: what a command does to the state, or why it may not."""

from berth.ledger.decide import decide

__all__ = ["decide"]

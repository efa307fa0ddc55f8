"""The rules: what a command does to the state, or why it may not."""

from berth.ledger.decide import decide, next_number, remove_record, replace_record

__all__ = ["decide", "next_number", "remove_record", "replace_record"]

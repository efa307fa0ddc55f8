"""A second, slow Berth to hold the first one against. Nothing imports this package but tests and the
simulator.

What is here is written from the definitions alone and shares no rule with ``ledger`` or ``search``: where
the two disagree, one of them is wrong.
"""

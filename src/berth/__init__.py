"""Berth: a placement and scheduling control plane.

The packages below follow one direction: ``model`` <- ``view`` <- (``ledger``, ``search``) <-
``engine`` <- ``api``; ``journal`` knows only ``model``; ``main`` composes. See ARCHITECTURE.md.
"""

__version__ = "0.2.0"

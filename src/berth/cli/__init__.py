"""The ``berth`` command: reads the command line, runs one command, and returns its exit status.

    0     well
    1     not well: what was looked at is not as it should be, or what was waited for did not come about
    2     refused or unreachable: one clear message says why
    130   interrupted (Ctrl-C)

Nothing is imported here before ``main`` runs, so that an interrupt never shows a traceback.
"""

from collections.abc import Sequence
from typing import Any

__all__ = ["import_uninterrupted", "main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    try:
        status: int = import_uninterrupted("berth.cli.program").run_program(argv)
        return status
    except KeyboardInterrupt:
        import signal

        # A second one must not interrupt the end of the process either.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _INTERRUPTED


def import_uninterrupted(name: str) -> Any:
    """A module. An interrupt while it is imported ends the process at once: nothing has been begun yet, and C
    code that is being imported would make another error of it."""
    import os
    import signal
    from importlib import import_module

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return import_module(name)
    try:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    except ValueError:
        # Only the main thread is interrupted.
        return import_module(name)
    try:
        return import_module(name)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

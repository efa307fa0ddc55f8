"""The ``berth`` command: reads the command line, runs one command, and returns its exit status.

    0     well
    1     not well: what was looked at is not as it should be, or what was waited for did not come about
    2     refused or unreachable: one clear message says why
    130   interrupted (Ctrl-C)

Nothing is imported here before ``main`` runs, so that an interrupt never shows a traceback.
"""

from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    try:
        from berth.cli.program import run_program

        return run_program(argv)
    except KeyboardInterrupt:
        import signal

        # A second one must not interrupt the end of the process either.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _INTERRUPTED

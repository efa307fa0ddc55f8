"""What is logged and counted of saga runs: a line for each fact, in the same words in a region and its cell.

    begun -> step failed, alternate taken, step undone ... -> done | failed

Every line names the server and the operation, and carries the ids of the request that asked for it, the host
and the seconds as fields of their own. All but the beginning is read off the run's log of steps: whoever has
seen so many of its entries logs those behind them, however many versions of the run it has missed.
"""

import logging
from typing import Any, Protocol

from berth.model.saga_runs import SagaRun, StepLog
from berth.sagas.runner import (
    describe_next,
    describe_place,
    is_alternate,
    is_finished,
    saga_of,
    seconds_of,
)


def log_begun(log: logging.Logger, run: SagaRun, cell: str | None = None) -> None:
    """Log that a run has begun; ``cell``: which one has it, where that is not clear."""
    where = describe_place(run)
    in_cell = "" if cell is None else f" in cell {cell}"
    alternates = f", {len(run.alternates)} alternates" if run.alternates else ""
    text = "server %s: %s begun%s on %s%s"
    log.info(text, run.server, saga_of(run).name, in_cell, where, alternates, extra=_about(run, where))


def log_resumed(log: logging.Logger, run: SagaRun) -> None:
    """Log that another process goes on with a run."""
    name, where = saga_of(run).name, describe_place(run)
    text = "server %s: %s resumed on %s, attempt %d, %s"
    log.info(text, run.server, name, where, run.attempt, describe_next(run), extra=_about(run, where))


def log_news(log: logging.Logger, run: SagaRun, seen: int, seconds: int | None = None) -> None:
    """Log what a run's log of steps has behind the first ``seen`` entries, and its end. ``seconds``: how
    long it took in all, if that is not what its steps took; whoever knows that knows it to the second."""
    entries = run.log[seen:]
    # That of the first entry: each alternate that was taken was one attempt more.
    attempt = run.attempt - sum(is_alternate(entry) and entry.error is None for entry in entries)
    for number, entry in enumerate(entries, 1):
        if is_alternate(entry) and entry.error is None:
            attempt += 1
        follows = f", {describe_next(run)}" if number == len(entries) and not is_finished(run) else ""
        _log_entry(log, run, entry, attempt, follows)
    if is_finished(run):
        _log_end(log, run, seconds)


class RunCounter(Protocol):
    """Who counts what comes of saga runs."""

    def operation_ended(self, operation: str, outcome: str, seconds: float) -> None: ...

    def step_failed(self, operation: str, step: str) -> None: ...


def count_news(counter: RunCounter, run: SagaRun, seen: int, seconds: float | None = None) -> None:
    """Count what ``log_news`` logs."""
    name = saga_of(run).name
    for entry in run.log[seen:]:
        if entry.error is not None:
            counter.step_failed(name, entry.step)
    if is_finished(run):
        counter.operation_ended(name, run.phase, seconds_of(run) if seconds is None else seconds)


def _log_entry(log: logging.Logger, run: SagaRun, entry: StepLog, attempt: int, follows: str) -> None:
    saga = saga_of(run)
    where = entry.host or "Placement"
    took_s = (entry.finished_ns - entry.started_ns) / 1e9
    about = f"server {run.server}: {saga.name}:"
    extra = _about(run, entry.host, took_s)
    if is_alternate(entry):
        if entry.error is None:
            log.info("%s alternate %s taken, attempt %d%s", about, where, attempt, follows, extra=extra)
        else:
            log.warning("%s alternate %s refused%s: %s", about, where, follows, entry.error, extra=extra)
        return
    if entry.error is not None:
        text = "%s step %s failed on %s after %.1f s, attempt %d%s: %s"
        log.warning(text, about, entry.step, where, took_s, attempt, follows, entry.error, extra=extra)
        return
    undone = saga.find_undone(entry.step)
    if undone is not None:
        text = "%s step %s undone on %s in %.1f s%s"
        log.info(text, about, undone.name, where, took_s, follows, extra=extra)
        return
    log.debug("%s step %s done on %s in %.1f s%s", about, entry.step, where, took_s, follows, extra=extra)


def _log_end(log: logging.Logger, run: SagaRun, seconds: int | None) -> None:
    name, where = saga_of(run).name, describe_place(run)
    extra = _about(run, where, seconds_of(run) if seconds is None else seconds)
    took = f"{seconds_of(run):.1f}" if seconds is None else f"{seconds}"
    if run.phase == "done":
        text = "server %s: %s done on %s in %s s, attempt %d"
        log.info(text, run.server, name, where, took, run.attempt, extra=extra)
    else:
        text = "server %s: %s failed on %s after %s s, attempt %d: %s"
        log.warning(text, run.server, name, where, took, run.attempt, run.reason, extra=extra)


def _about(run: SagaRun, host: str | None, seconds: float | None = None) -> dict[str, Any]:
    return {"request_id": run.ids or None, "server": run.server, "host": host, "seconds": seconds}

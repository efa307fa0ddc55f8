"""The table of all sagas in the docs (``make docs``): the state of a server and what is held, before,
during and after, whichever step fails. All of it follows from the sagas' data; the tests show, saga by
saga and step by step, that conductor and status sync do what it says."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from berth.model.servers import STATUS, VmState
from berth.sagas.saga import AS_BEFORE, PLACEMENT, UNCHANGED, ClaimChange, Holds, Saga, Step, Verb, all_sagas


class Ending(NamedTuple):
    """What a server is when a run has ended, and what is held then. ``state`` is a state, AS_BEFORE or
    GONE."""

    state: VmState | str
    holds: Holds


_HELD_AFTER: Final[dict[str, Holds]] = {
    "give_back": "source",
    "release": "nothing",
    "release_migration": "dest",
}


def held_at(saga: Saga, number: int) -> Holds:
    """What is held while a step is being done: what the steps before it have left."""
    claims = {"release": "dest", "give_back": "dest, migration source"}
    first = saga.steps[0]
    held: Holds = saga.failed.holds
    if first.do == "claimed":
        held = claims[first.undo or ""]  # type: ignore[assignment]
    for step in saga.steps[:number]:
        held = _HELD_AFTER.get(step.do, held)
    if held == "dest" and saga.steps[number].at == "source":
        # There is a source only where there is a migration.
        return "dest, migration source"
    return held


def find_success(saga: Saga) -> Ending:
    return Ending(saga.done.state, saga.done.holds)


def find_failure(saga: Saga, number: int) -> Ending | None:
    """What there is when a run has ended because a step failed, and everything to be undone was; None where
    it goes on all the same."""
    step = saga.steps[number]
    if step.do == "claimed" or step.on_failure in ("skip", "retry"):
        return None
    if step.on_failure == "stop":
        state = step.stopped_as or saga.failed.state
        if state == UNCHANGED:
            state = AS_BEFORE
        return Ending(state, held_at(saga, number))
    held = held_at(saga, number)
    for undone in reversed(saga.steps[: number + 1]):
        held = _HELD_AFTER.get(undone.undo or "", held)
    return Ending(saga.failed.state, held)


def may_end_in_error(saga: Saga, number: int) -> bool:
    """Whether a failure there ends in error if, on top of it, the server cannot be run again where it was."""
    is_undone = saga.steps[number].on_failure in ("undo", "next_alternate")
    return is_undone and any(step.runs_again for step in saga.steps[: number + 1])


# -- words --------------------------------------------------------------------------------------

_HOLDS: Final[dict[Holds, str]] = {
    "nothing": "nothing",
    "source": "server: source",
    "dest": "server: {dest}",
    "dest, migration source": "server: {dest}; migration: source",
}

_FAILING: Final[dict[str, str]] = {
    "undo": "everything is undone",
    "next_alternate": "it is undone and tried at the next alternate; without one, everything is undone",
    "stop": "it stops there",
    "skip": "it goes on",
    "retry": "it is tried until it is done",
}

VERBS: Final[dict[Verb, str]] = {
    "build": "make the server from its image (or from what was kept of it), and run it if it is to run",
    "destroy": "nothing is left of the server on this host; a server that is not there is fine",
    "prepare": "make room for a server that comes",
    "send": "shut the server down and hand over what it has; keep it, so that it can be resumed",
    "receive": "what has come is the server now; run it if it is to run",
    "resume": "run again what was sent, or was to be, or was suspended",
    "live_migrate": "hand the running server over to another host; can be aborted until it is over",
    "rebuild": "make the server anew from another image, where it is",
    "snapshot": "keep what the server is made of, so that it can be built elsewhere",
    "start": "run it",
    "stop": "shut it down",
    "reboot": "have the guest start anew",
    "reboot_hard": "switch it off and on; run it, whatever it was before",
    "pause": "keep it as it is, and give it no cpu time",
    "unpause": "give it cpu time again",
    "suspend": "write its memory to its disk, and end it",
    "rescue": "run it from the image that it was made from, with its disk beside it",
    "unrescue": "run it from its disk again",
}

CHANGES: Final[dict[ClaimChange, str]] = {
    "claimed": "done in the region, when the operation began: the claim, the records and the saga run are "
    "one change",
    "give_back": "the server gets what its migration holds, the migration holds nothing: one change",
    "release": "the server holds nothing any more, nor does its migration, whatever others have changed",
    "release_migration": "the migration holds nothing any more, whatever others have changed",
    "check": "no other client has changed what the steps after it write; else, by the conflict policy "
    "([conflicts](conflicts.md))",
}


# -- the page -----------------------------------------------------------------------------------

_INTRODUCTION: Final = """\
# Every operation on servers

Written by `make docs` from the sagas in `src/berth/sagas`, which are what the conductors carry out; a test
compares the two, and others do every operation, let every step of it fail, and look at what is left.

An operation begins in the region with one change: the claim, the server's record and the saga run are written
together, or nothing is. From then on the server is *busy* (it has a task) and every other operation is
refused with 409 until the run has ended. Only a deletion is accepted: it aborts what is under way and begins
with its end, whatever that is. A run that is aborted fails at the next step that may fail. The steps
are carried out by the conductor of the server's cell. *Source* and *destination* are the two ends of a move;
what is done to a server where it is, is done at its place. Status names are those of the compute API.

## Before, during and after

| operation | asked for by | status before | task | held meanwhile | status after | held after |
| --- | --- | --- | --- | --- | --- | --- |
"""

_STEPS: Final = """
`as before`: what it was when the operation began (for confirm and revert: when the resize began); one that
was in ERROR is ACTIVE once it was built anew. An evacuated server's migration holds the source until that
host is back and has cleaned up; that is `release`.

## Step by step, and what is left when a step fails

A step is a command to the agent of a host, or a change of allocations in Placement. Each can be repeated. An
agent that does not answer within its deadline, or whose host is down, has failed the step. Undoing by an
agent is tried once: what it leaves on a host is destroyed when that host reports its servers. Undoing in
Placement is tried until it is done.

| operation | step | where | does | undone by | if it fails | status then | held then |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

_WORDS: Final = """
¹ ERROR if the server could not be run again where it was. ² Left out where the host is down. A server that is
deleted while its resize waits for confirmation has a migration: if the deletion stops, that still holds the
source.

Where a resize stays on its host nothing is prepared and nothing destroyed there; the server is resumed where
it would be received.

## What an agent can do

Each is done at most once, however often the command is handed out.

| command | meaning |
| --- | --- |
"""

_CHANGES_WORDS: Final = """
## What is done in Placement

| change | meaning |
| --- | --- |
"""


def render_page() -> str:
    """The whole of docs/guides/operations.md."""
    return (
        _INTRODUCTION
        + "".join(_format_row(_summarize(saga)) for saga in all_sagas())
        + _STEPS
        + "".join(_format_row(row) for saga in all_sagas() for row in _list_steps(saga))
        + _WORDS
        + "".join(_format_row((f"`{verb}`", meaning)) for verb, meaning in VERBS.items())
        + _CHANGES_WORDS
        + "".join(_format_row((f"`{change}`", meaning)) for change, meaning in CHANGES.items())
    )


def _format_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _format_status(state: str) -> str:
    return STATUS.get(state, state)


def _summarize(saga: Saga) -> tuple[str, ...]:
    before = ", ".join(STATUS[state] for state in STATUS if state in saga.starts_in) or "-"
    after = find_success(saga)
    return (
        saga.name,
        saga.requested_by,
        before,
        "-" if saga.task is None else f"`{saga.task}`",
        _format_held(saga, held_at(saga, 0)),
        _format_status(after.state),
        _format_held(saga, after.holds),
    )


def _list_steps(saga: Saga) -> Iterable[tuple[str, ...]]:
    for number, step in enumerate(saga.steps):
        yield (saga.name, step.name, *_describe_step(saga, step), *_describe_failure(saga, number))


def _describe_step(saga: Saga, step: Step) -> tuple[str, str, str]:
    places = {PLACEMENT: "Placement", "source": "source", "dest": _name_dest(saga)}
    note = "²" if step.skip_if_down else ""
    return places[step.at], f"`{step.do}`{note}", "-" if step.undo is None else f"`{step.undo}`"


def _describe_failure(saga: Saga, number: int) -> tuple[str, str, str]:
    step = saga.steps[number]
    if step.do == "claimed" and saga.unplaced is not None:
        return "there is no place for it", _format_status(saga.unplaced), _HOLDS["nothing"]
    if step.do == "claimed":
        return "the operation does not begin", AS_BEFORE, AS_BEFORE
    after = find_failure(saga, number)
    if after is None:
        return _FAILING[step.on_failure], "-", "-"
    note = "¹" if may_end_in_error(saga, number) and after.state != "error" else ""
    return _FAILING[step.on_failure], _format_status(after.state) + note, _format_held(saga, after.holds)


def _format_held(saga: Saga, holds: Holds) -> str:
    return _HOLDS[holds].format(dest=_name_dest(saga))


def _name_dest(saga: Saga) -> str:
    """What the place is called where a server is, or is to be."""
    return "destination" if "migration" in saga.done.holds + held_at(saga, 0) else "its place"

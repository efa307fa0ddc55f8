"""Saga runs in a cell's journal: the commands that accept, advance and remove them.

Each server of a run has an ``Instance``: which hosts may have it. While a run is under way these are all
hosts that it is about; afterwards, those that the saga's outcome names. Of hosts in other cells it says
nothing.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from berth.cell import assignments
from berth.ledger import remove_record, replace_record
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.formats import ADDITIONS, TRACED
from berth.model.rejections import RecordMoved, Rejection
from berth.model.saga_runs import (
    Agent,
    Evacuated,
    HostTree,
    Instance,
    SagaRun,
    ServerSheet,
    Term,
    UnitsRequest,
    read_sheet,
    write_sheet,
)
from berth.model.servers import VmState
from berth.sagas.runner import (
    find_outcome,
    is_away,
    is_finished,
    is_in_cell_of,
    is_unsettled,
    mark_aborted,
    run_of_command,
    saga_of,
    step_of,
)
from berth.sagas.saga import AS_BEFORE, PLACEMENT, has_given_back
from berth.view import View

Change = Callable[[SagaRun], SagaRun]

_CONDUCTOR: Final = "conductor"
_WITH_SHEETS: Final = ADDITIONS.since("Instance.sheet")
_LASTING: Final = frozenset(("paused", "suspended", "rescued"))
"""States that a server keeps when something is done to it that leaves it as it was."""


def accept_run(view: View, run: SagaRun, now_ns: int) -> Enact | Rejection | None:
    """The command that puts a run into the cell's journal; None for a run that the cell has, or has had. A
    rejection while the cell waits for the end of an earlier run of the server, which is in another cell."""
    instance = view.records.get(Instance, run.server) or Instance(id=run.server)
    known = view.records.get(SagaRun, run.id)
    if known is not None:
        return _accept_later(view, instance, known, run, now_ns)
    if instance.last >= run.number:
        return None
    if any(not is_finished(other) for other in view.records.find(SagaRun, "crossing", run.server)):
        return RecordMoved("SagaRun", run.id)
    # A journal that older programs read does without: a trace is nothing to wait for.
    traceparent = run.traceparent if view.format >= TRACED else None
    run = msgspec.structs.replace(run, since_ns=now_ns, traceparent=traceparent)
    after = msgspec.structs.replace(instance, last=run.number, nowhere_since_s=None)
    after = _place_instance(view, after, run, now_ns // 1_000_000_000)
    return Enact(
        (RecordChanged(None, run), replace_record(view, after), *assignments.follow_run(view, None, run))
    )


def _accept_later(view: View, instance: Instance, known: SagaRun, run: SagaRun, now_ns: int) -> Enact | None:
    """The command that puts a later version in place of the cell's copy of a run that was away. The steps in
    between were done in other cells, and nothing follows from them here. An end is accepted whichever version
    the copy has: the journal may have been restored from a backup."""
    if is_finished(known) or not (run.version > known.version or is_finished(run)):
        return None
    if not is_finished(run):
        within_ns = run.deadline_ns - run.since_ns if run.deadline_ns else 0
        run = msgspec.structs.replace(
            run, since_ns=now_ns, deadline_ns=now_ns + within_ns if within_ns else 0
        )
        if known.abort and not run.abort:
            run = mark_aborted(run)
    placed = _place_instance(view, instance, run, now_ns // 1_000_000_000)
    changes = [RecordChanged(known, run)]
    if placed != instance:
        changes.append(replace_record(view, placed))
    return Enact((*changes, *assignments.take_over(view, run)))


def abort_run(view: View, id: str) -> Enact | None:
    """The command that notes that a run is to be aborted; None if it has ended."""
    run = view.records.get(SagaRun, id)
    if run is None or is_finished(run) or run.abort:
        return None
    if is_away(run):
        # The cell that has it now counts its versions. It is aborted when it comes back.
        return Enact((RecordChanged(run, msgspec.structs.replace(run, abort=True)),))
    return Enact((RecordChanged(run, mark_aborted(run)),))


def advance_run(view: View, term: int, seen: SagaRun, change: Change, now_s: int) -> Enact | Rejection:
    """The command that advances a run from the step at which the conductor of ``term`` has seen it."""
    run = view.records.get(SagaRun, seen.id)
    if is_replaced(view, term):
        return RecordMoved("Term", _CONDUCTOR)
    if run is None or (run.phase, run.step, run.attempt) != (seen.phase, seen.step, seen.attempt):
        return RecordMoved("SagaRun", seen.id)
    after = change(run)
    changes = [RecordChanged(run, after)]
    instance = view.records.get(Instance, run.server)
    if instance is not None:
        placed = _place_instance(view, instance, after, now_s)
        if placed != instance:
            changes.append(RecordChanged(instance, placed))
    return Enact((*changes, *assignments.follow_run(view, run, after)))


def reassign_units(view: View, asked: UnitsRequest) -> Enact | Rejection | None:
    """The command by which the units of a server follow what it holds; None where they do, or a later run
    does that. A rejection where they cannot be found yet: others may have to give them up first."""
    if last_number(view, asked.server) != asked.number:
        return None
    changes = assignments.reassign(view, asked)
    if isinstance(changes, assignments.UnitsMissing):
        return RecordMoved("Assignment", asked.holder)
    if not changes:
        return None
    # The host may have got another shape since this view was current.
    tree = view.records.get(HostTree, asked.place.id)
    return Enact(changes, reads=() if tree is None else (tree,))


def term_of(view: View) -> int:
    """The term of the cell's conductor."""
    term = view.records.get(Term, _CONDUCTOR)
    return 0 if term is None else term.number


def is_replaced(view: View, term: int) -> bool:
    """Whether another conductor has taken over since this term began."""
    return term != term_of(view)


def begin_term(view: View, now_s: int) -> Enact:
    """The command by which a conductor takes the cell over."""
    return Enact((replace_record(view, Term(id=_CONDUCTOR, number=term_of(view) + 1, heard_at_s=now_s)),))


def sign_term(view: View, term: int, now_s: int) -> Enact | Rejection:
    """The command by which the conductor of ``term`` says that it is at work."""
    if is_replaced(view, term):
        return RecordMoved("Term", _CONDUCTOR)
    return Enact((replace_record(view, Term(id=_CONDUCTOR, number=term, heard_at_s=now_s)),))


def last_sign_s(view: View) -> int:
    """When the cell's conductor last said that it is at work; 0: never."""
    term = view.records.get(Term, _CONDUCTOR)
    return 0 if term is None else term.heard_at_s


def remove_finished(view: View, id: str) -> Enact | None:
    """The command that removes a finished run, once the region has its end."""
    run = view.records.get(SagaRun, id)
    return None if run is None or not is_finished(run) else Enact((remove_record(view, run),))


def forget_instances(view: View, before_s: int) -> Enact | None:
    """The command that forgets servers that have been on no host since ``before_s``. A server is not
    forgotten while a host may still have it: the number of its last run is what makes the host destroy it."""
    gone = [
        instance
        for instance in view.records.all(Instance)
        if instance.nowhere_since_s is not None
        and instance.nowhere_since_s < before_s
        and not instance.evacuated
        and not instance.left_on
    ]
    return Enact(tuple(remove_record(view, instance) for instance in gone[:100])) if gone else None


def _add_hosts(hosts: tuple[str, ...], run: SagaRun) -> tuple[str, ...]:
    places = [place.id for place in (run.source, run.dest) if place is not None and is_in_cell_of(run, place)]
    return tuple(dict.fromkeys((*hosts, *places)))


def _place_instance(view: View, instance: Instance, run: SagaRun, now_s: int) -> Instance:
    if not is_finished(run):
        return msgspec.structs.replace(instance, hosts=_add_hosts(instance.hosts, run))
    saga = saga_of(run)
    if all(step.at == PLACEMENT for step in saga.steps):
        return instance
    outcome = find_outcome(run)
    roles = outcome.on_hosts
    if run.phase == "failed" and step_of(run).stopped_on is not None:
        roles = step_of(run).stopped_on
    hosts = instance.hosts
    if roles is not None:
        places = {"source": run.source, "dest": run.dest}
        found = [
            place.id for role in roles if (place := places[role]) is not None and is_in_cell_of(run, place)
        ]
        hosts = tuple(dict.fromkeys(found))
    evacuated = instance.evacuated
    if outcome.leaves_source and run.source is not None and run.migration is not None:
        assert run.migration_claim is not None, "a migration has a claim"
        left = Evacuated(run.source.id, run.migration, run.migration_claim, run.project, run.user)
        evacuated = (*evacuated, left)
    is_nowhere = not hosts
    # Of a server that is on hosts of two cells, the one that it runs in says what it is.
    own = run.dest if roles is None or "dest" in roles else run.source
    has_sheet = not is_nowhere and view.format >= _WITH_SHEETS and (own is None or is_in_cell_of(run, own))
    return msgspec.structs.replace(
        instance,
        hosts=hosts,
        evacuated=evacuated,
        nowhere_since_s=now_s if is_nowhere else None,
        left_on=tuple(id for id in instance.hosts if _is_down(view, id)) if is_nowhere else (),
        sheet=_write_sheet(instance, run, hosts) if has_sheet else "",
    )


def _write_sheet(instance: Instance, run: SagaRun, hosts: tuple[str, ...]) -> str:
    """What a server is now that a run has ended. A move that was undone leaves it what it was, and so does a
    revert that has not given back what the move had taken."""
    outcome, before = find_outcome(run), read_sheet(instance.sheet)
    places = [place.id for place in (run.dest, run.source) if place is not None and place.id in hosts]
    is_as_before = run.phase == "failed" and saga_of(run).is_move == has_given_back(run)
    known = before if before is not None and is_as_before else run
    state: VmState
    stopped_as = (step_of(run).stopped_as if run.phase == "failed" else None) or outcome.state
    if run.phase == "failed" and is_unsettled(run):
        state = "error"
    elif stopped_as in ("stopped", "shelved", "soft-delete"):
        state = "stopped"
    elif stopped_as in _LASTING:
        state = stopped_as  # type: ignore[assignment]
    elif run.phase == "done" and stopped_as == AS_BEFORE and before is not None and before.state in _LASTING:
        state = before.state
    elif run.phase == "done":
        state = "active" if run.runs or stopped_as == "active" else "stopped"
    else:
        state = "error" if before is None or stopped_as == "error" else before.state
    return write_sheet(ServerSheet(known.spec, (*places, *hosts)[0], run.claim.held, state, known.needs))


def _is_down(view: View, host: str) -> bool:
    agent = view.records.get(Agent, host)
    return agent is None or agent.is_down


# -- hosts --------------------------------------------------------------------------------------


def mark_host(
    view: View,
    host: str,
    is_down: bool,
    now_s: int,
    freed: tuple[RecordChanged, ...] = (),
    heard_at_s: int | None = None,
) -> Enact | None:
    """The command that marks a host down, or up again. ``freed``: assignments that end with it.
    ``heard_at_s``: when its last heartbeat came, if that is known."""
    agent = view.records.get(Agent, host)
    if agent is None or agent.is_down == is_down:
        return None
    heard_at_s = agent.heard_at_s if heard_at_s is None else heard_at_s
    marked = msgspec.structs.replace(agent, is_down=is_down, changed_at_s=now_s, heard_at_s=heard_at_s)
    changes = [RecordChanged(agent, marked)]
    if not is_down:
        # It has destroyed what was deleted meanwhile.
        for instance in view.records.find(Instance, "left_on", host):
            left = tuple(other for other in instance.left_on if other != host)
            changes.append(RecordChanged(instance, msgspec.structs.replace(instance, left_on=left)))
    return Enact((*changes, *freed))


def expected_servers(view: View, host: str) -> set[str]:
    """The servers that may be on a host."""
    return {instance.id for instance in view.records.find(Instance, "host", host)}


def find_ended(view: View, commands: Iterable[str]) -> tuple[str, ...]:
    """Those of an agent's commands whose runs have ended: nobody waits for them any more."""
    return tuple(id for id in commands if not _is_under_way(view, run_of_command(id)))


def _is_under_way(view: View, id: str) -> bool:
    run = view.records.get(SagaRun, id)
    return run is not None and not is_finished(run)


def last_number(view: View, server: str) -> int:
    """The number of the last run that the cell has had for a server; 0 for an unknown one."""
    instance = view.records.get(Instance, server)
    return 0 if instance is None else instance.last

"""Assignments in a cell's journal: which units of a host a server has, from before its first command there
until it is destroyed.

    claimed --(before the first command there)--> assigned --(destroyed, or found gone)--> free

An assignment stands for an allocation, and goes with it: while a move is under way or waits, the migration
holds the source's and the server the destination's, on one host too; a revert gives the source's back. It is
made, handed over and freed in the same append as the step of the saga run that does it (``follow_run``). An
allocation may be released before its server is destroyed, because its host is down: the units stay assigned
until the host is heard of without the server (``find_abandoned``).

Units are chosen from what the host's agent has reported (``HostTree``). Classes without units are counted; a
server that holds nothing but such classes of the host itself has no assignment.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from berth.cell.protocol import Register
from berth.cell.units import choose_units
from berth.model.counts import count
from berth.model.events import RecordChanged
from berth.model.placement import DEDICATED
from berth.model.saga_runs import (
    Assignment,
    Counts,
    HostTree,
    Instance,
    OwnedProvider,
    SagaRun,
    Spec,
    Units,
    UnitsRequest,
    assignment_id,
)
from berth.model.servers import Held, Place
from berth.sagas.runner import (
    AgentTask,
    ClaimTask,
    Skip,
    find_verb,
    is_away,
    is_finished,
    is_on_one_host,
    is_step_done,
    saga_of,
    task_of,
)
from berth.sagas.saga import GIVING_UNITS
from berth.scheduler.topology import read_threads
from berth.view import View
from berth.view.records import unit_key

_SHOWN: Final = 4


class UnitsMissing(NamedTuple):
    """Why a server cannot get the units that it needs."""

    reason: str


class WantedUnits(NamedTuple):
    """What an allocation needs of a host's tree: so many units, and what is only counted."""

    units: Counts
    counts: Counts

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to choose, and no place to choose it from."""
        return not self.units and not self.counts


def read_wanted(view: View, host: str, held: Held) -> WantedUnits:
    """What an allocation needs of a host. What it holds elsewhere, in a pool, is not the host's."""
    providers = find_providers(view, host)
    wanted = WantedUnits({}, {})
    for id, amounts in held:
        provider = providers.get(id)
        for kind, amount in amounts if provider is not None else ():
            assert provider is not None
            part = wanted.units if kind in provider.units else wanted.counts
            part.setdefault(id, {})[kind] = amount
    if not wanted.units and wanted.counts.keys() <= {host}:
        return WantedUnits({}, {})
    return wanted


def find_providers(view: View, host: str) -> dict[str, OwnedProvider]:
    tree = view.records.get(HostTree, host)
    return {} if tree is None else {provider.id: provider for provider in tree.providers}


def matches(
    assignment: Assignment | None, wanted: WantedUnits, providers: Mapping[str, OwnedProvider]
) -> bool:
    """Whether an assignment is what an allocation needs, of units that the host has."""
    if assignment is None:
        return wanted.is_plain
    for id, kinds in assignment.units.items():
        named = providers[id].units if id in providers else {}
        if any(not set(names) <= set(named.get(kind, ())) for kind, names in kinds.items()):
            return False
    units = {
        id: {kind: len(names) for kind, names in kinds.items()} for id, kinds in assignment.units.items()
    }
    return (units, assignment.counts) == (wanted.units, wanted.counts)


# -- following a run -------------------------------------------------------------------------------


def follow_run(view: View, before: SagaRun | None, after: SagaRun) -> tuple[RecordChanged, ...]:
    """The changes of assignments that go with the next version of a run, or with its first one."""
    changes = _AssignmentChanges(view)
    if before is None:
        _accept(changes, after)
    elif is_step_done(before, after):
        _follow_step(changes, before)
    _assign_next(changes, after)
    return changes.made()


def take_over(view: View, run: SagaRun) -> tuple[RecordChanged, ...]:
    """The changes of assignments that go with a run that another cell has handed over."""
    changes = _AssignmentChanges(view)
    _assign_next(changes, run)
    return changes.made()


def _assign_next(changes: "_AssignmentChanges", run: SagaRun) -> None:
    """Give the server its units before the first command that needs them, on a host of this cell."""
    task = None if is_finished(run) else task_of(run)
    if isinstance(task, AgentTask) and needs_units(run, task) and not is_away(run):
        # Where that cannot be, the step fails, with words.
        changes.assign(run, task.place)


def _accept(changes: "_AssignmentChanges", run: SagaRun) -> None:
    """A move begins: its migration holds the source."""
    if run.source is None or run.migration is None or not saga_of(run).is_move:
        return
    changes.hand_over(run.server, run.source.id, run.server, run.migration)
    if run.migration_claim is not None:
        # What the server holds may have changed since its last run.
        changes.choose(run.spec, run.server, run.migration, run.source, run.migration_claim.held, run.id)


def _follow_step(changes: "_AssignmentChanges", run: SagaRun) -> None:
    match task_of(run):
        case AgentTask(_, place, "destroy"):
            changes.free(run.server, place.id)
        case ClaimTask("give_back") if run.source is not None and run.migration is not None:
            changes.hand_over(run.server, run.source.id, run.migration, run.server)
        case Skip() if find_verb(run) == "destroy" and is_on_one_host(run) and run.dest is not None:
            # The server stays on its host, and gives up one of its two halves.
            role = saga_of(run).steps[run.step].at
            changes.free(run.server, run.dest.id, run.server if role == "dest" else run.migration)


def needs_units(run: SagaRun, task: AgentTask) -> bool:
    """Whether a server must have its units before the step at hand: it goes forward, at its destination."""
    is_there = run.phase == "forward" and run.dest is not None and task.place == run.dest
    return is_there and task.verb in GIVING_UNITS and saga_of(run).steps[run.step].at == "dest"


def find_assignment(view: View, run: SagaRun, task: AgentTask) -> Assignment | None:
    """What a server has at the place of a command: the destination's half or the source's."""
    is_source = saga_of(run).steps[run.step].at == "source"
    holders = (run.migration, run.server) if is_source else (run.server,)
    found = (view.records.get(Assignment, assignment_id(id, task.place.id)) for id in holders if id)
    return next((assignment for assignment in found if assignment is not None), None)


def assign(view: View, run: SagaRun, place: Place) -> tuple[RecordChanged, ...] | UnitsMissing:
    """The changes that give a server the units of its claim at a place, where it has others or none."""
    changes = _AssignmentChanges(view)
    missing = changes.assign(run, place)
    return missing or changes.made()


def reassign(view: View, asked: UnitsRequest) -> tuple[RecordChanged, ...] | UnitsMissing:
    """The changes by which the units of a server that is not busy follow what it holds. Its driver is told
    with the next command that gives it units; until then a server that may be running keeps those it has."""
    changes = _AssignmentChanges(view)
    had = changes.get(asked.holder, asked.place.id)
    missing = changes.choose(asked.spec, asked.server, asked.holder, asked.place, asked.held)
    if missing is None and had is not None and not asked.may_release:
        changes.keep(had)
    return missing or changes.made()


class _AssignmentChanges:
    """The assignments as they are in the view, and what changes."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._changed: dict[str, Assignment | None] = {}

    def made(self) -> tuple[RecordChanged, ...]:
        pairs = ((self._view.records.get(Assignment, id), after) for id, after in self._changed.items())
        return tuple(RecordChanged(before, after) for before, after in pairs if before != after)

    def get(self, holder: str, host: str) -> Assignment | None:
        id = assignment_id(holder, host)
        return self._changed[id] if id in self._changed else self._view.records.get(Assignment, id)

    def on_host(self, host: str) -> list[Assignment]:
        known = {one.id: one for one in self._view.records.find(Assignment, "host", host)}
        known.update({id: one for id, one in self._changed.items() if one is not None and one.host == host})
        return [one for id, one in known.items() if self._changed.get(id, one) is not None]

    def free(self, server: str, host: str, holder: str | None = None) -> None:
        """Free what a server has on a host: all of it, or a holder's half."""
        for one in self.on_host(host):
            if one.server == server and holder in (None, one.holder):
                self._changed[one.id] = None

    def hand_over(self, server: str, host: str, giver: str, taker: str) -> None:
        given = self.get(giver, host)
        if given is None:
            return
        id = assignment_id(taker, host)
        self._changed[given.id] = None
        self._changed[id] = msgspec.structs.replace(given, id=id, holder=taker)

    def keep(self, had: Assignment) -> None:
        """Leave a holder the units that it has had, beside those that it got."""
        after = self.get(had.holder, had.host) or msgspec.structs.replace(had, units={}, counts={})
        names = set(after.unit_names())
        if names.issuperset(had.unit_names()):
            return
        units = {id: dict(kinds) for id, kinds in after.units.items()}
        for id, kinds in had.units.items():
            for kind, given in kinds.items():
                lost = tuple(unit for unit in given if unit not in names)
                if lost:
                    kept = units.setdefault(id, {})
                    kept[kind] = (*kept.get(kind, ()), *lost)
        self._changed[had.id] = msgspec.structs.replace(after, units=units)

    def assign(self, run: SagaRun, place: Place) -> UnitsMissing | None:
        """Give a server what it claims at its destination. What is left of earlier attempts there goes: the
        host has one server of that name."""
        for one in self.on_host(place.id):
            if one.server == run.server and one.holder not in (run.server, run.migration):
                self._changed[one.id] = None
        return self.choose(run.spec, run.server, run.server, place, run.claim.held, run.id)

    def choose(
        self, spec: Spec, server: str, holder: str, place: Place, held: Held, run: str | None = None
    ) -> UnitsMissing | None:
        """Give a holder the units of what it holds on a host. Nothing changes where it has them already, or
        where they cannot be found."""
        wanted = read_wanted(self._view, place.id, held)
        had = self.get(holder, place.id)
        if matches(had, wanted, find_providers(self._view, place.id)):
            return None
        id = assignment_id(holder, place.id)
        units: Units = {}
        if wanted.units:
            found = self._choose(spec, id, place, wanted.units, had)
            if isinstance(found, UnitsMissing):
                return found
            units = found
        elif wanted.is_plain:
            self._changed[id] = None
            return None
        self._changed[id] = Assignment(
            id=id,
            server=server,
            host=place.id,
            holder=holder,
            run=run or (id if had is None else had.run),
            units=units,
            counts=wanted.counts,
        )
        return None

    def _choose(
        self, spec: Spec, id: str, place: Place, wanted: Counts, had: Assignment | None
    ) -> Units | UnitsMissing:
        providers = find_providers(self._view, place.id)
        taken = {unit for one in self.on_host(place.id) if one.id != id for unit in one.unit_names()}
        # Wherever they were: after a change of the host's shape they are on another provider.
        before = () if had is None else had.unit_names()
        policy = read_threads(spec.flavor.extra_specs, spec.image_properties)
        units: Units = {}
        for provider, kinds in wanted.items():
            for kind, amount in kinds.items():
                chosen = choose_units(providers[provider], kind, amount, taken, before, policy)
                if chosen is None:
                    threads = f" with the thread policy {policy}" if kind == DEDICATED else ""
                    return UnitsMissing(
                        f"the host {place.name} cannot give the server {count(amount, 'unit')} of "
                        f"{kind}{threads}: too many of {provider} are assigned to others"
                    )
                units.setdefault(provider, {})[kind] = chosen
        return units


# -- hosts -----------------------------------------------------------------------------------------


def find_of_holder(view: View, holder: str, host: str) -> Assignment | None:
    """What a consumer has on a host."""
    return view.records.get(Assignment, assignment_id(holder, host))


def find_abandoned(view: View, host: str, servers: Collection[str], busy: Iterable[str]) -> list[Assignment]:
    """Assignments of servers that should not be on a host, and are not: ``servers`` are there, and ``busy``
    names the commands that may yet bring one."""
    running = tuple(busy)
    present = set(servers)
    return [
        one
        for one in view.records.find(Assignment, "host", host)
        if one.server not in present
        and not _is_expected(view, one.server, host)
        and not any(command.startswith(one.run) for command in running)
    ]


def free_abandoned(
    view: View, host: str, servers: Collection[str], busy: Iterable[str]
) -> tuple[RecordChanged, ...]:
    return tuple(RecordChanged(one, None) for one in find_abandoned(view, host, servers, busy))


def find_differences(view: View, report: Register) -> list[str]:
    """Where the servers of a host have other units than their assignments say, in words. Servers of which a
    run is under way are left out: their units change."""
    busy = {run.server for run in view.records.all(SagaRun) if not is_finished(run)}
    assigned: dict[str, set[str]] = {}
    for one in view.records.find(Assignment, "host", report.host):
        # Where a server has two halves on one host, it uses its own.
        if one.holder == one.server or one.server not in assigned:
            assigned[one.server] = set(one.unit_names())
    found = []
    present = set(report.servers)
    for server in sorted(assigned.keys() | report.units.keys()):
        if server in busy or server not in present or not _is_expected(view, server, report.host):
            continue
        should, has = assigned.get(server, set()), set(report.units.get(server, ()))
        if more := sorted(has - should):
            holders = {
                other.server
                for unit in more
                for other in view.records.find(Assignment, "unit", unit_key(report.host, unit))
            }
            whose = (
                f", which belong to {_list_some(sorted(holders - {server}))}" if holders - {server} else ""
            )
            found.append(f"Server {server} has the units {_list_some(more)} without an assignment{whose}.")
        if less := sorted(should - has):
            found.append(f"Server {server} does not have the units {_list_some(less)} that it was assigned.")
    return found


def find_vanished(view: View, report: Register) -> list[str]:
    """Units that servers have and their host does not report any more, in words. Where all of a class is
    gone, the provider itself is complained of."""
    reported = {
        (provider.id, kind): provider.name for provider in report.providers for kind in provider.units
    }
    # What is on another provider now follows with the host's new shape.
    there = {unit for one in report.providers for names in one.units.values() for unit in names}
    found = []
    for one in view.records.find(Assignment, "host", report.host):
        for id, kinds in one.units.items():
            for kind, names in kinds.items():
                gone = sorted(set(names) - there) if (id, kind) in reported else []
                if gone:
                    what = f"{reported[id, kind]}: {kind} {_list_some(gone)}"
                    found.append(f"{what} is gone from the host and in use by {one.server}.")
    return sorted(found)


def find_gone_units(view: View, report: Register) -> tuple[str, ...]:
    """The units that are assigned on a host, and that it does not report any more."""
    there = {unit for one in report.providers for names in one.units.values() for unit in names}
    held = {unit for one in view.records.find(Assignment, "host", report.host) for unit in one.unit_names()}
    return tuple(sorted(held - there))


def _list_some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _is_expected(view: View, server: str, host: str) -> bool:
    instance = view.records.get(Instance, server)
    return instance is not None and host in instance.hosts

"""Findings: allocations that do not match the records. They are found by reading; nothing is changed here.

The record of a server says what was last written for it (``held``, at its ``generation``), and so does a
migration's. While a saga run is under way the cell writes, so a busy server and its migration are not judged.
All others are, by one check per kind of finding; a check looks at one subject at a time, so that a finding
can be looked at again, alone, in the very turn in which it is repaired (``repairs``).

Consumers without a record are judged only where they hold something of a host that has an agent, and if their
type says that they are servers or migrations: a Nova that uses this Placement has hosts and records of its
own. What was claimed through /berth/v1/schedule belongs to its caller, whatever its type.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from berth.model.commands import SCHEDULE
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import INSTANCE, MIGRATION, SHARES_VIA_AGGREGATE
from berth.model.saga_runs import Assignment, Outbox, ServerSheet, assignment_id, read_sheet
from berth.model.servers import NOT_RUNNING, Action, Held, Host, Migration, Place, Server, UnknownServer
from berth.sagas.conflicts import held_now, minus, same
from berth.sagas.hosts import cell_aggregate
from berth.view import View
from berth.view.consumers import ConsumerFilter
from berth.view.groups import GroupRecord

GRACE_S: Final = 60
"""How long a consumer without a record is left alone: its record may be about to be written."""
RUN_S: Final = 86_400
"""After how long a saga run should have ended."""
_UNITS_SHOWN: Final = 8
_NO_SHEET: Final = (
    "its cell does not know what it is, because it was last changed by a release that did not write that: "
    "save what is on it"
)
_REMOVE: Final = "or have the server destroyed by 'berth doctor --remove'. It goes on running meanwhile"

Kind = Literal[
    "orphan_consumer",
    "server_without_allocations",
    "server_with_wrong_allocations",
    "doubled_allocations",
    "server_elsewhere",
    "unfinished_migration",
    "migration_without_allocations",
    "migration_with_wrong_allocations",
    "order_without_end",
    "stray_member",
    "host_complaint",
    "server_without_units",
    "stray_assignment",
    "unknown_server",
    "outdated_server",
]


class Finding(msgspec.Struct, frozen=True):
    """``repair`` says what the doctor would do; None where a human must decide. ``unsafe`` says why."""

    kind: Kind
    subject: str
    sentence: str
    holds: Held = ()
    should_hold: Held = ()
    repair: str | None = None
    unsafe: str | None = None

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.subject}"


class Moment(NamedTuple):
    """When the doctor looks, and how long it waits before something is a finding."""

    now_s: int
    grace_s: int = GRACE_S
    run_s: int = RUN_S


_STEPS_PER_SUBJECT: Final = 2

Judge = Callable[[View, str, Moment], Finding | None]


class FindingCheck(NamedTuple):
    """``subjects``: what is examined; ``judge``: what is wrong with one of them, of one of these kinds.
    ``concerns`` says of one whether it is among the subjects, where the judge alone cannot tell."""

    kinds: tuple[Kind, ...]
    subjects: Callable[[View], Iterable[str]]
    judge: Judge
    concerns: Callable[[View, str], bool] = lambda view, id: True


def examine(view: View, now_s: int) -> tuple[Finding, ...]:
    """All findings."""
    return tuple(finding for check in CHECKS for finding in run_check(view, check, Moment(now_s)))


def run_check(view: View, check: FindingCheck, moment: Moment) -> Iterator[Finding]:
    """The findings of one check. The view must not change meanwhile."""
    for subject in check.subjects(view):
        view.steps.take(_STEPS_PER_SUBJECT)
        finding = check.judge(view, subject, moment)
        if finding is not None:
            yield finding


def find_again(view: View, id: str, moment: Moment) -> Finding | None:
    """The finding of this id, as it is now; None if there is no such thing."""
    kind, _, subject = id.partition(":")
    for check in CHECKS:
        if kind in check.kinds and check.concerns(view, subject):
            finding = check.judge(view, subject, moment)
            return finding if finding is not None and finding.kind == kind else None
    return None


# -- consumers without a record -------------------------------------------------------------------


def _list_consumers(view: View) -> Iterator[str]:
    if view.records.count(Host):
        for type in (INSTANCE, MIGRATION):
            yield from view.consumer_index.behind(None, ConsumerFilter(type=type))


def _judge_consumer(view: View, id: str, moment: Moment) -> Finding | None:
    record = view.consumers.get(ConsumerId(id))
    if record is None or not record.held or record.consumer.type not in (INSTANCE, MIGRATION):
        return None
    if record.consumer.made_by == SCHEDULE:
        return None
    if view.records.get(Server, id) is not None or view.records.get(Migration, id) is not None:
        return None
    if view.records.get(UnknownServer, id) is not None:
        # It runs: what it holds is not to be given to others.
        return None
    hosts = view.hosts_held(record.held)
    if not any(view.records.get(Host, host.id) is not None for host in hosts):
        return None
    age_s = moment.now_s - record.consumer.updated_at_s
    is_old = age_s >= moment.grace_s
    where = ", ".join(host.name for host in hosts)
    young = f"it was written {age_s} seconds ago, its record may follow: wait {moment.grace_s} seconds"
    return Finding(
        "orphan_consumer",
        id,
        f"no server and no migration has this id, and it holds resources on {where}",
        held_now(view, id),
        (),
        "release what it holds" if is_old else None,
        None if is_old else young,
    )


# -- servers of which a cell knows better -----------------------------------------------------


def _list_unknown(view: View) -> Iterator[str]:
    return (server.id for server in view.records.all(UnknownServer))


def _judge_unknown(view: View, id: str, moment: Moment) -> Finding | None:
    server = view.records.get(UnknownServer, id)
    if server is None:
        return None
    sheet = read_sheet(server.sheet)
    sentence = (
        f"cell {server.cell} has this server on {', '.join(server.hosts)}, and the region has no record of "
        "it: it was created after the backup that the region was restored from"
    )
    if sheet is None:
        return Finding("unknown_server", id, sentence, held_now(view, id), unsafe=f"{_NO_SHEET}, {_REMOVE}")
    spec, now, refusal = sheet.spec, held_now(view, id), None
    adopted = _find_adopted(view, id, sheet)
    sentence += f". It is {spec.name} of project {spec.project}, flavor {spec.flavor.name}, {sheet.state}"
    place = find_place(view, server)
    if place is None or place.id != sheet.host:
        refusal = "its host has not registered in the region again: wait for it"
    elif adopted is None:
        refusal = "a consumer of another project, or on another host, has its id: release what it holds"
    repair = None if refusal else "write its record again, and claim what it held, if there is room"
    unsafe = f"{refusal}, {_REMOVE}" if refusal else None
    return Finding(
        "unknown_server", id, sentence, now, sheet.held if adopted is None else adopted, repair, unsafe
    )


def _find_adopted(view: View, id: str, sheet: ServerSheet) -> Held | None:
    """What an unknown server is to hold: what it held; or what an operator has claimed for it since, with its
    id and for its project, on its host. None where the consumer is none of these."""
    record = view.consumers.get(ConsumerId(id))
    now = held_now(view, id)
    if record is None or not now or same(now, sheet.held):
        return sheet.held
    is_its_own = record.consumer.project == sheet.spec.project
    is_there = all(host.id == sheet.host for host in view.hosts_held(record.held))
    return now if is_its_own and is_there else None


def find_place(view: View, unknown: UnknownServer) -> Place | None:
    """The host that has a server, as far as the region knows it. A host that the region did not know yet has
    its id among the names, and one may have got another name since."""
    sheet = read_sheet(unknown.sheet)
    found = [] if sheet is None else [view.records.get(Host, sheet.host)]
    for name in unknown.hosts:
        found += (*view.records.find(Host, "name", name), view.records.get(Host, name))
    places = (Place(host.id, host.name, host.cell) for host in found if host is not None)
    return next((place for place in places if place.cell == unknown.cell), None)


def _judge_outdated(view: View, id: str, moment: Moment) -> Finding | None:
    server = view.records.get(Server, id)
    if server is None or server.outdated is None:
        return None
    where = "on no host" if server.place is None else f"on {server.place.name}"
    sentence = (
        f"the record says that server {server.name} is {where}, and for its cell it is {server.outdated}: "
        "the region or the cell was restored from an older backup"
    )
    unsafe = "see the guide to backups: unless it is unknown to its cell, it can be deleted, and nothing else"
    return Finding("outdated_server", id, sentence, held_now(view, id), server.held, unsafe=unsafe)


# -- servers ------------------------------------------------------------------------------------


def _list_servers(view: View) -> Iterator[str]:
    return (server.id for server in view.records.all(Server))


def _judge_server(view: View, id: str, moment: Moment) -> Finding | None:
    server = view.records.get(Server, id)
    if server is None or server.run is not None:
        return None
    now = held_now(view, id)
    elsewhere = holdings_elsewhere(view, server, now)
    if elsewhere and not same(minus(now, elsewhere), server.held):
        where = ", ".join(_name_hosts(view, elsewhere))
        sentence = f"server {server.name} holds resources on {where}, but is not there"
        repair = "release what it holds there"
        return Finding("server_elsewhere", id, sentence, now, minus(now, elsewhere), repair)
    if same(now, server.held):
        return None
    if not now:
        sentence = f"server {server.name} is {server.state} and holds nothing of what it should hold"
        repair = "claim it again, if there is room"
        return Finding("server_without_allocations", id, sentence, (), server.held, repair)
    if server.held and same(_find_at_place(view, server, now), server.held):
        where = ", ".join(_name_hosts(view, minus(now, server.held)))
        sentence = f"server {server.name} also holds resources on {where}, without a migration"
        repair = "release what it holds there"
        return Finding("doubled_allocations", id, sentence, now, server.held, repair)
    sentence = f"the allocations of server {server.name} are not those that were last written"
    repair = "claim what the record says, if there is room" if server.held else "release what it holds"
    return Finding("server_with_wrong_allocations", id, sentence, now, server.held, repair)


def holdings_elsewhere(view: View, server: Server, now: Held) -> Held:
    """What is held on hosts where the server is not. Pools are not hosts; while a migration has the other
    half the server may be at its destination."""
    if server.place is None:
        return ()
    places = {server.place.id}
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    if migration is not None:
        places.add(migration.dest.id)
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    return tuple(
        part
        for part in now
        if (record := view.providers[part[0]]).row not in sharing and record.root.id not in places
    )


def _find_at_place(view: View, server: Server, now: Held) -> Held:
    """What is held in the trees in which the server should hold something."""
    roots = {view.providers[id].root for id, _ in server.held if id in view.providers}
    return tuple((id, amounts) for id, amounts in now if view.providers[id].root in roots)


def _name_hosts(view: View, held: Held) -> list[str]:
    return sorted({view.providers[id].root.name for id, _ in held})


# -- migrations ---------------------------------------------------------------------------------


def _list_migrations(view: View) -> Iterator[str]:
    return (migration.id for migration in view.records.all(Migration))


def _judge_migration(view: View, id: str, moment: Moment) -> Finding | None:
    migration = view.records.get(Migration, id)
    if migration is None:
        return None
    server = view.records.get(Server, migration.server)
    if server is not None and server.run is not None and server.migration == id:
        return None
    now = held_now(view, id)
    if migration.type == "evacuation" and migration.status == "done":
        # It waits until its source is back and clean; what is released already needs nothing more.
        return None if not now else _judge_holding_migration(view, migration, now)
    if server is not None and server.migration == id:
        return _judge_holding_migration(view, migration, now)
    if not now:
        return None
    sentence = (
        f"migration {migration.number} of server {migration.server} is {migration.status}, no saga run "
        f"will finish it, and it holds resources on {', '.join(_name_hosts(view, now))}"
    )
    return Finding("unfinished_migration", id, sentence, now, (), "release what it holds")


def _judge_holding_migration(view: View, migration: Migration, now: Held) -> Finding | None:
    """What is wrong with a migration that should hold its part until the move is confirmed or reverted."""
    of = f"migration {migration.number} of server {migration.server}"
    if same(now, migration.held):
        return None
    repair = "claim what the record says, if there is room"
    if not now:
        sentence = f"{of} holds nothing of what it should hold at the source"
        return Finding("migration_without_allocations", migration.id, sentence, (), migration.held, repair)
    sentence = f"the allocations of {of} are not those that were last written"
    return Finding("migration_with_wrong_allocations", migration.id, sentence, now, migration.held, repair)


# -- saga runs and groups -----------------------------------------------------------------------


def _list_runs(view: View) -> Iterator[str]:
    busy = (server.run for server in view.records.all(Server) if server.run is not None)
    return iter(dict.fromkeys((*busy, *(outbox.id for outbox in view.records.all(Outbox)))))


def _judge_run(view: View, id: str, moment: Moment) -> Finding | None:
    outbox = view.records.get(Outbox, id)
    if outbox is not None and outbox.units is not None:
        return None
    run = None if outbox is None else outbox.run
    about = id if run is None else run.id
    action = view.records.get(Action, (outbox.abort if outbox is not None else None) or about)
    server = None if action is None else view.records.get(Server, action.server)
    is_open = outbox is not None or (server is not None and server.run == id)
    # A cell is told of the end of a run when the server, and its history with it, may be gone already.
    updated_at_s = 0 if run is None else run.since_ns // 1_000_000_000
    updated_at_s = updated_at_s if action is None else action.updated_at_s
    if not is_open or moment.now_s - updated_at_s < moment.run_s:
        return None
    what = "a saga run" if action is None else f"{action.name} of server {action.server}"
    where = "has not ended" if outbox is None else f"has not reached the cell {outbox.cell!r}"
    sentence = f"{what} {where} after more than {moment.run_s // 3600} hours"
    unsafe = "check that the cell's conductor runs and reaches its journal, Placement and the agents"
    return Finding("order_without_end", id, sentence, unsafe=unsafe)


def _list_members(view: View) -> Iterator[str]:
    """Members may be declared before they hold anything. So only those are judged that stand for another,
    as a migration does, and those of a group that servers were created into."""
    for record in view.groups.records.values():
        has_servers = _has_servers(view, record)
        yield from (id for id, stands_for in record.members.items() if has_servers or stands_for != id)


def _has_servers(view: View, record: GroupRecord) -> bool:
    return any(view.records.get(Server, member) is not None for member in record.members)


def _is_among_servers(view: View, id: str) -> bool:
    membership = view.groups.memberships.get(ConsumerId(id))
    return membership is not None and (
        membership.stands_for != id or _has_servers(view, view.groups.records[membership.group])
    )


def _judge_member(view: View, id: str, moment: Moment) -> Finding | None:
    membership = view.groups.memberships.get(ConsumerId(id))
    if membership is None or view.records.get(Server, id) is not None:
        return None
    record = view.consumers.get(ConsumerId(id))
    if (record is not None and record.held) or view.records.get(Migration, id) is not None:
        return None
    sentence = (
        f"it is a member of group {membership.group}, is neither a server nor a migration, and holds nothing"
    )
    return Finding("stray_member", id, sentence, repair="remove it from the group")


# -- hosts --------------------------------------------------------------------------------------


def _list_hosts(view: View) -> Iterator[str]:
    return (host.id for host in view.records.all(Host))


def _judge_host(view: View, id: str, moment: Moment) -> Finding | None:
    host = view.records.get(Host, id)
    if host is None:
        return None
    provider = view.providers.get(ProviderId(id))
    if provider is None or cell_aggregate(host.cell) not in provider.aggregates:
        lost = "its provider is gone" if provider is None else "its provider is not in the cell's aggregate"
        sentence = f"nothing can be placed on host {host.name} of cell {host.cell}: {lost}"
        if host.complaints:
            sentence += f". {host.complaints[0]}"
        unsafe = "it is written again by itself if the host is up: its cell asks the agent to register"
        return Finding("host_complaint", id, sentence, unsafe=unsafe)
    if not host.complaints:
        return None
    sentence = f"not all of the report of host {host.name} could be applied: {host.complaints[0]}"
    more = len(host.complaints) - 1
    if more:
        sentence += f" ({more} more: see /berth/v1/hosts/{id})"
    unsafe = "it is resolved when its cause is: the agent reports again from time to time"
    return Finding("host_complaint", id, sentence, unsafe=unsafe)


# -- units --------------------------------------------------------------------------------------


def _judge_units(view: View, id: str, moment: Moment) -> Finding | None:
    """Whether a server has as many units as it holds, where its host names them. One in error may have been
    destroyed already, and hold still."""
    server = view.records.get(Server, id)
    if server is None or server.run is not None or server.place is None or server.state == "error":
        return None
    host = view.records.get(Host, server.place.id)
    assignment = view.records.get(Assignment, assignment_id(id, server.place.id))
    named = {(one, kind) for one, kinds in (() if host is None else host.unit_classes) for kind in kinds}
    holds = {(one, kind): n for one, amounts in server.held for kind, n in amounts if (one, kind) in named}
    has = {
        (one, kind): len(names)
        for one, kinds in (() if assignment is None else assignment.units.items())
        for kind, names in kinds.items()
        if (one, kind) in named
    }
    if holds == has or view.records.get(Outbox, f"units {id}") is not None:
        return None
    sentence = (
        f"server {server.name} holds {_describe_units(holds.items())} on host {server.place.name}, and "
        f"{_describe_units(has.items())} are assigned to it"
    )
    lacks_none = all(has.get(one, 0) >= count for one, count in holds.items())
    if lacks_none and server.state not in NOT_RUNNING:
        unsafe = "it is running and may use them: they are freed when it is stopped and started again"
        return Finding("server_without_units", id, sentence, unsafe=unsafe)
    return Finding("server_without_units", id, sentence, repair="assign what it holds, if that is free")


def _describe_units(counts: Iterable[tuple[tuple[str, str], int]]) -> str:
    total: dict[str, int] = {}
    for (_, kind), count in counts:
        total[kind] = total.get(kind, 0) + count
    return ", ".join(f"{count} {kind}" for kind, count in sorted(total.items())) or "no units"


def _list_assignments(view: View) -> Iterator[str]:
    return (assignment.id for assignment in view.records.all(Assignment))


def _judge_assignment(view: View, id: str, moment: Moment) -> Finding | None:
    """Whether the holder of an assignment holds anything there. A host that is down may still have it."""
    one = view.records.get(Assignment, id)
    host = None if one is None else view.records.get(Host, one.host)
    if one is None or host is None or host.is_silent:
        return None
    server = view.records.get(Server, one.server)
    if server is not None and (server.run is not None or moment.now_s - server.updated_at_s < moment.grace_s):
        return None
    holder = view.records.get(Server, one.holder) or view.records.get(Migration, one.holder)
    if holder is not None and any(provider in one.units for provider, _ in holder.held):
        return None
    if not one.units:
        return None
    sentence = (
        f"units of host {host.name} are assigned to server {one.server}, which holds nothing there: "
        f"{', '.join(one.unit_names()[:_UNITS_SHOWN])}"
    )
    unsafe = "they are freed by themselves, when the host reports without the server"
    return Finding("stray_assignment", id, sentence, unsafe=unsafe)


CHECKS: Final = (
    FindingCheck(("orphan_consumer",), _list_consumers, _judge_consumer),
    FindingCheck(
        (
            "server_without_allocations",
            "server_with_wrong_allocations",
            "doubled_allocations",
            "server_elsewhere",
        ),
        _list_servers,
        _judge_server,
    ),
    FindingCheck(
        (
            "unfinished_migration",
            "migration_without_allocations",
            "migration_with_wrong_allocations",
        ),
        _list_migrations,
        _judge_migration,
    ),
    FindingCheck(("order_without_end",), _list_runs, _judge_run),
    FindingCheck(("stray_member",), _list_members, _judge_member, _is_among_servers),
    FindingCheck(("host_complaint",), _list_hosts, _judge_host),
    FindingCheck(("server_without_units",), _list_servers, _judge_units),
    FindingCheck(("stray_assignment",), _list_assignments, _judge_assignment),
    FindingCheck(("unknown_server",), _list_unknown, _judge_unknown),
    FindingCheck(("outdated_server",), _list_servers, _judge_outdated),
)

"""Repairs: what the doctor does about a finding, where that is safe. One command per finding.

A finding is looked at again in the turn in which it is repaired: what has changed since is left alone. A
claim goes through the ledger like any other, and may be rejected by it. Busy servers are not repaired: they
are not among the findings.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from berth.doctor.findings import Finding, Kind, Moment, find_again, find_place, holdings_elsewhere
from berth.ledger import remove_record, replace_record
from berth.model.commands import (
    ChangeMembers,
    Claim,
    DeleteAllocations,
    Enact,
    LedgerCommand,
    ReplaceAllocations,
)
from berth.model.ids import ConsumerId
from berth.model.placement import INSTANCE, MIGRATION
from berth.model.rejections import FindingGone, Rejection, RepairUnsafe
from berth.model.saga_runs import Spec, read_sheet
from berth.model.servers import (
    NO_STATE,
    POWER,
    Flavor,
    Held,
    Migration,
    MigrationStatus,
    Place,
    Server,
    UnknownServer,
)
from berth.sagas.conflicts import generation_of, held_now, minus
from berth.sagas.proposals import Context, request_units, start_run
from berth.sagas.saga import Saga
from berth.view import View

_NOTHING_KNOWN: Final = Spec("unknown", "", "", Flavor(id="", name="", vcpus=0, memory_mb=0))
_NO_NUMBER: Final = (
    "the number of its last run is not known, and its cell would drop another: finish the upgrade with "
    "'berth db upgrade --finish', and ask again a minute later"
)
_UNDER_WAY: Final[frozenset[MigrationStatus]] = frozenset(
    ("accepted", "migrating", "finished", "confirming", "reverting")
)


def repair(view: View, id: str, moment: Moment) -> Enact | Rejection:
    """The command that repairs the finding of this id."""
    finding = find_again(view, id, moment)
    if finding is None:
        return FindingGone(id)
    if finding.repair is None:
        return RepairUnsafe(id, finding.unsafe or "an operator must decide")
    return _REPAIRS[finding.kind](view, finding, moment.now_s)


def remove_unknown(view: View, id: str, moment: Moment, context: Context, saga: Saga) -> Enact | Rejection:
    """The command by which the server of a finding is destroyed, of which the region has no record. It gets
    one for as long as that takes, and is deleted like any other, by ``saga``."""
    finding = find_again(view, id, moment)
    if finding is None:
        return FindingGone(id)
    unknown = view.records.get(UnknownServer, finding.subject)
    if unknown is None:
        return RepairUnsafe(id, "only a server that the region has no record of is removed: delete others")
    if not unknown.last:
        return RepairUnsafe(id, _NO_NUMBER)
    place = find_place(view, unknown)
    if place is None:
        return RepairUnsafe(id, "none of its hosts has registered in the region again")
    # What is held under its id goes with it, whoever has claimed that.
    server = msgspec.structs.replace(
        _make_record(unknown, place, moment.now_s),
        state="error",
        held=held_now(view, unknown.id),
        generation=generation_of(view, unknown.id),
    )
    # It is there already: no quota keeps it from being written down.
    deleted = start_run(view, moment.now_s, context._replace(quotas=None), saga, server, dest=place)
    return msgspec.structs.replace(deleted, changes=(remove_record(view, unknown), *deleted.changes))


def _release(view: View, finding: Finding, now_s: int) -> Enact:
    consumer = ConsumerId(finding.subject)
    commands: list[LedgerCommand] = [DeleteAllocations(consumer)]
    membership = view.groups.memberships.get(consumer)
    if membership is not None and membership.stands_for == consumer:
        # A member that stands for another leaves the group with its allocations.
        commands.append(ChangeMembers(membership.group, (), (consumer,)))
    return Enact((), tuple(commands))


def _adopt_server(view: View, finding: Finding, now_s: int) -> Enact:
    unknown = view.records.get(UnknownServer, finding.subject)
    assert unknown is not None, "the finding was just looked at"
    place = find_place(view, unknown)
    assert place is not None, "the finding says that it can be repaired"
    server = msgspec.structs.replace(_make_record(unknown, place, now_s), held=finding.should_hold)
    commands, generation = _claim_again(view, server, server.held, INSTANCE)
    server = msgspec.structs.replace(server, generation=generation)
    return Enact((remove_record(view, unknown), replace_record(view, server)), commands)


def _make_record(unknown: UnknownServer, place: Place, now_s: int) -> Server:
    """The record of a server, from what its cell knows. What only a region knows is lost: its group and
    hints, its zone, metadata and key, and when it was created."""
    sheet = read_sheet(unknown.sheet)
    spec = _NOTHING_KNOWN if sheet is None else sheet.spec
    state = "error" if sheet is None else sheet.state
    return Server(
        id=unknown.id,
        name=spec.name,
        project=spec.project,
        user=spec.user,
        flavor=spec.flavor,
        image=spec.image,
        image_properties=spec.image_properties,
        needs=() if sheet is None else sheet.needs,
        state=state,
        power=POWER.get(state, NO_STATE),
        place=place,
        held=() if sheet is None else sheet.held,
        run_count=unknown.last,
        created_at_s=now_s,
        updated_at_s=now_s,
        launched_at_s=now_s,
    )


def _correct_server(view: View, finding: Finding, now_s: int) -> Enact:
    server = view.records.get(Server, finding.subject)
    assert server is not None, "the finding was just looked at"
    commands, generation = _claim_again(view, server, server.held, INSTANCE)
    after = msgspec.structs.replace(server, generation=generation, conflict=None, updated_at_s=now_s)
    return Enact((replace_record(view, after),), commands)


def _release_elsewhere(view: View, finding: Finding, now_s: int) -> Enact:
    server = view.records.get(Server, finding.subject)
    assert server is not None, "the finding was just looked at"
    elsewhere = holdings_elsewhere(view, server, finding.holds)
    commands, generation = _claim_again(view, server, finding.should_hold, INSTANCE)
    after = msgspec.structs.replace(
        server,
        held=minus(server.held, elsewhere),
        kept=minus(server.kept, elsewhere),
        generation=generation,
        conflict=None,
        updated_at_s=now_s,
    )
    return Enact((replace_record(view, after),), commands)


def _correct_migration(view: View, finding: Finding, now_s: int) -> Enact:
    migration = view.records.get(Migration, finding.subject)
    assert migration is not None, "the finding was just looked at"
    commands, generation = _claim_again(view, migration, migration.held, MIGRATION)
    after = msgspec.structs.replace(migration, generation=generation, updated_at_s=now_s)
    return Enact((replace_record(view, after),), commands)


def _claim_again(
    view: View, owner: Server | Migration, held: Held, type: str
) -> tuple[tuple[LedgerCommand, ...], int | None]:
    """The command by which a consumer holds this and nothing else, and its generation then."""
    id = ConsumerId(owner.id)
    current = generation_of(view, id)
    claim = Claim(id, held, owner.project, owner.user, current, type)
    return (ReplaceAllocations((claim,)),), (current or 0) + 1 if held else None


def _end_migration(view: View, finding: Finding, now_s: int) -> Enact:
    migration = view.records.get(Migration, finding.subject)
    assert migration is not None, "the finding was just looked at"
    status = "error" if migration.status in _UNDER_WAY else migration.status
    after = msgspec.structs.replace(migration, status=status, held=(), generation=None, updated_at_s=now_s)
    return Enact((replace_record(view, after),), (DeleteAllocations(ConsumerId(migration.id)),))


def _remove_member(view: View, finding: Finding, now_s: int) -> Enact:
    consumer = ConsumerId(finding.subject)
    group = view.groups.memberships[consumer].group
    return Enact((), (ChangeMembers(group, (), (consumer,)),))


def _assign_units(view: View, finding: Finding, now_s: int) -> Enact:
    server = view.records.get(Server, finding.subject)
    assert server is not None, "the finding was just looked at"
    asked = request_units(view, server)
    return Enact(() if asked is None else (asked,))


_REPAIRS: Final[dict[Kind, Callable[[View, Finding, int], Enact]]] = {
    "orphan_consumer": _release,
    "unknown_server": _adopt_server,
    "server_without_allocations": _correct_server,
    "server_with_wrong_allocations": _correct_server,
    "doubled_allocations": _correct_server,
    "server_elsewhere": _release_elsewhere,
    "unfinished_migration": _end_migration,
    "migration_without_allocations": _correct_migration,
    "migration_with_wrong_allocations": _correct_migration,
    "stray_member": _remove_member,
    "server_without_units": _assign_units,
}
"""The repair of each kind. Where there is none, an operator must decide."""

"""Revert: give a resized or migrated server its source and its flavor back.

VERIFY_RESIZE --(check, destroy at the destination, give back, resume at the source)--> what it was before
a changed allocation or a failing host: ERROR; what was not given back stays with the migration
"""

from itertools import islice

import msgspec

from berth.ledger import decide
from berth.model.commands import Claim, Enact, LedgerCommand, ReplaceAllocations
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import MIGRATION
from berth.model.rejections import ConfirmBegun, NeedDoesNotFit, Rejection, SourceUnitsGone
from berth.model.saga_runs import Assignment, SagaRun, assignment_id
from berth.model.servers import Held, Host, Migration, Server
from berth.sagas.conflicts import (
    adopt_holdings,
    adopt_migration_holdings,
    minus,
    overlap,
    plus,
)
from berth.sagas.proposals import Context, Resized, find_resized, settle_resize
from berth.sagas.requests import ask_needs, kept_needs
from berth.sagas.saga import (
    AS_BEFORE,
    CHECK,
    DESTROY,
    PLACEMENT,
    Outcome,
    Saga,
    Step,
    has_given_back,
    keep,
    return_to_source,
    states,
)
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.plugins import CANDIDATES_TRIED_MAX
from berth.view import View


def stop_reverting(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """The server is at its source again if that was given back; else it can be reverted again."""
    return (return_to_source if has_given_back(run) else keep)(server, run, migration)


SAGA = Saga(
    name="revert",
    action="revertResize",
    task="resize_reverting",
    starts_in=states("resized", "error"),
    steps=(
        CHECK,
        DESTROY,
        Step("give back", at=PLACEMENT, do="give_back"),
        Step("resume", at="source", do="resume", stopped_on=("source",)),
    ),
    done=Outcome(state=AS_BEFORE, on_hosts=("source",), holds="source", migration="reverted"),
    failed=Outcome(state="error", on_hosts=("source", "dest"), holds="dest, migration source"),
    on_done=return_to_source,
    on_failed=stop_reverting,
    requested_by="`revertResize`",
    migration_meanwhile="reverting",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    found = find_resized(view, now_s, context, id, SAGA, lambda migration: _refuse(view, migration))
    if not isinstance(found, Resized):
        return found
    server, migration, holdings = found
    added_since = minus(holdings.kept, server.kept)
    server = adopt_holdings(server, holdings)
    migration = adopt_migration_holdings(migration, holdings)
    missing = minus(migration.shared, server.held)
    migration = msgspec.structs.replace(
        migration, held=plus((migration.held, missing)), shared=minus(migration.shared, missing)
    )
    claims: tuple[LedgerCommand, ...] = ()
    if added_since:
        taken = _take_along(view, now_s, server, migration, added_since)
        if isinstance(taken, Rejection):
            return taken
        migration, claims = taken
    elif missing or (migration.held and migration.generation is None):
        # What the server is to have back is gone: it is claimed again first.
        claims = (ReplaceAllocations((_make_claim(migration, migration.held),)),)
        migration = msgspec.structs.replace(migration, generation=(migration.generation or 0) + 1)
    return settle_resize(
        view, now_s, context, SAGA, server, migration, flavor=server.flavor_before, commands=claims
    )


def _refuse(view: View, migration: Migration) -> ConfirmBegun | SourceUnitsGone | None:
    if migration.status == "confirming":
        return ConfirmBegun(migration.server)
    source = view.records.get(Host, migration.source.id)
    assigned = view.records.get(Assignment, assignment_id(migration.id, migration.source.id))
    # After a revert that failed, the server need not be at the destination: it cannot be confirmed then, and
    # has no other way out.
    if source is None or assigned is None or migration.status != "finished":
        return None
    # The server could not be started there: better told now, while it runs at the destination.
    gone = tuple(
        f"{kind} {unit}"
        for kinds in assigned.units.values()
        for kind, units in kinds.items()
        for unit in units
        if unit in source.units_gone
    )
    return SourceUnitsGone(migration.server, source.name, gone) if gone else None


def _take_along(
    view: View, now_s: int, server: Server, migration: Migration, more: Held
) -> tuple[Migration, tuple[LedgerCommand, ...]] | Rejection:
    """The migration when it holds at the source what others have added at the destination, too: the server
    goes back, and that goes with it."""
    source = view.providers.get(ProviderId(migration.source.id))
    needs = kept_needs(view, more)
    first = frozenset(provider for provider, _ in more)
    candidates = HostCandidates.of(view, ask_needs(needs), first, is_there=True)
    refused = None
    at_source = candidates.at(source) if source and isinstance(candidates, HostCandidates) else ()
    for found in islice(at_source, CANDIDATES_TRIED_MAX):
        shared = overlap(more, found.wanted)
        held = plus((migration.held, minus(found.wanted, shared)))
        claim = _make_claim(migration, held)
        verdict = decide(view, ReplaceAllocations((claim,)), now_s)
        if not isinstance(verdict, Rejection):
            after = msgspec.structs.replace(
                migration,
                held=held,
                generation=(migration.generation or 0) + 1,
                shared=plus((migration.shared, shared)),
                kept=plus((migration.kept, found.wanted)),
            )
            return after, (ReplaceAllocations((claim,)),)
        refused = verdict
    return NeedDoesNotFit(server.id, "of what others have added", migration.source.name, refused)


def _make_claim(migration: Migration, held: Held) -> Claim:
    id, generation = ConsumerId(migration.id), migration.generation
    return Claim(id, held, migration.project, migration.user, generation, MIGRATION)

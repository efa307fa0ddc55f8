"""Confirm and revert: the second half of a resize. The migration lets go of what it holds, or gives it
back."""

from itertools import islice
from typing import Literal

import msgspec

from berth.ledger import decide
from berth.model.commands import Claim, Enact, LedgerCommand, ReplaceAllocations
from berth.model.ids import ConsumerId, ProviderId
from berth.model.rejections import ConfirmBegun, NeedDoesNotFit, Rejection, RevertBegun, ServerStateWrong
from berth.model.requests import CandidatesRequest
from berth.model.saga_runs import ClaimSnapshot
from berth.model.servers import Held, Migration, Server
from berth.model.vocabulary import MIGRATION
from berth.sagas.conflicts import (
    ServerHoldings,
    adopt_holdings,
    adopt_migration_holdings,
    find_holdings,
    minus,
    overlap,
    plus,
)
from berth.sagas.proposals import Context, find_startable, make_run, record_run
from berth.sagas.requests import group_of, kept_needs
from berth.sagas.saga import BY_NAME, find_released
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.options import CANDIDATES_TRIED_MAX
from berth.view import View


def propose(
    view: View, now_s: int, context: Context, id: str, name: Literal["confirm", "revert"]
) -> Enact | Rejection:
    saga = BY_NAME[name]
    server = find_startable(view, id, saga)
    if isinstance(server, Rejection):
        return server
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    if migration is None:
        return ServerStateWrong(id, saga.action, server.state, ("resized",))
    if name == "revert" and migration.status == "confirming":
        return ConfirmBegun(id)
    if name == "confirm" and migration.status not in ("finished", "confirming"):
        return RevertBegun(id)
    # Refused here already, where it can be told: the conductor would find the same.
    holdings = find_holdings(
        view,
        server,
        context.rules,
        saga.action,
        now_s,
        migration=migration,
        released=find_released(saga),
    )
    if not isinstance(holdings, ServerHoldings):
        return holdings
    added_since = minus(holdings.kept, server.kept) if name == "revert" else ()
    last = server
    server = adopt_holdings(server, holdings)
    migration = adopt_migration_holdings(migration, holdings)
    if name == "confirm" and not server.held:
        # Nothing is written for it here. What it should hold is what the doctor claims again.
        server = msgspec.structs.replace(server, held=last.held, kept=last.kept)
    missing = minus(migration.shared, server.held) if name == "revert" else ()
    migration = msgspec.structs.replace(
        migration, held=plus((migration.held, missing)), shared=minus(migration.shared, missing)
    )
    claims: tuple[LedgerCommand, ...] = ()
    if added_since:
        # The server goes back, and what others have added at the destination goes with it.
        taken = _taken_along(view, now_s, server, migration, added_since)
        if isinstance(taken, Rejection):
            return taken
        migration, claims = taken
    elif name == "revert" and (missing or (migration.held and migration.generation is None)):
        # What the server is to have back is gone: it is claimed again first.
        claims = (ReplaceAllocations((_claim(migration, migration.held),)),)
        migration = msgspec.structs.replace(migration, generation=(migration.generation or 0) + 1)
    sized = server.flavor_before if name == "revert" else None
    run = make_run(
        context,
        msgspec.structs.replace(server, flavor=sized or server.flavor),
        name,
        ClaimSnapshot(server.held, server.generation),
        source=migration.source,
        dest=server.place,
        migration=migration,
        runs=server.state_before != "stopped",
    )
    return record_run(
        view, context, server, run, migration.source.cell, now_s, changed=(migration,), commands=claims
    )


def _taken_along(
    view: View, now_s: int, server: Server, migration: Migration, more: Held
) -> tuple[Migration, tuple[LedgerCommand, ...]] | Rejection:
    """The migration when it holds at the source what others have added at the destination as well."""
    source = view.providers.get(ProviderId(migration.source.id))
    needs = kept_needs(view, more)
    ask = CandidatesRequest(groups=tuple(group_of(need) for need in needs))
    candidates = HostCandidates.of(view, ask, frozenset(provider for provider, _ in more))
    refused = None
    at_source = candidates.at(source) if source and isinstance(candidates, HostCandidates) else ()
    for found in islice(at_source, CANDIDATES_TRIED_MAX):
        shared = overlap(more, found.wanted)
        held = plus((migration.held, minus(found.wanted, shared)))
        claim = _claim(migration, held)
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


def _claim(migration: Migration, held: Held) -> Claim:
    id, generation = ConsumerId(migration.id), migration.generation
    return Claim(id, held, migration.project, migration.user, generation, MIGRATION)

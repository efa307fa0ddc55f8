"""Where a server is when a run has ended, and which migration it has: functions that sagas name as their
``on_done`` and ``on_failed``. What it holds and its state follow from the run and the saga's outcome; the
status sync has set them already."""

import msgspec

from berth.model.saga_runs import SagaRun
from berth.model.servers import Migration, Server
from berth.sagas.conflicts import plus


def has_given_back(run: SagaRun) -> bool:
    """Whether the migration has nothing left, in a run that may give back."""
    return run.migration_claim is None or not run.migration_claim.held


def stay(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """It is where it was."""
    return msgspec.structs.replace(server, state_before=None)


def keep(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """Nothing has changed: it waits for its resize to be confirmed or reverted, as before."""
    return server


def arrive(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """It is at its destination, and a move is over."""
    return msgspec.structs.replace(
        server, place=run.dest, migration=None, flavor_before=None, state_before=None
    )


def await_confirmation(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """It is at its destination, and its migration holds the source until the move is confirmed or
    reverted."""
    return msgspec.structs.replace(server, place=run.dest, migration=run.migration)


def leave(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """It is on no host, and its needs are met nowhere."""
    needs = tuple(msgspec.structs.replace(need, held=()) for need in server.needs)
    return msgspec.structs.replace(server, place=None, state_before=None, needs=needs)


def return_to_source(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """It is at its source again, as it was before the move."""
    if migration is None or not has_given_back(run):
        # Placement refused to give back. Both halves are held until an operator decides.
        return stay(server, run, migration)
    return msgspec.structs.replace(
        server,
        place=run.source,
        migration=None,
        flavor=server.flavor_before or server.flavor,
        flavor_before=None,
        kept=plus((migration.kept, run.claim.kept)),
        needs=migration.needs,
        state_before=None,
    )

"""Release: a host that was down is back and clean, and the migrations of servers that were evacuated from it
release what they hold there. A cell begins it by itself.

    a migration that is done --(release)--> completed
"""

from collections.abc import Collection

import msgspec

from berth.ledger import remove_record, replace_record
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.saga_runs import Evacuated, Instance, SagaRun, Spec
from berth.model.servers import Flavor, Migration, Server
from berth.runtime.ids import Ids
from berth.sagas.saga import AS_BEFORE, RELEASE_MIGRATION, Outcome, Saga, states
from berth.view import View

_NO_FLAVOR = Flavor(id="", name="", vcpus=0, memory_mb=0)


def complete_evacuation(view: View, run: SagaRun, now_s: int) -> Enact | None:
    """The command that notes in the region that an evacuation is over; None if there is nothing to note."""
    migration = view.records.get(Migration, run.migration or "")
    if migration is None or run.phase != "done" or migration.status != "done":
        return None
    if view.records.get(Server, migration.server) is None:
        return Enact((remove_record(view, migration),))
    after = msgspec.structs.replace(
        migration, status="completed", held=(), generation=None, updated_at_s=now_s
    )
    return Enact((replace_record(view, after),))


def is_evacuation_complete(view: View, run: SagaRun) -> bool:
    migration = view.records.get(Migration, run.migration or "")
    is_finished = run.phase in ("done", "failed")
    return not is_finished or migration is None or migration.status not in ("migrating", "done")


SAGA = Saga(
    name="release",
    recorded_as="sweep",
    action="release",
    task=None,
    starts_in=states(),
    steps=(RELEASE_MIGRATION,),
    done=Outcome(state=AS_BEFORE, holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest, migration source"),
    requested_by="the cell: the host of an evacuated server is back, and clean",
    apply=complete_evacuation,
    is_applied=is_evacuation_complete,
)


def release_evacuated(view: View, ids: Ids, host: str, present: Collection[str], now_ns: int) -> Enact | None:
    """The command that starts the runs for one host; None if nothing was evacuated from it. ``present``: the
    servers that are there still, perhaps because they were evacuated just now."""
    changes: list[RecordChanged] = []
    for instance in view.records.find(Instance, "evacuated", host):
        if instance.id in present:
            continue
        released = [one for one in instance.evacuated if one.host == host]
        left = tuple(one for one in instance.evacuated if one.host != host)
        changes.append(RecordChanged(instance, msgspec.structs.replace(instance, evacuated=left)))
        changes += [RecordChanged(None, _make_run(ids, instance, one, now_ns)) for one in released]
    return Enact(tuple(changes)) if changes else None


def _make_run(ids: Ids, instance: Instance, one: Evacuated, now_ns: int) -> SagaRun:
    return SagaRun(
        id=ids.uuid(),
        number=instance.last,
        server=instance.id,
        saga=SAGA.key,
        request_id="",
        spec=Spec("", "", "", _NO_FLAVOR),
        project=one.project,
        user=one.user,
        claim=one.claim,
        migration=one.migration,
        migration_claim=one.claim,
        policy="retry",
        since_ns=now_ns,
    )

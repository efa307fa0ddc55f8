"""A host that was down is back, and clean: the migrations that still hold what was evacuated from it let
go."""

import msgspec

from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.saga_runs import Evacuated, Instance, SagaRun, Spec
from berth.model.servers import Flavor
from berth.runtime.ids import Ids
from berth.view import View

_NO_FLAVOR = Flavor(id="", name="", vcpus=0, memory_mb=0)


def release_evacuated(view: View, ids: Ids, host: str, now_ns: int) -> Enact | None:
    """The command that orders it, for one host; None if there is nothing to sweep."""
    changes: list[RecordChanged] = []
    for instance in view.records.find(Instance, "evacuated", host):
        swept = [one for one in instance.evacuated if one.host == host]
        left = tuple(one for one in instance.evacuated if one.host != host)
        changes.append(RecordChanged(instance, msgspec.structs.replace(instance, evacuated=left)))
        changes += [RecordChanged(None, _order(ids, instance, one, now_ns)) for one in swept]
    return Enact(tuple(changes)) if changes else None


def _order(ids: Ids, instance: Instance, one: Evacuated, now_ns: int) -> SagaRun:
    return SagaRun(
        id=ids.uuid(),
        number=instance.last,
        server=instance.id,
        saga="sweep",
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

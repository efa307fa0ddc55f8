"""Create a backup: an image of a server that replaces the oldest of its backups.

ACTIVE, SHUTOFF, PAUSED or SUSPENDED --(snapshot)--> as before
a failing host: as before, and there is no image
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.sagas.snapshots import BACKUP_TYPE, KIND, propose_snapshot, settle_snapshot
from berth.view import View

SAGA = Saga(
    name="create_backup",
    action="createBackup",
    task="image_backup",
    starts_in=states("active", "stopped", "paused", "suspended"),
    steps=(Step("snapshot", at="dest", do="snapshot"),),
    done=Outcome(state=AS_BEFORE, holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    settle=settle_snapshot,
    requested_by="`createBackup`",
)


def propose(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    name: str,
    backup_type: str,
    rotation: int,
    metadata: dict[str, str],
) -> Enact | Rejection:
    """``rotation``: how many backups of this type are kept, with this one."""
    properties = metadata | {KIND: "backup", BACKUP_TYPE: backup_type}
    return propose_snapshot(view, now_s, context, id, SAGA, name, properties, rotation)

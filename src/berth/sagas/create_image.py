"""Create an image: what a server is made of is kept as an image, and the server goes on as it was.

ACTIVE, SHUTOFF, PAUSED or SUSPENDED --(snapshot)--> as before
a failing host: as before, and there is no image
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.sagas.snapshots import KIND, propose_snapshot, settle_snapshot
from berth.view import View

SAGA = Saga(
    name="create_image",
    action="createImage",
    task="image_snapshot",
    starts_in=states("active", "stopped", "paused", "suspended"),
    steps=(Step("snapshot", at="dest", do="snapshot"),),
    done=Outcome(state=AS_BEFORE, holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    settle=settle_snapshot,
    requested_by="`createImage`",
)


def propose(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    name: str,
    metadata: dict[str, str],
) -> Enact | Rejection:
    return propose_snapshot(view, now_s, context, id, SAGA, name, metadata | {KIND: "snapshot"})

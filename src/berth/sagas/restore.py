"""Restore: run a server again that was soft-deleted.

SOFT_DELETED --(start)--> ACTIVE
a failing host: as before
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="restore",
    action="restore",
    task="restoring",
    starts_in=states("soft-delete"),
    steps=(Step("start", at="dest", do="start"),),
    done=Outcome(state="active", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`restore`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

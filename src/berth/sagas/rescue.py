"""Rescue: run a server from the image that it was made from, with its disk beside it, so that the disk can
be repaired.

ACTIVE, SHUTOFF or ERROR --(rescue)--> RESCUE
a failing host: as before
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="rescue",
    action="rescue",
    task="rescuing",
    starts_in=states("active", "stopped", "error"),
    steps=(Step("rescue", at="dest", do="rescue"),),
    done=Outcome(state="rescued", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`rescue`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

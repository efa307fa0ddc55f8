"""Suspend: write a server's memory to its disk, and end it.

ACTIVE --(suspend)--> SUSPENDED
a failing host: as before
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="suspend",
    action="suspend",
    task="suspending",
    starts_in=states("active"),
    steps=(Step("suspend", at="dest", do="suspend"),),
    done=Outcome(state="suspended", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`suspend`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

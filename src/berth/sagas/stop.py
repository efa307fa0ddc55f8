"""Stop: shut a server down.

ACTIVE or ERROR --(stop)--> SHUTOFF
a failing host: as before
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="stop",
    action="stop",
    task="powering-off",
    starts_in=states("active", "error"),
    steps=(Step("stop", at="dest", do="stop"),),
    done=Outcome(state="stopped", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`os-stop`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

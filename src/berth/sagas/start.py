"""Start: run a server that is shut down.

SHUTOFF --(start)--> ACTIVE
a failing host: SHUTOFF still
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="start",
    action="start",
    task="powering-on",
    starts_in=states("stopped"),
    steps=(Step("start", at="dest", do="start"),),
    done=Outcome(state="active", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`os-start`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

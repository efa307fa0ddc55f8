"""Resume: run a suspended server again, with the memory that was written to its disk.

SUSPENDED --(resume)--> ACTIVE
a failing host: as before
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="resume",
    action="resume",
    task="resuming",
    starts_in=states("suspended"),
    steps=(Step("resume", at="dest", do="resume"),),
    done=Outcome(state="active", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`resume`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

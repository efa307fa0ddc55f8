"""Pause: a server keeps its memory and is given no cpu time.

ACTIVE --(pause)--> PAUSED
a failing host: as before
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="pause",
    action="pause",
    task="pausing",
    starts_in=states("active"),
    steps=(Step("pause", at="dest", do="pause"),),
    done=Outcome(state="paused", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`pause`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

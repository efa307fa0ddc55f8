"""Unrescue: run a rescued server from its own disk again.

RESCUE --(unrescue)--> ACTIVE
a failing host: as before
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="unrescue",
    action="unrescue",
    task="unrescuing",
    starts_in=states("rescued"),
    steps=(Step("unrescue", at="dest", do="unrescue"),),
    done=Outcome(state="active", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`unrescue`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

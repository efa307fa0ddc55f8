"""Reboot: a server starts anew. By a soft reboot the guest does that itself, by a hard one the server is
switched off and on.

ACTIVE --(reboot)--> ACTIVE
ACTIVE, SHUTOFF, PAUSED, SUSPENDED or ERROR --(reboot hard)--> ACTIVE
a failing host: as before
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="reboot",
    action="reboot",
    task="rebooting",
    starts_in=states("active"),
    steps=(Step("reboot", at="dest", do="reboot"),),
    done=Outcome(state="active", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`reboot` of type SOFT",
)

SAGA_HARD = Saga(
    name="reboot_hard",
    action="reboot",
    task="rebooting_hard",
    starts_in=states("active", "stopped", "paused", "suspended", "error"),
    steps=(Step("reboot hard", at="dest", do="reboot_hard"),),
    done=Outcome(state="active", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`reboot` of type HARD",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)


def propose_hard(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA_HARD)

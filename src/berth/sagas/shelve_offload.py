"""Shelve offload: a shelved server leaves its host, and holds nothing there any more.

SHELVED --(check, destroy, release)--> SHELVED_OFFLOADED
a changed allocation or a failing host: SHELVED still
"""

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import CHECK, DESTROY, RELEASE, Outcome, Saga, leave, states
from berth.view import View

SAGA = Saga(
    name="shelve_offload",
    action="shelveOffload",
    task="shelving_offloading",
    starts_in=states("shelved"),
    steps=(CHECK, DESTROY, RELEASE),
    done=Outcome(state="shelved_offloaded", on_hosts=(), holds="nothing"),
    failed=Outcome(state="shelved", holds="dest"),
    on_done=leave,
    requested_by="`shelveOffload`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)

"""Shelve: stop a server and keep what it is made of; with the setting ``shelve_offload`` it leaves its host,
too.

ACTIVE or SHUTOFF --(stop, snapshot)--> SHELVED
ACTIVE or SHUTOFF --(stop, snapshot, check, destroy, release)--> SHELVED_OFFLOADED
any failure before it is destroyed: undone, back to where it was; a host that cannot destroy it: SHELVED
"""

from dataclasses import replace

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import AS_BEFORE, CHECK, RELEASE, SNAPSHOT, STOP, Outcome, Saga, Step, leave, states
from berth.view import View

SAGA = Saga(
    name="shelve",
    action="shelve",
    task="shelving",
    starts_in=states("active", "stopped"),
    steps=(STOP, SNAPSHOT),
    done=Outcome(state="shelved", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`shelve`, with `shelve_offload` off",
)

SAGA_AWAY = Saga(
    name="shelve_away",
    action="shelve",
    task="shelving",
    starts_in=states("active", "stopped"),
    steps=(
        STOP,
        SNAPSHOT,
        replace(CHECK, on_failure="undo"),
        Step("destroy", at="dest", do="destroy", stopped_as="shelved"),
        RELEASE,
    ),
    done=Outcome(state="shelved_offloaded", on_hosts=(), holds="nothing"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    on_done=leave,
    requested_by="`shelve`",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    return propose_in_place(view, now_s, context, id, SAGA)


def propose_away(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    """Shelve, and offload at once."""
    return propose_in_place(view, now_s, context, id, SAGA_AWAY)

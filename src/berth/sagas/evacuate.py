"""Evacuate: build a server anew on another host because its own is down.

    ACTIVE, SHUTOFF or ERROR --(claim, build at the destination)--> as before, or ACTIVE
    a failed build: the claim moves to the next alternate; without one: ERROR, holding what it held

Its migration holds the source until that host is back and clean (``release``).
"""

from berth.model.commands import Enact
from berth.model.rejections import HostNotDown, Rejection
from berth.sagas.hosts import is_down
from berth.sagas.move import propose_move
from berth.sagas.proposals import Context, find_startable, reject_unsettled
from berth.sagas.saga import AS_BEFORE, BUILD, CLAIM_MOVE, Outcome, Saga, arrive, return_to_source, states
from berth.view import View

SAGA = Saga(
    name="evacuate",
    action="evacuate",
    task="rebuilding",
    starts_in=states("active", "stopped", "error"),
    steps=(CLAIM_MOVE, BUILD),
    done=Outcome(
        state=AS_BEFORE,
        on_hosts=("dest",),
        holds="dest, migration source",
        migration="done",
        leaves_source=True,
    ),
    failed=Outcome(state="error", on_hosts=("source",), holds="source"),
    on_done=arrive,
    on_failed=return_to_source,
    requested_by="`evacuate`",
    migration_meanwhile="migrating",
)


def propose(view: View, now_s: int, context: Context, id: str, host: str | None = None) -> Enact | Rejection:
    """``host``: the only one considered."""
    server = find_startable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    if server.place is None or server.migration is not None:
        return reject_unsettled(server, SAGA)
    if not is_down(view, server.place):
        return HostNotDown(server.place.name)
    return propose_move(view, now_s, context, SAGA, "evacuation", server, server, host=host)

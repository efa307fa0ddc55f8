"""Soft delete: shut a server down and keep it for a while, so that it can be restored. The setting
``reclaim_instance_interval`` says for how long; then it is deleted.

ACTIVE, SHUTOFF, PAUSED, SUSPENDED, RESCUE or ERROR --(stop)--> SOFT_DELETED
a failing host: as before
"""

import msgspec

from berth.model.commands import Enact
from berth.model.servers import Server
from berth.sagas.proposals import RunRequest, start_run
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="soft_delete",
    action="delete",
    task="soft-deleting",
    starts_in=states("active", "stopped", "paused", "suspended", "rescued", "error"),
    steps=(Step("stop", at="dest", do="stop", skip_if_down=True),),
    done=Outcome(state="soft-delete", holds="dest"),
    failed=Outcome(state=AS_BEFORE, holds="dest"),
    requested_by="`DELETE /servers/{id}`, with `reclaim_instance_interval`",
)


def may_begin(server: Server) -> bool:
    """Whether there is something to be restored later. A server that never ran, that is on no host or on
    two, or that is shelved, is deleted at once."""
    is_settled = server.place is not None and server.migration is None
    return is_settled and server.launched_at_s is not None and server.state in SAGA.starts_in


def begin(view: View, now_s: int, context: RunRequest, server: Server) -> Enact:
    """The command that soft-deletes a server that is as it is given."""
    shown = msgspec.structs.replace(server, state_before=server.state, fault=None)
    return start_run(view, now_s, context, SAGA, shown, dest=server.place, runs=server.state != "stopped")

"""Confirm and revert: the second half of a resize. The migration lets go of what it holds, or gives it
back."""

from typing import Literal

import msgspec

from berth.model.commands import Enact
from berth.model.orders import Book
from berth.model.rejections import ConfirmBegun, Rejection, RevertBegun, ServerStateWrong
from berth.model.servers import Migration
from berth.operations.beginning import Asked, begun, order, startable
from berth.operations.conflicts import plus, standing
from berth.operations.steps import BY_NAME
from berth.view import View


def begin(
    view: View, now_s: int, asked: Asked, id: str, name: Literal["confirm", "revert"]
) -> Enact | Rejection:
    operation = BY_NAME[name]
    server = startable(view, id, operation)
    if isinstance(server, Rejection):
        return server
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    if migration is None:
        return ServerStateWrong(id, operation.action, server.state, ("resized",))
    if name == "revert" and migration.status == "confirming":
        return ConfirmBegun(id)
    if name == "confirm" and migration.status not in ("finished", "confirming"):
        return RevertBegun(id)
    # Refused here already, where it can be told: the conductor would find the same.
    stands = standing(view, server, asked.policy, operation.action)
    if isinstance(stands, Rejection):
        return stands
    server = msgspec.structs.replace(
        server, held=plus((stands.own, stands.kept)), kept=stands.kept, generation=stands.generation
    )
    sized = server.flavor_before if name == "revert" else None
    work = order(
        asked,
        msgspec.structs.replace(server, flavor=sized or server.flavor),
        name,
        Book(server.held, server.generation),
        source=migration.source,
        dest=server.place,
        migration=migration,
        runs=server.state_before != "stopped",
    )
    return begun(view, asked, server, work, migration.source.cell, now_s)

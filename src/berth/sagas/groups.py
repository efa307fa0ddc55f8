"""Server groups: what changes for their servers when a group is deleted."""

import msgspec

from berth.model.commands import DeleteGroup, Enact
from berth.model.events import RecordChanged
from berth.model.ids import GroupId
from berth.model.servers import Server
from berth.view import View


def delete_group(view: View, id: GroupId, *, is_forced: bool) -> Enact:
    """The command that deletes a group; its servers stay, without a group."""
    return Enact(leave_group(view, id), (DeleteGroup(id, force=is_forced),))


def leave_group(view: View, id: GroupId) -> tuple[RecordChanged, ...]:
    """The changes of a group's servers when it is deleted: they are in no group any more."""
    record = view.groups.records.get(id)
    servers = (view.records.get(Server, member) for member in record.members) if record is not None else ()
    return tuple(
        RecordChanged(server, msgspec.structs.replace(server, group=None))
        for server in servers
        if server is not None and server.group == id
    )

"""Records of a region that differ from those of a cell: one of both was restored from an older backup.

Policy: a cell knows where servers are, the region knows what they are. Nothing is destroyed, moved or made up
to have them agree. What differs is written down, so that the doctor shows it:

    the cell has a server on hosts, the region has no record    an ``UnknownServer``: it goes on running, and
                                                                an operator has the doctor adopt or remove it
    the cell has a server elsewhere, or on no host              the record is ``outdated``: it can be deleted,
                                                                and nothing else can be done to it
    the cell had runs that the region does not know             the next run gets a number behind theirs
    the cell has no record of a server                          the record says so, and all goes on
    the region waits for a run that the cell has ended          the server is in error: how it ended is lost

Before, a run with a number that the cell had seen was dropped there without a word, and one that was done
where the record said made the server a leftover where it was.

While nobody restores anything, none of this is ever found. A region numbers a run before its cell has it, a
record of a server is there before its cell knows of it and until the cell has it on no host, and a run stays
in the cell until the region has its end. So whatever is read of the cell after the region, and does not fit,
was not seen in between; and each change is decided again in the region's turn.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from berth.ledger import remove_record, replace_record
from berth.model.commands import Enact, LedgerCommand
from berth.model.formats import ADDITIONS
from berth.model.saga_runs import Instance, Outbox, SagaRun
from berth.model.servers import UNKNOWN, Action, Fault, Host, Migration, Server, UnknownServer
from berth.sagas.deletion import begin_awaited, join_changes
from berth.sagas.proposals import find_first_cell
from berth.sagas.runner import is_finished
from berth.sagas.snapshots import settle_image
from berth.view import View

_WITH_SHEETS: Final = ADDITIONS.since("UnknownServer.sheet")
_LOST: Final = (
    "how this ended is not known: the region was restored from a backup that is older than the end of it"
)


class CellKnows(NamedTuple):
    """What a cell knows of a server. ``is_busy``: a run is under way."""

    instance: Instance | None
    is_busy: bool = False

    @property
    def hosts(self) -> tuple[str, ...]:
        return () if self.instance is None else self.instance.hosts

    @property
    def last(self) -> int:
        return 0 if self.instance is None else self.instance.last


def read_cell(view: View, servers: Iterable[str]) -> dict[str, CellKnows]:
    """What a cell's view says of servers."""
    busy = {run.server for run in view.records.all(SagaRun) if not is_finished(run)}
    return {id: CellKnows(view.records.get(Instance, id), id in busy) for id in servers}


def correct_record(view: View, cell: str, id: str, knows: CellKnows, now_s: int) -> Enact | None:
    """The command that writes down what a cell knows of a server, and its region does not; None where they
    agree. The server is not busy, in either."""
    server, unknown = view.records.get(Server, id), view.records.get(UnknownServer, id)
    changes = []
    if unknown is not None and unknown.cell == cell and (server is not None or not knows.hosts):
        changes.append(remove_record(view, unknown))
    if server is None:
        found = UnknownServer(id=id, cell=cell, hosts=_name_hosts(view, knows))
        if knows.instance is not None and view.format >= _WITH_SHEETS:
            found = msgspec.structs.replace(found, sheet=knows.instance.sheet, last=knows.last)
        # Of two cells that have it, the one that it runs in has its sheet.
        is_told = unknown is not None and unknown.cell != cell and unknown.sheet and not found.sheet
        if knows.hosts and found != unknown and not is_told:
            changes.append(replace_record(view, found))
    elif knows.last > server.run_count or (server.outdated is not None and _is_of(server, cell)):
        after = msgspec.structs.replace(
            server,
            run_count=max(server.run_count, knows.last),
            outdated=_describe_place(view, server, knows),
        )
        if after != server:
            changes.append(replace_record(view, msgspec.structs.replace(after, updated_at_s=now_s)))
    return Enact(tuple(changes)) if changes else None


def is_waiting(view: View, id: str) -> bool:
    """Whether the region waits for a run of a server."""
    server = view.records.get(Server, id)
    return server is not None and server.run is not None


def mark_missing(view: View, server: Server, now_s: int) -> Enact | None:
    """The command that writes down that the cell of a server has no record of it; None if its own has changed
    since."""
    if view.records.get(Server, server.id) != server or server.run is not None or server.outdated is not None:
        return None
    after = msgspec.structs.replace(server, outdated=UNKNOWN, updated_at_s=now_s)
    return Enact((replace_record(view, after),))


def end_lost_run(view: View, server: Server, knows: CellKnows, now_s: int) -> Enact | None:
    """The command that ends a run for a server which its cell does not have any more; None if the record
    has changed since."""
    if view.records.get(Server, server.id) != server or server.run is None:
        return None
    after = msgspec.structs.replace(
        server,
        state="error",
        task=None,
        run=None,
        run_count=max(server.run_count, knows.last),
        outdated=_describe_place(view, server, knows),
        fault=Fault(_LOST, now_s),
        updated_at_s=now_s,
    )
    changes = [replace_record(view, after)]
    commands: tuple[LedgerCommand, ...] = ()
    if server.deletion is not None:
        migration = None if server.migration is None else view.records.get(Migration, server.migration)
        follows = begin_awaited(view, now_s, after, migration, server.deletion)
        changes, commands = list(follows.changes), follows.commands
    action = view.records.get(Action, server.run)
    if action is not None:
        ended = msgspec.structs.replace(action, state="failed", message=f"Error: {_LOST}", updated_at_s=now_s)
        # How it would have ended is not known, nor whether there is anything in an image that it made.
        changes += settle_image(view, server.run, now_s, is_done=False)
        # It goes with a server that is removed at once.
        changes = list(join_changes((replace_record(view, ended),), changes))
    return Enact(tuple(changes), commands)


def find_waiting(view: View, cell: str) -> list[Server]:
    """The servers whose runs a cell should have."""
    found = []
    for action in view.records.find(Action, "state", "running"):
        server = view.records.get(Server, action.server)
        is_waiting = server is not None and server.run == action.id
        if server is None or not is_waiting or view.records.get(Outbox, action.id) is not None:
            continue
        if find_first_cell(view, server) == cell:
            found.append(server)
    return found


def find_settled(view: View, hosts: Iterable[str]) -> list[Server]:
    """The servers on hosts to which nothing is being done."""
    return [
        server
        for host in hosts
        for server in view.records.find(Server, "host", host)
        if server.run is None and server.outdated is None
    ]


def _is_of(server: Server, cell: str) -> bool:
    return server.place is not None and server.place.cell == cell


def _describe_place(view: View, server: Server, knows: CellKnows) -> str | None:
    """Where a server is for its cell, in words; None if that is where its record says."""
    if server.place is None and not knows.hosts:
        return None
    if server.place is not None and server.place.id in knows.hosts:
        return None
    if knows.instance is None:
        return UNKNOWN
    return f"on {', '.join(_name_hosts(view, knows))}" if knows.hosts else "on no host"


def _name_hosts(view: View, knows: CellKnows) -> tuple[str, ...]:
    found = ((view.records.get(Host, id), id) for id in knows.hosts)
    return tuple(id if host is None else host.name for host, id in found)

"""The deletion of a server that was asked for while something else was being done to it: ``Server.deletion``.

    run under way, deletion asked for --(the run has ended)--> deletion under way | gone
                                                          \\--(others have changed what it holds)--> refused

Whatever ends a run asks here what follows, and makes it part of the same change: in between nothing else can
begin with the server.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.events import AnyRecord, RecordChanged
from berth.model.quotas import Quotas
from berth.model.rejections import Rejection, ServerChangedByOthers
from berth.model.servers import Action, ConflictPolicy, Deletion, Fault, Migration, Server
from berth.sagas.conflicts import ConflictRules
from berth.sagas.delete import SAGA, begin
from berth.view import View


class _Awaited(NamedTuple):
    """The request of a deletion that has waited."""

    deletion: Deletion
    attempts_max: int = 1
    quotas: Quotas | None = None
    traceparent: str | None = None

    @property
    def request_id(self) -> str:
        return self.deletion.request_id

    @property
    def project(self) -> str:
        return self.deletion.project

    @property
    def user(self) -> str:
        return self.deletion.user

    @property
    def policy(self) -> ConflictPolicy:
        return self.deletion.policy

    @property
    def global_id(self) -> str | None:
        return self.deletion.global_id

    @property
    def rules(self) -> ConflictRules:
        return ConflictRules(self.policy, "merge" if self.deletion.repeats_merge else "refuse")

    def make_run_id(self) -> str:
        return self.deletion.run


def begin_awaited(
    view: View, now_s: int, server: Server, migration: Migration | None, deletion: Deletion
) -> Enact:
    """The command that deletes a server now that what was under way for it has ended. ``server`` and
    ``migration`` are as that has left them; the change writes both. A conflict is found in the server's
    history: who has asked was answered long ago."""
    server = msgspec.structs.replace(server, deletion=None)
    its_own = migration if migration is not None and migration.id == server.migration else None
    begun = begin(
        view,
        now_s,
        _Awaited(deletion),
        server,
        its_own,
        is_forced=deletion.is_forced,
        is_soft=deletion.is_soft,
    )
    if isinstance(begun, ServerChangedByOthers):
        return _record_refused(view, now_s, server, migration, deletion, begun)
    if begun.refused is not None:
        found = begun.changes[0].after
        assert isinstance(found, Server), "what was found is recorded on the server"
        return _record_refused(view, now_s, found, migration, deletion, begun.refused)
    if not begun.changes:
        # It is soft-deleted already.
        return Enact((replace_record(view, server),))
    is_written = migration is None or any(_is_of(change, migration) for change in begun.changes)
    if migration is None or is_written:
        return begun
    return msgspec.structs.replace(begun, changes=(replace_record(view, migration), *begun.changes))


def join_changes(
    changes: Iterable[RecordChanged], later: Iterable[RecordChanged]
) -> tuple[RecordChanged, ...]:
    """All changes; of a record that both are about, the later one. Both are made from the same view."""
    found: dict[tuple[type[AnyRecord], str], RecordChanged] = {}
    for change in (*changes, *later):
        record = change.before or change.after
        assert record is not None, "a change has one side at least"
        found[type(record), record.id] = change
    return tuple(found.values())


def _record_refused(
    view: View,
    now_s: int,
    server: Server,
    migration: Migration | None,
    deletion: Deletion,
    refused: Rejection,
) -> Enact:
    assert isinstance(refused, ServerChangedByOthers), "nothing else is refused"
    why = f"another client has changed what the server holds ({refused.found}): delete it again"
    fault = Fault(why, now_s)
    action = Action(
        id=deletion.run,
        server=server.id,
        name=SAGA.action,
        request_id=deletion.request_id,
        project=deletion.project,
        user=deletion.user,
        started_at_s=deletion.asked_at_s,
        updated_at_s=now_s,
        message=f"Error: {why}",
        state="failed",
    )
    records = (msgspec.structs.replace(server, fault=fault), action)
    moved = () if migration is None else (replace_record(view, migration),)
    return Enact((*moved, *(replace_record(view, record) for record in records)))


def _is_of(change: RecordChanged, migration: Migration) -> bool:
    record = change.after or change.before
    return isinstance(record, Migration) and record.id == migration.id

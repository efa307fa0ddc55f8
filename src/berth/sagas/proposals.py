"""What all operations have in common where they begin: may it, and what is written if it may."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from berth.model.commands import Enact, LedgerCommand
from berth.model.events import AnyRecord, RecordChanged
from berth.model.quotas import RESOURCES, Quotas
from berth.model.rejections import Rejection, ServerBusy, ServerNotFound, ServerStateWrong, ServerUnsettled
from berth.model.saga_runs import ClaimSnapshot, Destination, Outbox, SagaRun, Spec
from berth.model.servers import Action, ConflictPolicy, Counter, Migration, Place, Server
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas.conflicts import Repeat, Rules
from berth.sagas.saga import BY_NAME, Saga
from berth.scheduler.options import SchedulerOptions
from berth.scheduler.spec_table import read_properties
from berth.view import View

PAST_MAX: Final = 100
"""How many actions, and how many migrations that are over, are remembered of a server."""


class Context(NamedTuple):
    """Who asks, and by which rules it is done."""

    request_id: str
    project: str
    user: str
    ids: Ids
    scheduler: SchedulerOptions
    policy: ConflictPolicy = "fail"
    attempts_max: int = 3
    alternates: int = 5
    resizes_in_place: bool = True
    """Whether a resize may stay on its host."""
    repeat: Repeat = "merge"
    """What ``fail`` does with a request that is repeated after a conflict was reported."""
    quotas: Quotas | None = None
    """Of projects that have none of their own; None: nothing is judged."""

    @property
    def rules(self) -> Rules:
        return Rules(self.policy, self.repeat)


def read_quotas(settings: Settings) -> Quotas:
    """Of projects that have none of their own."""
    return Quotas(**{name: getattr(settings, f"quota_{name}") for name in RESOURCES})


def find_startable(view: View, id: str, saga: Saga) -> Server | Rejection:
    """The server, if the operation may begin with it now."""
    server = view.records.get(Server, id)
    if server is None:
        return ServerNotFound(id)
    if server.run is not None:
        return ServerBusy(id, saga.action, server.task or "busy")
    if server.state not in saga.before:
        return ServerStateWrong(id, saga.action, server.state, tuple(sorted(saga.before)))
    return server


def reject_unsettled(server: Server, saga: Saga) -> Rejection:
    """Why nothing can be done to a server where it is: it is nowhere, or in two places."""
    if server.migration is not None:
        return ServerUnsettled(server.id, saga.action, server.migration)
    state = f"{server.state}, on no host"
    return ServerStateWrong(server.id, saga.action, state, tuple(sorted(saga.before)))


def make_run(
    context: Context,
    server: Server,
    saga: str,
    claim: ClaimSnapshot,
    *,
    source: Place | None = None,
    dest: Place | None = None,
    migration: Migration | None = None,
    alternates: tuple[Destination, ...] = (),
    is_forced: bool = False,
    runs: bool = True,
) -> SagaRun:
    """The order that goes down. ``server`` is as it will be while it is carried out."""
    migration_claim = None if migration is None else ClaimSnapshot(migration.held, migration.generation)
    return SagaRun(
        id=context.ids.uuid(),
        number=server.run_count + 1,
        server=server.id,
        saga=saga,
        request_id=context.request_id,
        spec=Spec(
            server.name,
            server.project,
            server.user,
            server.flavor,
            server.image,
            read_properties(server.image_properties),
        ),
        project=server.project,
        user=server.user,
        source=source,
        dest=dest,
        claim=claim,
        migration=None if migration is None else migration.id,
        migration_claim=migration_claim,
        kept=server.kept,
        shared=() if migration is None else migration.shared,
        needs=server.needs,
        alternates=alternates,
        attempts_max=context.attempts_max,
        policy=context.policy,
        is_forced=is_forced,
        runs=runs,
    )


def mark_busy(server: Server, run: SagaRun, now_s: int) -> Server:
    """The server while an order is carried out for it."""
    return msgspec.structs.replace(
        server,
        task=BY_NAME[run.saga].task,
        run=run.id,
        run_count=run.number,
        updated_at_s=now_s,
    )


def make_action(context: Context, run: SagaRun, now_s: int, message: str | None = None) -> Action:
    return Action(
        id=run.id,
        server=run.server,
        name=BY_NAME[run.saga].action,
        request_id=context.request_id,
        project=context.project,
        user=context.user,
        started_at_s=now_s,
        updated_at_s=now_s,
        message=message,
        seen=-1,
    )


def record_run(
    view: View,
    context: Context,
    server: Server,
    run: SagaRun,
    cell: str,
    now_s: int,
    *,
    changed: Iterable[AnyRecord] = (),
    commands: tuple[LedgerCommand, ...] = (),
) -> Enact:
    """The command that begins an operation: the server is busy, the order is on its way, and the action says
    so. ``server`` is what the record shall be, but for that."""
    records: list[AnyRecord] = [
        mark_busy(server, run, now_s),
        Outbox(id=run.id, cell=cell, run=run),
        make_action(context, run, now_s),
        *changed,
    ]
    forgotten = (remove_record(view, record) for record in _too_many(view, server))
    return Enact(
        (*(replace_record(view, record) for record in records), *forgotten), commands, quotas=context.quotas
    )


def _too_many(view: View, server: Server) -> list[Action | Migration]:
    """What is forgotten of a server's past, so that there is an end to it: the oldest, one at a time."""
    past: list[Action | Migration] = []
    actions = view.records.find(Action, "server", server.id)
    past += actions[:1] if len(actions) >= PAST_MAX else []
    over = [one for one in view.records.find(Migration, "server", server.id) if not one.held]
    past += over[:1] if len(over) >= PAST_MAX else []
    return past


def next_number(view: View, kind: str) -> Counter:
    """The count of what has a number of a kind, one further. Numbers are not given twice."""
    last = view.records.get(Counter, kind)
    return Counter(id=kind, value=1 if last is None else last.value + 1)


def replace_record(view: View, after: AnyRecord) -> RecordChanged:
    """The change that puts a record in place of what stands there now."""
    return RecordChanged(view.records.current(after), after)


def remove_record(view: View, record: AnyRecord) -> RecordChanged:
    return RecordChanged(view.records.current(record), None)

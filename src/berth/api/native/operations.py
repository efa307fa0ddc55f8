"""GET /berth/v1/operations: what is under way for servers, and what failed last.

What is under way comes first, the longest first; then what has failed, the newest first; what is done is
shown where it is asked for. The region knows how far an operation is by the status sync, some seconds late.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from berth.api.kernel.http import Response
from berth.api.kernel.times import show_time
from berth.api.native.calls import NativeCall, NativeRoute, respond
from berth.api.native.fields import LIMIT_DEFAULT, Limit, Time, Uuid
from berth.api.native.hosts import find_host_id
from berth.model.rejections import ServerNotFound
from berth.model.servers import Action, Host, Server
from berth.view import View

# -- answers ------------------------------------------------------------------------------------

OperationState = Literal["running", "failed", "done"]


class OperationStep(msgspec.Struct):
    """A step that was tried. ``details``: why it failed, or was left out."""

    name: str
    host: str | None
    started: Time
    finished: Time | None
    result: str | None
    details: str | None


class OperationDetail(msgspec.Struct, kw_only=True):
    """``step`` is the step at hand, at ``host`` (null: in Placement) since ``step_began``; ``deadline`` is
    when it should have ended. An operation is ``overdue`` past that; where no deadline is known, after five
    minutes without progress. ``fault`` says why it failed. ``source`` is where the server is or was,
    ``destination`` where it goes or went."""

    id: Uuid
    server: Uuid
    server_name: str | None
    project_id: str
    user_id: str
    operation: str
    state: OperationState
    step: str | None
    host: str | None
    source: str | None
    destination: str | None
    attempt: int
    began: Time
    updated: Time
    step_began: Time | None
    deadline: Time | None
    overdue: bool
    request_id: str
    fault: str | None
    steps: list[OperationStep]


class Operations(msgspec.Struct):
    """``truncated``: there are more than are shown."""

    operations: list[OperationDetail]
    truncated: bool


# -- queries ------------------------------------------------------------------------------------

_NAME_MAX: Final = 255


class OperationsQuery(msgspec.Struct, frozen=True, kw_only=True):
    host: (
        Annotated[
            str,
            Meta(min_length=1, max_length=_NAME_MAX, description="Only what has to do with this host."),
        ]
        | None
    ) = None
    server: (
        Annotated[
            str,
            Meta(min_length=1, max_length=_NAME_MAX, description="Only of this server: its uuid or name."),
        ]
        | None
    ) = None
    state: (
        Annotated[
            OperationState,
            Meta(description="Only what is in this state; without it, what is running and what has failed."),
        ]
        | None
    ) = None
    limit: Limit = LIMIT_DEFAULT


# -- which --------------------------------------------------------------------------------------

PATIENCE_S: Final = 300
"""After how long without progress an operation is overdue whose deadline is not known."""


def is_overdue(action: Action, now_s: int) -> bool:
    at = action.progress
    due_s = at.deadline_s or (at.since_s or action.updated_at_s) + PATIENCE_S
    return action.outcome == "running" and now_s > due_s


def _find_operations(view: View, call: NativeCall) -> Iterator[Action]:
    query: OperationsQuery = call.query
    host = None if query.host is None else _find_host_name(view, call, query.host)
    states: tuple[OperationState | None, ...] = (query.state,)
    if query.state is None and query.server is None:
        states = ("running", "failed")
    return chain.from_iterable(_in_state(view, call, state, host) for state in states)


def _in_state(
    view: View, call: NativeCall, state: OperationState | None, host: str | None
) -> Iterable[Action]:
    query: OperationsQuery = call.query
    if query.server is not None:
        found = [
            action
            for server in _find_servers(view, call, query.server)
            for action in view.records.find(Action, "server", server.id)
            if state is None or action.outcome == state
        ]
    elif state == "done":
        view.steps.take(view.records.count(Action))
        found = [action for action in view.records.all(Action) if action.outcome == state]
    else:
        found = view.records.find(Action, "state", state or "")
        view.steps.take(len(found))
    if host is not None:
        found = [action for action in found if host in _hosts_of(action)]
    if state == "running":
        return sorted(found, key=lambda action: action.started_at_s)
    return heapq.nlargest(query.limit + 1, found, key=lambda action: (action.updated_at_s, action.id))


def _find_servers(view: View, call: NativeCall, named: str) -> list[Server]:
    """By uuid; or by name, and then there may be several. A name costs a look at all servers."""
    server = view.records.get(Server, named.lower())
    if server is not None:
        return [server]
    view.steps.take(view.records.count(Server) // 2)
    found = [server for server in view.records.all(Server) if server.name == named]
    if not found:
        raise call.problem_of(ServerNotFound(named))
    return found


def _find_host_name(view: View, call: NativeCall, named: str) -> str:
    id = call.accept(find_host_id(view, named))
    record, agent = view.providers.get(id), view.records.get(Host, id)
    return record.name if record is not None else agent.name if agent is not None else named


def _hosts_of(action: Action) -> set[str | None]:
    at = action.progress
    return {at.host, at.source, at.destination, *(event.host for event in action.events)}


# -- handlers -----------------------------------------------------------------------------------

_STEPS_PER_OPERATION: Final = 15


async def list_operations(call: NativeCall) -> Response:
    def answer(view: View) -> Operations:
        limit = call.query.limit
        found = list(islice(_find_operations(view, call), limit + 1))
        view.steps.take(_STEPS_PER_OPERATION * len(found))
        shown = [describe_operation(view, action, call.now_s) for action in found[:limit]]
        return Operations(shown, len(found) > limit)

    return respond(await call.read(answer))


def describe_operation(view: View, action: Action, now_s: int) -> OperationDetail:
    at = action.progress
    server = view.records.get(Server, action.server)
    state = action.outcome
    steps = [
        OperationStep(
            event.name,
            event.host,
            show_time(event.started_at_s),
            None if event.finished_at_s is None else show_time(event.finished_at_s),
            event.result,
            event.details,
        )
        for event in action.events
    ]
    return OperationDetail(
        id=action.id,
        server=action.server,
        server_name=None if server is None else server.name,
        project_id=action.project,
        user_id=action.user,
        operation=action.name,
        state=state,
        step=at.step,
        host=at.host,
        source=at.source,
        destination=at.destination,
        attempt=at.attempt,
        began=show_time(action.started_at_s),
        updated=show_time(action.updated_at_s),
        step_began=show_time(at.since_s) if at.since_s and state == "running" else None,
        deadline=show_time(at.deadline_s) if at.deadline_s and state == "running" else None,
        overdue=is_overdue(action, now_s),
        request_id=action.request_id,
        fault=None if action.message is None else action.message.removeprefix("Error: "),
        steps=steps,
    )


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/operations",
        list_operations,
        policy="berth:operations:list",
        name="list_operations",
        query=OperationsQuery,
        names_in_query=True,
        answer=Operations,
        is_tagged=False,
        summary="List operations on servers",
        description="What is under way, the longest first, then what has failed, the newest first; of one "
        "server all of it. Each with its steps, the host, the deadline and the request that asked for it.",
    ),
)

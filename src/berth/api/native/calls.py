"""One call of /berth/v1: what a handler is given, and the forms of its answer.

A list is a function of the view alone, ``Reader``. Everything around it (the tag, the condition, the
encoding) is the same for all lists and stands here.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from berth.api.kernel.access import Access
from berth.api.kernel.auth.caller import TOKEN_HEADER, Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.etags import CONDITION, StateTags, body_tag, names, tagged
from berth.api.kernel.etags import HEADER as ETAG
from berth.api.kernel.http import JSON, Request, Response
from berth.api.kernel.problem import Problem, answering, denying, forbidden
from berth.api.kernel.rejections import berth_problem
from berth.api.native.feed import Feed
from berth.engine import Engine, Proposal
from berth.model.batches import Origin
from berth.model.ids import Index
from berth.model.quotas import Quotas
from berth.model.rejections import Rejection
from berth.model.servers import ConflictPolicy
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.sagas.conflicts import Repeat
from berth.scheduler.options import SchedulerOptions
from berth.view import View

_NO_CACHE: Final = ("cache-control", "no-cache")
_VARY: Final = ("vary", TOKEN_HEADER)
"""Lists are not the same for every caller."""
_encode: Final = msgspec.json.Encoder().encode


class Call(NamedTuple):
    """``query`` and ``body`` are what the route's structs made of them; ``params`` are the variable parts of
    the path, in order; ``rule`` is the one that the caller was let in by."""

    request: Request
    caller: Caller
    params: tuple[str, ...]
    query: Any
    body: Any
    rule: str
    services: "Services"

    @property
    def access(self) -> Access:
        return Access(self.services.policy, self.caller)

    def may_touch(self, project: str | None) -> bool:
        """Whether the caller may do to a project's objects what it was let in for."""
        return self.access.allows(self.rule, project)

    def require_of(self, project: str | None) -> None:
        if not self.may_touch(project):
            raise forbidden(self.rule)

    async def submit(self, proposal: Proposal, answer: Callable[[View], Response] | None = None) -> Response:
        """Have a change made, and answer from the view right after it, or with what the proposal brings;
        Problem if it is refused."""
        request, caller = self.request, self.caller
        action = f"{request.method} {request.path}"
        origin = Origin(request.request_id, caller.user_id, caller.project_id, action)
        engine = self.services.engine
        answered = None if answer is None else lambda view, _: answer(view)
        outcome: Response | Rejection = await engine.submit(
            denying(proposal), origin, answered, len(request.body)
        )
        if isinstance(outcome, Rejection):
            raise berth_problem(outcome, names_hosts=self.access.sees_hosts)
        return outcome


class Services(NamedTuple):
    """What handlers work with, the same for every call."""

    engine: Engine
    feed: Feed
    tags: StateTags
    ids: Ids
    clock: Clock
    scheduler: SchedulerOptions
    policy: Policy
    conflict_policy: ConflictPolicy = "fail"
    build_attempts_max: int = 3
    conflict_repeat: Repeat = "merge"
    quotas: Quotas | None = None


Handler = Callable[[Call], Awaitable[Response]]


class Route(NamedTuple):
    """One method of a path. ``rule`` is the policy's.

    ``answer`` None: a JSON object that no struct describes, or nothing at all where the ``status`` is 204.
    ``is_stream``: it may be asked for as server-sent events instead. ``is_tagged``: what a GET answers
    follows from the state alone, so that a client can ask whether it has it already.
    """

    handler: Handler
    rule: str
    query: type[msgspec.Struct]
    answer: type[msgspec.Struct] | None
    name: str
    summary: str
    description: str
    is_stream: bool = False
    is_tagged: bool = True
    body: type[msgspec.Struct] | None = None
    status: int = 200


Reader = Callable[[View, Call], msgspec.Struct]


def listing(reader: Reader) -> Handler:
    """The handler that answers with what a reader says of the view; 304 to whom has that already."""

    async def handle(call: Call) -> Response:
        request, services = call.request, call.services
        if CONDITION in request.headers:
            index = await services.engine.read(lambda view: view.index)
            tag = services.tags.tag(index, request, caller=call.caller)
            if names(request, tag):
                return Response(304, headers=[(ETAG, tag), _NO_CACHE, _VARY])

        def answer(view: View) -> tuple[Index, bytes]:
            return view.index, _encode(reader(view, call))

        answered = await services.engine.read(answering(answer))
        if isinstance(answered, Problem):
            raise answered
        index, body = answered
        response = json(body)
        response.headers.append(_VARY)
        return tagged(request, response, services.tags.tag(index, request, caller=call.caller))

    return handle


def fixed(call: Call, body: bytes) -> Response:
    """A body that follows from the program alone."""
    return tagged(call.request, json(body), body_tag(body))


def json(body: bytes, status: int = 200) -> Response:
    return Response(status, body, JSON, [_NO_CACHE])


def encoded(answer: msgspec.Struct, status: int = 200) -> Response:
    return json(_encode(answer), status)

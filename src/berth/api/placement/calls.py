"""One call of the API: all that a handler is given, and the forms of response it gives back.

A handler answers with a Response, or with the Problem that keeps it from one. Nothing of the view may
leave the function that the engine evaluates: what is answered is rendered inside.
"""

from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.http import JSON, Request, Response, origin_of
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import Attempt, placement_problem
from berth.api.placement.query import Query
from berth.api.placement.wire import Body
from berth.engine import Engine
from berth.model.batches import Origin
from berth.model.commands import Command
from berth.model.ids import Index, ProviderId
from berth.model.rejections import ProviderNotFound, Rejection
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.view import ProviderRecord, View

CACHE_HEADERS_SINCE: Final = 15

_NO_CACHE: Final = ("cache-control", "no-cache")

T = TypeVar("T")
Answer = Response | Problem

encode: Final = msgspec.json.Encoder().encode


class Call:
    """What a handler gets. ``params`` are the variable segments of the path, in order. ``index`` is where
    the view was that ``read`` asked."""

    __slots__ = (
        "_query",
        "action",
        "caller",
        "clock",
        "engine",
        "ids",
        "index",
        "params",
        "request",
        "settings",
        "version",
    )

    def __init__(
        self,
        request: Request,
        version: int,
        caller: Caller | None,
        params: tuple[str, ...],
        action: str,
        engine: Engine,
        settings: Settings,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self.request = request
        self.version = version
        self.caller = caller
        self.params = params
        self.action = action
        self.engine = engine
        self.settings = settings
        self.clock = clock
        self.ids = ids
        self.index: Index | None = None
        self._query: Query | None = None

    @property
    def query(self) -> Query:
        if self._query is None:
            self._query = Query(self.request.query_string)
        return self._query

    @property
    def provider(self) -> ProviderId:
        """The provider that the path names, as it is spelled there: another spelling is another thing."""
        return ProviderId(self.params[0])

    @property
    def now_s(self) -> int:
        return self.clock.now_ns() // 1_000_000_000

    # -- asking the engine ----------------------------------------------------------------------

    async def read(self, answer: Callable[[View], T]) -> T:
        """What ``answer`` says of the view, and ``index`` with it."""

        self.index, answered = await self.engine.read(lambda view: (view.index, answer(view)))
        return answered

    async def read_provider(
        self, render: Callable[[View, ProviderRecord], Answer], missing: str | None = None
    ) -> Answer:
        """What ``render`` says of the path's provider, if it exists. Some routes answer for one that does
        not in words of their own, ``missing``, around the usual sentence."""
        id = self.provider

        def answer(view: View) -> Answer:
            record = view.providers.get(id)
            if record is not None:
                return render(view, record)
            problem = provider_not_found(id)
            return problem if missing is None else Problem(404, missing.format(id=id, says=problem.text))

        return await self.engine.read(answer)

    async def decode_for_provider(self, body: Body[T]) -> T:
        """The request's body; but where there is no such provider, that is said before a bad body is."""
        try:
            return body.decode(self.request.body)
        except Problem:
            id = self.provider
            if not await self.engine.read(lambda view: id in view.providers):
                raise provider_not_found(id) from None
            raise

    async def submit(
        self, command: Command, attempt: Attempt, answer: Callable[[View, bool], Response], **context: str
    ) -> Answer:
        """Carry a command out and answer from the view right after it, or say why it was refused."""
        outcome = await self.engine.submit(command, self._origin(), answer, len(self.request.body))
        if isinstance(outcome, Rejection):
            return placement_problem(outcome, attempt, **context)
        return outcome

    def _origin(self) -> Origin:
        caller = self.caller
        if caller is None:
            return Origin(self.request.request_id, None, None, self.action)
        return Origin(self.request.request_id, caller.user_id, caller.project_id, self.action)

    # -- answering ------------------------------------------------------------------------------

    def json(self, body: bytes, modified_s: int | None = None, status: int = 200) -> Response:
        """A JSON body; from 1.15 with its age, if that is known."""
        response = Response(status, body, JSON)
        return self.dated(response, modified_s)

    def dated(self, response: Response, modified_s: int | None) -> Response:
        if self.version >= CACHE_HEADERS_SINCE:
            if modified_s is not None:
                response.headers.append(("last-modified", http_date(modified_s)))
            response.headers.append(_NO_CACHE)
        return response

    def located(self, response: Response, path: str) -> Response:
        """With an absolute Location."""
        response.headers.append(("location", origin_of(self.request) + path))
        return response


Handler = Callable[[Call], Awaitable[Answer]]


def no_content(view: View, changed: bool) -> Response:
    """The answer to a change that has nothing more to say."""
    return Response(204)


def provider_not_found(id: ProviderId) -> Problem:
    return placement_problem(ProviderNotFound(id), Attempt.FIND_PROVIDER)


@lru_cache(1024)
def http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)

"""One call of the API: all that a handler is given, and the forms of response it gives back.

A handler answers with a Response, or with the Problem that keeps it from one. Nothing of the view may
leave the function that the engine evaluates: what is answered is rendered inside.
"""

from collections.abc import Awaitable, Callable, Iterable
from email.utils import formatdate
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Call, Services
from berth.api.kernel.http import JSON, Request, Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import Attempt, placement_problem
from berth.api.placement.query import Query
from berth.api.placement.wire import VersionedBody
from berth.engine import Proposal
from berth.model.commands import Claim
from berth.model.ids import Index, ProviderId
from berth.model.rejections import ProviderNotFound, Rejection
from berth.view import ProviderRecord, View

CACHE_HEADERS_SINCE: Final = 15

_NO_CACHE: Final = ("cache-control", "no-cache")

T = TypeVar("T")
Answer = Response | Problem

encode: Final = msgspec.json.Encoder().encode


class PlacementCall(Call):
    """``index`` is where the view was that ``read`` asked."""

    __slots__ = ("_query", "index")

    def __init__(
        self, request: Request, caller: Caller, params: tuple[str, ...], services: Services, version: int
    ) -> None:
        super().__init__(request, caller, params, services, version=version)
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

    # -- asking the engine ----------------------------------------------------------------------

    async def read(self, answer: Callable[[View], T | Rejection]) -> T:
        """What ``answer`` says of the view, and ``index`` with it."""

        self.index, answered = await self.services.engine.read(lambda view: (view.index, answer(view)))
        return self.accept(answered)

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

        return await self.services.engine.read(answer)

    async def decode_for_provider(self, body: VersionedBody[T]) -> T:
        """The request's body; but where there is no such provider, that is said before a bad body is."""
        try:
            return body.decode(self.request.body)
        except Problem:
            id = self.provider
            if not await self.services.engine.read(lambda view: id in view.providers):
                raise provider_not_found(id) from None
            raise

    async def carry_out(
        self, proposal: Proposal, attempt: Attempt, answer: Callable[[View, bool], Response], **context: str
    ) -> Answer:
        """Carry a proposal out and answer from the view right after it, or say why it was refused."""
        size = len(self.request.body)
        outcome = await self.services.engine.submit(proposal, self.cause(), answer, size)
        if isinstance(outcome, Rejection):
            return placement_problem(outcome, attempt, **context)
        return outcome

    @property
    def action(self) -> str:
        return f"{self.request.method} {self.request.route}"

    # -- how much one write may name ------------------------------------------------------------
    # Bodies are limited in bytes as well; this is about the work that they ask for. A refusal says what was
    # sent, what is allowed, and which setting allows more.

    def limit_providers(self, providers: Iterable[str]) -> None:
        """Refuse a write that names more providers than one request may."""
        count, count_max = len(set(providers)), self.services.settings.request_providers_max
        if count > count_max:
            raise Problem(
                400,
                f"The request names {count} resource providers, more than the limit of {count_max} "
                "in one request. Send it in smaller parts.",
            )

    def limit_list(self, count: int, what: str) -> None:
        """Refuse a write with a longer list than a request may have."""
        count_max = self.services.settings.request_list_max
        if count > count_max:
            raise Problem(
                400,
                f"The request lists {count} {what}, more than the limit of {count_max} in one list. "
                "Send fewer, or have the setting request_list_max raised.",
            )

    def limit_claims(self, claims: tuple[Claim, ...], inventories: int = 0) -> None:
        """Refuse claims of too many consumers, of too many classes on one provider, or too many of them in
        all: they are judged and applied in one go, while others wait. ``inventories`` come in the same
        write."""
        self.limit_list(len(claims), "consumers")
        count = inventories + sum(len(resources) for claim in claims for _, resources in claim.wanted)
        count_max = self.services.settings.request_allocations_max
        if count > count_max:
            raise Problem(
                400,
                f"The request writes {count} allocations and inventories, more than the limit of "
                f"{count_max}. Send it in smaller parts, or have the setting request_allocations_max raised.",
            )
        for claim in claims:
            for _, resources in claim.wanted:
                self.limit_list(len(resources), "resource classes")

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
        response.headers.append(("location", self.origin + path))
        return response


PlacementHandler = Callable[[PlacementCall], Awaitable[Answer]]


def no_content(view: View, changed: bool) -> Response:
    """The answer to a change that has nothing more to say."""
    return Response(204)


def provider_not_found(id: ProviderId) -> Problem:
    return placement_problem(ProviderNotFound(id), Attempt.FIND_PROVIDER)


@lru_cache(1024)
def http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)

"""One call of the compute API: what a handler is given, and how it reads, changes and answers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from berth.api.kernel.access import Access, refusal
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.http import JSON, Request, Response, origin_of
from berth.api.kernel.problem import Problem, answering, denying
from berth.api.kernel.rejections import nova_problem
from berth.engine import Engine, Proposal
from berth.model.batches import Origin
from berth.model.quotas import Quotas
from berth.model.rejections import Rejection
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas.proposals import Context, read_quotas
from berth.scheduler.options import SchedulerOptions
from berth.view import View

T = TypeVar("T")
_encode: Final = msgspec.json.Encoder().encode
_QUERY_MAX: Final = 100


class Services(NamedTuple):
    """What handlers work with, the same for every call."""

    engine: Engine
    ids: Ids
    clock: Clock
    scheduler: SchedulerOptions
    settings: Settings
    policy: Policy


class Call(NamedTuple):
    """``params`` are the variable parts of the path, in order; ``version`` is the minor of the
    microversion; ``rules`` are those that the caller was let in by."""

    request: Request
    caller: Caller
    params: tuple[str, ...]
    version: int
    rules: tuple[str, ...]
    services: Services

    @property
    def access(self) -> Access:
        return Access(self.services.policy, self.caller)

    @property
    def is_admin(self) -> bool:
        return self.access.is_admin

    @property
    def project(self) -> str:
        return self.caller.project_id or ""

    @property
    def user(self) -> str:
        return self.caller.user_id or ""

    @property
    def base(self) -> str:
        """The URL of /compute/v2.1, as the caller reached it."""
        return f"{self.origin}/compute/v2.1"

    @property
    def origin(self) -> str:
        return origin_of(self.request)

    @property
    def quotas(self) -> Quotas:
        """Of projects that have none of their own."""
        return read_quotas(self.services.settings)

    @property
    def now_s(self) -> int:
        return self.services.clock.now_ns() // 1_000_000_000

    def allows(self, rule: str, project: str | None = None) -> bool:
        return self.access.allows(rule, project)

    def require(self, rule: str, project: str | None = None) -> None:
        """Refuse a caller that may not do what the rule guards, to what belongs to ``project``."""
        if not self.allows(rule, project):
            raise Problem(403, refusal(rule))

    def require_of(self, project: str) -> None:
        """Refuse a caller that may not do to a project's objects what it was let in for."""
        for rule in self.rules:
            self.require(rule, project)

    def asked(self) -> Context:
        """Who asks, for an operation; the conflict policy may come with the request."""
        settings = self.services.settings
        policy = self.request.headers.get("x-berth-conflict-policy", settings.conflict_policy)
        if policy not in ("fail", "retry", "merge"):
            raise Problem(400, f"X-Berth-Conflict-Policy is {policy!r}; it must be fail, retry or merge.")
        return Context(
            self.request.request_id,
            self.project,
            self.user,
            self.services.ids,
            self.services.scheduler,
            policy,  # type: ignore[arg-type]
            settings.build_attempts_max,
            resizes_in_place=settings.resize_in_place,
            repeat=settings.conflict_repeat,
            quotas=self.quotas,
        )

    def query(self) -> dict[str, str]:
        """The parameters of the query; of one given twice the last."""
        return dict(self.query_pairs())

    def query_pairs(self) -> list[tuple[str, str]]:
        """The parameters of the query, in order."""
        try:
            return parse_qsl(self.request.query_string, keep_blank_values=True, max_num_fields=_QUERY_MAX)
        except ValueError:
            raise Problem(400, f"The query has more than {_QUERY_MAX} parameters.") from None

    def body(self, kind: type[T]) -> T:
        """The body, as a struct says it must be."""
        try:
            return msgspec.json.decode(self.request.body, type=kind)
        except msgspec.ValidationError as error:
            raise Problem(400, f"Invalid input: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, f"Malformed request body: {error}") from None

    def converted(self, given: object, kind: type[T]) -> T:
        """A part of a body, as a struct says it must be."""
        try:
            return msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            raise Problem(400, f"Invalid input: {error}") from None

    async def read(self, answer: Callable[[View], T]) -> T:
        """What ``answer`` says of a view that is current."""
        outcome = await self.services.engine.read(answering(answer))
        if isinstance(outcome, Problem):
            raise outcome
        return outcome

    async def submit(self, proposal: Proposal, answer: Callable[[View], T]) -> T:
        """Have a change made and answer from the view right after it; Problem if it is refused."""
        outcome = await self.try_submit(proposal, answer)
        if isinstance(outcome, Rejection):
            raise self.problem_of(outcome)
        return outcome

    def problem_of(self, rejection: Rejection) -> Problem:
        return nova_problem(rejection, names_hosts=self.access.sees_hosts)

    async def try_submit(self, proposal: Proposal, answer: Callable[[View], T]) -> T | Rejection:
        request, caller = self.request, self.caller
        origin = Origin(
            request.request_id, caller.user_id, caller.project_id, f"{request.method} {request.path}"
        )
        size = len(request.body)
        return await self.services.engine.submit(
            denying(proposal), origin, lambda view, _: answer(view), size
        )


Handler = Callable[[Call], Awaitable[Response]]


class Route(NamedTuple):
    """``path`` is written as in Nova's reference, below /compute/v2.1: ``/servers/{id}/action``. ``rule`` is
    the policy's. A body that names ``actions`` is judged by the rules of those instead."""

    method: str
    path: str
    handler: Handler
    rule: str
    actions: Mapping[str, str] = MappingProxyType({})

    def admit(
        self, request: Request, caller: Caller, params: tuple[str, ...], version: int, services: Services
    ) -> Call:
        """The call, if its caller may make it: every API of this kind asks here, before a handler runs."""
        named = _keys(request.body) if self.actions else ()
        rules = tuple(self.actions[name] for name in named if name in self.actions) or (self.rule,)
        call = Call(request, caller, params, version, rules, services)
        for rule in rules:
            call.require(rule)
        return call


def _keys(body: bytes) -> Iterable[str]:
    """The names in a body; what is wrong with one that has none is the handler's to say."""
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def json(payload: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(status, _encode(payload), JSON, headers)


def empty(status: int = 202) -> Response:
    return Response(status)

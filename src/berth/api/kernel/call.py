"""One call of an API: what a handler is given, and how it reads, changes and answers.

Nothing of the view may leave the function that the engine evaluates: what is answered is made inside. A
proposal returns what it refuses as a rejection; a read may also raise a Problem. A Problem that is raised in
the writer's turn is a bug, and is answered like any other: with 500.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from berth.api.kernel import codes
from berth.api.kernel.access import Access
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.http import JSON, Request, Response, read_origin
from berth.api.kernel.image_store import ImageStore
from berth.api.kernel.images import ImageSource
from berth.api.kernel.ports import PortSource
from berth.api.kernel.problem import Problem, catch_problems, forbidden
from berth.api.kernel.rejections import nova_problem
from berth.api.kernel.router import Route
from berth.engine import Engine, Proposal
from berth.model.events import Origin
from berth.model.quotas import Quotas
from berth.model.rejections import Forbidden, Rejection
from berth.model.servers import ConflictPolicy, Image
from berth.runtime import tracing
from berth.runtime.clock import Clock, TimeShare
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas.move import CROSS_CELL_RULE
from berth.sagas.proposals import Context, CrossCell, read_quotas
from berth.scheduler.plugins import SchedulerOptions
from berth.view import View

T = TypeVar("T")

POLICY_HEADER: Final = "X-Berth-Conflict-Policy"

_QUERY_MAX: Final = 100
_encode: Final = msgspec.json.Encoder().encode


class Services(NamedTuple):
    """What handlers work with, the same for every call of every API. ``explanations``: the time in which
    refusals may be explained that nobody has asked to have explained; ``images``: where the contents of
    images are, if they are kept here."""

    engine: Engine
    ids: Ids
    clock: Clock
    scheduler: SchedulerOptions
    settings: Settings
    policy: Policy
    explanations: TimeShare
    ports: PortSource | None = None
    images: ImageStore | None = None
    glance: ImageSource | None = None


class Call:
    """``params`` are the variable parts of the path, in order; ``rules`` are those of the policy that the
    caller was let in by; ``version`` is the minor of the microversion, where the API has one.
    ``fetched_images`` are those that a Glance has told of, by what the request calls them."""

    __slots__ = (
        "_access",
        "caller",
        "fetched_images",
        "has_read_query",
        "params",
        "request",
        "rules",
        "services",
        "version",
    )

    def __init__(
        self,
        request: Request,
        caller: Caller,
        params: tuple[str, ...],
        services: Services,
        rules: tuple[str, ...] = (),
        version: int = 0,
    ) -> None:
        self.request = request
        self.caller = caller
        self.params = params
        self.services = services
        self.rules = rules
        self.version = version
        self.has_read_query = False
        self.fetched_images: dict[str, tuple[Image, ...]] | None = None
        self._access: Access | None = None

    # -- who asks -------------------------------------------------------------------------------

    @property
    def access(self) -> Access:
        if self._access is None:
            self._access = Access(self.services.policy, self.caller)
        return self._access

    @property
    def is_admin(self) -> bool:
        return self.access.is_admin

    @property
    def project(self) -> str:
        return self.caller.project_id or ""

    @property
    def user(self) -> str:
        return self.caller.user_id or ""

    def allows(self, rule: str, project: str | None = None) -> bool:
        return self.access.allows(rule, project)

    def may_touch(self, project: str | None) -> bool:
        """Whether the caller may do to a project's objects what it was let in for."""
        return all(self.allows(rule, project) for rule in self.rules)

    def require(self, rule: str, project: str | None = None) -> None:
        """Refuse a caller that may not do what the rule guards, to what belongs to ``project``."""
        if not self.allows(rule, project):
            raise forbidden(rule)

    def require_of(self, project: str | None) -> None:
        """Refuse a caller that may not do to a project's objects what it was let in for."""
        for rule in self.rules:
            self.require(rule, project)

    def find_forbidden(self, project: str | None) -> Forbidden | None:
        """The rule that keeps the caller from doing to a project's objects what it was let in for: what a
        proposal returns where a handler calls ``require_of``."""
        return next((Forbidden(rule) for rule in self.rules if not self.allows(rule, project)), None)

    # -- what is asked --------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        """What links to this server begin with."""
        return read_origin(self.request)

    @property
    def now_s(self) -> int:
        return self.services.clock.now_ns() // 1_000_000_000

    @property
    def quotas(self) -> Quotas:
        """Of projects that have none of their own."""
        return read_quotas(self.services.settings)

    @property
    def quotas_judged(self) -> Quotas | None:
        """Those that a change is judged by. Without cells there are no servers: nothing is counted, and
        nobody could set a quota."""
        return self.quotas if self.services.settings.cells else None

    def conflict_policy(self) -> ConflictPolicy:
        """The deployment's, unless the request has its own."""
        named = self.request.headers.get(POLICY_HEADER.lower(), self.services.settings.conflict_policy)
        if named not in ("fail", "retry", "merge"):
            text = f"{POLICY_HEADER} is {named!r}; it must be fail, retry or merge."
            raise Problem(400, text, codes.BAD_PARAMETER)
        return cast(ConflictPolicy, named)

    def context(self) -> Context:
        """Who asks and by which settings, for a saga."""
        services, settings = self.services, self.services.settings
        return Context(
            self.request.request_id,
            self.project,
            self.user,
            services.ids,
            services.scheduler,
            self.conflict_policy(),
            settings.build_attempts_max,
            resizes_in_place=settings.resize_in_place,
            crosses_cells=self._judge_crossing(),
            repeat=settings.conflict_repeat,
            quotas=self.quotas_judged,
            global_id=self.request.global_id,
            traceparent=tracing.current_traceparent(),
        )

    def _judge_crossing(self) -> CrossCell:
        if not self.services.settings.cross_cell_moves:
            return "off"
        return "on" if self.allows(CROSS_CELL_RULE) else "denied"

    def query_pairs(self) -> list[tuple[str, str]]:
        """The parameters of the query, in order."""
        self.has_read_query = True
        try:
            return parse_qsl(self.request.query_string, keep_blank_values=True, max_num_fields=_QUERY_MAX)
        except ValueError:
            raise Problem(400, f"The query has more than {_QUERY_MAX} parameters.") from None

    def query_values(self) -> dict[str, str]:
        """The parameters of the query; of one given twice the last."""
        return dict(self.query_pairs())

    def decode(self, kind: type[T]) -> T:
        """The body, as a struct says it must be."""
        try:
            return msgspec.json.decode(self.request.body, type=kind)
        except msgspec.ValidationError as error:
            raise Problem(400, f"Invalid input: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, f"Malformed request body: {error}") from None

    def convert(self, given: object, kind: type[T]) -> T:
        """A part of a body, as a struct says it must be."""
        try:
            return msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            raise Problem(400, f"Invalid input: {error}") from None

    # -- asking the engine ----------------------------------------------------------------------

    async def read(self, answer: Callable[[View], T | Rejection]) -> T:
        """What ``answer`` says of a view that is current; Problem if that is a rejection."""
        try:
            outcome = await self.services.engine.read(answer)
        except Problem:
            # It is asked again with the refusal for its answer, which waits like any until what it saw is
            # durable. Only refusals pay for that.
            refused = await self.services.engine.read(catch_problems(answer))
            if isinstance(refused, Problem):
                raise refused from None
            outcome = refused
        if isinstance(outcome, Rejection):
            raise self.problem_of(outcome)
        return outcome

    async def submit(self, proposal: Proposal, answer: Callable[[View], T] | None = None) -> T:
        """Have a change made, and answer from the view right after it, or with what the proposal brings;
        Problem if it is refused."""
        return self.accept(await self.try_submit(proposal, answer))

    async def try_submit(
        self, proposal: Proposal, answer: Callable[[View], T] | None = None
    ) -> T | Rejection:
        answered = None if answer is None else lambda view, _: answer(view)
        size = len(self.request.body)
        try:
            return await self.services.engine.submit(proposal, self.cause(), answered, size)
        except Problem as problem:
            raise RuntimeError(f"a Problem was raised in the writer's turn: {problem}") from problem

    def cause(self) -> Origin:
        """What the journal keeps of this call."""
        request, caller = self.request, self.caller
        return Origin(request.ids, caller.user_id, caller.project_id, self.action)

    @property
    def action(self) -> str:
        return f"{self.request.method} {self.request.path}"

    def accept(self, outcome: T | Rejection) -> T:
        """What a read found; Problem if that is a rejection. Not for proposals: they return it."""
        if isinstance(outcome, Rejection):
            raise self.problem_of(outcome)
        return outcome

    def problem_of(self, rejection: Rejection) -> Problem:
        return nova_problem(rejection, names_hosts=self.access.sees_hosts)


Handler = Callable[[Call], Awaitable[Response]]


def admit(
    route: Route[Handler],
    request: Request,
    caller: Caller,
    params: tuple[str, ...],
    services: Services,
    version: int = 0,
) -> Call:
    """The call, if its caller may make it: asked before a handler runs."""
    rules: tuple[str, ...] = (route.policy or "",)
    if route.actions:
        named = (route.actions[name] for name in _names_in(request.body) if name in route.actions)
        rules = tuple(named) or rules
    for rule in rules:
        if not services.policy.allows(rule, caller):
            raise forbidden(rule)
    return Call(request, caller, params, services, rules, version)


def _names_in(body: bytes) -> Iterable[str]:
    """The names in a body; what is wrong with one that has none is the handler's to say."""
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def json(payload: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(status, _encode(payload), JSON, headers)


def empty(status: int = 202) -> Response:
    return Response(status)

"""POST /berth/v1/schedule, /explain and /capacity: where things go, why there or why nowhere, and how many.

To schedule is one act: the plan is made from the very view that the ledger judges it by, in the writer's
turn. If another process was first, what was chosen is judged again, and chosen anew if it is refused. So no
claim is made on a stale view, and a caller that is told that nothing fits is told the truth of that moment.

Only a token brings an earlier plan, which may be stale. A dry run hands its plan out as a token, and keeps
nothing. A token holds the body of the request, which is read again as any body is, and what was chosen for
each member. It is no secret and gives no rights: its sender needs the same permission as for any schedule,
and what it says was chosen must be what the request asks for, on providers that could serve it. A digest
detects a token that was damaged on the way; a forged one gets no further than a forged request would.
"""

import base64
import binascii
from hashlib import blake2b
from itertools import repeat
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_BODY, FORBIDDEN, NO_FIT
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import berth_problem, explain_rejection
from berth.api.native.calls import NativeCall, NativeRoute, respond
from berth.api.native.fields import (
    Amounts,
    ExplainedStep,
    ExplanationDetail,
    HostExplanation,
    JournalIndex,
    Uuid,
)
from berth.api.native.schedule_requests import (
    Ask,
    Explain,
    NewSchedule,
    check_explain,
    find_foreign,
    find_operators_field,
    make_explain_request,
    make_schedule_request,
    make_server_request,
    resolve_names,
)
from berth.engine import Planned
from berth.model import scheduling as model
from berth.model.commands import ReplaceAllocations
from berth.model.ids import ConsumerId, Index, ProviderId
from berth.model.placement import SHARES_VIA_AGGREGATE, Wanted
from berth.model.rejections import ConstraintStep, PlanStale, Rejection
from berth.model.scheduling import CandidatesRequest, HostCandidate, Placement, Plan, ScheduleRequest
from berth.runtime.ids import Ids
from berth.scheduler.capacity import count_capacity as count_fitting
from berth.scheduler.explain import explain as explain_schedule
from berth.scheduler.hosts import sum_by_name
from berth.scheduler.plan import find_objection, plan
from berth.scheduler.plugins import SchedulerOptions
from berth.view import View

# -- answers ------------------------------------------------------------------------------------


class Resources(msgspec.Struct):
    resources: Amounts


class CandidateDetail(msgspec.Struct):
    """A host, and what to take of which of its providers: as PUT /allocations takes it."""

    host_uuid: Uuid
    host_name: str
    allocations: dict[str, Resources]
    mappings: Annotated[
        dict[str, list[str]], Meta(description="By the suffix of a part: the providers that serve it.")
    ]


class PlacementDetail(CandidateDetail):
    """Where a member is placed. ``alternates`` are other hosts of the same cell that fit, best first."""

    consumer_uuid: Uuid
    alternates: list[CandidateDetail]


class Schedule(msgspec.Struct, omit_defaults=True):
    """``index``: where the journal was when it was decided. A dry run claims nothing; its ``token`` does."""

    index: JournalIndex
    claimed: bool
    placements: list[PlacementDetail]
    token: str | None = None
    explanation: ExplanationDetail | None = None


class OneExplanation(msgspec.Struct):
    explanation: ExplanationDetail


class PlaceCapacityDetail(msgspec.Struct):
    """How many more would fit if all of them went to this aggregate."""

    kind: str | None
    name: str | None
    aggregate: str
    count: int
    hosts: int


class CapacityDetail(msgspec.Struct):
    """How many more would fit, one after the other, and on how many hosts. ``exact`` false: at least this
    many."""

    index: JournalIndex
    count: int
    exact: bool
    hosts: int
    places: list[PlaceCapacityDetail]


class OneCapacity(msgspec.Struct):
    capacity: CapacityDetail


# -- tokens -------------------------------------------------------------------------------------

_DIGEST_BYTES: Final = 12


class Chosen(msgspec.Struct, frozen=True, array_like=True):
    member: ConsumerId
    host: ProviderId
    wanted: tuple[Wanted, ...]


class Token(msgspec.Struct, frozen=True, array_like=True):
    """``asked`` is the request as it was sent, with its members named."""

    index: Index
    asked: NewSchedule
    chosen: tuple[Chosen, ...]


_DECODER: Final = msgspec.msgpack.Decoder(Token)


def make_token(plan: Plan, asked: NewSchedule) -> str:
    members = plan.request.members
    named = msgspec.structs.replace(asked, consumers=members, dry_run=False, explain=False)
    chosen = tuple(Chosen(one.member, one.chosen.host, one.chosen.wanted) for one in plan.placements)
    body = msgspec.msgpack.encode(Token(plan.index, named, chosen))
    return base64.urlsafe_b64encode(_digest(body) + body).decode()


def read_token(text: str) -> Token:
    try:
        content = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(body):
            raise ValueError("the digest does not match")
        token = _DECODER.decode(body)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        words = (
            "The token is not one that a dry run gave out: it is incomplete, changed, or of another version."
        )
        raise Problem(400, words, BAD_BODY) from None
    if token.asked.token is not None:
        raise Problem(400, "The token is not one that a dry run gave out: it holds another.", BAD_BODY)
    return token


def read_plan(token: Token, request: ScheduleRequest, view: View) -> Plan | str:
    """The plan that a token holds for the request; or why it cannot be that, or no longer."""
    members = [one.member for one in token.chosen]
    if not request.at_least <= len(members) <= len(request.members) or len(set(members)) < len(members):
        return "it does not place as many as were asked for"
    if not set(members) <= set(request.members):
        return "it places a member that was not asked for"
    placements = []
    for one in token.chosen:
        host = view.providers.get(one.host)
        if host is None or host.parent is not None:
            return f"host {one.host} is gone"
        objection = _check_chosen(view, one, (request.ask, *request.otherwise))
        if objection is not None:
            return objection
        placements.append(Placement(one.member, HostCandidate(one.host, host.name, one.wanted, ())))
    return Plan(request, tuple(placements), token.index)


def _check_chosen(view: View, one: Chosen, asks: tuple[CandidatesRequest, ...]) -> str | None:
    """Why what the token chose for a member is not what the request asks for on that host."""
    if len(dict(one.wanted)) < len(one.wanted):
        return "it takes from a provider twice"
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    total: dict[str, int] = {}
    for provider, amounts in one.wanted:
        record = view.providers.get(provider)
        if record is None or (record.root.id != one.host and record.row not in sharing):
            return f"provider {provider} is not part of host {one.host}"
        if len(dict(amounts)) < len(amounts) or not amounts:
            return "it takes a resource class twice, or nothing"
        for name, amount in amounts:
            if amount < 1:
                return f"it takes {amount} of {name}, and must take 1 or more"
            total[name] = total.get(name, 0) + amount
    is_asked = any(total == sum_by_name(ask) for ask in asks)
    return None if is_asked else "it takes something else than was asked for"


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


# -- handlers -----------------------------------------------------------------------------------

_STEPS_PER_CANDIDATE: Final = 5
"""What it costs to render one."""


async def schedule(call: NativeCall) -> Response:
    asked: NewSchedule = call.body
    if asked.token is not None:
        return await _commit(call, asked, asked.token)
    asked = await resolve_names(call, asked)
    request = make_schedule_request(call, asked)
    try:
        return await (_dry_run if asked.dry_run else _claim)(call, asked, request)
    except Problem as refused:
        if asked.explain and refused.code == NO_FIT:
            refused.more["explanation"] = await _read_explanation(call, request, ())
        raise


async def explain(call: NativeCall) -> Response:
    asked: Explain = call.body
    check_explain(asked)
    asked = await resolve_names(call, asked)
    if not call.access.sees_hosts:
        unfit = find_operators_field(asked)
        if unfit is not None:
            raise Problem(403, f"{unfit}: only operators may name hosts and aggregates here.", FORBIDDEN)
        await call.read(lambda view: find_foreign(view, call, asked))
    if asked.server is not None:
        server = asked.server
        found = await call.read(lambda view: make_server_request(view, call, server))
        return respond(OneExplanation(await _read_explanation(call, found, asked.hosts)))
    request = make_explain_request(call, asked)
    return respond(OneExplanation(await _read_explanation(call, request, asked.hosts)))


async def count_capacity(call: NativeCall) -> Response:
    asked: Ask = await resolve_names(call, call.body)
    request = make_explain_request(call, Explain(**msgspec.structs.asdict(asked)))

    def answer(view: View) -> model.Capacity | Rejection:
        return count_fitting(view, request, call.services.scheduler)

    counted = await call.read(answer)
    places = [
        PlaceCapacityDetail(one.kind, one.name, one.aggregate, one.count, one.hosts) for one in counted.places
    ]
    found = CapacityDetail(counted.index, counted.count, counted.exact, counted.hosts, places)
    return respond(OneCapacity(found))


async def _claim(call: NativeCall, asked: NewSchedule, request: ScheduleRequest) -> Response:
    def choose(view: View, now_s: int) -> Planned | Rejection:
        outcome = _make_schedule(view, call, asked, request, now_s)
        if isinstance(outcome, Rejection):
            return outcome
        chosen, schedule = outcome
        return Planned(ReplaceAllocations(chosen.claims), respond(schedule))

    return await call.submit(choose)


async def _dry_run(call: NativeCall, asked: NewSchedule, request: ScheduleRequest) -> Response:
    def answer(view: View) -> Response | Rejection:
        outcome = _make_schedule(view, call, asked, request, call.now_s)
        return outcome if isinstance(outcome, Rejection) else respond(outcome[1])

    return await call.read(answer)


def _make_schedule(
    view: View, call: NativeCall, asked: NewSchedule, request: ScheduleRequest, now_s: int
) -> tuple[Plan, Schedule] | Rejection:
    """A plan, and how it is answered. With a seed the same choice is made from the same view, also when it is
    made again."""
    options = call.services.scheduler
    rng = (call.services.ids if asked.seed is None else Ids(asked.seed)).rng
    outcome = plan(view, request, options, rng, now_s)
    if isinstance(outcome, Rejection):
        return outcome
    explained = _make_explanation(view, request, options, ()) if asked.explain else None
    if isinstance(explained, Rejection):
        return explained
    token = make_token(outcome, asked) if asked.dry_run else None
    placements = _describe_placements(view, outcome)
    return outcome, Schedule(outcome.index, not asked.dry_run, placements, token, explained)


async def _commit(call: NativeCall, asked: NewSchedule, token: str) -> Response:
    if asked != NewSchedule(token=token):
        raise Problem(400, "A token is sent alone: leave out everything beside it.", BAD_BODY)
    told = read_token(token)
    request = make_schedule_request(call, told.asked)

    def claim(view: View, now_s: int) -> Planned | Rejection:
        outcome = read_plan(told, request, view)
        against = (
            outcome if isinstance(outcome, str) else find_objection(view, outcome, call.services.scheduler)
        )
        if isinstance(outcome, str) or against is not None:
            return PlanStale(told.index, f"{against}.")
        made = Schedule(view.index, True, _describe_placements(view, outcome))
        return Planned(ReplaceAllocations(outcome.claims), respond(made))

    outcome: Response | Rejection = await call.try_submit(claim)
    if isinstance(outcome, Rejection) and not isinstance(outcome, PlanStale):
        # The ledger refused what it would have accepted when the plan was made.
        outcome = PlanStale(told.index, call.problem_of(outcome).text)
    return call.accept(outcome)


def _describe_placements(view: View, made: Plan) -> list[PlacementDetail]:
    view.steps.take(
        _STEPS_PER_CANDIDATE * sum(1 + len(placement.alternates) for placement in made.placements)
    )
    return [
        PlacementDetail(
            **msgspec.structs.asdict(_describe_candidate(placement.chosen)),
            consumer_uuid=placement.member,
            alternates=[_describe_candidate(way) for way in placement.alternates],
        )
        for placement in made.placements
    ]


def _describe_candidate(way: HostCandidate) -> CandidateDetail:
    return CandidateDetail(
        way.host,
        way.host_name,
        _describe_allocations(way.wanted),
        {suffix: list(providers) for suffix, providers in way.mappings},
    )


def _describe_allocations(wanted: tuple[Wanted, ...]) -> dict[str, Resources]:
    return {provider: Resources(dict(amounts)) for provider, amounts in wanted}


async def _read_explanation(
    call: NativeCall, request: ScheduleRequest, hosts: tuple[str, ...]
) -> ExplanationDetail:
    options, names_hosts = call.services.scheduler, call.access.sees_hosts
    return await call.read(
        lambda view: _make_explanation(view, request, options, hosts, names_hosts=names_hosts)
    )


def _make_explanation(
    view: View,
    request: ScheduleRequest,
    options: SchedulerOptions,
    hosts: tuple[str, ...],
    *,
    names_hosts: bool = True,
) -> ExplanationDetail | Rejection:
    found = explain_schedule(view, request, options, explain_rejection, hosts, names_hosts=names_hosts)
    if isinstance(found, Rejection):
        return found
    return ExplanationDetail(
        found.index,
        found.needed,
        found.fitting,
        found.hosts_total,
        tuple(map(_describe_step, found.steps, found.removed or repeat(()))),
        found.text,
        [
            HostExplanation(host.host, host.id, host.fits, host.checks, _show_refusal(host.refused))
            for host in found.hosts
        ],
        found.change,
        _show_refusal(found.refused),
    )


def _describe_step(step: ConstraintStep, hosts: tuple[str, ...]) -> ExplainedStep:
    return ExplainedStep(
        step.constraint, step.asked, step.removed, step.left, step.pools, step.nearest, hosts
    )


def _show_refusal(refused: Rejection | None) -> str | None:
    return None if refused is None else berth_problem(refused).text


ROUTES: Final = (
    NativeRoute(
        "POST",
        "/schedule",
        schedule,
        policy="berth:schedule",
        name="schedule",
        body=NewSchedule,
        example={"flavor": {"vcpus": 2, "ram": 4096}, "max_count": 3},
        answer=Schedule,
        summary="Choose hosts and claim them in one step",
        description="All members or none: max_count if so many fit, at least min_count. With `dry_run` "
        "nothing is claimed; the token in the answer, sent alone, claims exactly that plan, or is refused "
        "if the plan is stale (409, `berth.plan_moved`). Where nothing fits the answer is 409, "
        "`berth.no_fit`.",
    ),
    NativeRoute(
        "POST",
        "/explain",
        explain,
        policy="berth:explain",
        name="explain",
        body=Explain,
        example={"flavor": "m1.large"},
        answer=OneExplanation,
        summary="Explain why hosts were chosen or removed",
        description="Of amounts, a flavor by name, or what a server would need now: which hosts each "
        "constraint removes, in order; each constraint at the hosts that are named; and the smallest change "
        "that would make it fit. Members of a project may ask for themselves: they get numbers and changes "
        "of the request, and no names of hosts.",
    ),
    NativeRoute(
        "POST",
        "/capacity",
        count_capacity,
        policy="berth:capacity",
        name="count_capacity",
        body=Ask,
        example={"resources": {"VCPU": 2, "MEMORY_MB": 4096}},
        answer=OneCapacity,
        summary="How many more fit",
        description="How many more of this the fleet can take now, in all and in each cell, zone and other "
        "labelled aggregate, policies included.",
    ),
)

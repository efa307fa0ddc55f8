"""/berth/v1/doctor: what is wrong with the allocations of servers, and what can safely be repaired.

Each check reads the view in a turn of its own, and each repair is a command of its own: others are served in
between, and one that is refused leaves the rest as they are.
"""

from collections.abc import Callable
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_BODY
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.native.calls import NativeCall, NativeRoute, respond
from berth.api.native.fields import NativeBody
from berth.api.native.servers import Held
from berth.doctor.findings import CHECKS, GRACE_S, Finding, FindingCheck, Moment, find_again, run_check
from berth.doctor.repairs import remove_unknown, repair
from berth.ledger import decide
from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas import delete
from berth.sagas.conflicts import as_dict
from berth.view import View

# -- answers ------------------------------------------------------------------------------------


_Outcome = Literal["would repair", "repaired", "would remove", "removed", "refused"]


class FindingDetail(msgspec.Struct):
    """``repair`` is what the doctor would do about it; null where a human must decide: ``unsafe`` says
    why."""

    id: str
    kind: str
    subject: str
    sentence: str
    holds: Held
    should_hold: Held
    repair: str | None
    unsafe: str | None


class Findings(msgspec.Struct):
    """``truncated``: there is more than is shown; repair this first, and examine again."""

    findings: list[FindingDetail]
    truncated: bool


class Repaired(msgspec.Struct):
    """The outcome for one finding. ``detail`` says what was done or would be, or why it was refused."""

    id: str
    outcome: _Outcome
    detail: str


class Repairs(msgspec.Struct):
    dry_run: bool
    repairs: list[Repaired]


# -- bodies -------------------------------------------------------------------------------------

FINDINGS_MAX: Final = 1_000
_GRACE_MAX_S: Final = 86_400
_REMOVED: Final = "destroy the server at its host, with all that is on its disks"
_FindingId = Annotated[str, Meta(min_length=3, max_length=200, examples=["orphan_consumer:UUID"])]


class Repair(NativeBody, frozen=True, kw_only=True):
    """``findings``: their ids, or all that can be repaired. ``grace_s``: how long ago a
    consumer without a record must have been written last. ``remove``: have the servers destroyed that are
    unknown to the region, in place of a repair; each is named."""

    findings: Annotated[tuple[_FindingId, ...], Meta(min_length=1, max_length=FINDINGS_MAX)] | Literal["all"]
    dry_run: Annotated[bool, Meta(description="Say what would be repaired, and change nothing.")] = True
    grace_s: Annotated[int, Meta(ge=0, le=_GRACE_MAX_S)] = GRACE_S
    remove: bool = False


# -- handlers -----------------------------------------------------------------------------------


async def examine(call: NativeCall) -> Response:
    found, is_cut = await _find(call, Moment(call.now_s))
    return respond(Findings([_describe(finding) for finding in found], is_cut))


async def repair_findings(call: NativeCall) -> Response:
    """Repair findings one by one, or say what would be done."""
    asked: Repair = call.body
    moment = Moment(call.now_s, asked.grace_s)
    if asked.findings == "all" and asked.remove:
        raise Problem(400, "findings: what is to be removed must be named; 'all' is refused.", BAD_BODY)
    if asked.findings == "all":
        found, _ = await _find(call, moment)
        ids = [finding.id for finding in found]
    else:
        ids = list(dict.fromkeys(asked.findings))
    context = call.context()

    def remove(view: View, id: str, moment: Moment) -> Enact | Rejection:
        return remove_unknown(view, id, moment, context, delete.SAGA)

    one_by_one = _try_repair if asked.dry_run else _repair
    chosen = _Choice(repair, _read_repair, "would repair", "repaired")
    if asked.remove:
        chosen = _Choice(remove, lambda _: _REMOVED, "would remove", "removed")
    return respond(Repairs(asked.dry_run, [await one_by_one(call, id, moment, chosen) for id in ids]))


class _Choice(NamedTuple):
    """What is done about a finding, and how that is told."""

    make: Callable[[View, str, Moment], Enact | Rejection]
    tell: Callable[[Finding | None], str]
    would: _Outcome
    done: _Outcome


async def _find(call: NativeCall, moment: Moment) -> tuple[list[Finding], bool]:
    found: list[Finding] = []
    for check in CHECKS:
        if len(found) <= FINDINGS_MAX:
            room = FINDINGS_MAX + 1 - len(found)
            found += await call.read(lambda view: _find_some(view, check, moment, room))  # noqa: B023
    return found[:FINDINGS_MAX], len(found) > FINDINGS_MAX


def _find_some(view: View, check: FindingCheck, moment: Moment, count: int) -> list[Finding]:
    return [finding for finding, _ in zip(run_check(view, check, moment), range(count), strict=False)]


async def _try_repair(call: NativeCall, id: str, moment: Moment, chosen: _Choice) -> Repaired:
    def answer(view: View) -> Repaired:
        finding = find_again(view, id, moment)
        command = chosen.make(view, id, moment)
        verdict = command if isinstance(command, Rejection) else decide(view, command, moment.now_s)
        if isinstance(verdict, Rejection):
            return Repaired(id, "refused", call.problem_of(verdict).text)
        return Repaired(id, chosen.would, chosen.tell(finding))

    return await call.read(answer)


async def _repair(call: NativeCall, id: str, moment: Moment, chosen: _Choice) -> Repaired:
    finding = await call.read(lambda view: find_again(view, id, moment))
    outcome: Rejection | None = await call.try_submit(
        lambda view, now_s: chosen.make(view, id, moment._replace(now_s=now_s)), lambda _: None
    )
    if isinstance(outcome, Rejection):
        return Repaired(id, "refused", call.problem_of(outcome).text)
    return Repaired(id, chosen.done, chosen.tell(finding))


def _read_repair(finding: Finding | None) -> str:
    """What the repair of a finding does. None: another request repaired it meanwhile."""
    return "" if finding is None else finding.repair or ""


def _describe(finding: Finding) -> FindingDetail:
    return FindingDetail(
        finding.id,
        finding.kind,
        finding.subject,
        finding.sentence,
        as_dict(finding.holds),
        as_dict(finding.should_hold),
        finding.repair,
        finding.unsafe,
    )


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/doctor",
        examine,
        policy="berth:doctor:examine",
        name="examine",
        answer=Findings,
        is_tagged=False,
        summary="Find servers whose records and allocations differ",
        description="Consumers without a server, servers and migrations with other allocations than they "
        "wrote, moves and saga runs that nothing finishes.",
    ),
    NativeRoute(
        "POST",
        "/doctor/repair",
        repair_findings,
        policy="berth:doctor:repair",
        name="repair",
        body=Repair,
        example={"findings": "all", "dry_run": True},
        answer=Repairs,
        summary="Repair what can be repaired safely",
        description="One by one; each finding is checked again in the same turn. A dry run unless "
        "`dry_run` is false. With `remove`, the unknown servers that are named are destroyed instead.",
    ),
)

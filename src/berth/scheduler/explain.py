"""Why a request fits where it does, or nowhere: an answer that depends on a view and the request alone.

Three questions, each with its own file behind it: which constraint removed how many hosts (narrowing.py), how
a named host does by each of them (explain_checks.py), and, if too few members fit, what the smallest change
would be that helps (smallest.py).
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from berth.model.explanations import Explanation
from berth.model.ids import ConsumerId, Row
from berth.model.rejections import GroupNotFound, Rejection
from berth.model.scheduling import Plan, ScheduleRequest
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.capacity_fits import Fitting
from berth.scheduler.explain_checks import HostsChecked
from berth.scheduler.explain_words import Outcome, told
from berth.scheduler.hints import unknown_in
from berth.scheduler.narrowing import Narrowing, narrow, steps
from berth.scheduler.options import SchedulerOptions
from berth.scheduler.plan import plan
from berth.scheduler.smallest import smallest_change
from berth.scheduler.smallest_trials import Variant, Variants
from berth.view import View

HOSTS_EXPLAINED_MAX: Final = 20
_HOSTS_ASKED_MAX: Final = 10
_NOBODY: Final = ConsumerId("a new member")


def explain(
    view: View, request: ScheduleRequest, options: SchedulerOptions, hosts: Iterable[str] = ()
) -> Explanation | Rejection:
    """What becomes of the request. Of hosts that are named, the first ``HOSTS_EXPLAINED_MAX`` are looked at.
    Refused are names that do not exist. The view is as it was before; nobody else may look at it
    meanwhile."""
    wrong = _wrong(view, request)
    if wrong is not None:
        return wrong
    narrowings = narrow(view, request, options)
    if isinstance(narrowings, Rejection):
        return narrowings
    candidates = HostCandidates.of(view, request.ask)
    assert not isinstance(candidates, Rejection), "names were looked up before"
    variants = Variants(view, request, options, narrowings[0].left)
    counted = variants.fitting(Variant(request))
    if not counted.exact and counted.members < variants.wanted:
        counted = _planned(view, request, options, counted)
    fitting = min(counted.members, variants.wanted)
    taken = steps(narrowings)
    total = int(np.count_nonzero(narrowings[0].left))
    checked = HostsChecked(view, request, options, candidates)
    refused = change = closest = None
    if fitting < variants.needed:
        refused = _refused(view, checked, narrowings)
        change = smallest_change(variants, request, taken, counted)
        host = change.best.host if change.best is not None else None
        closest = checked.at(host) if host is not None else None
    outcome = Outcome(fitting, variants.needed, total, taken, refused, closest, change)
    return Explanation(
        index=view.index,
        needed=variants.needed,
        fitting=fitting,
        hosts_total=total,
        steps=taken,
        text=told(view, request, outcome),
        hosts=tuple(checked.at(name) for name in islice(dict.fromkeys(hosts), HOSTS_EXPLAINED_MAX)),
        closest=closest,
        change=change,
        refused=refused,
    )


class _First:
    """Leaves nothing to chance, so that who asks again is told the same."""

    def randrange(self, stop: int, /) -> int:
        return 0


def _planned(view: View, request: ScheduleRequest, options: SchedulerOptions, counted: Fitting) -> Fitting:
    """What was counted is less than may fit: as many as a plan would place, if these are more."""
    members = request.members or (_NOBODY,)
    any_number = msgspec.structs.replace(request, members=members, at_least=1, alternates=0)
    found = plan(view, any_number, options, _First(), 0)
    if not isinstance(found, Plan) or len(found.placements) <= counted.members:
        return counted
    hosts = {placement.chosen.host for placement in found.placements}
    return Fitting(len(found.placements), False, max(counted.hosts, len(hosts)))


def _wrong(view: View, request: ScheduleRequest) -> Rejection | None:
    if request.group is not None and request.group not in view.groups.records:
        return GroupNotFound(request.group)
    return unknown_in(view, request.hints)


def _refused(view: View, checked: HostsChecked, narrowings: list[Narrowing]) -> Rejection | None:
    """What the ledger says of the hosts that are left, if it lets nobody come to any that was asked about."""
    refused = None
    for row in np.flatnonzero(narrowings[-1].left)[:_HOSTS_ASKED_MAX].tolist():
        refused = checked.refused_at(view.record(Row(row)))
        if refused is None:
            return None
    return refused

"""An explanation as it is answered: rejections in it are told in words."""

from berth.api.kernel.rejections import berth_problem
from berth.api.native import wire_schedule as wire
from berth.model.rejections import Rejection
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.explain.explanation import explain
from berth.scheduler.options import SchedulerOptions
from berth.view import View


def explanation(
    view: View, request: ScheduleRequest, options: SchedulerOptions, hosts: tuple[str, ...]
) -> wire.Explanation:
    found = explain(view, request, options, hosts)
    if isinstance(found, Rejection):
        raise berth_problem(found)
    return wire.Explanation(
        found.index,
        found.needed,
        found.fitting,
        found.hosts_total,
        found.steps,
        found.text,
        [
            wire.HostExplanation(host.host, host.id, host.fits, host.checks, _words(host.refused))
            for host in found.hosts
        ],
        found.change,
        _words(found.refused),
    )


def _words(refused: Rejection | None) -> str | None:
    return None if refused is None else berth_problem(refused).text

"""Whether a plan made earlier may still be carried out, as far as filters are concerned.

Whether there is still room, and whether policies still hold, is the ledger's to say: filters that follow
claims would have to be asked about each member in its turn.
"""

from berth.model.scheduling import Plan
from berth.scheduler.options import SchedulerOptions
from berth.view import View


def objection(view: View, plan: Plan, options: SchedulerOptions) -> str | None:
    """What speaks against a plan now, in words."""
    request = plan.request
    hosts = {placement.chosen.host: placement.chosen.host_name for placement in plan.placements}
    for id, name in hosts.items():
        if id not in view.providers:
            return f"host {name} is gone"
    if request.hints.forced_host is not None:
        return None
    for filter in options.filters:
        asked = None if filter.FOLLOWS_CLAIMS else filter.asked(view, request)
        if asked is None:
            continue
        passing = filter.passing(view, request)
        for id, name in hosts.items():
            record = view.providers[id]
            if not passing[record.row]:
                return f"host {name} has {filter.found(view, request, record)}, and {asked} is asked for"
    return None

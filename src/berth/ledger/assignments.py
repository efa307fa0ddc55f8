"""The rule of assignments: no unit of a host is in two of them."""

from berth.model.commands import Enact
from berth.model.rejections import UnitTaken
from berth.model.saga_runs import Assignment
from berth.view import View
from berth.view.records import unit_key


def judge(view: View, command: Enact) -> UnitTaken | None:
    """The refusal of a change after which a unit would be in two assignments. What the same change takes out
    of an assignment is free for the others."""
    # Without a call for each: a change may be of a thousand servers, and others wait.
    if Assignment not in {change.after.__class__ for change in command.changes}:
        return None
    after = [change.after for change in command.changes if isinstance(change.after, Assignment)]
    changed = {record.id for change in command.changes if isinstance(record := change.before, Assignment)}
    taken: dict[str, Assignment] = {}
    for assignment in after:
        for unit in assignment.unit_names():
            key = unit_key(assignment.host, unit)
            others = (
                other for other in view.records.find(Assignment, "unit", key) if other.id not in changed
            )
            holder = taken.get(key) or next(others, None)
            if holder is not None:
                return UnitTaken(assignment.host, unit, assignment.server, holder.server)
            taken[key] = assignment
    return None

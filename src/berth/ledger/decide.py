"""The one validator. Claim, dry run, retry on an alternate: every change passes through ``decide``. The one
exception is an import, which takes over what another Placement has decided (``importing/events.py``).

Each rule is a ladder of questions in the order a reader would ask them, each answered by a Rejection;
below the last rung nothing can fail, and events are made. ``decide`` leaves the view as it was: its caller
applies the events, and may decide again on another view if it lost a race.

Records have no rules of their own, but for two: no unit is in two assignments, and no port in two servers.
``Enact`` changes any of them, each from what its author saw; the last functions here make such changes.
"""

from collections.abc import Callable
from typing import Any

from berth.ledger import allocations, assignments, groups, inventories, ports, providers, quotas, vocabulary
from berth.model import commands as c
from berth.model.events import AnyRecord, Event, RecordChanged
from berth.model.rejections import RecordMoved, Rejection
from berth.model.servers import Counter
from berth.view import Trial, View

Verdict = list[Event] | Rejection


def _enact(view: View, command: c.Enact, now_s: int) -> Verdict:
    """Here, because it judges by all the other rules. Of several commands each is judged as if those before
    it had been carried out."""
    current = view.records.current
    for change in command.changes:
        before = change.before
        record = before or change.after
        assert record is not None, "a change is of something"
        if current(record) != before:
            return RecordMoved(type(record).__name__, record.id)
    for record in command.reads:
        if current(record) != record:
            return RecordMoved(type(record).__name__, record.id)
    refused = quotas.judge(view, command) or assignments.judge(view, command) or ports.judge(view, command)
    if refused is not None:
        return refused
    events: list[Event] = []
    with Trial(view) as trial:
        for number, part in enumerate(command.commands, 1):
            verdict = decide(view, part, now_s)
            if isinstance(verdict, Rejection):
                return verdict
            events += verdict
            if number < len(command.commands):
                trial.apply(verdict)
    return events + list(command.changes)


_RULES: dict[type[Any], Callable[[View, Any, int], Verdict]] = {
    c.CreateResourceClass: vocabulary.create_class,
    c.RenameResourceClass: vocabulary.rename_class,
    c.DeleteResourceClass: vocabulary.delete_class,
    c.CreateTrait: vocabulary.create_trait,
    c.DeleteTrait: vocabulary.delete_trait,
    c.CreateProvider: providers.create,
    c.UpdateProvider: providers.update,
    c.DeleteProvider: providers.delete,
    c.SetTraits: providers.set_traits,
    c.SetAggregates: providers.set_aggregates,
    c.AddInventory: inventories.add,
    c.PutInventory: inventories.put,
    c.SetInventories: inventories.replace,
    c.DeleteInventory: inventories.delete,
    c.ReplaceAllocations: allocations.replace,
    c.DeleteAllocations: allocations.delete,
    c.Reshape: allocations.reshape,
    c.SetHostStatus: providers.set_host_status,
    c.LabelAggregate: groups.label_aggregate,
    c.CreateGroup: groups.create,
    c.ChangeGroup: groups.change,
    c.DeleteGroup: groups.delete,
    c.ChangeMembers: groups.change_members,
    c.Enact: _enact,
}


def decide(view: View, command: c.Command, now_s: int) -> Verdict:
    """The events that carry the command out, in order, or the reason it is refused.

    An empty list is a yes: what was asked for is so already.
    """
    return _RULES[type(command)](view, command, now_s)


def replace_record(view: View, after: AnyRecord) -> RecordChanged:
    """The change that puts a record in place of what stands there now."""
    return RecordChanged(view.records.current(after), after)


def remove_record(view: View, record: AnyRecord) -> RecordChanged:
    """The change that removes a record."""
    return RecordChanged(view.records.current(record), None)


def next_number(view: View, kind: str) -> Counter:
    """The counter of a kind, one further. No number is given twice."""
    last = view.records.get(Counter, kind)
    return Counter(id=kind, value=1 if last is None else last.value + 1)

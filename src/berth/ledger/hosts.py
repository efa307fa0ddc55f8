"""Rules for the status of hosts and the labels of aggregates."""

from berth.ledger.providers import set_traits
from berth.model.commands import LabelAggregate, SetHostStatus, SetTraits
from berth.model.events import AggregateLabelled, Event, HostChanged
from berth.model.groups import HOST
from berth.model.placement import HEALTHY
from berth.model.rejections import KindInUse, LabelTaken, NotAHost, ProviderNotFound, Rejection
from berth.model.vocabulary import STATUS_DISABLED
from berth.view import View


def set_status(view: View, command: SetHostStatus, now_s: int) -> list[Event] | Rejection:
    record = view.providers.get(command.provider)
    if record is None:
        return ProviderNotFound(command.provider)
    if record.parent is not None:
        return NotAHost(record.id, record.root.id)
    before = view.hosts.get(record.id)
    after = None if command.status == HEALTHY else command.status
    if before == after:
        return []
    changed = HostChanged(record.id, before, after)
    is_disabled = command.status.disabled
    if is_disabled == (before or HEALTHY).disabled:
        return [changed]
    # Clients of Placement know a disabled host by its trait.
    others = frozenset(record.traits) - {STATUS_DISABLED}
    traits = others | {STATUS_DISABLED} if is_disabled else others
    marked = set_traits(view, SetTraits(record.id, None, traits), now_s)
    return marked if isinstance(marked, Rejection) else [changed, *marked]


def label(view: View, command: LabelAggregate, now_s: int) -> list[Event] | Rejection:
    id, after = command.aggregate, command.label
    groups = view.groups
    before = groups.labels.get(id)
    if after is not None and after.kind is not None and after.name is not None:
        for other in groups.of_kind(after.kind):
            if other != id and groups.labels[other].name == after.name:
                return LabelTaken(after.kind, after.name, other)
    kind = before.kind if before is not None else None
    if (
        kind not in (None, HOST)
        and (after is None or after.kind != kind)
        and len(list(groups.of_kind(kind))) == 1
    ):
        judged_by = tuple(id for id, record in groups.records.items() if record.group.domain == kind)
        if judged_by:
            return KindInUse(kind, judged_by)
    return [] if before == after else [AggregateLabelled(id, before, after)]

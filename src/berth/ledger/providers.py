"""Rules for providers: names and uuids are unique, trees have no loops, what is in use stays. Hosts are the
roots, and only they have a status."""

import msgspec

from berth.model.commands import (
    CreateProvider,
    DeleteProvider,
    SetAggregates,
    SetHostStatus,
    SetTraits,
    UpdateProvider,
)
from berth.model.events import (
    AggregatesChanged,
    Event,
    HostChanged,
    InventoryChanged,
    Placed,
    ProviderChanged,
    ProviderStamped,
    Stamp,
    TraitsChanged,
)
from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import CELL, HEALTHY, STANDARD_TRAITS, STATUS_DISABLED, ZONE
from berth.model.rejections import (
    AggregateNotForAgents,
    NotAHost,
    ProviderExists,
    ProviderGenerationConflict,
    ProviderHasChildren,
    ProviderInUse,
    ProviderNameMissing,
    ProviderNotFound,
    Rejection,
    TraitsNotFound,
    TreeRule,
    TreeRuleBroken,
)
from berth.view import ProviderRecord, View


def advance_generation(record: ProviderRecord, now_s: int, steps: int = 1) -> ProviderStamped:
    """The event that advances a provider's generation (by none, when only its name changed)."""
    before = record.stamp
    return ProviderStamped(record.id, before, Stamp(before.generation + steps, before.created_at_s, now_s))


def find_at_generation(view: View, id: ProviderId, generation: int | None) -> ProviderRecord | Rejection:
    """The provider, if it exists and is still at the generation its writer names (if it names one)."""
    record = view.providers.get(id)
    if record is None:
        return ProviderNotFound(id)
    if generation is not None and generation != record.generation:
        return ProviderGenerationConflict(id, record.generation, generation)
    return record


_UNSTAMPED = Stamp(0, 0, 0)


def create(view: View, command: CreateProvider, now_s: int) -> list[Event] | Rejection:
    if not command.name:
        return ProviderNameMissing(command.id)
    if command.parent == command.id:
        return TreeRuleBroken(command.id, command.parent, TreeRule.PARENT_IS_SELF)
    if command.parent is not None and command.parent not in view.providers:
        return TreeRuleBroken(command.id, command.parent, TreeRule.PARENT_MISSING)
    id_taken, name_taken = command.id in view.providers, command.name in view.names
    if id_taken or name_taken:
        return ProviderExists(command.id if id_taken else None, command.name if name_taken else None)
    return [
        ProviderChanged(command.id, view.free_row(), None, Placed(command.name, command.parent)),
        ProviderStamped(command.id, _UNSTAMPED, Stamp(0, now_s, now_s)),
    ]


def update(view: View, command: UpdateProvider, now_s: int) -> list[Event] | Rejection:
    record = view.providers.get(command.id)
    if record is None:
        return ProviderNotFound(command.id)
    current = record.parent.id if record.parent else None
    wanted = current if command.parent is msgspec.UNSET else command.parent
    if wanted != current:
        broken = _check_tree_rule(view, record, wanted, command.may_reparent)
        if broken is not None:
            return TreeRuleBroken(record.id, wanted, broken)
    namesake = view.names.get(command.name)
    if namesake is not None and namesake is not record:
        return ProviderExists(None, command.name)
    before, after = Placed(record.name, current), Placed(command.name, wanted)
    events: list[Event] = [ProviderChanged(record.id, record.row, before, after)]
    is_marked = False
    if wanted is not None and record.id in view.hosts:
        # A provider below another is not a host any more, and has no status as one.
        status = view.hosts[record.id]
        events.append(HostChanged(record.id, status, None))
        is_marked = status.disabled and STATUS_DISABLED in record.traits
    if is_marked:
        others = tuple(name for name in record.traits if name != STATUS_DISABLED)
        events.append(TraitsChanged(record.id, record.traits, others))
    events.append(advance_generation(record, now_s, steps=int(is_marked)))
    return events


def _check_tree_rule(
    view: View, record: ProviderRecord, wanted: ProviderId | None, may_reparent: bool
) -> TreeRule | None:
    if wanted is None:
        return None if may_reparent else TreeRule.UNPARENTING
    parent = view.providers.get(wanted)
    if parent is None:
        return TreeRule.PARENT_MISSING
    if record.parent is not None and not may_reparent:
        return TreeRule.REPARENTING
    ancestor: ProviderRecord | None = parent
    while ancestor is not None:
        if ancestor is record:
            return TreeRule.LOOP
        ancestor = ancestor.parent
    return None


def delete(view: View, command: DeleteProvider, now_s: int) -> list[Event] | Rejection:
    record = view.providers.get(command.id)
    if record is None:
        return ProviderNotFound(command.id)
    if record.children:
        return ProviderHasChildren(command.id)
    if record.consumers:
        return ProviderInUse(command.id, len(record.consumers))
    events: list[Event] = [
        InventoryChanged(record.id, class_id, inventory, None)
        for class_id, inventory in record.inventories.items()
    ]
    if record.traits:
        events.append(TraitsChanged(record.id, record.traits, ()))
    if record.aggregates:
        events.append(AggregatesChanged(record.id, record.aggregates, ()))
    if record.id in view.hosts:
        events.append(HostChanged(record.id, view.hosts[record.id], None))
    # The stamp goes back to that of a provider not yet made, so that taking the removal back, event
    # by event, finds it again.
    events.append(ProviderStamped(record.id, record.stamp, _UNSTAMPED))
    parent = record.parent.id if record.parent else None
    events.append(ProviderChanged(record.id, record.row, Placed(record.name, parent), None))
    return events


def set_traits(view: View, command: SetTraits, now_s: int) -> list[Event] | Rejection:
    record = find_at_generation(view, command.provider, command.generation)
    if isinstance(record, Rejection):
        return record
    unknown = tuple(sorted(name for name in command.traits if not view.has_trait(name)))
    if unknown:
        return TraitsNotFound(unknown)
    after = tuple(sorted(command.traits, key=lambda name: (name not in STANDARD_TRAITS, name)))
    if after == record.traits:
        return []
    return [TraitsChanged(record.id, record.traits, after), advance_generation(record, now_s)]


def set_aggregates(view: View, command: SetAggregates, now_s: int) -> list[Event] | Rejection:
    record = find_at_generation(view, command.provider, command.generation)
    if isinstance(record, Rejection):
        return record
    after = tuple(dict.fromkeys(command.aggregates))
    if command.cell is not None:
        refused = _refuse_agent(view, record, after, command.cell)
        if refused is not None:
            return refused
    events: list[Event] = [AggregatesChanged(record.id, record.aggregates, after)]
    # Callers older than the generation of aggregates (1.19) do not expect it to move.
    if command.generation is not None:
        events.append(advance_generation(record, now_s))
    return events


def set_host_status(view: View, command: SetHostStatus, now_s: int) -> list[Event] | Rejection:
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


def _refuse_agent(
    view: View, record: ProviderRecord, after: tuple[AggregateId, ...], cell: str
) -> AggregateNotForAgents | None:
    """The first aggregate that an agent of a cell may not put its host into.

    An agent may say where its host is: which pools it reaches, and its rack, once. Whom a host serves is for
    operators to say: an aggregate without a kind or with metadata, an availability zone, another cell.
    """
    labels = view.groups.labels
    kinds = {label.kind for id in record.aggregates if (label := labels.get(id)) is not None}
    for id in after:
        label = labels.get(id)
        if label is None or id in record.aggregates or (label.kind, label.name) == (CELL, cell):
            continue
        if label.kind is None or label.metadata or label.kind in (CELL, ZONE):
            return AggregateNotForAgents(record.id, id, "operators put hosts into it")
        if label.kind in kinds:
            return AggregateNotForAgents(record.id, id, f"the host is in another {label.kind}")
        kinds.add(label.kind)
    return None

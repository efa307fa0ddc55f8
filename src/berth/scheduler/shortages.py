"""What falls short on a host that has room for each part of a request, and not for all of them together.

The groups are placed in order, those that others are to be near first. The first that finds no place beside
those before it, and the provider that comes closest to having enough for it, are named. If so many of them
have no place together, more have none: which one it is, is found by halves.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Final

import msgspec

from berth.model.ids import ClassId, Row
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, RequestGroup
from berth.search.assignments import Effort, assignments_at
from berth.search.cells import find_sockets, rows_above
from berth.search.slots import Slot, split_at
from berth.view import ProviderRecord, View

_STEPS_MAX: Final = 1_000
"""How many steps the searches for one host may take, all together: beyond that it is not known."""

_Placed = list[tuple[Slot, ProviderRecord]]


def describe_shortage(
    view: View, ask: CandidatesRequest, slots_asked: list[Slot], host: ProviderRecord
) -> str | None:
    """What falls short on a host, as a sentence without its full stop; None if nothing does, or if it is not
    known. ``slots_asked`` are those of what is asked."""
    slots = split_at(slots_asked, host)
    if slots is None:
        return None
    short = None if any(slot.sharing for slot in slots) else _describe_total(view, slots, host)
    if short is not None:
        return short
    follow = {affinity.suffix for affinity in ask.affinities}
    slots.sort(key=lambda slot: slot.group.suffix in follow)
    placed: _Placed = []
    effort = Effort(0)
    effort.steps_max = _STEPS_MAX
    # Of the slots in order, so many have a place together, and so many have not.
    fitting, failing = 0, len(slots) + 1
    while failing - fitting > 1:
        # The whole first: mostly it is the last one that falls short.
        count = len(slots) if failing > len(slots) else (fitting + failing) // 2
        found = next(assignments_at(view, _ask_some(ask, slots[:count]), slots[:count], host, effort), None)
        if effort.gave_up:
            return None
        if found is None:
            failing = count
        else:
            fitting, placed = count, list(zip(slots, found, strict=False))
    if failing > len(slots):
        return _describe_trait(view, ask, slots, host)
    return _Shortage(view, ask, host, slots[fitting], placed).words()


def _ask_some(ask: CandidatesRequest, slots: list[Slot]) -> CandidatesRequest:
    """What is asked of these slots. Which provider has a trait of the guest is known when all slots have one:
    that is judged last."""
    there = {slot.group.suffix for slot in slots}
    subtrees = tuple(suffixes for suffixes in ask.same_subtrees if suffixes <= there)
    return msgspec.structs.replace(ask, guest_required=(), same_subtrees=subtrees)


def _describe_trait(
    view: View, ask: CandidatesRequest, slots: list[Slot], host: ProviderRecord
) -> str | None:
    """The trait that the guest requires and its host has only where no part of the guest can be."""
    for any_of in ask.guest_required:
        having = [record for record in host.tree() if set(any_of).intersection(record.traits)]
        if host in having or not having:
            continue
        where = _join(record.name for record in having)
        words = f"{' or '.join(any_of)} is on {where} alone, and the guest cannot be there"
        guest = (slot for slot in slots if slot.group.suffix in ask.guest_groups)
        for slot, record in product(guest, having):
            if all(class_id in record.inventories for class_id, _ in slot.amounts):
                short = _Shortage(view, ask, host, slot, [])._find_short(record)
                if short is not None:
                    name, asked, left = short
                    return f"{words}: {_label(slot.group)} needs {asked} {name}, and there is {left} left"
        return words
    return None


def _describe_total(view: View, slots: list[Slot], host: ProviderRecord) -> str | None:
    """The class of which all providers of a host together have too little, if there is one: no search can
    succeed then, and to find that out takes it long."""
    asked: dict[ClassId, int] = {}
    for slot in slots:
        for class_id, amount in slot.amounts:
            asked[class_id] = asked.get(class_id, 0) + amount
    for class_id, amount in asked.items():
        left = sum(_free(record, class_id) for record in host.tree() if class_id in record.inventories)
        if left < amount:
            name = view.classes.name_of(class_id)
            return f"{amount} {name} are needed in all, and its providers have {left} left together"
    return None


def _free(record: ProviderRecord, class_id: ClassId) -> int:
    return max(0, record.inventories[class_id].capacity - record.used.get(class_id, 0))


class _Shortage:
    """A slot that finds no place on a host beside those that are placed."""

    def __init__(
        self, view: View, ask: CandidatesRequest, host: ProviderRecord, slot: Slot, placed: _Placed
    ) -> None:
        self._view = view
        self._ask = ask
        self._host = host
        self._slot = slot
        self._label = _label(slot.group)
        self._placed = placed
        apart = {suffix for suffixes in ask.apart if slot.group.suffix in suffixes for suffix in suffixes}
        self._others = {record.row: other for other, record in placed if other.group.suffix in apart}
        self._taken: dict[tuple[Row, ClassId], int] = {}
        for other, record in placed:
            for class_id, amount in other.amounts:
                key = (record.row, class_id)
                self._taken[key] = self._taken.get(key, 0) + amount

    def words(self) -> str | None:
        choices = self._slot.choices(self._host, self._view)
        free = [record for record in choices if record.row not in self._others]
        fitting = [record for record in free if self._find_short(record) is None]
        if fitting:
            return self._describe_far(fitting[0])
        near = sorted(self._find_near(), key=lambda pair: pair[0])
        if not near:
            names = _join(record.name for record in choices if record.row in self._others)
            there = f"there is none but {names}" if names else "there is none"
            return f"{self._label} needs a provider of its own, and {there}"
        _, record = near[-1]
        short = self._find_short(record)
        if short is None:
            return None
        name, asked, left = short
        beside = _join(_label(other.group) for other, on in self._placed if on is record)
        words = f"{self._label} needs {asked} {name}, and {record.name} has {left} left"
        return f"{words} beside {beside}" if beside else words

    def _describe_far(self, device: ProviderRecord) -> str:
        """Where there is a device, and the group that it is to be near has no room by it."""
        affinities = [one for one in self._ask.affinities if one.suffix == self._slot.group.suffix]
        near = {suffix for affinity in affinities for suffix in affinity.near}
        for slot, _ in self._placed:
            at = device.parent if slot.group.suffix in near else None
            while at is not None:
                if all(class_id in at.inventories for class_id, _ in slot.amounts):
                    short = _Shortage(self._view, self._ask, self._host, slot, [])._find_short(at)
                    if short is not None:
                        name, asked, left = short
                        words = f"{_label(slot.group)} needs {asked} {name} near {self._label}"
                        return f"{words}, and {at.name}, which has it, has {left} left"
                at = at.parent
        if near:
            by_socket = any(affinity.by_socket for affinity in affinities)
            where = "on a socket with" if by_socket else "below"
            words = (
                f"{self._label} must be {where} a NUMA cell of the guest, and {device.name}, which has room"
            )
            alike = {one.suffix for one in self._ask.affinities if one.near <= near and not one.or_outside}
            cells = [record for slot, record in self._placed if slot.group.suffix in near]
            # Of devices that may be in no cell at all, those cells are not what has too few.
            is_strict = not any(affinity.or_outside for affinity in affinities)
            return f"{words}, is not{self._count_near(cells, alike, by_socket) if is_strict else ''}"
        beside = {
            suffix
            for suffixes in self._ask.same_subtrees
            if self._slot.group.suffix in suffixes
            for suffix in suffixes
        }
        others = _join(_label(slot.group) for slot, _ in self._placed if slot.group.suffix in beside)
        if others:
            words = f"{self._label} has room on {device.name}, and that is not in one subtree with {others}"
            return f"{words}{self._count_near(self._find_top(beside), beside)}"
        return f"{self._label} has room on {device.name}, and that is not where it must be"

    def _count_near(self, cells: list[ProviderRecord], alike: set[str], by_socket: bool = False) -> str:
        """How much of a class is needed by some providers, and how much there is; nothing if that is not what
        falls short. ``alike`` are the groups that must be there."""
        group = self._slot.group
        count = sum(
            other.suffix in alike and (other.resources, other.required) == (group.resources, group.required)
            for other in self._ask.groups
        )
        rows = {cell.row for cell in cells}
        sockets = {trait for cell in cells if by_socket for trait in find_sockets(cell)}
        usable = [
            record
            for record in self._slot.choices(self._host, self._view)
            if not rows.isdisjoint(rows_above(record)) or not sockets.isdisjoint(find_sockets(record))
        ]
        for class_id, amount in self._slot.amounts:
            left, needed = sum(_free(record, class_id) for record in usable), count * amount
            if cells and left < needed:
                name, where = self._view.classes.name_of(class_id), _join(cell.name for cell in cells)
                is_needed = "is needed there" if needed == 1 else "are needed there"
                has = "has" if len(cells) == 1 else "together have"
                return f": {needed} {name} {is_needed}, and {where} {has} {left}"
        return ""

    def _find_top(self, beside: set[str]) -> list[ProviderRecord]:
        """The provider that the groups of a subtree could be on, with the most places for this one below."""
        usable = self._slot.choices(self._host, self._view)
        tops = {
            record.row: record
            for slot, _ in self._placed
            if slot.group.suffix in beside
            for record in slot.choices(self._host, self._view)
        }
        counts = Counter(row for record in usable for row in rows_above(record) if row in tops)
        return [tops[row] for row, _ in counts.most_common(1)]

    def _find_near(self) -> Iterator[tuple[float, ProviderRecord]]:
        """Providers that have some of what is needed, and how much of it."""
        group = self._slot.group
        for record in self._host.tree():
            may_be = group.suffix == UNSUFFIXED or all(
                set(any_of).intersection(record.traits) for any_of in group.required
            )
            has = all(class_id in record.inventories for class_id, _ in self._slot.amounts)
            is_forbidden = not group.forbidden.isdisjoint(record.traits)
            if may_be and has and not is_forbidden and record.row not in self._others:
                yield (
                    min(self._left(record, class_id) / amount for class_id, amount in self._slot.amounts),
                    record,
                )

    def _find_short(self, record: ProviderRecord) -> tuple[str, int, int] | None:
        """The class that a provider has too little of for the slot: its name, what is asked, what is left."""
        parts = [
            (self._left(record, class_id) / amount, class_id, amount)
            for class_id, amount in self._slot.amounts
        ]
        share, class_id, amount = min(parts, default=(1.0, ClassId(0), 0))
        if share >= 1:
            return None
        return self._view.classes.name_of(class_id), amount, self._left(record, class_id)

    def _left(self, record: ProviderRecord, class_id: ClassId) -> int:
        inventory = record.inventories[class_id]
        used = record.used.get(class_id, 0) + self._taken.get((record.row, class_id), 0)
        return max(0, min(inventory.capacity - used, inventory.max_unit))


def _label(group: RequestGroup) -> str:
    if group.label:
        return group.label
    return f"the group {group.suffix}" if group.suffix != UNSUFFIXED else "what may be on any provider"


def _join(names: Iterator[str]) -> str:
    return " and ".join(dict.fromkeys(names))

"""Candidates as patterns over lists of providers, and the search of trees that are alike.

A fleet is mostly many equal hosts, and so are its candidates: the same amounts from the same places, only the
providers differ. What is the same is made once and shared.

Two trees are alike, as far as a request can tell, when they are built alike, the same positions could serve
the same slots, and the same amounts are free where slots compete. What is found in one is then found in the
other, position by position. The search in the first runs only as far as any of them has been asked for.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from berth.model.ids import ClassId
from berth.model.placement import Amounts
from berth.model.scheduling import CandidatesRequest
from berth.search.assignments import Assignment, Effort, assignments_at, contended_classes
from berth.search.cells import find_place_traits
from berth.search.slots import Slot, room_for_one
from berth.view import ProviderRecord, TreeShape, View


class Pattern(msgspec.Struct, frozen=True):
    """What a candidate takes from where, with providers given by their position in a list."""

    allocations: tuple[tuple[int, Amounts], ...]
    mappings: tuple[tuple[str, tuple[int, ...]], ...]


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One way: a pattern, and the providers it is about. Trees that are alike share their patterns."""

    pattern: Pattern
    records: Sequence[ProviderRecord]

    @property
    def allocations(self) -> tuple[tuple[ProviderRecord, Amounts], ...]:
        """Amounts by provider."""
        return tuple((self.records[at], amounts) for at, amounts in self.pattern.allocations)

    @property
    def mappings(self) -> tuple[tuple[str, tuple[ProviderRecord, ...]], ...]:
        """The providers of each group, by its suffix."""
        return tuple((suffix, tuple(self.records[at] for at in ats)) for suffix, ats in self.pattern.mappings)


class Patterns:
    """The patterns of one request: one for each way in which its slots fall together."""

    def __init__(self, slots: list[Slot]) -> None:
        self._parts = [(slot.group.suffix, slot.amounts) for slot in slots]
        self._made: dict[tuple[int, ...], Pattern] = {}

    def at(self, places: tuple[int, ...]) -> Pattern:
        """The pattern of giving each slot the provider at a position: amounts summed by provider, providers
        listed by group."""
        pattern = self._made.get(places)
        if pattern is None:
            pattern = self._made[places] = self._make(places)
        return pattern

    def candidates(self, assignments: Iterable[Assignment]) -> Iterator[Candidate]:
        """Candidates for assignments of any providers."""
        for assignment in assignments:
            position: dict[ProviderRecord, int] = {}
            places = tuple(position.setdefault(record, len(position)) for record in assignment)
            yield Candidate(self.at(places), tuple(position))

    def _make(self, places: tuple[int, ...]) -> Pattern:
        amounts: dict[int, dict[ClassId, int]] = {}
        mappings: dict[str, dict[int, None]] = {}
        for (suffix, asked), place in zip(self._parts, places, strict=True):
            mappings.setdefault(suffix, {})[place] = None
            if asked:
                held = amounts.setdefault(place, {})
                for class_id, amount in asked:
                    held[class_id] = held.get(class_id, 0) + amount
        return Pattern(
            tuple((place, tuple(held.items())) for place, held in amounts.items()),
            tuple((suffix, tuple(ats)) for suffix, ats in mappings.items()),
        )


class TreeCandidates(Sequence[Candidate]):
    """Candidates of one tree each: the patterns, and beside each the tree that it is about."""

    def __init__(self, patterns: list[Pattern], trees: list[TreeShape]) -> None:
        self.patterns = patterns
        self.trees = trees

    def __len__(self) -> int:
        return len(self.patterns)

    def __getitem__(self, index: int) -> Candidate:  # type: ignore[override]
        return Candidate(self.patterns[index], self.trees[index].records)

    def pick(self, numbers: Sequence[int]) -> "TreeCandidates":
        return TreeCandidates([self.patterns[n] for n in numbers], [self.trees[n] for n in numbers])


class TreeKinds:
    """What trees differ by, as far as a request can tell."""

    def __init__(self, view: View, request: CandidatesRequest, slots: list[Slot]) -> None:
        self._steps = view.steps
        self._contended = contended_classes(slots)
        # Of what is split, each provider gives a part that depends on what it has.
        self._split = tuple(slot.amounts[0][0] for slot in slots if slot.splits)
        sharing = [pair for slot in slots for pair in slot.sharing.items()]
        self._served = list({id(served): served for _, served in sharing}.values())
        self._with_sharing = {int(view.root_rows[row]) for row, _ in sharing}
        # What is the same for a slot wherever a row is: whether it could serve, which of the traits it has
        # that the spanning group or the guest may find on any of its providers, whether it is a NUMA cell,
        # and of which socket. Eight such facts make a byte.
        spanning = next((slot for slot in slots if slot.spans), None)
        required = (*(spanning.group.required if spanning else ()), *request.guest_required)
        traits = {name for names in required for name in names}
        masks = list({id(slot.own): slot.own for slot in slots}.values())
        traits |= find_place_traits(view, request)
        masks += [view.rows_with_trait(name).mask(view.row_end) for name in sorted(traits)]
        self._facts = [octet.tobytes() for octet in np.packbits(np.stack(masks), axis=0)]

    def of(self, tree: TreeShape) -> object:
        """All that a search in the tree depends on."""
        self._steps.take(5 + len(self._facts) + (len(tree.records) if self._contended else 0))
        pick = tree.pick
        facts = tuple([pick(rows) for rows in self._facts])
        if self._served or self._split:
            return tree.parents, facts, self._free_in(tree), self._shared_with(tree), self._parts_in(tree)
        if not self._contended:
            return tree.parents, facts
        return tree.parents, facts, self._free_in(tree)

    def _free_in(self, tree: TreeShape) -> tuple[object, ...]:
        return tuple([_free(record, self._contended) for record in tree.records])

    def _shared_with(self, tree: TreeShape) -> object:
        """Which sharing providers serve the tree. One that has such a provider itself is like no other: it
        is the only one to which that provider is its own."""
        root = tree.records[0].row
        self._steps.take(len(self._served) // 4)
        return root if root in self._with_sharing else tuple([bool(served[root]) for served in self._served])

    def _parts_in(self, tree: TreeShape) -> tuple[object, ...]:
        return tuple(
            (room_for_one(record, id), inventory.min_unit, inventory.step_size)
            if (inventory := record.inventories.get(id)) is not None
            else None
            for id in self._split
            for record in tree.records
        )


class BarrenTrees:
    """Trees in which nothing was found: others that are alike need not be searched."""

    def __init__(self, view: View, request: CandidatesRequest, slots: list[Slot]) -> None:
        self._view = view
        self._request = request
        self._slots = slots
        self._kinds: TreeKinds | None = None
        self._barren: set[object] = set()

    def note(self, root: ProviderRecord) -> None:
        """Remember a tree in which nothing is to be found."""
        if self._kinds is None:
            self._view.steps.take(len(self._slots) * (1 + self._view.row_end // 1000))
            self._kinds = TreeKinds(self._view, self._request, self._slots)
        self._barren.add(self._kinds.of(root.shape()))

    def has_alike(self, root: ProviderRecord) -> bool:
        return self._kinds is not None and self._kinds.of(root.shape()) in self._barren

    def forget(self) -> None:
        """What there was has changed."""
        self._kinds = None
        self._barren.clear()


class AlikeTrees:
    """The candidates of trees, by kind of tree. Not for requests that sharing providers serve."""

    def __init__(
        self,
        view: View,
        request: CandidatesRequest,
        slots: list[Slot],
        effort: Effort,
        patterns: Patterns,
    ) -> None:
        self._view = view
        self._request = request
        self._slots = slots
        self._effort = effort
        self._patterns = patterns
        self._tree_kinds = TreeKinds(view, request, slots)
        self._kinds: dict[object, _Kind] = {}

    def breadth_first(self, roots: Iterable[ProviderRecord], count_max: int) -> TreeCandidates:
        """One candidate of each tree, then the second of each, and so on. A tree is looked at when its turn
        comes."""
        found = TreeCandidates([], [])
        shapes = (root.shape() for root in roots)
        waiting = ((tree, self._kind(tree)) for tree in shapes)
        for number in itertools.count():
            going_on: list[tuple[TreeShape, _Kind]] = []
            while few := list(itertools.islice(waiting, count_max - len(found))):
                at = {kind: kind.at(number) for kind in dict.fromkeys([kind for _, kind in few])}
                if None in at.values():
                    few = [pair for pair in few if at[pair[1]] is not None]
                found.patterns += [pattern for _, kind in few if (pattern := at[kind]) is not None]
                found.trees += [tree for tree, _ in few]
                going_on += few
            if not going_on or len(found) == count_max:
                return found
            waiting = (pair for pair in going_on)
        raise AssertionError("counting does not end")

    def depth_first(self, roots: Iterable[ProviderRecord], count_max: int) -> TreeCandidates:
        """All candidates of a tree, then those of the next."""
        found = TreeCandidates([], [])
        for root in roots:
            tree = root.shape()
            kind = self._kind(tree)
            for number in itertools.count():
                if len(found) >= count_max:
                    return found
                pattern = kind.at(number)
                if pattern is None:
                    break
                found.patterns.append(pattern)
                found.trees.append(tree)
        return found

    def _kind(self, tree: TreeShape) -> "_Kind":
        key = self._tree_kinds.of(tree)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(self._patterns_at(tree.records))
        return kind

    def _patterns_at(self, tree: tuple[ProviderRecord, ...]) -> Iterator[Pattern]:
        """What is found in a tree. The search begins with the first that is asked for, not before: how
        patient it may be depends on what others have cost until then."""
        position = {record.row: number for number, record in enumerate(tree)}
        for assignment in assignments_at(self._view, self._request, self._slots, tree[0], self._effort):
            yield self._patterns.at(tuple([position[record.row] for record in assignment]))


class _Kind:
    """What is found in trees of one kind, as far as it has been looked for."""

    def __init__(self, patterns: Iterator[Pattern]) -> None:
        self._coming = patterns
        self._found: list[Pattern] = []

    def at(self, number: int) -> Pattern | None:
        """The pattern of this number, if there are as many; all before it have been asked for."""
        if number == len(self._found):
            pattern = next(self._coming, None)
            if pattern is None:
                return None
            self._found.append(pattern)
        return self._found[number]


def _free(record: ProviderRecord, class_ids: tuple[ClassId, ...]) -> tuple[object, ...]:
    return tuple(
        (inventory.capacity - record.used.get(id, 0), inventory.max_unit)
        if (inventory := record.inventories.get(id)) is not None
        else None
        for id in class_ids
    )

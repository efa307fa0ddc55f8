"""Trees that are alike are searched once.

Two trees are alike, as far as a request can tell, when they are built alike, the same positions could serve
the same slots, and the same amounts are free where slots compete. What is found in one is then found in the
other, position by position. The search in the first runs only as far as any of them has been asked for.
"""

from collections.abc import Iterator

from berth.model.ids import ClassId
from berth.model.requests import CandidatesRequest
from berth.search.assignments import Effort, assignments_at, contended_classes
from berth.search.patterns import Candidate, Pattern, Patterns
from berth.search.places import Slot
from berth.view import ProviderRecord, View


class AlikeTrees:
    """The candidates of trees, by kind of tree. Not for requests that others lend to."""

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
        self._contended = contended_classes(slots)
        # What is the same for a slot wherever a row is: whether it could serve, and which of the traits it
        # has that the spanning group may find on any of its providers.
        spanning = next((slot for slot in slots if slot.spans), None)
        traits = {name for names in (spanning.group.required if spanning else ()) for name in names}
        self._facts = [slot.own_bytes for slot in slots] + [
            view.rows_with_trait(name).mask(view.row_end).tobytes() for name in sorted(traits)
        ]
        self._kinds: dict[object, _Kind] = {}

    def candidates_at(self, root: ProviderRecord) -> Iterator[Candidate]:
        tree = root.tree()
        kind = self._kinds.get(key := self._key(root, tree))
        if kind is None:
            kind = self._kinds[key] = self._new_kind(root, tree)
        return kind.candidates(tree)

    def _key(self, root: ProviderRecord, tree: tuple[ProviderRecord, ...]) -> object:
        """All that a search in the tree depends on."""
        shape = root.shape()
        facts = tuple([shape.pick(rows) for rows in self._facts])
        if not self._contended:
            return shape.parents, facts
        return shape.parents, facts, tuple([_free(record, self._contended) for record in tree])

    def _new_kind(self, root: ProviderRecord, tree: tuple[ProviderRecord, ...]) -> "_Kind":
        position = {record.row: number for number, record in enumerate(tree)}
        found = assignments_at(self._view, self._request, self._slots, root, self._effort)
        return _Kind(
            self._patterns.at(tuple(position[record.row] for record in assignment)) for assignment in found
        )


class _Kind:
    """What is found in trees of one kind, as far as it has been looked for."""

    def __init__(self, patterns: Iterator[Pattern]) -> None:
        self._coming = patterns
        self._found: list[Pattern] = []

    def candidates(self, tree: tuple[ProviderRecord, ...]) -> Iterator[Candidate]:
        number = 0
        while True:
            if number == len(self._found):
                pattern = next(self._coming, None)
                if pattern is None:
                    return
                self._found.append(pattern)
            yield Candidate(self._found[number], tree)
            number += 1


def _free(record: ProviderRecord, class_ids: tuple[ClassId, ...]) -> tuple[object, ...]:
    return tuple(
        (inventory.capacity - record.used.get(id, 0), inventory.max_unit)
        if (inventory := record.inventories.get(id)) is not None
        else None
        for id in class_ids
    )

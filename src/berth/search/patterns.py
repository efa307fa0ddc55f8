"""Candidates, as patterns over lists of providers.

A fleet is mostly many equal hosts, and so are its candidates: the same amounts from the same
places, only the providers differ. What is the same is made once and shared.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from berth.model.ids import ClassId
from berth.model.placement import Amounts
from berth.search.assignments import Assignment
from berth.search.slots import Slot
from berth.view import ProviderRecord


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

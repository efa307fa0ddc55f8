"""Facts in lists, and questions that are answered by going through all of them.

Nothing here is a total, an index or a pointer, so nothing can fall out of step.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from berth.model.groups import Group
from berth.model.ids import AggregateId, ClassId, ConsumerId, GroupId, ProviderId
from berth.model.placement import STANDARD_CLASSES, STANDARD_TRAITS, HostStatus, Inventory, Label

Kinds = frozenset[str]
"""Names of the classes of Rejection that would be right. None at all: the command is accepted."""

ACCEPTED: Kinds = frozenset()


@dataclass(frozen=True)
class ProviderFact:
    id: ProviderId
    name: str
    parent: ProviderId | None
    generation: int
    created_at_s: int
    updated_at_s: int
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[AggregateId] = frozenset()


@dataclass(frozen=True)
class ClassFact:
    number: ClassId
    name: str
    created_at_s: int


@dataclass(frozen=True)
class InventoryFact:
    provider: ProviderId
    resource_class: ClassId
    inventory: Inventory


@dataclass(frozen=True)
class AllocationFact:
    consumer: ConsumerId
    provider: ProviderId
    resource_class: ClassId
    amount: int


@dataclass(frozen=True)
class ConsumerFact:
    id: ConsumerId
    generation: int
    project: str
    user: str
    type: str | None
    created_at_s: int
    updated_at_s: int


@dataclass(frozen=True)
class LabelFact:
    aggregate: AggregateId
    label: Label


@dataclass(frozen=True)
class HostFact:
    provider: ProviderId
    status: HostStatus


@dataclass(frozen=True)
class GroupFact:
    id: GroupId
    group: Group


@dataclass(frozen=True)
class MemberFact:
    consumer: ConsumerId
    group: GroupId
    stands_for: ConsumerId


@dataclass
class Facts:
    """All facts."""

    classes: list[ClassFact] = field(default_factory=list)
    traits: list[tuple[str, int]] = field(default_factory=list)
    providers: list[ProviderFact] = field(default_factory=list)
    inventories: list[InventoryFact] = field(default_factory=list)
    consumers: list[ConsumerFact] = field(default_factory=list)
    allocations: list[AllocationFact] = field(default_factory=list)
    labels: list[LabelFact] = field(default_factory=list)
    hosts: list[HostFact] = field(default_factory=list)
    groups: list[GroupFact] = field(default_factory=list)
    members: list[MemberFact] = field(default_factory=list)

    def copy(self) -> Self:
        return type(self)(**{name: list(facts) for name, facts in vars(self).items()})

    # -- questions ------------------------------------------------------------------------------

    def provider(self, id: ProviderId) -> ProviderFact | None:
        return next((fact for fact in self.providers if fact.id == id), None)

    def consumer(self, id: ConsumerId) -> ConsumerFact | None:
        return next((fact for fact in self.consumers if fact.id == id), None)

    def group(self, id: GroupId) -> Group | None:
        return next((fact.group for fact in self.groups if fact.id == id), None)

    def member(self, consumer: ConsumerId) -> MemberFact | None:
        return next((fact for fact in self.members if fact.consumer == consumer), None)

    def class_number(self, name: str) -> ClassId | None:
        if name in STANDARD_CLASSES:
            return ClassId(STANDARD_CLASSES.index(name))
        return next((fact.number for fact in self.classes if fact.name == name), None)

    def class_name(self, number: ClassId) -> str:
        custom = next((fact.name for fact in self.classes if fact.number == number), None)
        return STANDARD_CLASSES[number] if custom is None else custom

    def has_trait(self, name: str) -> bool:
        return name in STANDARD_TRAITS or any(name == custom for custom, _ in self.traits)

    def inventory(self, provider: ProviderId, number: ClassId) -> Inventory | None:
        return next(
            (f.inventory for f in self.inventories if (f.provider, f.resource_class) == (provider, number)),
            None,
        )

    def used(self, provider: ProviderId, number: ClassId, besides: Iterable[ConsumerId] = frozenset()) -> int:
        """What all consumers, but for some, hold of a class of a provider."""
        return sum(
            fact.amount
            for fact in self.allocations
            if fact.provider == provider and fact.resource_class == number and fact.consumer not in besides
        )

    def held(self, consumer: ConsumerId) -> dict[tuple[ProviderId, ClassId], int]:
        return {
            (fact.provider, fact.resource_class): fact.amount
            for fact in self.allocations
            if fact.consumer == consumer
        }

    def root(self, id: ProviderId) -> ProviderId:
        return self.lineage(id)[-1]

    def lineage(self, id: ProviderId) -> list[ProviderId]:
        """The provider, its parent, and so on up to the root."""
        found = [id]
        while True:
            fact = self.provider(found[-1])
            assert fact is not None
            if fact.parent is None:
                return found
            found.append(fact.parent)

    def totals(self) -> dict[tuple[str, str, str | None], tuple[int, dict[ClassId, int]]]:
        """By project, user and type: how many consumers hold something, and how much of each class."""
        totals: dict[tuple[str, str, str | None], tuple[int, dict[ClassId, int]]] = {}
        for fact in self.consumers:
            held = self.held(fact.id)
            if held:
                key = (fact.project, fact.user, fact.type)
                count, amounts = totals.get(key, (0, {}))
                for (_, number), amount in held.items():
                    amounts[number] = amounts.get(number, 0) + amount
                totals[key] = (count + 1, amounts)
        return totals

"""A naive ledger: lists of facts, every question answered by going through all of them.

A command is judged by collecting *every* rule it breaks. The real ledger stops at the first, and may ask
in any order: the two agree when both accept, or when the real one's reason is among those found here.
"""

from dataclasses import dataclass, replace
from typing import assert_never

import msgspec

from berth.model import commands as c
from berth.model.ids import ClassId, ConsumerId, ProviderId
from berth.model.placement import (
    FIRST_CUSTOM_CLASS,
    HEALTHY,
    STANDARD_CLASSES,
    STANDARD_TRAITS,
    STATUS_DISABLED,
    Inventory,
)
from berth.oracle import groups
from berth.oracle.facts import (
    ACCEPTED,
    AllocationFact,
    ClassFact,
    ConsumerFact,
    Facts,
    InventoryFact,
    Kinds,
    ProviderFact,
)


@dataclass
class Oracle(Facts):
    """All facts. ``carry_out`` is the only way to change them."""

    # -- commands -------------------------------------------------------------------------------

    def carry_out(self, command: c.LedgerCommand, now_s: int) -> Kinds:
        """Do what the command says if no rule speaks against it; the rules that do."""
        match command:
            case c.CreateResourceClass():
                return self._create_class(command, now_s)
            case c.RenameResourceClass():
                return self._rename_class(command)
            case c.DeleteResourceClass():
                return self._delete_class(command)
            case c.CreateTrait():
                return self._create_trait(command, now_s)
            case c.DeleteTrait():
                return self._delete_trait(command)
            case c.CreateProvider():
                return self._create_provider(command, now_s)
            case c.UpdateProvider():
                return self._update_provider(command, now_s)
            case c.DeleteProvider():
                return self._delete_provider(command)
            case c.AddInventory():
                return self._add_inventory(command, now_s)
            case c.PutInventory():
                return self._put_inventory(command, now_s)
            case c.SetInventories():
                return self._set_inventories(command, now_s)
            case c.DeleteInventory():
                return self._delete_inventory(command, now_s)
            case c.SetTraits():
                return self._set_traits(command, now_s)
            case c.SetAggregates():
                return self._set_aggregates(command, now_s)
            case c.ReplaceAllocations():
                return self._replace_allocations(command, now_s)
            case c.DeleteAllocations():
                return self._delete_allocations(command)
            case c.Reshape():
                return self._reshape(command, now_s)
            case c.SetHostStatus():
                return self._set_host_status(command, now_s)
            case c.LabelAggregate():
                return groups.label_aggregate(self, command)
            case c.CreateGroup():
                return groups.create_group(self, command, now_s)
            case c.ChangeGroup():
                return groups.change_group(self, command)
            case c.DeleteGroup():
                return groups.delete_group(self, command)
            case c.ChangeMembers():
                return groups.change_members(self, command)
        assert_never(command)

    # -- vocabulary -----------------------------------------------------------------------------

    def _create_class(self, command: c.CreateResourceClass, now_s: int) -> Kinds:
        if self.class_number(command.name) is not None:
            return ACCEPTED if command.exist_ok else frozenset({"ResourceClassExists"})
        if not _may_be_made(command.name):
            return frozenset({"NameNotCustom"})
        taken = [fact.number for fact in self.classes]
        number = ClassId(max(taken) + 1) if taken else FIRST_CUSTOM_CLASS
        self.classes.append(ClassFact(number, command.name, now_s))
        return ACCEPTED

    def _rename_class(self, command: c.RenameResourceClass) -> Kinds:
        kinds = self._unchangeable_class(command.name)
        if command.new_name != command.name:
            if self.class_number(command.new_name) is not None:
                kinds.add("ResourceClassExists")
            if not _may_be_made(command.new_name):
                kinds.add("NameNotCustom")
        if not kinds:
            self.classes = [
                replace(fact, name=command.new_name) if fact.name == command.name else fact
                for fact in self.classes
            ]
        return frozenset(kinds)

    def _delete_class(self, command: c.DeleteResourceClass) -> Kinds:
        kinds = self._unchangeable_class(command.name)
        number = self.class_number(command.name)
        if any(fact.resource_class == number for fact in self.inventories):
            kinds.add("ResourceClassInUse")
        if not kinds:
            self.classes = [fact for fact in self.classes if fact.name != command.name]
        return frozenset(kinds)

    def _unchangeable_class(self, name: str) -> set[str]:
        if name in STANDARD_CLASSES:
            return {"ResourceClassIsStandard"}
        return set() if self.class_number(name) is not None else {"ResourceClassNotFound"}

    def _create_trait(self, command: c.CreateTrait, now_s: int) -> Kinds:
        if self.has_trait(command.name):
            return ACCEPTED
        if not _may_be_made(command.name):
            return frozenset({"NameNotCustom"})
        self.traits.append((command.name, now_s))
        return ACCEPTED

    def _delete_trait(self, command: c.DeleteTrait) -> Kinds:
        kinds = set()
        if not self.has_trait(command.name):
            kinds.add("TraitsNotFound")
        if command.name in STANDARD_TRAITS:
            kinds.add("TraitIsStandard")
        if any(command.name in fact.traits for fact in self.providers):
            kinds.add("TraitInUse")
        if not kinds:
            self.traits = [(name, at) for name, at in self.traits if name != command.name]
        return frozenset(kinds)

    # -- providers ------------------------------------------------------------------------------

    def _create_provider(self, command: c.CreateProvider, now_s: int) -> Kinds:
        kinds = set()
        if not command.name:
            kinds.add("ProviderNameMissing")
        if command.parent is not None and (
            command.parent == command.id or self.provider(command.parent) is None
        ):
            kinds.add("TreeRuleBroken")
        if any(fact.id == command.id or fact.name == command.name for fact in self.providers):
            kinds.add("ProviderExists")
        if not kinds:
            self.providers.append(ProviderFact(command.id, command.name, command.parent, 0, now_s, now_s))
        return frozenset(kinds)

    def _update_provider(self, command: c.UpdateProvider, now_s: int) -> Kinds:
        old = self.provider(command.id)
        if old is None:
            return frozenset({"ProviderNotFound"})
        kinds = set()
        parent = old.parent if command.parent is msgspec.UNSET else command.parent
        if parent != old.parent:
            if old.parent is not None and not command.may_reparent:
                kinds.add("TreeRuleBroken")
            if parent is not None and (self.provider(parent) is None or command.id in self.lineage(parent)):
                kinds.add("TreeRuleBroken")
        if any(fact.name == command.name and fact.id != command.id for fact in self.providers):
            kinds.add("ProviderExists")
        if not kinds:
            if parent is not None:
                self._set_host_status(c.SetHostStatus(command.id, HEALTHY), now_s)
            after = self.provider(command.id) or old
            self._put(replace(after, name=command.name, parent=parent, updated_at_s=now_s))
        return frozenset(kinds)

    def _delete_provider(self, command: c.DeleteProvider) -> Kinds:
        if self.provider(command.id) is None:
            return frozenset({"ProviderNotFound"})
        kinds = set()
        if any(fact.parent == command.id for fact in self.providers):
            kinds.add("ProviderHasChildren")
        if any(fact.provider == command.id for fact in self.allocations):
            kinds.add("ProviderInUse")
        if not kinds:
            self.providers = [fact for fact in self.providers if fact.id != command.id]
            self.inventories = [fact for fact in self.inventories if fact.provider != command.id]
            self.hosts = [fact for fact in self.hosts if fact.provider != command.id]
        return frozenset(kinds)

    def _set_traits(self, command: c.SetTraits, now_s: int) -> Kinds:
        old, kinds = self._provider_at(command.provider, command.generation)
        if any(not self.has_trait(name) for name in command.traits):
            kinds.add("TraitsNotFound")
        if not kinds and old is not None and old.traits != command.traits:
            self._put(replace(old, traits=command.traits))
            self._advance(old.id, 1, now_s)
        return frozenset(kinds)

    def _set_host_status(self, command: c.SetHostStatus, now_s: int) -> Kinds:
        was_disabled = any(fact.status.disabled for fact in self.hosts if fact.provider == command.provider)
        kinds = groups.set_host_status(self, command)
        old = self.provider(command.provider)
        if kinds == ACCEPTED and old is not None and command.status.disabled != was_disabled:
            marked = old.traits | {STATUS_DISABLED} if not was_disabled else old.traits - {STATUS_DISABLED}
            return self._set_traits(c.SetTraits(old.id, None, marked), now_s)
        return kinds

    def _set_aggregates(self, command: c.SetAggregates, now_s: int) -> Kinds:
        old, kinds = self._provider_at(command.provider, command.generation)
        if not kinds and old is not None:
            self._put(replace(old, aggregates=frozenset(command.aggregates)))
            if command.generation is not None:
                self._advance(old.id, 1, now_s)
        return frozenset(kinds)

    # -- inventories ----------------------------------------------------------------------------

    def _add_inventory(self, command: c.AddInventory, now_s: int) -> Kinds:
        _, kinds = self._provider_at(command.provider, None)
        kinds |= _unreasonable(command.inventory, command.may_reserve_all)
        number = self.class_number(command.resource_class)
        if number is None:
            return frozenset(kinds | {"ResourceClassNotFound"})
        if self.inventory(command.provider, number) is not None:
            kinds.add("InventoryExists")
        if not kinds:
            self._write_inventory(command.provider, number, command.inventory, now_s)
            self._advance(command.provider, 1, now_s)
        return frozenset(kinds)

    def _put_inventory(self, command: c.PutInventory, now_s: int) -> Kinds:
        _, kinds = self._provider_at(command.provider, command.generation)
        kinds |= _unreasonable(command.inventory, command.may_reserve_all)
        number = self.class_number(command.resource_class)
        if number is None:
            return frozenset(kinds | {"ResourceClassNotFound"})
        if self.inventory(command.provider, number) is None:
            kinds.add("InventoryNotFound")
        if not kinds:
            self._write_inventory(command.provider, number, command.inventory, now_s)
            self._advance(command.provider, 1, now_s)
        return frozenset(kinds)

    def _set_inventories(self, command: c.SetInventories, now_s: int) -> Kinds:
        _, kinds = self._provider_at(command.provider, command.generation)
        for name, inventory in command.inventories.items():
            kinds |= _unreasonable(inventory, command.may_reserve_all)
            if self.class_number(name) is None:
                kinds.add("ResourceClassNotFound")
        for number in self._dropped(command.provider, command.inventories):
            if self.used(command.provider, number):
                kinds.add("InventoryInUse")
        if not kinds:
            self._replace_inventories(command.provider, command.inventories, now_s)
            self._advance(command.provider, 1, now_s)
        return frozenset(kinds)

    def _delete_inventory(self, command: c.DeleteInventory, now_s: int) -> Kinds:
        _, kinds = self._provider_at(command.provider, None)
        number = self.class_number(command.resource_class)
        if number is None:
            return frozenset(kinds | {"ResourceClassNotFound"})
        if self.inventory(command.provider, number) is None:
            kinds.add("InventoryNotFound")
        if self.used(command.provider, number):
            kinds.add("InventoryInUse")
        if not kinds:
            self._erase_inventory(command.provider, number)
            self._advance(command.provider, 1, now_s)
        return frozenset(kinds)

    # -- allocations ----------------------------------------------------------------------------

    def _replace_allocations(self, command: c.ReplaceAllocations, now_s: int) -> Kinds:
        kinds = self._faults(command.claims)
        if not kinds:
            for id in self._written(command.claims):
                self._advance(id, 1, now_s)
            self._grant_all(command.claims, now_s)
        return frozenset(kinds)

    def _delete_allocations(self, command: c.DeleteAllocations) -> Kinds:
        if not self.held(command.consumer):
            return frozenset({"AllocationsNotFound"})
        self._forget(command.consumer)
        groups.end_migration(self, command.consumer)
        return ACCEPTED

    def _reshape(self, command: c.Reshape, now_s: int) -> Kinds:
        """Do it all, on a copy, in the order the definition gives; keep the copy if nothing went wrong.

        The copy first has old and new inventories side by side, then the new allocations, then only the
        new inventories. A provider's generation goes up at each of the three that it takes part in; the
        first is left out for one that shall have no inventory at all.
        """
        kinds: set[str] = set()
        for new in command.inventories:
            kinds |= self._provider_at(new.provider, new.generation)[1]
            if any(self.class_number(name) is None for name in new.inventories):
                kinds.add("ResourceClassNotFound")
        if kinds:
            # The claims cannot be judged against inventories that cannot be; name what is wrong with
            # them in any case.
            return frozenset(kinds | self._faults(command.claims, may_stay=False))
        trial = self.copy()
        for new in command.inventories:
            for name, inventory in new.inventories.items():
                trial._write_inventory(new.provider, _known(trial.class_number(name)), inventory, now_s)
            if new.inventories:
                trial._advance(new.provider, 1, now_s)
        kinds |= trial._faults(command.claims, may_stay=False)
        if kinds:
            return frozenset(kinds)
        for id in trial._written(command.claims):
            trial._advance(id, 1, now_s)
        trial._grant_all(command.claims, now_s)
        for new in command.inventories:
            for number in trial._dropped(new.provider, new.inventories):
                if trial.used(new.provider, number):
                    return frozenset({"InventoryInUse"})
            trial._replace_inventories(new.provider, new.inventories, now_s)
            trial._advance(new.provider, 1, now_s)
        self.providers, self.inventories = trial.providers, trial.inventories
        self.consumers, self.allocations = trial.consumers, trial.allocations
        self.members = trial.members
        return ACCEPTED

    def _faults(self, claims: tuple[c.Claim, ...], *, may_stay: bool = True) -> set[str]:
        """Everything that is wrong with these claims together. ``may_stay``: an amount that one of the
        consumers has already need not fit the units."""
        kinds = set()
        sums: dict[tuple[ProviderId, ClassId], int] = {}
        for claim in claims:
            consumer = self.consumer(claim.consumer)
            generation = consumer.generation if consumer is not None else None
            if claim.generation is not c.UNCHECKED and claim.generation != generation:
                kinds.add("ConsumerGenerationConflict")
            for provider, wanted in claim.wanted:
                if self.provider(provider) is None:
                    kinds.add("ClaimedProviderNotFound")
                for name, amount in wanted:
                    number = self.class_number(name)
                    if number is None:
                        kinds.add("ClaimedClassNotFound")
                        continue
                    sums[provider, number] = sums.get((provider, number), 0) + amount
                    inventory = self.inventory(provider, number)
                    if inventory is None:
                        kinds.add("NoInventory")
                    elif (
                        not (inventory.min_unit <= amount <= inventory.max_unit)
                        or amount % inventory.step_size != 0
                    ) and not (may_stay and self._may_stay(claims, claim, provider, number, amount)):
                        kinds.add("UnitsViolated")
        consumers = {claim.consumer for claim in claims}
        for (provider, number), asked in sums.items():
            inventory = self.inventory(provider, number)
            if inventory is not None:
                capacity = (inventory.total - inventory.reserved) * inventory.allocation_ratio
                after = self.used(provider, number, besides=consumers) + asked
                if after > capacity and after > self.used(provider, number):
                    kinds.add("CapacityExceeded")
        # Where members would come to stand can only be said of claims that could be granted otherwise.
        return kinds or self._group_faults(claims)

    def _may_stay(
        self,
        claims: tuple[c.Claim, ...],
        claim: c.Claim,
        provider: ProviderId,
        number: ClassId,
        amount: int,
    ) -> bool:
        """Whether one of the claims' consumers has this amount already, or a migration and one other hold a
        sum that stays what it was: then it may have any part, and the other all of it."""
        held = [
            fact.amount
            for fact in self.allocations
            if (fact.provider, fact.resource_class) == (provider, number)
            and any(fact.consumer == one.consumer for one in claims)
        ]
        wanted = sum(
            n
            for one in claims
            for id, amounts in one.wanted
            for name, n in amounts
            if (id, self.class_number(name)) == (provider, number)
        )
        has_migration = len(claims) == 2 and any(one.consumer_type == "MIGRATION" for one in claims)
        is_part = claim.consumer_type == "MIGRATION" or amount == sum(held)
        return amount in held or (has_migration and wanted == sum(held) and is_part)

    def _group_faults(self, claims: tuple[c.Claim, ...]) -> set[str]:
        """Everything that groups have against these claims: grant them on a copy, and look at it."""
        kinds = groups.wrongly_named(self, claims)
        # Where members stand changes only if one of them is among those who claim.
        if not kinds and any(one.group or self.member(one.consumer) for one in claims):
            trial = self.copy()
            trial._grant_all(claims, 0)
            kinds = groups.faults(self, trial)
        return kinds

    def _written(self, claims: tuple[c.Claim, ...]) -> set[ProviderId]:
        """The providers that the claims write to: those they name, or those they empty."""
        written = set()
        for claim in claims:
            if claim.wanted:
                written |= {provider for provider, _ in claim.wanted}
            else:
                written |= {provider for provider, _ in self.held(claim.consumer)}
        return written

    def _grant_all(self, claims: tuple[c.Claim, ...], now_s: int) -> None:
        members = groups.members_with(self, claims)
        for claim in claims:
            self._grant(claim, now_s)
        self.members = members

    def _grant(self, claim: c.Claim, now_s: int) -> None:
        old = self.consumer(claim.consumer)
        if self.held(claim.consumer) and not claim.wanted:
            self._forget(claim.consumer)
            return
        self._forget(claim.consumer)
        self.consumers.append(
            ConsumerFact(
                id=claim.consumer,
                generation=(old.generation if old else 0) + (1 if claim.wanted else 0),
                project=claim.project,
                user=claim.user,
                type=claim.consumer_type or (old.type if old else None),
                created_at_s=old.created_at_s if old else now_s,
                updated_at_s=now_s,
            )
        )
        for provider, wanted in claim.wanted:
            for name, amount in wanted:
                number = _known(self.class_number(name))
                self.allocations.append(AllocationFact(claim.consumer, provider, number, amount))

    def _forget(self, consumer: ConsumerId) -> None:
        self.consumers = [fact for fact in self.consumers if fact.id != consumer]
        self.allocations = [fact for fact in self.allocations if fact.consumer != consumer]

    # -- writing facts --------------------------------------------------------------------------

    def _provider_at(self, id: ProviderId, generation: int | None) -> tuple[ProviderFact | None, set[str]]:
        fact = self.provider(id)
        if fact is None:
            return None, {"ProviderNotFound"}
        if generation is not None and generation != fact.generation:
            return fact, {"ProviderGenerationConflict"}
        return fact, set()

    def _put(self, new: ProviderFact) -> None:
        self.providers = [new if fact.id == new.id else fact for fact in self.providers]

    def _advance(self, id: ProviderId, steps: int, now_s: int) -> None:
        old = self.provider(id)
        assert old is not None
        self._put(replace(old, generation=old.generation + steps, updated_at_s=now_s))

    def _dropped(self, provider: ProviderId, wanted: dict[str, Inventory]) -> list[ClassId]:
        """The classes that a provider has and shall not have any more."""
        return [
            fact.resource_class
            for fact in self.inventories
            if fact.provider == provider and self.class_name(fact.resource_class) not in wanted
        ]

    def _replace_inventories(self, provider: ProviderId, wanted: dict[str, Inventory], now_s: int) -> None:
        for number in self._dropped(provider, wanted):
            self._erase_inventory(provider, number)
        for name, inventory in wanted.items():
            self._write_inventory(provider, _known(self.class_number(name)), inventory, now_s)

    def _write_inventory(
        self, provider: ProviderId, number: ClassId, inventory: Inventory, now_s: int
    ) -> None:
        self._erase_inventory(provider, number)
        dated = msgspec.structs.replace(inventory, written_at_s=now_s)
        self.inventories.append(InventoryFact(provider, number, dated))

    def _erase_inventory(self, provider: ProviderId, number: ClassId) -> None:
        self.inventories = [
            fact for fact in self.inventories if (fact.provider, fact.resource_class) != (provider, number)
        ]


def _known(number: ClassId | None) -> ClassId:
    assert number is not None
    return number


def _may_be_made(name: str) -> bool:
    """``CUSTOM_`` and at least one of A-Z, 0-9 and _; at most 255 characters."""
    rest = name.removeprefix("CUSTOM_")
    return (
        rest not in ("", name)
        and len(name) <= 255
        and all(letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_" for letter in rest)
    )


def _unreasonable(inventory: Inventory, may_reserve_all: bool) -> set[str]:
    """Something must be left after the reservation; with ``may_reserve_all`` it need only not be less
    than nothing."""
    left = int((inventory.total - inventory.reserved) * inventory.allocation_ratio)
    return {"ReservedTooHigh"} if left < 0 or (left == 0 and not may_reserve_all) else set()

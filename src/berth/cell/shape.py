"""Changes of a host's shape: resource classes that were on one provider of its tree are on others now, all of
them or a part: NUMA was enabled, one cell is two now, or a card was put elsewhere. What servers hold of them
has to follow, in one reshape; where it goes is found here, without asking anybody.

**Where it goes.** Units of a class go where the host reports them now. Of classes without units a consumer
gets all it had on one provider: the one that has most of its units, else where it was, else the first with
room for all of it. Where none has, each class is split over several. What has room nowhere strands its
consumer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from berth.model.placement import NUMA_ROOT, Inventory
from berth.model.saga_runs import OwnedProvider

Amounts = dict[str, dict[str, int]]
"""By provider and class."""
AssignedUnits = Mapping[str, Mapping[str, tuple[str, ...]]]
"""By provider and class, the units of one consumer."""


class Holder(NamedTuple):
    """A consumer, as Placement shows it. ``body`` is its claim, as it is sent back."""

    consumer: str
    body: dict[str, Any]

    @property
    def amounts(self) -> Amounts:
        return {id: dict(held["resources"]) for id, held in self.body["allocations"].items()}

    def with_amounts(self, amounts: Amounts) -> dict[str, Any]:
        allocations = {id: {"resources": here} for id, here in amounts.items() if here}
        return {**self.body, "allocations": allocations}


class NewHome(NamedTuple):
    """A provider that has a class now and did not have it, or has more of it than before. ``room``: how much
    of it nobody holds."""

    inventory: Inventory
    room: int


class Move(NamedTuple):
    """``gone``: the classes of each provider that are elsewhere now, all of it or a part. ``homes``: where
    each is, by class and provider; of what has gone in part, the provider itself is among them."""

    gone: dict[str, set[str]]
    homes: dict[str, dict[str, NewHome]]


def find_gone(before: Iterable[OwnedProvider], now: Sequence[OwnedProvider]) -> dict[str, set[str]]:
    """The classes that a host has no more where it had them, and has on other providers.

    What the host itself and its NUMA cells have is the machine's, wherever it is named. What a device has
    goes elsewhere only with its units: without them the device is gone, or has lost something, whatever
    other devices have got the same day.
    """
    root = now[0].id
    present = {provider.id: provider for provider in now}
    kinds = {kind for provider in now for kind in provider.inventories}
    at = {unit: provider.id for provider in now for named in provider.units.values() for unit in named}
    gone = {}
    for provider in before:
        reported = present.get(provider.id, OwnedProvider(provider.id)).inventories.keys()
        units = [unit for named in provider.units.values() for unit in named]
        is_elsewhere = any(at.get(unit, provider.id) != provider.id for unit in units)
        if provider.id == root or NUMA_ROOT in provider.traits or is_elsewhere:
            gone[provider.id] = (provider.inventories.keys() - reported) & kinds
    return {id: kinds for id, kinds in gone.items() if kinds}


def find_shrunk(before: Iterable[OwnedProvider], now: Sequence[OwnedProvider]) -> dict[str, set[str]]:
    """The classes of which the host itself or a NUMA cell has less than before."""
    present = {provider.id: provider for provider in list_machine(now)}
    shrunk = {
        provider.id: {
            kind
            for kind, inventory in present[provider.id].inventories.items()
            if kind in provider.inventories and inventory.total < provider.inventories[kind].total
        }
        for provider in before
        if provider.id in present
    }
    return {id: kinds for id, kinds in shrunk.items() if kinds}


def list_machine(now: Sequence[OwnedProvider]) -> list[OwnedProvider]:
    """The host itself and its NUMA cells."""
    return [provider for provider in now if provider.id == now[0].id or NUMA_ROOT in provider.traits]


class Stranded(NamedTuple):
    """A consumer for which there is no room in the host's new shape, of a class."""

    consumer: str
    kind: str
    amount: int


class Relocation:
    """Gives consumers their places in a new shape, one after the other. ``now`` is what the host reports."""

    def __init__(self, move: Move, now: Iterable[OwnedProvider]) -> None:
        self._move = move
        self._units_at = {
            (kind, unit): provider.id
            for provider in now
            for kind, units in provider.units.items()
            for unit in units
        }
        self._free = {
            kind: {id: home.room for id, home in homes.items()} for kind, homes in move.homes.items()
        }

    def place(self, holder: Holder, units: AssignedUnits) -> Amounts | Stranded:
        """What a consumer holds in the new shape."""
        amounts = holder.amounts
        loose: dict[str, int] = {}
        origins: list[str] = []
        found: Amounts = {}
        for id, kinds in self._move.gone.items():
            here = amounts.get(id, {})
            for kind in sorted(kinds & here.keys()):
                amount = here.pop(kind)
                for unit in units.get(id, {}).get(kind, ())[:amount]:
                    home = self._units_at.get((kind, unit))
                    if home is not None and self._take(found, home, kind, 1):
                        amount -= 1
                if units.get(id, {}).get(kind) and amount:
                    return Stranded(holder.consumer, kind, amount)
                if amount:
                    loose[kind] = loose.get(kind, 0) + amount
                    origins.append(id)
        stranded = self._place_loose(holder.consumer, loose, origins, found)
        if stranded is not None:
            return stranded
        for id, here in found.items():
            mine = amounts.setdefault(id, {})
            for kind, amount in here.items():
                mine[kind] = mine.get(kind, 0) + amount
        return {id: here for id, here in amounts.items() if here}

    def _place_loose(
        self, consumer: str, loose: dict[str, int], origins: list[str], found: Amounts
    ) -> Stranded | None:
        if not loose:
            return None
        by_units = sorted(found, key=lambda id: -sum(found[id].values()))
        for home in (*by_units, *origins, *self._free[next(iter(loose))]):
            if all(self._fits(home, kind) >= amount for kind, amount in loose.items()):
                for kind, amount in loose.items():
                    self._take(found, home, kind, amount)
                return None
        for kind, amount in loose.items():
            for home in (*origins, *self._free[kind]):
                part = min(amount, self._fits(home, kind))
                if part and self._take(found, home, kind, part):
                    amount -= part
            if amount:
                return Stranded(consumer, kind, amount)
        return None

    def _fits(self, home: str, kind: str) -> int:
        """How much of a class one consumer can get of a provider."""
        found = self._move.homes[kind].get(home)
        return 0 if found is None else min(self._free[kind][home], found.inventory.max_unit)

    def _take(self, found: Amounts, home: str, kind: str, amount: int) -> bool:
        if self._free.get(kind, {}).get(home, 0) < amount:
            return False
        self._free[kind][home] -= amount
        here = found.setdefault(home, {})
        here[kind] = here.get(kind, 0) + amount
        return True

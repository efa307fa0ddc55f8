"""The auditor: follows every row that gets into a journal, and judges it by a naive model of its own.

It decodes rows as they lie in the database, keeps plain maps, and shares no rule with ``ledger`` or ``view``.
After every command in a region's journal:

* what an event says was there before is what was there: nobody has decided on something stale;
* the generation of whatever was written has grown;
* no provider whose use has grown is over its capacity;
* no hard policy of a group is broken that was not broken before, because a provider was moved: members are
  counted per domain, a server's migration with it;
* a server with which nothing is being done holds what its record says, unless others write allocations too.

And in a cell's: a saga run begins once, goes on from where it was, and does nothing after its end; no unit of
a host is in two assignments.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from berth.model.events import (
    AggregateLabelled,
    AggregatesChanged,
    ConsumerChanged,
    Event,
    GroupChanged,
    InventoryChanged,
    MemberChanged,
    ProviderChanged,
    ProviderStamped,
    RecordChanged,
    ResourceClassChanged,
    Stamp,
    TraitsChanged,
)
from berth.model.groups import HOST, Group
from berth.model.placement import SHARES_VIA_AGGREGATE, STANDARD_CLASSES, Holdings, Inventory
from berth.model.saga_runs import Assignment, SagaRun
from berth.model.servers import Migration, Record, Server
from berth.region.status_sync import ACTION as STATUS_SYNC
from berth.sagas.runner import is_away

R = TypeVar("R", bound=Record)

FINISHED: Final = ("done", "failed")
_NOTHING: Final[Any] = None

Fail = Callable[[str], None]
"""Told of what must not be."""


class Ledger:
    """What a region's journal says, as plain maps, judged after every command. ``is_ours``: nobody but Berth
    writes allocations of servers. ``judges`` are checks of a profile, asked after every command too."""

    def __init__(self, fail: Fail, *, is_ours: bool) -> None:
        self._fail = fail
        self._is_ours = is_ours
        self._facts: dict[Hashable, Any] = {}
        self._holders: dict[str, set[str]] = {}
        self.members: dict[str, set[str]] = {}
        self._parents: dict[str, str | None] = {}
        # The providers that a command creates, renames, moves or deletes.
        self._placed: set[str] = set()
        self.index = 0
        self.requests: dict[str, list[int]] = {}
        """At which indices a request has written."""
        self._records: dict[type[Record], dict[str, Any]] = {}
        self.servers = self.records(Server)
        self._moves: dict[str, str] = {}
        """The migration of each server that is being moved, or can go back."""
        self.changed: list[tuple[str, Server | None]] = []
        """Every change of a server, in order."""
        self.judges: list[Callable[[int, Iterable[Event]], None]] = []

    def take(self, index: int, entries: Iterable[Any]) -> None:
        self.index = index
        for entry in entries:
            # What the status sync brings up has the id of the request that began it.
            is_its_own = entry.origin.request_id and entry.origin.action != STATUS_SYNC
            if is_its_own and not _is_noted_conflict(entry.events):
                self.requests.setdefault(entry.origin.request_id, []).append(index)
            self._placed = {event.id for event in entry.events if isinstance(event, ProviderChanged)}
            before = {key: self.used(*key) for event in entry.events for key in _touched(event)}
            standing = {id: self._standing(id) for id in self._hard_groups(entry.events)}
            for event in entry.events:
                self._apply(index, event)
            self._judge(index, entry.events, before)
            for id in self._hard_groups(entry.events):
                self._judge_group(index, id, standing.get(id, set()))
            for judge in self.judges:
                judge(index, entry.events)

    # -- facts ----------------------------------------------------------------------------------

    def records(self, kind: type[R]) -> dict[str, R]:
        """All records of a kind, by their ids."""
        return self._records.setdefault(kind, {})

    def held(self, consumer: str) -> Holdings:
        found: Holdings = self._facts.get(("held", consumer), ())
        return found

    def sum_held(self, consumer: str) -> dict[str, int]:
        """What a consumer holds in all, by the names of resource classes."""
        total: Counter[str] = Counter()
        for _, amounts in self.held(consumer):
            for class_id, amount in amounts:
                total[self._class_name(class_id)] += amount
        return dict(total)

    def generation(self, consumer: str) -> int | None:
        found = self._facts.get(("consumer", consumer))
        return None if found is None else found.generation

    def used(self, provider: str, class_id: int) -> int:
        """The sum of what consumers hold there."""
        return sum(
            amount
            for consumer in self._holders.get(provider, ())
            for id, amounts in self.held(consumer)
            if id == provider
            for held_class, amount in amounts
            if held_class == class_id
        )

    def _class_name(self, class_id: int) -> str:
        named = self._facts.get(("class", class_id))
        return STANDARD_CLASSES[class_id] if named is None else str(named.name)

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return [str(key[1]) for key in self._facts if isinstance(key, tuple) and key[0] == "group"]

    def root(self, provider: str) -> str:
        parent = self._parents.get(provider)
        return provider if parent is None else self.root(parent)

    def hosts(self, consumer: str) -> set[str]:
        """The hosts that a consumer is on: what it holds of sharing providers is in no place."""
        held = (provider for provider, _ in self.held(consumer))
        own = (one for one in held if SHARES_VIA_AGGREGATE not in self._facts.get(("traits", one), ()))
        return {self.root(provider) for provider in own}

    def _apply(self, index: int, event: Event) -> None:
        match event:
            case ConsumerChanged():
                self._expect(index, ("held", event.id), event.held_before or _NOTHING)
                self._set(index, ("consumer", event.id), event.before, event.after)
                self._put(("held", event.id), event.held_after or None)
                for provider, _ in event.held_before:
                    self._holders[provider].discard(event.id)
                for provider, _ in event.held_after:
                    self._holders.setdefault(provider, set()).add(event.id)
                if None not in (event.before, event.after):
                    grows = event.after.generation > event.before.generation  # type: ignore[union-attr]
                    self._demand(grows, index, f"the generation of consumer {event.id} does not grow")
            case ResourceClassChanged():
                self._set(index, ("class", event.id), event.before, event.after)
            case ProviderChanged():
                self._set(index, ("provider", event.id), event.before, event.after)
                if event.after is None:
                    self._parents.pop(event.id)
                    self._put(("stamp", event.id), None)
                else:
                    self._parents[event.id] = event.after.parent
            case ProviderStamped():
                # The first stamp of a provider is that of its creation; the last one is empty.
                is_last = event.after == Stamp(0, 0, 0)
                if ("stamp", event.id) in self._facts:
                    self._expect(index, ("stamp", event.id), event.before)
                    # One that is only renamed or moved keeps its own.
                    grows = is_last or event.id in self._placed
                    grows = grows or event.after.generation > event.before.generation
                    self._demand(grows, index, f"the generation of provider {event.id} does not grow")
                self._put(("stamp", event.id), None if is_last else event.after)
            case InventoryChanged():
                key = ("inventory", event.provider, event.resource_class)
                self._set(index, key, event.before, event.after)
            case TraitsChanged():
                self._set(index, ("traits", event.provider), event.before or None, event.after or None)
            case AggregatesChanged():
                self._set(index, ("aggregates", event.provider), event.before or None, event.after or None)
            case AggregateLabelled():
                self._set(index, ("label", event.id), event.before, event.after)
            case GroupChanged():
                self._set(index, ("group", event.id), event.before, event.after)
            case MemberChanged():
                self._set(index, ("member", event.consumer), event.before, event.after)
                if event.before is not None:
                    self.members[event.before.group].discard(event.consumer)
                if event.after is not None:
                    self.members.setdefault(event.after.group, set()).add(event.consumer)
            case RecordChanged():
                record: Any = event.after or event.before
                self._set(index, (type(record).__name__, record.id), event.before, event.after)
                records = self._records.setdefault(type(record), {})
                records[record.id] = record
                if event.after is None:
                    del records[record.id]
                if isinstance(record, Server):
                    self._follow(record.id, event.after)

    def _follow(self, id: str, after: Any) -> None:
        self.changed.append((id, after))
        self._moves.pop(id, None)
        if after is not None and after.migration is not None:
            self._moves[id] = after.migration

    def _set(self, index: int, key: Hashable, before: Any, after: Any) -> None:
        self._expect(index, key, before)
        self._put(key, after)

    def _put(self, key: Hashable, after: Any) -> None:
        if after is None:
            self._facts.pop(key, None)
        else:
            self._facts[key] = after

    def _expect(self, index: int, key: Hashable, before: Any) -> None:
        found = self._facts.get(key)
        self._demand(found == before, index, f"{key} was {found}, and the event says {before}")

    def _demand(self, holds: bool, index: int, otherwise: str) -> None:
        if not holds:
            self._fail(f"region {index}: {otherwise}")

    # -- judging --------------------------------------------------------------------------------

    def _judge(self, index: int, events: Iterable[Event], before: dict[tuple[str, int], int]) -> None:
        for (provider, class_id), was in before.items():
            used = self.used(provider, class_id)
            inventory: Inventory | None = self._facts.get(("inventory", provider, class_id))
            capacity = 0 if inventory is None else _capacity(inventory)
            self._demand(
                used <= max(was, capacity),
                index,
                f"{provider} has {capacity} of class {class_id}, and {used} are held",
            )
        if self._is_ours:
            for id in _consumers(events):
                self._judge_server(index, id)

    def _group_of(self, consumer: str) -> str | None:
        member = self._facts.get(("member", consumer))
        return None if member is None else member.group

    def _hard_groups(self, events: Iterable[Event]) -> list[str]:
        """The groups with a hard policy that consumers in these events are in, or come into."""
        groups = {self._group_of(id) for id in _consumers(events)}
        groups.update(
            event.after.group
            for event in events
            if isinstance(event, MemberChanged) and event.after is not None
        )
        found = ((id, self._facts.get(("group", id))) for id in groups if id is not None)
        return sorted(id for id, group in found if group is not None and group.is_hard)

    def _standing(self, id: str) -> set[tuple[str, str]]:
        """Each domain where a member of a group is, with the member. A server and its migration are one
        member; it is in every domain where either holds something."""
        group: Group = self._facts["group", id]
        where: set[tuple[str, str]] = set()
        for consumer in self.members.get(id, ()):
            member = self._facts["member", consumer].stands_for
            for holder in (consumer, self._moves.get(consumer, consumer)):
                for host in self.hosts(holder):
                    where.update((domain, member) for domain in self.domains(group.domain, host))
        return where

    def _judge_group(self, index: int, id: str, before: set[tuple[str, str]]) -> None:
        group: Group = self._facts["group", id]
        where = self._standing(id)
        if group.is_apart:
            counts, were = _count_domains(where), _count_domains(before)
            for domain, most in counts.items():
                limit = max(group.max_per_domain or most, were[domain])
                self._demand(most <= limit, index, f"{most} members of {group.name} are together")
        elif where - before and not _are_apart(before):
            apart = _are_apart(where) and not _have_all_come(before, where)
            self._demand(not apart, index, f"members of {group.name} are apart: {sorted(where)}")

    def domains(self, kind: str, root: str) -> Iterable[str]:
        """The domains of a kind that a host is in."""
        if kind == HOST:
            return (root,)
        aggregates = self._facts.get(("aggregates", root)) or ()
        labels = ((id, self._facts.get(("label", id))) for id in aggregates)
        return [id for id, label in labels if label is not None and label.kind == kind]

    def _judge_server(self, index: int, id: str) -> None:
        server = self.servers.get(id)
        if server is not None and server.run is None:
            self._compare(index, server)

    def _compare(self, index: int, owner: Server | Migration) -> None:
        """A server or a migration holds what its record says."""
        id = owner.id
        held = {(provider, self._class_name(c), n) for provider, amounts in self.held(id) for c, n in amounts}
        said = {(provider, name, n) for provider, amounts in owner.held for name, n in amounts}
        kind = type(owner).__name__.lower()
        self._demand(held == said, index, f"{kind} {id} holds {held}, and its record says {said}")

    def check_records(self) -> None:
        """At rest every server and migration holds what its record says, and nobody else holds anything."""
        index = self.index
        owners: dict[str, Server | Migration] = {**self.servers, **self.records(Migration)}
        for owner in owners.values():
            self._compare(index, owner)
        for consumer in sorted({id for held_by in self._holders.values() for id in held_by}):
            self._demand(consumer in owners, index, f"{consumer} has no record, and holds something")


class Runs:
    """What a cell's journal says of saga runs, and of the units that servers have."""

    def __init__(self, cell: str, fail: Fail) -> None:
        self._cell = cell
        self._fail = fail
        self.runs: dict[str, SagaRun] = {}
        self.seen: set[str] = set()
        """All that there have been."""
        self._assigned: dict[str, Assignment] = {}

    def take(self, index: int, entries: Iterable[Any]) -> None:
        for entry in entries:
            for event in entry.events:
                match event:
                    case RecordChanged(SagaRun(), _) | RecordChanged(None, SagaRun()):
                        self._follow(index, event.before, event.after)
                    case RecordChanged(Assignment() as before, None):
                        self._assigned.pop(before.id)
                    case RecordChanged(_, Assignment() as after):
                        self._assigned[after.id] = after
            if any(isinstance(event.after, Assignment) for event in entry.events):
                self._judge_units(index)

    def _judge_units(self, index: int) -> None:
        names = [(one.host, unit) for one in self._assigned.values() for unit in one.unit_names()]
        if len(set(names)) < len(names):
            twice = next(name for name, n in Counter(names).items() if n > 1)
            self._fail(f"{self._cell} {index}: the unit {twice} is in two assignments")

    def _follow(self, index: int, before: Any, after: Any) -> None:
        id = (after or before).id
        if self.runs.get(id) != before:
            self._fail(f"{self._cell} {index}: run {id} was {self.runs.get(id)}, and the event says {before}")
        if after is None:
            self.runs.pop(id, None)
            return
        if before is None and id in self.seen:
            self._fail(f"{self._cell} {index}: run {id} begins again after its end")
        if before is not None and before.phase in FINISHED:
            self._fail(f"{self._cell} {index}: run {id} goes on after its end")
        # The cell that has a run counts its versions: in a copy that is away an abort is only noted.
        is_noted = before is not None and is_away(before) and after == replace(before, abort=True)
        if before is not None and after.version <= before.version and not is_noted:
            self._fail(
                f"{self._cell} {index}: run {id} goes from version {before.version} to {after.version}"
            )
        self.runs[id] = after
        self.seen.add(id)


def _count_domains(where: Iterable[tuple[str, str]]) -> Counter[str]:
    return Counter(domain for domain, _ in where)


def _are_apart(where: set[tuple[str, str]]) -> bool:
    """Whether there are several members, in several domains. One that is alone may be moved: then it is in
    two places for a while."""
    return len({member for _, member in where}) > 1 and len(_count_domains(where)) > 1


def _have_all_come(before: set[tuple[str, str]], where: set[tuple[str, str]]) -> bool:
    """Whether all members have come to one domain at once: they move together."""
    members = {member for _, member in where}
    come = _count_domains(where - before)
    return any(count == len(members) for count in come.values())


def _capacity(inventory: Inventory) -> int:
    return int((inventory.total - inventory.reserved) * inventory.allocation_ratio)


def _is_noted_conflict(events: Iterable[Event]) -> bool:
    """Whether all that is written is that a server was found changed by others: a refusal does that."""
    pairs = [(event.before, event.after) for event in events if isinstance(event, RecordChanged)]
    return len(pairs) == len(list(events)) and all(
        isinstance(before, Server)
        and isinstance(after, Server)
        and after.conflict is not None
        and replace(before, conflict=after.conflict, updated_at_s=after.updated_at_s) == after
        for before, after in pairs
    )


def _touched(event: Event) -> Iterable[tuple[str, int]]:
    if not isinstance(event, ConsumerChanged):
        return ()
    both = (*event.held_before, *event.held_after)
    return {(provider, class_id) for provider, amounts in both for class_id, _ in amounts}


def _consumers(events: Iterable[Event]) -> list[str]:
    found: dict[str, None] = {}
    for event in events:
        if isinstance(event, ConsumerChanged):
            found[event.id] = None
        elif isinstance(event, MemberChanged):
            found[event.consumer] = None
        elif isinstance(event, RecordChanged) and isinstance(event.after, Server):
            found[event.after.id] = None
    return list(found)

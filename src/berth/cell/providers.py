"""Writes what a host's agent reports to Placement: the provider tree, inventories, traits, and the cell's own
aggregate, by which the scheduler knows which hosts belong together.

What Placement refuses becomes a complaint, and the rest is written.

**Owners.** An agent owns what it has reported (``HostTree``), and that alone. Of a resource class that it
reports, the total and the units are as reported; the allocation ratio and the reserved amount belong to
operators as soon as they differ from what the agent last reported; the ratio of a class with units is 1 at
most. Classes, traits and providers that no
agent has reported belong to operators, and are not touched. Nothing is touched outside the tree whose root is
the host, and nothing is shared from inside it: other hosts would use it. The region decides which aggregates
an agent may put its host into: it knows what they mean (``AGENT_CELL_HEADER``).

**What is gone** from the host is deleted if it is not in use. If it is in use, all of it is reserved, so that
nothing new fits on it, until it is released or comes back; a device that is in use in its old shape gets no
new classes meanwhile.

**Another shape.** What has gone to other providers of the host while it was in use is moved there in one
reshape, with the allocations on it (``shape``). If a server is busy, or would have no room, nothing of the
tree is changed, and a complaint says which server it is.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from math import lcm
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from berth.cell import shape
from berth.cell.placement import ClaimRefused, PlacementUnavailable
from berth.cell.protocol import Register, ReportedProvider
from berth.client import Answer, Client, Unreachable
from berth.model.placement import (
    AGENT_CELL_HEADER,
    DEDICATED,
    HYPERTHREADING,
    SHARES_VIA_AGGREGATE,
    Inventory,
)
from berth.model.saga_runs import Assignment, OwnedProvider
from berth.sagas.hosts import cell_aggregate

COMPLAINTS_MAX: Final = 20
COMPLAINT_LENGTH_MAX: Final = 400
_HOLDERS_SHOWN: Final = 5
_ATTEMPTS: Final = 10
_LONGEST_S: Final = 300
_CUSTOM: Final = "CUSTOM_"
_NAMES_MAX: Final = 10_000
"""Traits and resource classes that a host may bring while a conductor runs. They stay when the host does not
have them any more: flavors may name them."""


Contents = Literal["aggregates", "inventories", "traits"]
"""What a provider has that is written as a whole."""
_NOTHING: Final[dict[Contents, Any]] = {"aggregates": [], "inventories": {}, "traits": []}
_VOCABULARIES: Final[dict[Contents, str]] = {"inventories": "/resource_classes", "traits": "/traits"}


class WrittenTree(NamedTuple):
    """``providers``: what the agent owns afterwards; None: as the journal has it."""

    providers: tuple[OwnedProvider, ...] | None
    complaints: tuple[str, ...]


Note = Callable[[OwnedProvider], Awaitable[object]]
"""Records in the journal what is withheld of a provider, before it is."""
FindAssignment = Callable[[str], Assignment | None]
"""What a consumer has been assigned on the host."""


def read_owned(host: Register) -> tuple[OwnedProvider, ...]:
    return tuple(_read_owned_provider(provider) for provider in host.providers)


def _read_owned_provider(provider: ReportedProvider) -> OwnedProvider:
    inventories = {name: inventory.in_full() for name, inventory in provider.inventories.items()}
    traits = set(provider.traits) - {SHARES_VIA_AGGREGATE}
    if any(len(core) > 1 for core in provider.siblings):
        traits.add(HYPERTHREADING)
    threads = _count_threads(provider)
    if DEDICATED in inventories and 1 < threads <= inventories[DEDICATED].max_unit:
        whole = {"min_unit": threads, "step_size": lcm(threads, inventories[DEDICATED].step_size)}
        inventories[DEDICATED] = msgspec.structs.replace(inventories[DEDICATED], **whole)
    return OwnedProvider(
        provider.id,
        inventories,
        tuple(sorted(traits)),
        units=provider.units,
        siblings=provider.siblings,
    )


def _count_threads(provider: ReportedProvider) -> int:
    """How many threads each core of a provider's dedicated cpus has. These are given out in whole cores: no
    two servers share a core, and whoever requires siblings finds them (docs/decisions/024). 1 where cores
    differ: then cpus are given out one by one."""
    threads = {len(core) for core in provider.siblings}
    named = sum(len(core) for core in provider.siblings)
    is_even = len(threads) == 1 and named == len(provider.units.get(DEDICATED, ()))
    return threads.pop() if is_even else 1


class HostTreeWriter:
    def __init__(self, client: Client, cell: str) -> None:
        client.set_header(AGENT_CELL_HEADER, cell)
        self._placement = _Placement(client)
        self._aggregate = cell_aggregate(cell)
        self._names_brought: Counter[str] = Counter()

    async def explain_refusal(self, host: Register) -> str | None:
        """Why an unknown host cannot join this cell; None if it can."""
        for row in await self._placement.list_providers(f"in_tree={host.host}"):
            if row["uuid"] == host.host:
                return await self._explain_existing(row)
        return await self._explain_name(host)

    async def _explain_existing(self, row: dict[str, Any]) -> str | None:
        if row["root_provider_uuid"] != row["uuid"]:
            return f"The provider {row['uuid']} is part of the host {row['root_provider_uuid']}."
        if SHARES_VIA_AGGREGATE in await self._placement.list_traits(row["uuid"]):
            return f"The provider {row['name']} ({row['uuid']}) is a sharing provider, not a host."
        if self._aggregate in await self._placement.list_aggregates(row["uuid"]):
            return None
        return (
            f"The provider {row['name']} ({row['uuid']}) exists already and is not in this cell. If it is "
            f"this host, put it into the aggregate {self._aggregate} first."
        )

    async def _explain_name(self, host: Register) -> str | None:
        for row in await self._placement.list_providers(f"name={quote(host.name, safe='')}"):
            return f"The name {host.name} is taken: the provider {row['uuid']} has it."
        return None

    async def find_lost(self, host: str, tree: tuple[OwnedProvider, ...]) -> str | None:
        """What others have deleted of a host whose agent owns ``tree``; None if nothing."""
        rows = await self._placement.list_providers(f"in_tree={host}")
        there = {row["uuid"] for row in rows if row["root_provider_uuid"] == host}
        lost = [provider.id for provider in tree if provider.id not in there]
        if lost:
            more = f" and {len(lost) - 1} more of its providers are" if len(lost) > 1 else " is"
            return f"{lost[0]}{more} gone from Placement."
        if tree and self._aggregate not in await self._placement.list_aggregates(host):
            return "The host is not in the aggregate of its cell any more."
        return None

    async def write(
        self,
        host: Register,
        before: tuple[OwnedProvider, ...],
        note: Note,
        find_assignment: FindAssignment,
    ) -> WrittenTree:
        """Make the tree what the agent reports, as far as possible. ``before``: what the agent owns."""
        writing = _Writing(
            self._placement, host, self._aggregate, before, note, find_assignment, self._names_brought
        )
        providers = None
        try:
            async with asyncio.timeout(_LONGEST_S):
                providers = await writing.run()
        except TimeoutError:
            writing.complain(f"Placement is slow: not all was written within {_LONGEST_S} s")
        except PlacementUnavailable as error:
            # The agent still owns what was not written, and it is tried again.
            writing.complain(f"Placement did not answer, not all was written: {error}")
        return WrittenTree(providers, writing.complaints)


class _Writing:
    """One report being written to Placement."""

    def __init__(
        self,
        placement: "_Placement",
        host: Register,
        cell_aggregate: str,
        before: tuple[OwnedProvider, ...],
        note: Note,
        find_assignment: FindAssignment,
        names_brought: Counter[str],
    ) -> None:
        self._placement = placement
        self._host = host
        self._cell_aggregate = cell_aggregate
        self._before = {provider.id: provider for provider in before}
        self._note = note
        self._find_assignment = find_assignment
        self._names_brought = names_brought
        self._rows: dict[str, dict[str, Any]] = {}
        """The host's tree as it was in Placement."""
        self._inside: set[str] = set()
        """What is in it now."""
        self._created: dict[str, int] = {}
        """Providers that were created here, with their generations, as long as nothing was refused: what was
        not written yet of such a provider it does not have, and need not be read."""
        self._complaints: list[str] = []

    @property
    def complaints(self) -> tuple[str, ...]:
        listed = self._complaints[:COMPLAINTS_MAX]
        if len(self._complaints) > COMPLAINTS_MAX:
            listed[-1] = f"and {len(self._complaints) - COMPLAINTS_MAX + 1} more"
        return tuple(listed)

    def complain(self, text: str) -> None:
        # Placement's texts have several lines.
        text = " ".join(text.split())
        is_long = len(text) > COMPLAINT_LENGTH_MAX
        self._complaints.append(f"{text[: COMPLAINT_LENGTH_MAX - 3]}..." if is_long else text)

    async def run(self) -> tuple[OwnedProvider, ...]:
        rows = await self._placement.list_providers(f"in_tree={self._host.host}")
        self._rows = {row["uuid"]: row for row in rows if row["root_provider_uuid"] == self._host.host}
        self._inside = set(self._rows)
        if not await self._reshape():
            return tuple(self._before.values())
        # What is gone comes first: another provider may have its name now.
        gone = await self._remove_gone()
        return (*await self._write(), *gone)

    async def _write(self) -> list[OwnedProvider]:
        """Write what is reported; what the agent owns of it afterwards."""
        root, *below = self._host.providers
        # Before it has inventories: nothing may be placed on a host without a cell.
        if not await self._place(root) or not await self._join(root):
            return [self._before[one.id] for one in self._host.providers if one.id in self._before]
        kept = [await self._write_contents(root)]
        for provider in below:
            if await self._place(provider):
                kept.append(await self._write_contents(provider))
        return kept

    # -- the tree -------------------------------------------------------------------------------

    async def _place(self, provider: ReportedProvider) -> bool:
        """Put a provider where it is reported to be. Whether it is in the host's tree."""
        row = self._rows.get(provider.id)
        if provider.parent is not None and provider.parent not in self._inside:
            self.complain(f"{provider.name}: its parent {provider.parent} is not a part of this host.")
            return row is not None
        body = {"name": provider.name, "parent_provider_uuid": provider.parent}
        if row is None and provider.id in self._inside:
            return True
        if row is None:
            made = await self._placement.ask("POST", "/resource_providers", {"uuid": provider.id, **body})
            if made.status != 200:
                # The uuid or the name belongs to another provider.
                self.complain(f"{provider.name}: the provider {provider.id} cannot be created: {made.detail}")
                return False
            self._inside.add(provider.id)
            self._created[provider.id] = made.body["generation"]
            return True
        if (row["name"], row["parent_provider_uuid"]) != (provider.name, provider.parent):
            changed = await self._placement.ask("PUT", f"/resource_providers/{provider.id}", body)
            if changed.status != 200:
                self.complain(f"{row['name']}: its name or parent cannot be changed: {changed.detail}")
        return True

    async def _join(self, root: ReportedProvider) -> bool:
        """Put the host into the aggregate of its cell, and into those that it reports and may join. It
        stays in all others."""
        ids = (self._cell_aggregate, *self._host.aggregates)
        if await self._add_aggregates(root, ids) is None:
            return True
        # One of them is refused: try them one by one.
        for id in ids:
            cannot = await self._add_aggregates(root, (id,))
            if cannot is not None and id == self._cell_aggregate:
                self.complain(f"{root.name}: it cannot be put into the aggregate of its cell: {cannot}")
                return False
            if cannot is not None:
                self.complain(f"{root.name}: {cannot}")
        return True

    async def _add_aggregates(self, root: ReportedProvider, ids: Iterable[str]) -> str | None:
        return await self._change(root.id, "aggregates", lambda there: sorted({*there, *ids}))

    async def _remove_gone(self) -> list[OwnedProvider]:
        """Delete what the agent does not report any more; what of it is in use, and so is kept."""
        current = {provider.id for provider in self._host.providers}
        gone = [provider for id, provider in self._before.items() if id not in current and id in self._rows]
        # Children come behind their parents.
        kept = [provider for provider in reversed(gone) if not await self._is_deleted(provider)]
        return [await self._withhold(provider) for provider in reversed(kept)]

    async def _is_deleted(self, provider: OwnedProvider) -> bool:
        answer = await self._placement.ask("DELETE", f"/resource_providers/{provider.id}")
        return answer.status in (204, 404)

    async def _withhold(self, provider: OwnedProvider) -> OwnedProvider:
        """Reserve all of a provider that is gone from the host, so that nothing new fits on it."""
        name = self._rows[provider.id]["name"]
        withheld = await self._find_withheld(provider, provider.inventories.keys())
        cannot = await self._change(
            provider.id,
            "inventories",
            lambda there: (
                there | {kind: _reserve_all(there[kind]) for kind in withheld.keys() & there.keys()}
            ),
        )
        holders = await self._describe_holders(provider.id, None)
        if cannot is not None:
            self.complain(f"{name} is gone from the host and cannot be reserved: {cannot}")
        elif holders:
            self.complain(f"{name} is gone from the host and in use by {holders}: nothing new fits on it.")
        else:
            self.complain(f"{name} is gone from the host and stays: other providers are below it.")
        return msgspec.structs.replace(provider, withheld=withheld)

    async def _find_withheld(self, provider: OwnedProvider, kinds: Iterable[str]) -> dict[str, int]:
        """What is reserved of classes that are to be withheld, or was before they were. It is recorded
        first: once they are withheld it cannot be read any more."""
        answer = await self._placement.ask("GET", f"/resource_providers/{provider.id}/inventories")
        there = answer.body["inventories"] if answer.status == 200 else {}
        found = {
            kind: provider.withheld.get(kind, there[kind]["reserved"]) for kind in kinds if kind in there
        }
        if found.keys() - provider.withheld.keys():
            await self._note(msgspec.structs.replace(provider, withheld=provider.withheld | found))
        return found

    # -- another shape --------------------------------------------------------------------------

    async def _reshape(self) -> bool:
        """Move what is in use and has gone to other providers of the host. False: it cannot be done now, and
        nothing else may be written either."""
        now = read_owned(self._host)
        before = [one for id, one in self._before.items() if id in self._rows]
        gone = shape.find_gone(before, now)
        for id, kinds in shape.find_shrunk(before, now).items():
            gone.setdefault(id, set()).update(kinds & await self._find_new_kinds(now, kinds))
        if not any(gone.values()):
            return True
        for _ in range(_ATTEMPTS):
            homes = await self._find_homes(now, gone)
            moved = {id: kinds & homes.keys() for id, kinds in gone.items() if kinds & homes.keys()}
            move = shape.Move(moved, homes)
            holders = await self._find_holders(move)
            if not holders:
                return True
            claims = self._place_again(move, holders, now)
            if claims == {}:
                return True
            if claims is None or not await self._place_homes(move):
                return False
            answer = await self._placement.ask(
                "POST",
                "/reshaper",
                {"inventories": await self._format_shape(move), "allocations": claims},
            )
            if answer.status == 204:
                return True
            if answer.status != 409 or answer.code != "placement.concurrent_update":
                self.complain(f"the host's new shape cannot be written: {answer.detail}")
                return False
        raise _give_up("/reshaper")

    async def _find_new_kinds(self, now: tuple[OwnedProvider, ...], kinds: set[str]) -> set[str]:
        """Those of some classes that a cell, or the host itself, has now and Placement does not know of."""
        found: set[str] = set()
        for provider in shape.list_machine(now):
            if reported := kinds & provider.inventories.keys():
                there, _ = await self._read_inventories(provider.id)
                found |= reported - there.keys()
        return found

    async def _find_homes(
        self, now: tuple[OwnedProvider, ...], gone: dict[str, set[str]]
    ) -> dict[str, dict[str, shape.NewHome]]:
        """Where classes that are gone from some providers are now: on providers of which Placement does not
        have them yet, or has less. A ratio that an operator has set goes with its class."""
        ratios: dict[str, float] = {}
        for id, kinds in gone.items():
            there, _ = await self._read_inventories(id)
            for kind in kinds & there.keys():
                if there[kind]["allocation_ratio"] != self._before[id].inventories[kind].allocation_ratio:
                    ratios[kind] = there[kind]["allocation_ratio"]
        homes: dict[str, dict[str, shape.NewHome]] = {}
        for provider in now:
            reported = provider.inventories.keys() & set().union(*gone.values())
            there, _ = await self._read_inventories(provider.id) if reported else ({}, 0)
            for kind in reported:
                home = self._find_home(provider, kind, there.get(kind), ratios)
                if kind in gone.get(provider.id, ()):
                    # All who hold of it are placed again.
                    home = home._replace(room=home.inventory.capacity)
                if home.room > 0:
                    homes.setdefault(kind, {})[provider.id] = home
        return homes

    def _find_home(
        self, said: OwnedProvider, kind: str, there: dict[str, Any] | None, ratios: dict[str, float]
    ) -> shape.NewHome:
        if there is None:
            reported = said.inventories[kind]
            ratio = ratios.get(kind, reported.allocation_ratio)
            inventory = msgspec.structs.replace(reported, allocation_ratio=_limit_ratio(said, kind, ratio))
            return shape.NewHome(inventory, inventory.capacity)
        before = self._before.get(said.id, said)
        inventory = Inventory(**_merge_inventory(kind, there, said, before))
        return shape.NewHome(inventory, inventory.capacity - Inventory(**there).capacity)

    async def _find_holders(self, move: shape.Move) -> list[shape.Holder]:
        """The consumers of what has gone elsewhere, in the order of their ids."""
        consumers: set[str] = set()
        for id, kinds in move.gone.items():
            answer = await self._placement.ask("GET", f"/resource_providers/{id}/allocations")
            found = answer.body["allocations"] if answer.status == 200 else {}
            consumers.update(name for name, held in found.items() if kinds & held["resources"].keys())
        holders = []
        for consumer in sorted(consumers):
            answer = await self._placement.ask("GET", f"/allocations/{consumer}")
            if answer.status == 200 and answer.body["allocations"]:
                holders.append(shape.Holder(consumer, answer.body))
        return holders

    def _place_again(
        self, move: shape.Move, holders: list[shape.Holder], now: tuple[OwnedProvider, ...]
    ) -> dict[str, Any] | None:
        """The claims of holders that are elsewhere in the new shape; None if one has no room there."""
        homes = shape.Relocation(move, now)
        claims = {}
        for holder in holders:
            assigned = self._find_assignment(holder.consumer)
            placed = homes.place(holder, {} if assigned is None else assigned.units)
            if isinstance(placed, shape.Stranded):
                self.complain(
                    f"the host's new shape has no room for {placed.amount} of {placed.kind} of "
                    f"{self._name_server(placed.consumer)}: nothing was changed. Move it to another host."
                )
                return None
            if placed != holder.amounts:
                claims[holder.consumer] = holder.with_amounts(placed)
        return claims

    async def _place_homes(self, move: shape.Move) -> bool:
        """Create the providers of a new shape, with what is above them. They have nothing yet."""
        wanted = {id for homes in move.homes.values() for id in homes}
        for provider in reversed(self._host.providers):
            if provider.id in wanted and provider.parent is not None:
                wanted.add(provider.parent)
        for provider in self._host.providers:
            if provider.id in wanted:
                if not await self._place(provider):
                    return False
                await self._create_names(provider, "inventories")
        # They get their inventories by the reshape.
        self._created.clear()
        return True

    async def _format_shape(self, move: shape.Move) -> dict[str, Any]:
        """The inventories of all providers that a move concerns."""
        formatted: dict[str, Any] = {}
        for id in {*move.gone, *(id for homes in move.homes.values() for id in homes)}:
            there, generation = await self._read_inventories(id)
            wanted = {kind: one for kind, one in there.items() if kind not in move.gone.get(id, ())}
            for kind, homes in move.homes.items():
                if id in homes:
                    wanted[kind] = _format_inventory(homes[id].inventory)
            formatted[id] = {"resource_provider_generation": generation, "inventories": wanted}
        return formatted

    async def _read_inventories(self, provider: str) -> tuple[dict[str, Any], int]:
        """What Placement has of a provider, and its generation; of one that it does not know, nothing."""
        answer = await self._placement.ask("GET", f"/resource_providers/{provider}/inventories")
        if answer.status != 200:
            return {}, 0
        return answer.body["inventories"], answer.body["resource_provider_generation"]

    # -- what a provider has --------------------------------------------------------------------

    async def _write_contents(self, provider: ReportedProvider) -> OwnedProvider:
        """Write inventories and traits; what the agent owns of them afterwards."""
        said = _read_owned_provider(provider)
        before = self._before.get(provider.id, said)
        withheld = await self._write_inventories(provider, said, before)
        await self._write_traits(provider, said, before)
        left = {kind: before.inventories[kind] for kind in withheld}
        return msgspec.structs.replace(
            said,
            inventories={**said.inventories, **left},
            withheld=withheld,
            units={**said.units, **{kind: before.units[kind] for kind in withheld if kind in before.units}},
        )

    async def _create_names(self, provider: ReportedProvider, what: Contents) -> bool:
        """Create the custom names among the traits or resource classes of a provider. Whether there are any.
        A name that cannot be created is refused where it is used."""
        reported: Iterable[str] = provider.traits if what == "traits" else provider.inventories
        names = [name for name in reported if name.startswith(_CUSTOM)]
        for name in names:
            if self._names_brought[self._host.host] >= _NAMES_MAX:
                self.complain(
                    f"{provider.name}: the host has brought {_NAMES_MAX} new traits and resource classes "
                    "since its conductor started: no more are created."
                )
                break
            answer = await self._placement.ask("PUT", f"{_VOCABULARIES[what]}/{name}")
            self._names_brought[self._host.host] += answer.status == 201
        return bool(names)

    async def _write_inventories(
        self, provider: ReportedProvider, said: OwnedProvider, before: OwnedProvider
    ) -> dict[str, int]:
        """The classes that are gone from the host and in use, with what was reserved of them before."""
        used = await self._find_used(provider.id)
        gone = before.inventories.keys() - said.inventories.keys()
        in_use = [kind for kind in gone if used.get(kind)]
        withheld = await self._find_withheld(before, in_use) if in_use else {}
        # A device whose old shape is in use does not get another one beside it.
        must_wait = bool(withheld) and provider.parent is not None
        overcommitted: set[str] = set()

        def change(kinds: Iterable[str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
            def changed(there: dict[str, Any]) -> dict[str, Any]:
                wanted = dict(there)
                with_units = said.units.keys() & there.keys()
                overcommitted.update(kind for kind in with_units if there[kind]["allocation_ratio"] > 1)
                for kind in kinds:
                    if kind in said.inventories:
                        if kind in there or not must_wait:
                            wanted[kind] = _merge_inventory(kind, there.get(kind), said, before)
                    elif kind in withheld and kind in there:
                        wanted[kind] = _reserve_all(there[kind])
                    else:
                        wanted.pop(kind, None)
                return wanted

            return changed

        kinds = sorted(gone | said.inventories.keys())
        async for kind, cannot in self._write_parts(provider, "inventories", kinds, change):
            self.complain(f"{provider.name}: {kind} cannot be written: {cannot}")
        for kind in sorted(overcommitted):
            words = "each of its units is given to one server, its allocation ratio was set to 1"
            self.complain(f"{provider.name}: {kind} was overcommitted: {words}.")
        for kind in sorted(withheld):
            await self._complain_of_withheld(provider, kind, must_wait)
        await self._complain_of_shrunk(provider, said, used)
        return withheld

    async def _find_used(self, provider: str) -> dict[str, int]:
        if provider not in self._rows:
            return {}
        answer = await self._placement.ask("GET", f"/resource_providers/{provider}/usages")
        return dict(answer.body["usages"]) if answer.status == 200 else {}

    async def _complain_of_withheld(self, provider: ReportedProvider, kind: str, must_wait: bool) -> None:
        holders = await self._describe_holders(provider.id, kind)
        self.complain(
            f"{provider.name}: {kind} is gone from the host and in use by {holders}: nothing new fits on it."
            + (" What is there in its place has to wait." if must_wait else "")
        )

    async def _complain_of_shrunk(
        self, provider: ReportedProvider, said: OwnedProvider, used: dict[str, int]
    ) -> None:
        """Complain of classes of which more is in use than the host has now."""
        if all(used.get(kind, 0) <= one.total for kind, one in said.inventories.items()):
            return
        answer = await self._placement.ask("GET", f"/resource_providers/{provider.id}/inventories")
        there = answer.body["inventories"] if answer.status == 200 else {}
        for kind in sorted(said.inventories.keys() & there.keys()):
            has = int(there[kind]["total"] * there[kind]["allocation_ratio"])
            if used.get(kind, 0) > has:
                self.complain(f"{provider.name}: {used[kind]} of {kind} are in use, the host has {has}.")

    async def _describe_holders(self, provider: str, kind: str | None) -> str:
        """The ids of the consumers that hold something of a provider, of one class or any; of many, some."""
        answer = await self._placement.ask("GET", f"/resource_providers/{provider}/allocations")
        found = answer.body["allocations"] if answer.status == 200 else {}
        holders = [id for id, held in found.items() if kind is None or kind in held["resources"]]
        more = len(holders) - _HOLDERS_SHOWN
        named = map(self._name_server, sorted(holders)[:_HOLDERS_SHOWN])
        return ", ".join(named) + (f" and {more} more" if more > 0 else "")

    def _name_server(self, consumer: str) -> str:
        """A consumer, with the server that it is a migration of."""
        assigned = self._find_assignment(consumer)
        if assigned is None or assigned.server == consumer:
            return consumer
        return f"{assigned.server} (migration {consumer})"

    async def _write_traits(
        self, provider: ReportedProvider, said: OwnedProvider, before: OwnedProvider
    ) -> None:
        gone = set(before.traits) - set(said.traits)
        if SHARES_VIA_AGGREGATE in provider.traits:
            self.complain(f"{provider.name}: the trait {SHARES_VIA_AGGREGATE} is for operators to set.")

        def change(names: Iterable[str]) -> Callable[[list[str]], list[str]]:
            return lambda there: sorted({*there, *names} - gone)

        async for name, cannot in self._write_parts(provider, "traits", said.traits, change):
            self.complain(f"{provider.name}: the trait {name} cannot be set: {cannot}")

    async def _write_parts(
        self,
        provider: ReportedProvider,
        what: Contents,
        names: Sequence[str],
        change: Callable[[Sequence[str]], Callable[[Any], Any]],
        *,
        creates: bool = True,
    ) -> AsyncIterator[tuple[str, str]]:
        """Write a change of these names, all at once; where that is refused, each half of it, and so on. The
        names that are refused, and why. A thousand names with a bad one among them take some 20 writes.

        Custom names are created (``creates``) only when a change is refused without them: nearly always
        another host has brought them, or this one has before."""
        cannot = await self._change(provider.id, what, change(names))
        if cannot is not None and creates and await self._create_names(provider, what):
            cannot = await self._change(provider.id, what, change(names))
        if cannot is None:
            return
        if len(names) <= 1:
            for name in names:
                yield name, cannot
            return
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            async for refused in self._write_parts(provider, what, half, change, creates=False):
                yield refused

    async def _change(self, provider: str, what: Contents, change: Callable[[Any], Any]) -> str | None:
        """Read, change and write something of a provider; why not, if Placement refuses it."""
        path = f"/resource_providers/{provider}/{what}"
        for _ in range(_ATTEMPTS):
            is_new = provider in self._created
            if is_new:
                there, generation = _NOTHING[what], self._created.pop(provider)
            else:
                found = await self._placement.ask("GET", path)
                if found.status != 200:
                    return found.detail
                there, generation = found.body[what], found.body["resource_provider_generation"]
                there = sorted(there) if isinstance(there, list) else there
            wanted = change(there)
            if wanted != there:
                body = {what: wanted, "resource_provider_generation": generation}
                answer = await self._placement.ask("PUT", path, body)
                if answer.status == 409 and answer.code == "placement.concurrent_update":
                    continue
                if answer.status != 200:
                    return answer.detail
                generation = answer.body["resource_provider_generation"]
            if is_new:
                self._created[provider] = generation
            return None
        raise _give_up(path)


def _merge_inventory(
    kind: str, there: dict[str, Any] | None, said: OwnedProvider, before: OwnedProvider
) -> dict[str, Any]:
    """The inventory of a class that an agent reports: what it says, but for what an operator has set."""
    wanted = _format_inventory(said.inventories[kind])
    if there is None:
        return wanted
    if kind in before.withheld and there["reserved"] == there["total"]:
        there = {**there, "reserved": before.withheld[kind]}
    last = before.inventories.get(kind)
    for field in ("reserved", "allocation_ratio"):
        if last is None or there[field] != getattr(last, field):
            wanted[field] = there[field]
    wanted["reserved"] = min(wanted["reserved"], wanted["total"])
    wanted["allocation_ratio"] = _limit_ratio(said, kind, wanted["allocation_ratio"])
    return wanted


def _limit_ratio(said: OwnedProvider, kind: str, ratio: float) -> float:
    """A unit is given to one server, whatever an operator has set before the agent named it."""
    return min(ratio, 1.0) if kind in said.units else ratio


def _give_up(path: str) -> PlacementUnavailable:
    return PlacementUnavailable(f"Placement write contention at {path}: gave up after {_ATTEMPTS} tries")


def _reserve_all(inventory: dict[str, Any]) -> dict[str, Any]:
    """The inventory with all of it reserved."""
    return {**inventory, "reserved": inventory["total"]}


def _format_inventory(inventory: Inventory) -> dict[str, Any]:
    fields = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
    return {field: getattr(inventory, field) for field in fields}


class _Placement:
    """The part of Placement's API that is needed here."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_providers(self, query: str) -> list[dict[str, Any]]:
        answer = await self._fetch(f"/resource_providers?{query}")
        return list(answer.body["resource_providers"])

    async def list_traits(self, provider: str) -> list[str]:
        answer = await self._fetch(f"/resource_providers/{provider}/traits")
        return list(answer.body["traits"])

    async def list_aggregates(self, provider: str) -> list[str]:
        answer = await self._fetch(f"/resource_providers/{provider}/aggregates")
        return list(answer.body["aggregates"])

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        try:
            answer = await self._client.ask(method, path, body)
        except Unreachable as error:
            raise PlacementUnavailable(str(error)) from error
        if answer.status >= 500 or answer.status in (401, 403, 429):
            raise PlacementUnavailable(answer.detail)
        return answer

    async def _fetch(self, path: str) -> Answer:
        answer = await self.ask("GET", path)
        if answer.status != 200:
            raise ClaimRefused(answer.detail)
        return answer

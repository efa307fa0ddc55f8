"""Reshapes: inventories and the allocations on them move to other providers of a host, and the records of the
servers follow in the same change.

A reshape is no conflict as long as a consumer holds as much of every class as before: its record then says
where, and no policy has to decide. Whatever else a reshape changes is another client's change like any other
(``conflicts``), and so is a reshape of a server that is busy: the run of its saga says what it holds. A cell,
which reshapes a host because its agent reports another shape, is refused then, and tries again later.
"""

from collections.abc import Iterator

import msgspec

from berth.model.commands import Claim, Command, Enact, Reshape
from berth.model.events import RecordChanged
from berth.model.rejections import ServerBusy
from berth.model.servers import Held, Migration, Need, Server
from berth.sagas.conflicts import count_classes, generation_of, held_now, minus, overlap, plus, same
from berth.sagas.proposals import send_units
from berth.sagas.requests import meet_need
from berth.view import View


def propose_reshape(view: View, command: Reshape) -> Command | ServerBusy:
    """The reshape, with the records of the servers and migrations that it moves."""
    servers = {
        server.id: server for claim in command.claims if (server := _find_server(view, claim.consumer))
    }
    for server in servers.values():
        if command.by_cell and server.run is not None:
            return ServerBusy(server.id, "reshape the allocations", server.task or "busy")
    changes = tuple(change for claim in command.claims for change in _follow(view, claim))
    # Whether a server is busy was read, and must still be so when this is judged.
    return Enact(changes, (command,), reads=tuple(servers.values())) if servers else command


def _follow(view: View, claim: Claim) -> Iterator[RecordChanged]:
    record, server = _find_record(view, claim.consumer), _find_server(view, claim.consumer)
    if record is None or (server is not None and server.run is not None):
        return
    before, after = held_now(view, claim.consumer), claim.wanted
    if not same(before, record.held) or same(before, after):
        return
    if count_classes(before) != count_classes(after):
        return
    generation = generation_of(view, claim.consumer)
    assert generation is not None, "it holds something"
    # Parts of what a migration holds may be what the server uses still.
    everything = plus((after, record.shared)) if isinstance(record, Migration) else after
    [kept] = _find_again((record.kept,), everything)
    needs = _find_needs_again(record.needs, everything)
    followed = msgspec.structs.replace(record, held=after, kept=kept, needs=needs, generation=generation + 1)
    yield RecordChanged(record, followed)
    yield from _follow_units(view, followed)


def _follow_units(view: View, record: Server | Migration) -> Iterator[RecordChanged]:
    """Units are named with the provider that they are of: they go with what is held."""
    if isinstance(record, Server):
        if record.place is not None:
            yield send_units(view, record, record.place, record.held, record.flavor)
        return
    server = _find_server(view, record.id)
    if server is not None:
        yield send_units(view, server, record.source, record.held, record.flavor_before, record.id)


def _find_record(view: View, consumer: str) -> Server | Migration | None:
    return view.records.get(Server, consumer) or view.records.get(Migration, consumer)


def _find_server(view: View, consumer: str) -> Server | None:
    """The server that a consumer is, or is a migration of."""
    record = _find_record(view, consumer)
    return view.records.get(Server, record.server) if isinstance(record, Migration) else record


def _find_needs_again(needs: tuple[Need, ...], after: Held) -> tuple[Need, ...]:
    """Needs, each with where its groups are met now."""
    found = iter(_find_again(tuple(group.held for need in needs for group in need.parts), after))
    return tuple(meet_need(need, tuple(next(found) for _ in need.parts)) for need in needs)


def _find_again(parts: tuple[Held, ...], after: Held) -> list[Held]:
    """Where parts of what was held are now: where they were if that is still held, else on the first provider
    that has all of it left. What was on one provider and is on several now is taken from wherever it is."""
    free = after
    found = []
    for part in parts:
        here: list[Held] = []
        for provider, amounts in part:
            places: list[Held] = [((other, amounts),) for other in (provider, *(id for id, _ in free))]
            whole = next((place for place in places if same(overlap(place, free), place)), None)
            here.append(whole if whole is not None else _gather(dict(amounts), free))
            free = minus(free, here[-1])
        found.append(plus(here))
    return found


def _gather(amounts: dict[str, int], free: Held) -> Held:
    """Amounts, taken from whichever providers have them."""
    gathered = []
    for provider, available in free:
        taken = {name: min(n, amounts.get(name, 0)) for name, n in available}
        amounts = {name: n - taken.get(name, 0) for name, n in amounts.items()}
        gathered.append((provider, tuple((name, n) for name, n in taken.items() if n)))
    return tuple(part for part in gathered if part[1])

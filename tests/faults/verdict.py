"""What must hold when everything is quiet again, whatever has failed before.

Every client's record is right, no provider holds more than it has, what providers hold is the sum of what
consumers do, every worker of every server says the same, and so does the journal replayed offline.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from berth.engine import replay, start_view
from berth.journal import Pruned, open_journal, parse_address
from berth.view import View
from tests.crash.holdings import NOTHING, Held, Holdings, holdings_from
from tests.crash.replay import replayed_provider, server_provider
from tests.faults.lines import Line, lines_to_all_workers
from tests.faults.load import CAPACITY, ClientLoad
from tests.placement import PlacementClient
from tests.servers import ServerProcess


class State(NamedTuple):
    """All that there is, by id, as one worker tells it or as it follows from the journal."""

    providers: dict[str, dict[str, object]]
    consumers: dict[str, Holdings]


def assert_books_right(load: ClientLoad, database_url: str, workers: int = 1) -> None:
    """The whole verdict on servers with so many workers each, after the load has stopped."""
    state = assert_all_agree(load.servers, database_url, workers)
    for client in load.clients:
        client.record.settle({id: state.consumers.get(id, NOTHING) for id in client.record.acknowledged})
    ours = {id for client in load.clients for id in client.record.acknowledged}
    assert set(state.consumers) <= ours
    assert_sums(state, load.providers)


def assert_all_agree(servers: Sequence[ServerProcess], database_url: str, workers: int = 1) -> State:
    """Every worker of every server tells the state that follows from the journal; that state."""
    expected = replayed_state(database_url)
    for number, server in enumerate(servers):
        for line in lines_to_all_workers(server, workers):
            with contextlib.closing(line):
                found = served_state(line, expected.consumers)
            assert found == expected, f"server {number}: {difference(found, expected)}"
    return expected


def assert_sums(state: State, providers: Iterable[str], capacity: dict[str, int] = CAPACITY) -> None:
    """No provider is overcommitted, and each holds exactly what consumers say they have there."""
    for provider in providers:
        used: Counter[str] = Counter(dict.fromkeys(capacity, 0))
        holders = set()
        for consumer, holdings in state.consumers.items():
            if provider in holdings.held:
                used.update(holdings.held[provider])
                holders.add(consumer)
        shown: Any = state.providers[provider]
        assert shown["usages"] == dict(used)
        assert set(shown["consumers"]) == holders
        assert all(used[name] <= capacity[name] for name in capacity), f"{provider} is overcommitted: {used}"


def replayed_state(database_url: str) -> State:
    """From the database alone: by way of a snapshot, as a server starts, and from the first index, if the
    journal still has it."""
    journal = open_journal(parse_address(database_url), shared=None)
    with contextlib.closing(journal):
        view = start_view(journal)
        whole = View()
        with contextlib.suppress(Pruned):
            replay(journal, whole)
            assert view.state() == whole.state()
    return State(
        {str(id): replayed_provider(view, record) for id, record in view.providers.items()},
        {
            str(id): Holdings(holder.consumer.generation, _held(view, holder.held))
            for id, holder in view.consumers.items()
            if holder.held
        },
    )


def served_state(line: Line, consumers: Iterable[str]) -> State:
    """What one worker says. Placement cannot list consumers, but every provider names its own."""
    rows = line("GET", "/resource_providers")["resource_providers"]
    providers = {row["uuid"]: server_provider(line, row) for row in rows}
    named: Any = [provider["consumers"] for provider in providers.values()]
    ids = {*consumers, *(id for some in named for id in some)}
    found = {id: holdings_through(line, id) for id in ids}
    return State(providers, {id: holdings for id, holdings in found.items() if holdings != NOTHING})


def holdings_through(line: PlacementClient, consumer: str) -> Holdings:
    return holdings_from(line("GET", f"/allocations/{consumer}"))


def difference(found: State, expected: State) -> str:
    """The first few things in which two states differ."""
    lines = []
    for ours, theirs in ((found.providers, expected.providers), (found.consumers, expected.consumers)):
        for id in sorted(ours.keys() | theirs.keys()):
            one: object = ours.get(id)
            other: object = theirs.get(id)
            if one != other:
                lines.append(f"{id}: found {one}, expected {other}")
    return "\n".join(lines[:5])


def _held(view: View, held: Iterable[tuple[Any, Iterable[tuple[Any, int]]]]) -> Held:
    return {str(id): {view.classes.name_of(name): amount for name, amount in part} for id, part in held}

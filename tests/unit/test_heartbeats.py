"""A host is down when no heartbeat has come within the timeout, and for no other reason. One that comes back
is up when no leftover is on it."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from berth.cell.hosts import Heartbeats, HostRegistry
from berth.cell.mailbox import Mailbox
from berth.cell.protocol import Poll
from berth.engine import Engine
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.saga_runs import Agent, Assignment, Instance, assignment_id
from berth.runtime.ids import Ids
from berth.view import View
from tests.clocks import FakeClock
from tests.worlds import ViewEngine

pytestmark = pytest.mark.fast

HOST = Agent(id="host-1", name="host-1", driver="sim")
TIMEOUT_S = 30.0


class RecentEngine(ViewEngine):
    async def read_recent(self, answer: Callable[[View], Any]) -> Any:
        return await self.read(answer)


class SlowJournal:
    """The engine of a cell, and what has it written. The next look at the journal, and the next change of it,
    take so many seconds; a host is heard of during the change, or none is."""

    def __init__(self, *hosts: Agent) -> None:
        self.clock, self.view = FakeClock(), View()
        for host in hosts:
            self.view.apply(RecordChanged(None, host))
        self._engine = RecentEngine(self.view, self.clock)
        self.look_s = self.change_s = 0.0
        self.heard: str | None = None
        self.heartbeats = Heartbeats(cast(Engine, self), Mailbox(), self.clock, TIMEOUT_S, self.enact)

    async def read_recent(self, answer: Callable[[View], Any]) -> Any:
        self.clock.advance(self.look_s)
        self.look_s = 0.0
        return await self._engine.read(answer)

    async def enact(self, make: Callable[[View], Any]) -> None:
        self.clock.advance(self.change_s)
        self.change_s = 0.0
        if self.heard is not None:
            self.heartbeats.hear(self.heard)
        command = make(self.view)
        if isinstance(command, Enact):
            for change in command.changes:
                self.view.apply(change)

    async def look_every(self, pause_s: float, times: int) -> list[str]:
        """Look for hosts that are overdue, again and again; those that are down then."""
        for _ in range(times):
            self.clock.advance(pause_s)
            await self.heartbeats._mark_overdue()
        return [agent.id for agent in self.view.records.all(Agent) if agent.is_down]


@pytest.mark.parametrize("is_heard_late", [False, True])
async def test_a_host_that_is_heard_of_while_its_mark_waits_to_be_written_is_not_marked_down(
    is_heard_late: bool,
) -> None:
    journal = SlowJournal(HOST)
    journal.heard = HOST.id if is_heard_late else None
    assert await journal.look_every(TIMEOUT_S / 4, 5) == ([] if is_heard_late else [HOST.id])


async def test_a_host_that_could_not_be_heard_while_the_database_was_away_has_the_whole_timeout() -> None:
    """All heartbeats wait for the database, and so does the look at the hosts: it was not away for so long
    that anybody was refused, and all hosts were down for a moment when it was back."""
    journal = SlowJournal(HOST)
    journal.look_s = 3 * TIMEOUT_S
    assert await journal.look_every(TIMEOUT_S / 4, 4) == []
    assert await journal.look_every(TIMEOUT_S / 4, 2) == [HOST.id]


async def test_a_host_is_not_down_because_the_mark_of_another_had_to_wait_for_the_database() -> None:
    other = msgspec.structs.replace(HOST, id="host-2", name="host-2")
    journal = SlowJournal(HOST, other)
    journal.change_s = 3 * TIMEOUT_S
    assert await journal.look_every(TIMEOUT_S / 4, 5) == []
    assert await journal.look_every(TIMEOUT_S / 4, 5) == [HOST.id, other.id]


async def test_a_conductor_that_was_stopped_for_a_while_has_heard_nobody() -> None:
    journal = SlowJournal(HOST)
    assert await journal.look_every(5 * TIMEOUT_S, 1) == []
    assert await journal.look_every(TIMEOUT_S / 4, 5) == [HOST.id]


class LateEngine(RecentEngine):
    """Before it decides, the last run of a server ends: the server should not be on the host any more."""

    async def submit(self, proposal: Any, origin: Any, answer: Any, size: int = 0) -> Any:
        instance = self.view.records.get(Instance, "server-1")
        assert instance is not None
        gone = msgspec.structs.replace(instance, hosts=(), left_on=(HOST.id,), nowhere_since_s=1)
        self.view.apply(RecordChanged(instance, gone))
        return await super().submit(proposal, origin, answer, size)


async def test_a_host_on_which_a_leftover_appears_meanwhile_is_not_up() -> None:
    clock, view = FakeClock(), View()
    view.apply(RecordChanged(None, msgspec.structs.replace(HOST, is_down=True)))
    view.apply(RecordChanged(None, Instance(id="server-1", hosts=(HOST.id,), last=1)))
    engine = LateEngine(view, clock)
    registry = HostRegistry(
        cast(Engine, engine), cast(Any, None), Mailbox(), clock, Ids(seed=1), TIMEOUT_S, lambda: 0
    )
    await registry.poll(Poll(host=HOST.id, servers=("server-1",)), 3)
    agent, instance = view.records.get(Agent, HOST.id), view.records.get(Instance, "server-1")
    assert agent is not None
    assert instance is not None
    assert (agent.is_down, instance.left_on) == (True, (HOST.id,))
    answer = await registry.poll(Poll(host=HOST.id, servers=("server-1",)), 3)
    assert [left.server for left in answer.leftovers] == ["server-1"]


async def test_units_of_servers_that_are_gone_are_freed_though_there_is_a_leftover() -> None:
    clock, view = FakeClock(), View()
    view.apply(RecordChanged(None, msgspec.structs.replace(HOST, is_down=True)))
    for server in ("leftover", "gone"):
        view.apply(
            RecordChanged(
                None,
                Assignment(
                    id=assignment_id(server, HOST.id),
                    server=server,
                    host=HOST.id,
                    holder=server,
                    run="r",
                    units={"card": {"SRIOV_NET_VF": (server,)}},
                    counts={},
                ),
            )
        )
    engine = RecentEngine(view, clock)
    registry = HostRegistry(
        cast(Engine, engine), cast(Any, None), Mailbox(), clock, Ids(seed=1), TIMEOUT_S, lambda: 0
    )
    many = tuple(f"leftover-{number:03}" for number in range(150))
    for id in ("leftover", *many):
        view.apply(RecordChanged(None, Instance(id=id, last=1)))
    answer = await registry.poll(Poll(host=HOST.id, servers=("leftover", "unknown", *many)), 3)
    # A hundred at a time.
    assert [left.server for left in answer.leftovers] == ["leftover", *many[:99]]
    assert [one.server for one in view.records.all(Assignment)] == ["leftover"]
    agent = view.records.get(Agent, HOST.id)
    assert agent is not None
    assert agent.is_down

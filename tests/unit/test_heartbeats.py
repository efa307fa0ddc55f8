"""A host is down when no heartbeat has come within the timeout, and for no other reason."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from berth.cell.hosts import Heartbeats
from berth.cell.mailbox import Mailbox
from berth.engine import Engine
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.saga_runs import Agent
from berth.view import View
from tests.clocks import FakeClock
from tests.worlds import ViewEngine

pytestmark = pytest.mark.fast

HOST = Agent(id="host-1", name="host-1", driver="sim")
TIMEOUT_S = 30.0


@pytest.mark.parametrize("is_heard_late", [False, True])
async def test_a_host_that_is_heard_of_while_its_mark_waits_to_be_written_is_not_marked_down(
    is_heard_late: bool,
) -> None:
    clock, view = FakeClock(), View()
    view.apply(RecordChanged(None, HOST))
    engine = ViewEngine(view, clock)

    async def enact(make: Callable[[View], Any]) -> None:
        """The journal is slow, and a heartbeat comes meanwhile."""
        if is_heard_late:
            heartbeats.hear(HOST.id)
        command = make(view)
        if isinstance(command, Enact):
            for change in command.changes:
                view.apply(change)

    heartbeats = Heartbeats(cast(Engine, engine), Mailbox(), clock, TIMEOUT_S, enact)
    clock.advance(TIMEOUT_S + 1)
    await heartbeats._mark_overdue(0)
    agent = view.records.get(Agent, HOST.id)
    assert agent is not None
    assert agent.is_down is not is_heard_late

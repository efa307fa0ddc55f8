"""Requests for devices on a fleet that has them, met and refused: what they cost while others wait.

Measured are steps and searches of hosts, never time. The step budget of the engine is what makes a child of a
request, and a child of a large view is far more work than the request.
"""

from typing import Final

import msgspec
import pytest

from bench.fleets import providers
from bench.journals import fleet_commands
from bench.scheduling import LARGE_GUEST, NUMA_GUEST, beside_cells
from bench.workload import Devices
from berth.api.native.schedule_requests import NewSchedule, _make_request
from berth.ledger import decide
from berth.model.commands import Command, DeleteProvider
from berth.model.ids import ConsumerId
from berth.model.rejections import NoFit, Rejection
from berth.model.scheduling import Plan, ScheduleRequest
from berth.runtime.ids import Ids
from berth.scheduler.plan import plan
from berth.view import UNLIMITED, View
from tests.options import scheduler_options

HOSTS: Final = 250
STEPS_PER_HOST_MAX: Final = 1.0
"""With 10,000 hosts that makes the 10,000 steps that a request may take in the turn of all."""

OPTIONS: Final = scheduler_options()
MET: Final = (beside_cells(1, 1), beside_cells(1, 4), beside_cells(2, 4), NUMA_GUEST)
REFUSED: Final = (beside_cells(1, 5), beside_cells(3, 3))


def carry_out(view: View, command: Command) -> None:
    verdict = decide(view, command, 0)
    assert not isinstance(verdict, Rejection), verdict
    for event in verdict:
        view.apply(event)


def fleet_of(hosts: int) -> View:
    view = View()
    for command in fleet_commands(providers(Devices(hosts))):
        carry_out(view, command)
    return view


@pytest.fixture(scope="module")
def small() -> View:
    return fleet_of(HOSTS)


@pytest.fixture(scope="module")
def large() -> View:
    return fleet_of(5 * HOSTS)


def request_of(body: dict[str, object]) -> ScheduleRequest:
    asked = msgspec.convert(body, NewSchedule)
    return _make_request(asked, OPTIONS.devices, members=(ConsumerId("member"),), at_least=1, project="p")


def plan_in(view: View, body: dict[str, object]) -> tuple[Plan | Rejection, int]:
    """What comes of a request, and how many steps it takes."""
    view.steps.begin(UNLIMITED)
    try:
        return plan(view, request_of(body), OPTIONS, Ids(1).rng, 1), UNLIMITED - view.steps.left
    finally:
        view.steps.end()


@pytest.mark.parametrize("body", [*MET, *REFUSED, LARGE_GUEST])
def test_ten_thousand_hosts_are_within_the_budget_of_steps(
    small: View, large: View, body: dict[str, object]
) -> None:
    (_, few), (_, many) = plan_in(small, body), plan_in(large, body)
    assert (many - few) / (4 * HOSTS) < STEPS_PER_HOST_MAX


@pytest.mark.parametrize("body", REFUSED)
def test_a_refusal_counts_every_host(large: View, body: dict[str, object]) -> None:
    outcome, _ = plan_in(large, body)
    assert isinstance(outcome, NoFit)
    assert not outcome.gave_up
    assert (outcome.steps[-1].constraint, outcome.steps[-1].removed) == ("together", 5 * HOSTS)


def test_a_refusal_says_what_a_whole_host_has_too_little_of(small: View) -> None:
    outcome, _ = plan_in(small, beside_cells(3, 3))
    assert isinstance(outcome, NoFit)
    assert outcome.steps[-1].nearest == (
        "host-0: 9 PGPU are needed in all, and its providers have 8 left together."
    )


def test_roots_are_the_providers_without_a_parent() -> None:
    view = fleet_of(2)
    for record in reversed(view.names["host-0"].tree()):
        carry_out(view, DeleteProvider(record.id))
    rows = {record.row for record in view.providers.values() if record.parent is None}
    assert set(view.roots().nonzero()[0].tolist()) == rows == {view.names["host-1"].row}

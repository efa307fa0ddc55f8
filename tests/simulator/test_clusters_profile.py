"""Fixed seeds of the profile of clusters, and those that once showed a bug (as in ``test_seeds``); and each
of its checks finds the bug that is planted for it."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from berth.clusters import placement, reconciler
from berth.model.clusters import Cluster
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.sim.profiles import PROFILES
from berth.sim.profiles.clusters import ClustersProfile
from berth.sim.simulation import PlannedAction, SeedOutcome, Simulation, simulate
from tests.simulator.planting import find_failure

SEEDS = [(1, 8), (2, 8)]
BUGS = [
    # A cell could not be written to when the status sync had brought up the end of a saga run: the run stayed
    # in the cell for ever (finished run stays in its cell).
    (48, 4),
]


def play(seed: int, minutes: float) -> SeedOutcome:
    outcome = simulate(PROFILES["clusters"], seed, minutes=minutes)
    assert outcome.failure is None, "\n".join((outcome.failure, *outcome.trace[-40:]))
    return outcome


@pytest.mark.parametrize(("seed", "minutes"), SEEDS)
def test_every_check_holds(seed: int, minutes: float) -> None:
    outcome = play(seed, minutes)
    assert outcome.counts["create a cluster"]
    assert outcome.counts["scale a cluster"]


@pytest.mark.parametrize(("seed", "minutes"), BUGS)
def test_what_once_failed_holds(seed: int, minutes: float) -> None:
    play(seed, minutes)


async def silence(simulation: Simulation, rng: random.Random) -> None:
    """The polls of a host are lost, until shortly before it is marked down."""
    cloud, heard_s = simulation.cloud, simulation.witness.heard_s
    host = cloud.hosts["host-0001"]
    cloud.network.block(host.name, host.host.cell or "")
    while simulation.world.loop.time() - heard_s.get(host.name, 0) < cloud.heartbeat_timeout_s - 2:
        await asyncio.sleep(1)


class SilentHost(ClustersProfile):
    def actions(self, seed: int) -> list[PlannedAction]:
        return [PlannedAction(0, "silence", silence, seed)]


def test_a_host_that_is_marked_down_when_faults_have_stopped_is_waited_for() -> None:
    """Once the check that nothing is written at rest began before (seed 149)."""
    outcome = simulate(SilentHost(), 1, minutes=1)
    assert outcome.failure is None, outcome.failure


def _make_loose_groups(cluster: Cluster) -> Any:
    """Groups that let nodes share a domain."""
    return tuple(
        msgspec.structs.replace(made, group=msgspec.structs.replace(made.group, max_per_domain=9))
        for made in _make_groups(cluster)
    )


def _make_wide_groups(cluster: Cluster) -> Any:
    """Groups each of which lets as many nodes share a domain as the ratio says."""
    return tuple(
        msgspec.structs.replace(made, group=msgspec.structs.replace(made.group, max_per_domain=cluster.ratio))
        for made in _make_groups(cluster)
    )


def _place_without_claims(*arguments: Any) -> Any:
    made = _place_nodes(*arguments)
    return Enact(made.changes, ()) if isinstance(made, Enact) else made


def _end_without_groups(view: Any, cluster: Cluster) -> Enact:
    """Leaves the groups of a deleted cluster behind."""
    return Enact((RecordChanged(cluster, None),))


def _drop_none(view: Any, leaving: Any) -> Any:
    """Takes every node that leaves for gone."""
    return tuple(leaving)


def _forget_leavers(cluster: Cluster, names: set[str]) -> Cluster:
    return cluster


def _always_write(view: Any, now_s: int, context: Any, id: str) -> Any:
    """The reconciler is never done."""
    cluster = view.records.get(Cluster, id)
    if cluster is None or cluster.state != "active" or any(one.state != "wanted" for one in cluster.nodes):
        return _propose_next(view, now_s, context, id)
    after = msgspec.structs.replace(cluster, updated_at_s=now_s)
    return None if after == cluster else Enact((RecordChanged(cluster, after),))


_make_groups = placement.make_groups
_place_nodes = placement.place_nodes
_propose_next = reconciler.propose_next

_PLANTED: list[tuple[str, Callable[..., Any], str, int]] = [
    ("proposals.make_groups", _make_loose_groups, "more than its ratio", 2),
    ("proposals.make_groups", _make_wide_groups, " share ", 3),
    ("proposals.place_nodes", _place_without_claims, "comes without its claim", 1),
    ("reconciler._end", _end_without_groups, "is left of", 1),
    ("reconciler._find_droppable", _drop_none, "is left of", 15),
    ("distribution.remove_nodes", _forget_leavers, "nodes, and has", 2),
    ("reconciler.propose_next", _always_write, "the cloud is at rest, and rows", 2),
]


def _plant(monkeypatch: pytest.MonkeyPatch, where: str, planted: Callable[..., Any]) -> None:
    monkeypatch.setattr(f"berth.clusters.{where}", planted)
    if planted is _always_write:
        monkeypatch.setattr(reconciler, "is_due", lambda view, cluster, now_s: True)
    if planted is _make_wide_groups:
        monkeypatch.setattr("berth.clusters.distribution._find_next_group", lambda groups, *_: groups[0])


@pytest.mark.parametrize(("where", "planted", "found", "seed"), _PLANTED)
def test_a_planted_bug_is_found(
    where: str, planted: Callable[..., Any], found: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plant(monkeypatch, where, planted)
    assert found in find_failure("clusters", 6, found, seed)

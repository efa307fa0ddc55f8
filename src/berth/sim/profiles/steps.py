"""Every crash at every step of every saga, each with a server (or a cluster) of its own.

Seed N plays some crashes of the table, one after the other as N grows. After the last it begins anew, with
other luck, and with a second crash in each saga, whichever luck chooses.

For each crash a server is brought to where its saga can begin, the saga is begun with the crash armed, and
what died is started again after a moment. However it was interrupted, the saga must end as the table of all
operations says. A crash that has not happened, because others were in the way, is tried again with a new
server.

An evacuation needs a host that is down, and the release after it needs that host back: all that a seed plays
of them have one host in common, which dies before them and is revived at their end.
"""

import asyncio
import functools
import itertools
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from berth.agent.drivers.behaviour import SimBehaviour
from berth.cell.conductor import Deadlines
from berth.client import Answer
from berth.model.clusters import Cluster
from berth.model.servers import Server
from berth.sagas import delete, shelve
from berth.sagas.saga import AS_BEFORE, GONE, Saga, all_sagas
from berth.sagas.table import Ending, find_failure, find_success
from berth.sim.cloud import SimCloud
from berth.sim.coverage import (
    ABORT,
    ALTERNATE,
    CLEAR,
    CLUSTER,
    DONE,
    END,
    FAILED,
    Crash,
    Crashes,
    all_crashes,
    step_that_fails,
)
from berth.sim.database import Condition
from berth.sim.network import Weather
from berth.sim.profiles.lifecycle import COMPUTE, OTHER_FLAVORS, LifecycleProfile, make_fleet
from berth.sim.simulation import Act, PlannedAction, Simulation

AT_ONCE: Final = 60
"""How many crashes one seed plays."""
_CLUSTERS: Final = "/berth/v1/clusters"
_ATTEMPTS: Final = 4
_WITHIN_S: Final = 10.0
_PATIENCE_S: Final = 1200.0
_LOOK_S: Final = 0.5
_AGAIN_S: Final = 1.0
_DELAYS_S: Final = (0.003, 0.03, 0.3)
_DEAD: Final = "host-0001"
_ON_DEAD_HOST: Final = ("evacuate", "release")

_BEFORE: Final[dict[str, tuple[str, ...]]] = {
    "create": (),
    "evacuate": (),
    "confirm": ("create", "resize"),
    "revert": ("create", "resize"),
    # Only one that waits for its confirmation is on two hosts when it is deleted.
    "delete": ("create", "resize"),
    "start": ("create", "stop"),
    "shelve_offload": ("create", "shelve"),
    "unshelve": ("create", "shelve_away"),
    "unshelve_here": ("create", "shelve"),
    "unpause": ("create", "pause"),
    "resume": ("create", "suspend"),
    "unrescue": ("create", "rescue"),
    "restore": ("create", "soft_delete"),
}
"""What is done before a saga, so that it can begin; a creation for those that are not named. What is to be
evacuated is there already."""

_ACTIONS: Final[dict[str, tuple[str, Any]]] = {
    "migrate": ("migrate", None),
    "confirm": ("confirmResize", None),
    "revert": ("revertResize", None),
    "live_migrate": ("os-migrateLive", {"host": None, "block_migration": "auto"}),
    "evacuate": ("evacuate", {}),
    "unshelve": ("unshelve", None),
    "unshelve_here": ("unshelve", None),
    "start": ("os-start", None),
    "stop": ("os-stop", None),
    "shelve_away": ("shelve", None),
    "shelve_offload": ("shelveOffload", None),
    "reboot": ("reboot", {"type": "SOFT"}),
    "reboot_hard": ("reboot", {"type": "HARD"}),
    "pause": ("pause", None),
    "unpause": ("unpause", None),
    "suspend": ("suspend", None),
    "resume": ("resume", None),
    "rescue": ("rescue", {}),
    "unrescue": ("unrescue", None),
    "create_image": ("createImage", {"name": "image"}),
    "create_backup": ("createBackup", {"name": "backup", "backup_type": "daily", "rotation": 1}),
    "restore": ("restore", None),
}


def list_seeds() -> range:
    """The seeds that play the whole table once."""
    return range(len(_divide_table()))


def list_crashes(seed: int) -> Sequence[Crash]:
    """What a seed plays."""
    portions = _divide_table()
    return portions[seed % len(portions)]


@functools.cache
def _divide_table() -> list[Sequence[Crash]]:
    """The portions of the seeds. Crashes that need a dead host keep to themselves."""
    table = all_crashes()
    apart = [crash for crash in table if crash.saga in _ON_DEAD_HOST]
    rest = [crash for crash in table if crash.saga not in _ON_DEAD_HOST]
    return [some[n : n + AT_ONCE] for some in (rest, apart) for n in range(0, len(some), AT_ONCE)]


class StepsProfile:
    name = "steps"
    every_s = 1.0
    is_ours = True

    def cloud(self, seed: int) -> SimCloud:
        return SimCloud(
            seed=seed,
            fleet=make_fleet(6, every=1, times=16),
            workers=2,
            deadlines=Deadlines(60, 300, 600),
            # An abort comes in time, whoever dies on its way.
            behaviour=SimBehaviour(live_migrate_seconds=60),
            resize_in_place=False,
        )

    def actions(self, seed: int) -> list[PlannedAction]:
        rng = random.Random(f"{seed} actions of {self.name}")
        crashes = list_crashes(seed)
        times = sorted(rng.uniform(0, _WITHIN_S) for _ in crashes)
        is_first_round = seed in list_seeds()
        return [
            PlannedAction(
                at_s,
                str(crash),
                _Play(crash, None if is_first_round else _choose_second(crash, rng)),
                rng.getrandbits(64),
            )
            for at_s, crash in zip(times, crashes, strict=True)
        ]

    def choices(self) -> list[tuple[float, str, Act]]:
        return []

    async def prepare(self, simulation: Simulation) -> None:
        simulation.crashes = Crashes(simulation.cloud)
        await LifecycleProfile().prepare(simulation)
        _slow_down(simulation.cloud)
        crashes = [one for one in list_crashes(simulation.world.seed) if one.saga in _ON_DEAD_HOST]
        if crashes:
            await _prepare_dead_host(simulation, crashes)

    async def check_at_rest(self, simulation: Simulation) -> None:
        await LifecycleProfile().check_at_rest(simulation)


def _slow_down(cloud: SimCloud) -> None:
    """Let requests and writes take as long as the seed says: with it changes what overtakes what."""
    rng = cloud.world.rng("delays")
    cloud.network.weather = Weather(delay_s=rng.choice(_DELAYS_S))
    for database in cloud.databases():
        database.condition = Condition(delay_s=rng.choice(_DELAYS_S))


def _choose_second(crash: Crash, rng: random.Random) -> Crash:
    return rng.choice([other for other in all_crashes() if other.saga == crash.saga])


async def _prepare_dead_host(simulation: Simulation, crashes: Sequence[Crash]) -> None:
    names = {crash: _names_on_dead_host(crash, number) for number, crash in enumerate(crashes)}
    async with asyncio.TaskGroup() as group:
        for name in itertools.chain(*names.values()):
            group.create_task(_Story(simulation, name).create(_DEAD))
    simulation.facts["on the dead host"] = names
    simulation.cloud.hosts[_DEAD].kill()
    await simulation.cloud.until(lambda view: len(view.down) == 1)


def _names_on_dead_host(crash: Crash, number: int) -> list[str]:
    """Of the servers that are there before the host dies. The status sync may clear the outbox before the
    dispatcher does: for that, there are more."""
    return [f"s{number}.{n}" for n in range(_ATTEMPTS if crash.step == CLEAR else 1)]


class _Play:
    """Plays one crash, until it has happened. ``second`` may happen too, if the saga comes by there."""

    def __init__(self, crash: Crash, second: Crash | None) -> None:
        self.crash = crash
        self._second = second

    def _names(self, simulation: Simulation, rng: random.Random) -> list[str]:
        """Of the server, or cluster, of each attempt."""
        if self.crash.saga in _ON_DEAD_HOST:
            there: list[str] = simulation.facts["on the dead host"][self.crash]
            return there
        return [f"s{rng.getrandbits(32):08x}" for _ in range(_ATTEMPTS)]

    async def __call__(self, simulation: Simulation, rng: random.Random) -> None:
        crash = self.crash
        try:
            async with asyncio.timeout(_PATIENCE_S):
                for name in self._names(simulation, rng):
                    story = _Story(simulation, name)
                    if self._second is not None:
                        story.arm(self._second)
                    if await story.tell(crash):
                        return
        except TimeoutError:
            simulation.fail(f"{crash}: no end within {_PATIENCE_S:g} s")


class _Story:
    """What becomes of one server, or one cluster, known by its name."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self._simulation = simulation
        assert simulation.crashes is not None, "the profile has prepared them"
        self._crashes = simulation.crashes
        self._name = name

    def arm(self, crash: Crash) -> None:
        self._crashes.arm((self._name,), crash)

    async def create(self, host: str | None = None) -> None:
        await self._begin("create", host)
        await self._rest()

    # -- servers --------------------------------------------------------------------------------

    async def tell(self, crash: Crash) -> bool:
        """Whether the crash has happened; that of a release comes later, when the host is back."""
        if crash.role == "reconciler":
            await self._change_cluster(crash)
        elif crash.saga == "release":
            self.arm(crash)
            await self._begin("evacuate")
            return True
        else:
            for saga in _BEFORE.get(crash.saga, ("create",)):
                await self._begin(saga)
                await self._rest()
            await self._interrupt(crash)
        self._crashes.disarm(self._name)
        return crash in self._crashes.hit

    async def _interrupt(self, crash: Crash) -> None:
        """Begin the saga with a crash armed, and see how it ends."""
        saga = _find_by_name(crash.saga)
        before = self._server()
        step = step_that_fails(saga, crash.phase)
        # A failure is lost where an agent forgets it, or no worker lives to be asked: more are to come.
        times = 1 if crash.phase == ALTERNATE else 30
        self._crashes.arm((self._name,), crash, None if step is None else (step, times))
        await self._begin(saga.name)
        if crash.phase == ABORT:
            await self._abort()
        await self._rest()
        self._check(crash, saga, before)

    def _check(self, crash: Crash, saga: Saga, before: Server | None) -> None:
        """A crash changes nothing in how a saga ends."""
        fails_at = {ABORT: FAILED, ALTERNATE: DONE}.get(crash.phase, crash.phase)
        step = step_that_fails(saga, fails_at)
        expected = find_success(saga) if step is None else find_failure(saga, step)
        after = self._server()
        if not _is_as_expected(expected, saga, before, after, is_done=step is None):
            self._simulation.fail(f"{crash}: expected {expected}, found {after}")

    async def _begin(self, saga: str, host: str | None = None) -> None:
        """Ask until it is known to have begun."""
        while (self._name, saga) not in self._crashes.begun:
            answer = await self._ask(saga, host)
            if (self._name, saga) not in self._crashes.begun:
                if answer is not None and 400 <= answer.status < 500:
                    self._simulation.fail(f"{saga} of {self._name} is refused: {answer}")
                await asyncio.sleep(_AGAIN_S)

    async def _ask(self, saga: str, host: str | None) -> Answer | None:
        simulation = self._simulation
        users, image = simulation.users, simulation.facts["image"]
        if saga == "create":
            body: dict[str, Any] = {
                "name": self._name,
                # Every other server has devices.
                "flavorRef": "small-devices" if zlib.crc32(self._name.encode()) % 2 else "1",
                "imageRef": image,
                "networks": "none",
            }
            if host is not None:
                body["host"] = host
            return await users.ask("POST", f"{COMPUTE}/servers", {"server": body})
        server = self._server()
        assert server is not None, f"{self._name} is gone before its {saga}"
        path = f"{COMPUTE}/servers/{server.id}"
        if saga == "delete":
            return await users.ask("DELETE", path)
        if saga == "resize":
            flavor = {"flavorRef": OTHER_FLAVORS.get(server.flavor.name, "1")}
            return await users.ask("POST", f"{path}/action", {"resize": flavor})
        if saga == "rebuild":
            return await users.ask("POST", f"{path}/action", {"rebuild": {"imageRef": image}})
        if saga == "soft_delete":
            # The API deletes as the setting says: here, at once.
            context, id = simulation.cloud.context(), server.id
            await simulation.cloud.begin(
                lambda view, now_s: delete.propose(view, now_s, context, id, is_soft=True)
            )
            return None
        if saga == "shelve":
            # The API shelves as the setting says: here, away from the host.
            cloud = simulation.cloud
            context, id = cloud.context(), server.id
            await cloud.begin(lambda view, now_s: shelve.propose(view, now_s, context, id))
            return None
        action, parameters = _ACTIONS[saga]
        return await users.ask("POST", f"{path}/action", {action: parameters})

    async def _abort(self) -> None:
        """Ask until it is known, or the run has ended."""
        while (server := self._server()) is not None and server.run is not None:
            path = f"{COMPUTE}/servers/{server.id}/migrations/{server.migration}"
            answer = await self._simulation.users.ask("DELETE", path)
            if answer is not None and answer.status < 500:
                return
            await asyncio.sleep(_AGAIN_S)

    def _server(self) -> Server | None:
        servers = self._simulation.ledger.servers.values()
        return next((server for server in servers if server.name == self._name), None)

    async def _rest(self) -> None:
        """Wait until nothing is being done to the server any more, in the region and in its cell."""
        ids = {server.id for server in (self._server(),) if server is not None}
        runs = self._simulation.runs.values()

        def is_idle() -> bool:
            server = self._server()
            is_run = any(run.server in ids for some in runs for run in some.runs.values())
            return (server is None or server.run is None) and not is_run

        await _until(is_idle)

    # -- clusters -------------------------------------------------------------------------------

    async def _change_cluster(self, crash: Crash) -> None:
        """Created with two nodes; one of them leaves, or is replaced, or all of them leave."""
        group = {"name": "n", "flavor": "1", "image": self._simulation.facts["image"], "count": 2}
        body = {"cluster": {"name": self._name, "node_groups": [group]}}
        while self._cluster() is None:
            await self._change("POST", _CLUSTERS, body)
        await _until(lambda: self._has_nodes(2))
        cluster = self._cluster()
        assert cluster is not None
        path = f"{_CLUSTERS}/{cluster.id}"
        servers = self._simulation.ledger.servers
        names = [servers[node.server].name for node in cluster.nodes]
        self._crashes.arm((self._name, *names), crash)
        if crash.saga == CLUSTER and crash.step == END:
            while (now := self._cluster()) is not None and now.state != "deleting":
                await self._change("DELETE", path)
            await _until(lambda: self._cluster() is None)
        elif crash.saga == "create":
            first = cluster.nodes[0]
            while self._cluster() == cluster:
                await self._change("POST", f"{path}/nodes/{first.name}/replace", {"force": True})
            await _until(lambda: self._has_nodes(2) and first.server not in servers)
        else:
            while self._cluster() == cluster:
                await self._change("POST", f"{path}/scale", {"counts": {"n": 1}})
            await _until(lambda: self._has_nodes(1))

    async def _change(self, method: str, path: str, body: object = None) -> None:
        answer = await self._simulation.users.ask(method, path, body)
        if answer is None or answer.status >= 500:
            await asyncio.sleep(_AGAIN_S)
        elif answer.status >= 400:
            self._simulation.fail(f"{method} {path}: {answer}")
            await asyncio.sleep(_AGAIN_S)

    def _cluster(self) -> Cluster | None:
        return self._crashes.clusters.get(self._name)

    def _has_nodes(self, count: int) -> bool:
        """Whether it has so many nodes, and all of them are as they should be."""
        cluster, servers = self._cluster(), self._simulation.ledger.servers
        if cluster is None or len(cluster.nodes) != count:
            return False
        found = [servers.get(node.server) for node in cluster.nodes]
        return all(one is not None and one.run is None and one.state == "active" for one in found)


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(_LOOK_S)


def _find_by_name(name: str) -> Saga:
    return next(saga for saga in all_sagas() if saga.name == name)


def _is_as_expected(
    expected: Ending | None, saga: Saga, before: Server | None, after: Server | None, *, is_done: bool
) -> bool:
    assert expected is not None, "the step that fails ends its saga"
    if expected.state == GONE or after is None:
        return after is None and expected.state == GONE
    state: str = expected.state
    if state == AS_BEFORE:
        assert before is not None, "only what is there can be as before"
        # For the second half of a resize: before the first.
        is_second = saga.name in ("confirm", "revert")
        state = (before.state_before or before.state) if is_second else before.state
    return after.state == state and (after.fault is None) == is_done

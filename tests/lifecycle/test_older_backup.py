"""A region, or a cell, comes back from a backup that is older than everything around it: nothing is destroyed
that should live, what is not known any more is shown, and what can go on goes on."""

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

from berth.cell import saga_runs
from berth.doctor.findings import Finding, examine
from berth.journal import read_backup, restore_backup, write_backup
from berth.model.formats import FORMAT
from berth.model.ids import ProviderId
from berth.model.rejections import ServerOutdated
from berth.model.saga_runs import Instance, Outbox
from berth.model.servers import Host, Server, UnknownServer
from berth.region import discrepancies
from berth.runtime.clock import SystemClock
from berth.runtime.progress import ProgressLine
from berth.sim.cloud import SimCloud
from berth.sim.database import Database
from berth.view import View
from tests.lifecycle.stories import beginning, done, new_server

HEADERS = {"x-auth-token": "admin:project", "openstack-api-version": "placement 1.39,compute 2.94"}
over = ProgressLine(SystemClock(), io.StringIO()).over


class Backups:
    """Backups of a cloud's databases, made and restored as ``berth db`` does it."""

    def __init__(self, cloud: SimCloud, folder: Path) -> None:
        self._cloud = cloud
        self._folder = folder

    def take(self, database: Database) -> None:
        journal = database.open(self._cloud.outside)
        path = self._folder / f"{database.name}.backup"
        write_backup(journal, path, FORMAT, "berth test", 5, over)
        journal.close()

    def restore_region(self) -> None:
        for worker in self._cloud.workers:
            worker.kill()
        self._restore(self._cloud.database)
        for worker in self._cloud.workers:
            worker.start()

    async def restore_cell(self, name: str) -> None:
        """All that use its journal are stopped and started: the conductor, and the region."""
        cell = self._cloud.cells[name]
        for part in (cell, *self._cloud.workers):
            part.kill()
        await self._cloud.readers[name].stop()
        self._restore(cell.database)
        for part in (cell, *self._cloud.workers):
            part.start()
        self._cloud.readers[name] = await cell.opener(self._cloud.outside)()

    def _restore(self, database: Database) -> None:
        database.clear()
        backup = read_backup(self._folder / f"{database.name}.backup", over)
        journal = database.open(self._cloud.outside)
        restore_backup(backup, journal, backup.choose_last(None, FORMAT), FORMAT, over)
        journal.close()


async def findings(cloud: SimCloud) -> dict[str, Finding]:
    """What the doctor finds, by kind and subject."""
    now_s = cloud.outside.clock.now_ns() // 1_000_000_000
    found: tuple[Finding, ...] = await cloud.read(lambda view: examine(view, now_s + 3600))
    return {one.id: one for one in found}


async def place_of(cloud: SimCloud, server: Server) -> str:
    found = await cloud.server(server.id)
    assert found is not None
    assert found.place is not None
    return found.place.name


async def pass_time(cloud: SimCloud) -> None:
    """Long enough for every host to be heard of, and for everything that would be destroyed to be gone."""
    await asyncio.sleep(6 * cloud.heartbeat_timeout_s)


async def test_a_server_that_the_region_has_forgotten_is_shown_and_lives(tmp_path: Path) -> None:
    """Nobody could see that it was there."""
    async with SimCloud(seed=3, hosts=3).running() as cloud:
        backups = Backups(cloud, tmp_path)
        old = new_server(cloud)
        await done(cloud, "create", old)
        backups.take(cloud.database)
        young = new_server(cloud)
        await done(cloud, "create", young)
        where = await place_of(cloud, young)

        backups.restore_region()
        await cloud.until(lambda view: view.records.get(UnknownServer, young.id) is not None)
        await pass_time(cloud)

        assert cloud.hosts_with(young.id) == {where}
        assert cloud.hosts_with(old.id) == {await place_of(cloud, old)}
        assert await cloud.server(young.id) is None
        found = await findings(cloud)
        assert list(found) == [f"unknown_server:{young.id}"]
        [finding] = found.values()
        assert (
            f"cell cell1 has this server on {where}, and the region has no record of it" in finding.sentence
        )
        # What is asked of others goes on.
        assert await done(cloud, "stop", old) is not None
        assert cloud.hosts_with(young.id) == {where}


class Forgotten:
    """A server that was created, and changed, after the backup that its region was restored from."""

    def __init__(self, cloud: SimCloud, backups: Backups) -> None:
        self._cloud = cloud
        self._backups = backups
        self._client = cloud.client(HEADERS)
        self.id = ""
        self.before: Server | None = None

    async def make(self, *sagas: str) -> None:
        self._backups.take(self._cloud.database)
        await self.create(*sagas)
        await self.restore()

    async def create(self, *sagas: str) -> None:
        server = new_server(self._cloud)
        self.id = server.id
        for saga in ("create", *sagas):
            self.before = await done(self._cloud, saga, server)

    async def restore(self) -> None:
        self._backups.restore_region()
        await self._cloud.until(lambda view: view.records.get(UnknownServer, self.id) is not None)

    @property
    def finding(self) -> str:
        return f"unknown_server:{self.id}"

    async def ask_doctor(self, *, dry_run: bool = False, **asked: Any) -> tuple[str, str]:
        """What comes of a repair, or of a removal, and what is said of it."""
        body = {"findings": [self.finding], "dry_run": dry_run, **asked}
        answer = await self._client.ask("POST", "/berth/v1/doctor/repair", body)
        assert answer.status == 200, answer.body
        [one] = answer.body["repairs"]
        return one["outcome"], one["detail"]

    async def find(self) -> Finding:
        return (await findings(self._cloud))[self.finding]

    async def claim(self, vcpus: int, generation: int | None) -> None:
        """Another client claims something with its id, on its host."""
        assert self.before is not None
        assert self.before.place is not None
        body = {
            "allocations": {self.before.place.id: {"resources": {"VCPU": vcpus}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": generation,
            "consumer_type": "INSTANCE",
        }
        answer = await self._client.ask("PUT", f"/allocations/{self.id}", body)
        assert answer.status == 204, answer.body


KEPT = ("name", "project", "user", "flavor", "image", "needs", "state", "power", "place", "held", "run_count")


@pytest.mark.parametrize(
    "sagas",
    [(), ("stop",), ("resize", "confirm"), ("resize", "revert"), ("live_migrate",), ("stop", "start")],
    ids=" ".join,
)
async def test_a_server_that_the_region_has_forgotten_is_adopted(
    tmp_path: Path, sagas: tuple[str, ...]
) -> None:
    async with SimCloud(seed=13, hosts=3).running() as cloud:
        server = Forgotten(cloud, Backups(cloud, tmp_path))
        await server.make(*sagas)
        assert server.before is not None
        finding = await server.find()
        assert finding.repair is not None
        assert f"It is {server.before.name} of project {server.before.project}" in finding.sentence
        assert (finding.holds, finding.should_hold) == ((), server.before.held)
        assert await server.ask_doctor(dry_run=True) == ("would repair", finding.repair)
        assert await cloud.server(server.id) is None

        assert await server.ask_doctor() == ("repaired", finding.repair)
        after = await cloud.server(server.id)
        assert after is not None
        assert {name: getattr(after, name) for name in KEPT} == {
            name: getattr(server.before, name) for name in KEPT
        }
        assert await findings(cloud) == {}
        assert (await server.ask_doctor())[0] == "refused", "it is known already"
        # It is a server like any other from now on.
        assert await done(cloud, "rebuild", after) is not None
        assert await done(cloud, "delete", after) is None
        assert cloud.hosts_with(server.id) == set()
        assert await findings(cloud) == {}


async def test_a_server_whose_resize_waited_is_adopted_where_it_is(tmp_path: Path) -> None:
    """What waits at the source is nobody's any more, and goes with the server."""
    async with SimCloud(seed=14, hosts=3).running() as cloud:
        server = Forgotten(cloud, Backups(cloud, tmp_path))
        await server.make("migrate")
        assert server.before is not None
        assert server.before.place is not None
        assert len(cloud.hosts_with(server.id)) == 2
        assert (await server.ask_doctor())[0] == "repaired"
        after = await cloud.server(server.id)
        assert after is not None
        assert (after.place, after.flavor, after.held) == (
            server.before.place,
            server.before.flavor,
            server.before.held,
        )
        assert after.state == "active"
        assert await done(cloud, "delete", after) is None
        await pass_time(cloud)
        assert cloud.hosts_with(server.id) == set()
        assert await findings(cloud) == {}


async def test_a_server_whose_room_was_taken_meanwhile_is_adopted_when_there_is_room_again(
    tmp_path: Path,
) -> None:
    async with SimCloud(seed=15, hosts=2, quota_instances=0, quota_cores=0).running() as cloud:
        server = Forgotten(cloud, Backups(cloud, tmp_path))
        await server.make()
        assert server.before is not None
        assert server.before.place is not None
        client, other = cloud.client(HEADERS), "99999999-0000-4000-8000-000000000001"
        path = f"/resource_providers/{server.before.place.id}"
        inventories = (await client.ask("GET", f"{path}/inventories")).body["inventories"]
        rest = inventories["MEMORY_MB"]["total"] - inventories["MEMORY_MB"]["reserved"]
        claim = {
            "allocations": {server.before.place.id: {"resources": {"MEMORY_MB": rest}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "LICENSE",
        }
        assert (await client.ask("PUT", f"/allocations/{other}", claim)).status == 204
        outcome, why = await server.ask_doctor()
        assert outcome == "refused"
        assert "MEMORY_MB" in why
        assert await cloud.server(server.id) is None
        assert list(await findings(cloud)) == [server.finding]
        assert len(cloud.hosts_with(server.id)) == 1

        assert (await client.ask("DELETE", f"/allocations/{other}")).status == 204
        # Its project has no quota, or is gone: the server is there all the same.
        assert (await server.ask_doctor())[0] == "repaired"
        assert await findings(cloud) == {}


async def test_a_server_whose_id_is_used_again_is_left_alone(tmp_path: Path) -> None:
    async with SimCloud(seed=16, hosts=2).running() as cloud:
        server = Forgotten(cloud, Backups(cloud, tmp_path))
        await server.make()
        assert server.before is not None
        assert server.before.place is not None
        client = cloud.client(HEADERS)
        claim: dict[str, Any] = {
            "allocations": {server.before.place.id: {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        assert (await client.ask("PUT", f"/allocations/{server.id}", claim)).status == 204
        finding = await server.find()
        assert finding.repair is None
        assert "a consumer of another project, or on another host, has its id" in (finding.unsafe or "")
        assert (await server.ask_doctor())[0] == "refused"
        assert await cloud.server(server.id) is None
        # Claimed for it by an operator, in another shape than it had, it is adopted with that.
        resources = dict(server.before.held[0][1]) | {"VCPU": 2}
        claim |= {
            "project_id": server.before.project,
            "user_id": server.before.user,
            "consumer_generation": 1,
        }
        elsewhere = next(
            host.host.id for host in cloud.hosts.values() if host.name != server.before.place.name
        )
        for place, outcome in ((elsewhere, "refused"), (server.before.place.id, "repaired")):
            claim["allocations"] = {place: {"resources": resources}}
            assert (await client.ask("PUT", f"/allocations/{server.id}", claim)).status == 204
            assert (await server.ask_doctor())[0] == outcome
            claim["consumer_generation"] += 1
        assert await findings(cloud) == {}
        after = await cloud.server(server.id)
        assert after is not None
        assert dict(after.held[0][1]) == resources
        assert await done(cloud, "delete", after) is None
        assert await findings(cloud) == {}


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_server_that_the_region_has_forgotten_is_removed_when_that_is_asked(
    tmp_path: Path, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_known:
        # Its last run was one of a release that did not write down what servers are.
        monkeypatch.setattr(saga_runs, "_WITH_SHEETS", FORMAT + 1)
    async with SimCloud(seed=17, hosts=2, quota_instances=0).running() as cloud:
        server = Forgotten(cloud, Backups(cloud, tmp_path))
        await server.make()
        if not is_known:
            finding = await server.find()
            assert finding.repair is None
            assert "its cell does not know what it is" in (finding.unsafe or "")
            assert (await server.ask_doctor())[0] == "refused"
        said = "destroy the server at its host, with all that is on its disks"
        assert await server.ask_doctor(remove=True, dry_run=True) == ("would remove", said)
        await pass_time(cloud)
        assert len(cloud.hosts_with(server.id)) == 1
        assert list(await findings(cloud)) == [server.finding]

        assert await server.ask_doctor(remove=True) == ("removed", said)
        assert await cloud.at_rest(server.id) is None
        assert cloud.hosts_with(server.id) == set()
        assert await findings(cloud) == {}


async def test_a_server_is_not_said_to_be_removed_while_its_cell_would_drop_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the upgrade was finished, the number of the last run was not written: the run that removed the
    server had one that the cell had seen."""
    with monkeypatch.context() as unfinished:
        for module in (saga_runs, discrepancies):
            unfinished.setattr(module, "_WITH_SHEETS", FORMAT + 1)
        cloud = SimCloud(seed=19, hosts=2)
        async with cloud.running():
            server = Forgotten(cloud, Backups(cloud, tmp_path))
            await server.make()
            for dry_run in (True, False):
                outcome, why = await server.ask_doctor(remove=True, dry_run=dry_run)
                assert outcome == "refused"
                assert "finish the upgrade with 'berth db upgrade --finish'" in why
            assert list(await findings(cloud)) == [server.finding]

            unfinished.undo()
            await cloud.until(lambda view: bool(view.records.get(UnknownServer, server.id).last))  # type: ignore[union-attr]
            assert (await server.ask_doctor(remove=True))[0] == "removed"
            assert await cloud.at_rest(server.id) is None
            assert cloud.hosts_with(server.id) == set()


async def test_what_others_hold_by_the_id_of_a_server_goes_with_it(tmp_path: Path) -> None:
    """The doctor said that the server was removed, and its cell refused for what others had claimed."""
    async with SimCloud(seed=20, hosts=2).running() as cloud:
        server = Forgotten(cloud, Backups(cloud, tmp_path))
        await server.make()
        await server.claim(1, None)
        assert "--remove" in ((await server.find()).unsafe or "")
        assert (await server.ask_doctor(remove=True))[0] == "removed"
        assert await cloud.at_rest(server.id) is None
        assert cloud.hosts_with(server.id) == set()
        assert await findings(cloud) == {}


@pytest.mark.parametrize("asked", [{}, {"remove": True}], ids=["adopted", "removed"])
async def test_a_server_on_a_host_that_joined_since_waits_for_its_host(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    """The doctor did not find the host by its name, where it was not known when the server was found: it
    failed, with all that was to be repaired behind it."""
    cloud = SimCloud(seed=21, hosts=1)
    name, late = cloud.hosts.popitem()
    async with cloud.running():
        backups = Backups(cloud, tmp_path)
        server = Forgotten(cloud, backups)
        assert (await cloud.client(HEADERS).ask("PUT", "/traits/CUSTOM_OLD")).status == 201
        backups.take(cloud.database)
        cloud.hosts[name] = late
        late.start()
        await cloud.until(lambda view: is_up(view, late.host.id))
        await server.create()
        late.kill()
        await server.restore()
        assert "its host has not registered in the region again" in ((await server.find()).unsafe or "")
        outcome, why = await server.ask_doctor(**asked)
        assert outcome == "refused"
        assert "registered in the region again" in why
        await asyncio.sleep(300)

        late.start()
        await cloud.until(lambda view: is_up(view, late.host.id))
        assert (await server.ask_doctor(**asked))[0] in ("repaired", "removed")
        assert (await cloud.at_rest(server.id) is None) == bool(asked)
        assert len(cloud.hosts_with(server.id)) == (0 if asked else 1)
        assert await findings(cloud) == {}


def is_up(view: View, id: str) -> bool:
    return ProviderId(id) in view.providers and view.records.get(Host, id) is not None and not len(view.down)


async def test_a_delete_that_was_refused_leaves_the_server_what_it_was(tmp_path: Path) -> None:
    """Adopted, it was in error."""
    async with SimCloud(seed=22, hosts=2).running() as cloud:
        backups = Backups(cloud, tmp_path)
        server = Forgotten(cloud, backups)
        backups.take(cloud.database)
        await server.create()
        assert server.before is not None
        assert await cloud.begin(beginning(cloud, "delete", server.before)) is None
        await server.claim(2, server.before.generation)
        refused = await cloud.at_rest(server.id)
        assert refused is not None
        assert refused.state == "active"
        await server.restore()
        assert (await server.ask_doctor())[0] == "repaired"
        after = await cloud.server(server.id)
        assert after is not None
        assert (after.state, after.power) == ("active", server.before.power)


async def test_only_what_is_named_and_unknown_is_removed(tmp_path: Path) -> None:
    async with SimCloud(seed=18, hosts=2).running() as cloud:
        server = new_server(cloud)
        await done(cloud, "create", server)
        client = cloud.client(HEADERS)
        body: dict[str, Any] = {"findings": "all", "dry_run": False, "remove": True}
        answer = await client.ask("POST", "/berth/v1/doctor/repair", body)
        assert answer.status == 400
        assert (await client.ask("DELETE", f"/allocations/{server.id}")).status == 204
        [wrong] = await findings(cloud)
        for finding in (wrong, f"unknown_server:{server.id}"):
            body["findings"] = [finding]
            answer = await client.ask("POST", "/berth/v1/doctor/repair", body)
            assert [one["outcome"] for one in answer.body["repairs"]] == ["refused"]
        assert len(cloud.hosts_with(server.id)) == 1


async def test_an_operation_after_a_restore_is_carried_out(tmp_path: Path) -> None:
    """Its number was one that the cell had seen: the cell dropped it, and the server was busy for ever."""
    async with SimCloud(seed=4, hosts=3).running() as cloud:
        backups = Backups(cloud, tmp_path)
        server = new_server(cloud)
        await done(cloud, "create", server)
        backups.take(cloud.database)
        for saga in ("stop", "start", "stop"):
            await done(cloud, saga, server)

        backups.restore_region()
        await cloud.until(lambda view: run_count(view, server.id) == 4)
        after = await done(cloud, "stop", server)
        assert after is not None
        assert (after.state, after.outdated, after.run_count) == ("stopped", None, 5)
        assert await done(cloud, "delete", server) is None
        assert cloud.hosts_with(server.id) == set()
        assert await findings(cloud) == {}


def run_count(view: View, id: str) -> int | None:
    server = view.records.get(Server, id)
    return None if server is None else server.run_count


async def test_a_server_that_has_moved_since_is_not_built_again_where_it_was(tmp_path: Path) -> None:
    """A rebuild where the record says would be a second server, and the first a leftover."""
    async with SimCloud(seed=5, hosts=3).running() as cloud:
        backups = Backups(cloud, tmp_path)
        server = new_server(cloud)
        await done(cloud, "create", server)
        before = await place_of(cloud, server)
        backups.take(cloud.database)
        await done(cloud, "live_migrate", server)
        where = await place_of(cloud, server)
        assert where != before

        backups.restore_region()
        await cloud.until(lambda view: run_count(view, server.id) == 2)
        for saga in ("rebuild", "stop", "migrate", "resize", "live_migrate", "shelve"):
            refused = await cloud.begin(beginning(cloud, saga, server))
            assert isinstance(refused, ServerOutdated), saga
            assert refused.found == f"on {where}"
        await pass_time(cloud)
        assert cloud.hosts_with(server.id) == {where}
        [finding] = (await findings(cloud)).values()
        assert finding.kind == "outdated_server"
        assert f"is on {before}, and for its cell it is on {where}" in finding.sentence

        assert await done(cloud, "delete", server) is None
        await pass_time(cloud)
        assert cloud.hosts_with(server.id) == set()
        assert await findings(cloud) == {}


async def test_a_server_that_was_deleted_since_is_shown(tmp_path: Path) -> None:
    async with SimCloud(seed=6, hosts=3).running() as cloud:
        backups = Backups(cloud, tmp_path)
        gone, forgotten = new_server(cloud), new_server(cloud)
        await done(cloud, "create", gone)
        await done(cloud, "create", forgotten)
        backups.take(cloud.database)
        await done(cloud, "delete", forgotten)
        await until_forgotten(cloud, forgotten)
        await done(cloud, "delete", gone)

        backups.restore_region()
        for server in (gone, forgotten):
            await cloud.until(lambda view, id=server.id: is_outdated(view, id))  # type: ignore[misc]
        assert {id.partition(":")[0] for id in await findings(cloud)} == {"outdated_server"}
        for server in (gone, forgotten):
            assert await done(cloud, "delete", server) is None
        assert await findings(cloud) == {}


def is_outdated(view: View, id: str) -> bool:
    server = view.records.get(Server, id)
    return server is not None and server.outdated in ("on no host", "unknown")


async def until_forgotten(cloud: SimCloud, server: Server) -> None:
    reader = cloud.readers["cell1"]
    async with asyncio.timeout(3 * 3600):
        while await reader.read(lambda view: view.records.get(Instance, server.id) is not None):
            await asyncio.sleep(60)


@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_a_run_whose_end_is_lost_does_not_keep_its_server_busy(
    tmp_path: Path, is_handed_over: bool
) -> None:
    """The region waited for ever for a run that the cell had ended, and was never to hear of again."""
    async with SimCloud(seed=7, hosts=3).running() as cloud:
        backups = Backups(cloud, tmp_path)
        server = new_server(cloud)
        await done(cloud, "create", server)
        if not is_handed_over:
            cloud.database.decide = None
        refused = await cloud.begin(beginning(cloud, "rebuild", server))
        assert refused is None
        if is_handed_over:
            await cloud.until(lambda view: has_begun(view, server.id))
        backups.take(cloud.database)
        await cloud.at_rest(server.id)
        built = len([one for one in commands(cloud, server) if "rebuild" in one])

        backups.restore_region()
        await cloud.until(lambda view: not is_busy(view, server.id))
        after = await cloud.server(server.id)
        assert after is not None
        assert after.state == "error"
        assert after.fault is not None
        assert "restored from a backup" in after.fault.message
        await pass_time(cloud)
        # It was not done twice.
        assert len([one for one in commands(cloud, server) if "rebuild" in one]) == built
        assert len(cloud.hosts_with(server.id)) == 1
        assert await done(cloud, "delete", server) is None
        assert await findings(cloud) == {}


def has_begun(view: View, id: str) -> bool:
    return is_busy(view, id) and not view.records.count(Outbox)


def is_busy(view: View, id: str) -> bool:
    server = view.records.get(Server, id)
    return server is not None and server.run is not None


def commands(cloud: SimCloud, server: Server) -> list[str]:
    """The results of commands that hosts have on their disks."""
    return [id for host in cloud.hosts.values() for id in host.stored().results]


async def test_hosts_that_joined_since_are_written_again(tmp_path: Path) -> None:
    async with SimCloud(seed=8, hosts=3).running() as cloud:
        backups = Backups(cloud, tmp_path)
        late = cloud.hosts.popitem()[1]
        late.kill()
        await remove_host(cloud, late.host.id)
        backups.take(cloud.database)
        cloud.hosts[late.host.name] = late
        late.start()
        await cloud.until(lambda view: late.host.id in view.providers)
        server = new_server(cloud)
        await done(cloud, "create", server)

        backups.restore_region()
        await cloud.until(lambda view: late.host.id in view.providers)
        await cloud.until(lambda view: view.records.count(Host) == 3 and not len(view.down))
        assert len(cloud.hosts_with(server.id)) == 1


async def remove_host(cloud: SimCloud, id: str) -> None:
    """Take a host out of the region, as if it had never joined."""
    client = cloud.client(HEADERS)
    answer = await client.ask("DELETE", f"/resource_providers/{id}")
    assert answer.status == 204, answer.body


async def test_a_cell_that_is_older_destroys_nothing(tmp_path: Path) -> None:
    """What a cell did not know was told to be destroyed; that agents refused was all that saved it."""
    async with SimCloud(seed=9, hosts=3).running() as cloud:
        backups = Backups(cloud, tmp_path)
        moved, stays = new_server(cloud), new_server(cloud)
        await done(cloud, "create", moved)
        await done(cloud, "create", stays)
        backups.take(cloud.cells["cell1"].database)
        await done(cloud, "live_migrate", moved)
        young = new_server(cloud)
        await done(cloud, "create", young)
        places = {one.id: await place_of(cloud, one) for one in (moved, stays, young)}

        await backups.restore_cell("cell1")
        await pass_time(cloud)
        assert {one.id: cloud.hosts_with(one.id) for one in (moved, stays, young)} == {
            id: {name} for id, name in places.items()
        }
        host = cloud.hosts[places[young.id]].host.id
        cloud.hosts[places[young.id]].restart()
        await cloud.until(
            lambda view: any(young.id in text for text in view.records.get(Host, host).complaints)  # type: ignore[union-attr]
        )
        await pass_time(cloud)
        assert cloud.hosts_with(young.id) == {places[young.id]}
        # The next operation tells the cell what it has to know.
        for server in (moved, stays, young):
            assert await done(cloud, "stop", server) is not None
            assert cloud.hosts_with(server.id) == {places[server.id]}
        await cloud.until(lambda view: not any(host.complaints for host in view.records.all(Host)))
        assert await findings(cloud) == {}


async def test_streams_that_are_ahead_of_the_region_are_told(tmp_path: Path) -> None:
    async with SimCloud(seed=10, hosts=2).running() as cloud:
        backups = Backups(cloud, tmp_path)
        backups.take(cloud.database)
        await done(cloud, "create", new_server(cloud))
        client = cloud.client(HEADERS)
        index: int = (await client.ask("GET", "/berth/v1/events?limit=1")).body["index"]

        backups.restore_region()
        await cloud.until(lambda view: view.index < index)
        for query in (f"after={index}", f"after={index}&stream=true"):
            answer: Any = await client.ask("GET", f"/berth/v1/events?{query}")
            assert answer.status == 410
            [error] = answer.body["errors"]
            assert error["code"] == "berth.index_ahead"
            assert "The region was restored from a backup" in error["detail"]
            assert error["start_at"].startswith("/berth/v1/events?after=")
            assert (await client.ask("GET", error["start_at"])).status == 200

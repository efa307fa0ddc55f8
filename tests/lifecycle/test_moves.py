"""What moves promise: groups hold through them, failed hosts are replaced by alternates, and somebody else's
changes of a server's allocations are met as the policy says."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec
import pytest

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.agent.fleet import provider_id
from berth.client import Answer
from berth.model.ids import Index, ProviderId
from berth.model.rejections import NoFit, Rejection, ServerChangedByOthers
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import Action, ConflictPolicy, Flavor, Migration, Server
from berth.sagas import create, live_migrate, resize
from berth.sagas.conflicts import as_dict, held_now
from berth.sagas.hosts import cell_aggregate
from berth.sagas.saga import find_saga
from berth.sim.cloud import Begin, SimCloud
from berth.sim.faults import Kind, StepFault
from berth.view import View
from tests.lifecycle.chaos import check_at_rest
from tests.lifecycle.stories import beginning, brought_before, done, host_dies, kept_apart, new_server

QUICK: Final = SimBehaviour(build_seconds=0, live_migrate_seconds=0.05, other_seconds=0)
_HEADERS: Final = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}

MOVES: Final = ("resize", "migrate", "live_migrate", "evacuate", "delete", "confirm", "revert")


def running(**options: Any) -> AbstractAsyncContextManager[SimCloud]:
    return SimCloud(**{"seed": 11, "hosts": 3, **options}).running()


async def _created(cloud: SimCloud, **fields: object) -> Server:
    server = new_server(cloud, **fields)
    after = await done(cloud, "create", server)
    assert after is not None
    return after


# -- groups -------------------------------------------------------------------------------------


async def test_nobody_takes_the_source_while_a_resize_waits() -> None:
    async with running() as cloud:
        group = await kept_apart(cloud, "apart")
        first = await _created(cloud, group=group)
        second = await _created(cloud, group=group)
        moved = await done(cloud, "resize", first)
        assert moved is not None
        assert first.place is not None
        assert second.place is not None
        assert moved.place is not None
        assert len({first.place.id, second.place.id, moved.place.id}) == 3

        third = new_server(cloud, group=group)
        refused = await cloud.begin(beginning(cloud, "create", third))
        assert isinstance(refused, NoFit), refused
        claim = {
            "allocations": {first.place.id: {"resources": {"VCPU": 1}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        client = cloud.client(_HEADERS)
        member = {"add": [third.id]}
        joined = await client.ask("POST", f"/berth/v1/groups/{group}/members", member)
        assert joined.status in (200, 204), joined.body
        answer = await client.ask("PUT", f"/allocations/{third.id}", claim)
        assert (answer.status, answer.code) == (409, "berth.group_policy"), answer.body

        back = await done(cloud, "revert", first)
        assert back is not None
        assert back.place == first.place
        placed = await done(cloud, "create", third)
        assert placed is not None
        assert placed.place == moved.place


async def test_an_alternate_that_a_group_forbids_by_now_is_passed_over() -> None:
    slow = msgspec.structs.replace(QUICK, build_seconds=0.4)

    async with running(behaviour=slow) as cloud:
        group = await kept_apart(cloud, "apart")
        first = new_server(cloud, group=group)
        assert await cloud.begin(beginning(cloud, "create", first)) is None
        begun = await cloud.server(first.id)
        assert begun is not None
        assert begun.place is not None
        rule = Rule(outcome="fail", verb="build", server=first.name, host=begun.place.name)
        cloud.behaviours.replace(msgspec.structs.replace(slow, rules=(rule,)))
        runs = [run for run in await _runs(cloud) if run.server == first.id]
        assert runs
        next_host = runs[0].alternates[0].place
        second = new_server(cloud, group=group)
        context = cloud.context()
        refused = await cloud.begin(
            lambda view, now_s: create.propose(view, now_s, context, (second,), 1, host=next_host.name)
        )
        assert refused is None
        after = await cloud.at_rest(first.id)
        assert after is not None
        assert after.state == "active", after
        assert after.place is not None
        assert after.place.id not in (begun.place.id, next_host.id)
        (action,) = await cloud.read(lambda view: view.records.find(Action, "server", first.id))
        moves = [event for event in action.events if event.name == "move the claim"]
        assert [event.result for event in moves] == ["Error", "Success"]
        assert "anti-affinity" in (moves[0].details or "")
        await cloud.all_at_rest()
        await check_at_rest(cloud)


async def _runs(cloud: SimCloud) -> list[SagaRun]:
    waiting = await cloud.read(lambda view: [one.run for one in view.records.all(Outbox)])
    for reader in cloud.readers.values():
        waiting += await reader.read(lambda view: list(view.records.all(SagaRun)))
    return [run for run in waiting if run is not None]


# -- alternates ---------------------------------------------------------------------------------


async def test_a_failed_build_goes_on_elsewhere_and_tells_the_story() -> None:
    rule = Rule(outcome="fail", verb="build", message="no such disk", times=2)
    behaviour = msgspec.structs.replace(QUICK, rules=(rule,))

    async with running(behaviour=behaviour) as cloud:
        server = await _created(cloud)
        assert server.state == "active"
        (action,) = await cloud.read(lambda view: view.records.find(Action, "server", server.id))
        builds = [event for event in action.events if event.name == "build"]
        assert [event.result for event in builds] == ["Error", "Error", "Success"]
        assert len({event.host for event in builds}) == 3
        assert builds[0].details == "no such disk"
        failures = await cloud.read(lambda view: sorted(s.build_failures for s in view.hosts.values()))
        assert failures == [1, 1]


async def test_when_all_attempts_fail_the_server_is_in_error_and_holds_nothing() -> None:
    rule = Rule(outcome="fail", verb="build", message="no such disk")
    behaviour = msgspec.structs.replace(QUICK, rules=(rule,))

    async with running(hosts=5, behaviour=behaviour) as cloud:
        server = new_server(cloud)
        assert await cloud.begin(beginning(cloud, "create", server)) is None
        after = await cloud.at_rest(server.id)
        assert after is not None
        assert (after.state, after.place, after.held) == ("error", None, ())
        assert after.fault is not None
        assert after.fault.message == "no such disk"
        assert await cloud.read(lambda view: not view.consumers)
        (action,) = await cloud.read(lambda view: view.records.find(Action, "server", server.id))
        builds = [event for event in action.events if event.name == "build"]
        assert len(builds) == 3, "max_attempts"
        assert len({event.host for event in builds}) == 3
        assert await done(cloud, "delete", server) is None
        await cloud.all_at_rest()
        await check_at_rest(cloud)


# -- on one host --------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["confirm", "revert"])
async def test_a_resize_on_one_host_may_pass_max_unit_in_sum(then: str) -> None:
    wide, wider = (Flavor(id=str(n), name=str(n), vcpus=n, memory_mb=1024, disk_gb=1) for n in (24, 30))

    async with running(hosts=1) as cloud:
        server = await _created(cloud, flavor=wide)
        context = cloud.context()
        assert await cloud.begin(lambda v, now_s: resize.propose(v, now_s, context, server.id, wider)) is None
        waiting = await cloud.at_rest(server.id)
        assert waiting is not None
        assert (waiting.state, waiting.place) == ("resized", server.place)
        used = await cloud.read(lambda view: sum(n for r in view.providers.values() for n in r.used.values()))
        assert used == 24 + 30 + 2 * 1024 + 2, "both halves are held, more than the 32 of max_unit"
        after = await done(cloud, then, server)
        assert after is not None
        assert after.flavor == (wider if then == "confirm" else wide)
        await cloud.all_at_rest()
        await check_at_rest(cloud)


# -- live migration -----------------------------------------------------------------------------


async def test_a_live_migration_is_aborted() -> None:
    slow = msgspec.structs.replace(QUICK, live_migrate_seconds=600)
    async with running(behaviour=slow) as cloud:
        server = await _created(cloud)
        assert await cloud.begin(beginning(cloud, "live_migrate", server)) is None
        (migration,) = await cloud.read(lambda view: view.records.find(Migration, "server", server.id))
        assert await cloud.begin(lambda v, _: live_migrate.propose_abort(v, server.id, migration.id)) is None
        after = await cloud.at_rest(server.id)
        assert after is not None
        assert (after.state, after.place) == ("active", server.place)
        (migration,) = await cloud.read(lambda view: view.records.find(Migration, "server", server.id))
        assert (migration.status, migration.held) == ("cancelled", ())
        assert as_dict(after.held) == as_dict(server.held)
        await cloud.all_at_rest()
        await check_at_rest(cloud)


# -- somebody else ------------------------------------------------------------------------------


async def somebody_adds(cloud: SimCloud, consumer: str, amount: int = 7) -> None:
    """Somebody gives a consumer more disk where it holds some."""
    client = cloud.client(_HEADERS)
    found = (await client.ask("GET", f"/allocations/{consumer}")).body
    held = {id: {"resources": dict(there["resources"])} for id, there in found["allocations"].items()}
    first = next(iter(held.values()))["resources"]
    first["DISK_GB"] = first.get("DISK_GB", 0) + amount
    body = {
        "allocations": held,
        "project_id": found["project_id"],
        "user_id": found["user_id"],
        "consumer_generation": found["consumer_generation"],
        "consumer_type": found["consumer_type"],
    }
    answer: Answer = await client.ask("PUT", f"/allocations/{consumer}", body)
    assert answer.status == 204, answer.body


def _disk(held: Any) -> int:
    return sum(amounts.get("DISK_GB", 0) for amounts in as_dict(held).values())


@pytest.mark.parametrize("policy", ["fail", "retry", "merge"])
@pytest.mark.parametrize(
    "name", ["resize", "migrate", "live_migrate", "evacuate", "delete", "confirm", "revert"]
)
async def test_somebody_changed_the_allocations_before(name: str, policy: ConflictPolicy) -> None:
    async with running(hosts=4) as cloud:
        server = await brought_before(cloud, name)
        await somebody_adds(cloud, server.id)
        before = await cloud.server(server.id)
        context = cloud.context(policy)._replace(resizes_in_place=False)
        refused = await cloud.begin(beginning(cloud, name, server, context))
        if policy == "fail":
            assert isinstance(refused, ServerChangedByOthers), refused
            found = await cloud.server(server.id)
            assert found is not None
            assert found.conflict is not None
            assert msgspec.structs.replace(found, conflict=None) == before
            refused = await cloud.begin(beginning(cloud, name, server, context))
        assert not isinstance(refused, Rejection), refused
        after = await cloud.at_rest(server.id)
        held = await cloud.read(lambda view: held_now(view, server.id))
        if name == "delete":
            assert after is None
            assert held == ()
            return
        assert after is not None
        assert after.fault is None, after.fault
        own = after.flavor.disk_gb
        # A confirmation writes nothing of the server's: what it holds stays.
        is_kept = policy != "retry" or name == "confirm"
        assert _disk(held) == (own + 7 if is_kept else own), held


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("confirm", "resized"),
        ("revert", "error"),
        ("delete", "active"),
        ("shelve_away", "active"),
        ("shelve_offload", "shelved"),
    ],
)
async def test_somebody_changes_the_allocations_before_the_check(name: str, state: str) -> None:
    """The conductor finds it before it has destroyed anything: the default policy fails the operation once,
    nothing leaks, and the same request goes on."""

    async with running() as cloud:
        server = await brought_before(cloud, name)
        migration = (await cloud.server(server.id)).migration  # type: ignore[union-attr]
        cloud.cells["cell1"].kill()
        assert await cloud.begin(beginning(cloud, name, server)) is None
        await somebody_adds(cloud, migration if name == "confirm" and migration else server.id)
        cloud.cells["cell1"].start()
        after = await cloud.at_rest(server.id)
        assert after is not None
        assert after.state == state, after
        assert after.fault is not None
        assert "another client has changed the allocations (" in after.fault.message
        assert "added: DISK_GB 7" in after.fault.message
        assert await cloud.read(lambda view: len(view.consumers)) == (2 if migration else 1)
        after = await done(cloud, name, server)
        assert (after is None) == (name == "delete")
        released = "server" in find_saga(name).released
        assert await cloud.read(lambda view: len(view.consumers)) == (0 if released else 1)
        await cloud.all_at_rest()


@pytest.mark.parametrize("name", ["confirm", "revert", "delete", "shelve_away", "live_migrate"])
@pytest.mark.parametrize("crashes", [False, True])
async def test_nothing_stops_an_operation_once_something_is_destroyed(name: str, crashes: bool) -> None:
    async with running() as cloud:
        server = await brought_before(cloud, name)
        cloud.behaviours.replace(msgspec.structs.replace(QUICK, other_seconds=0.5))
        saga = find_saga(name)
        destroying = next(n for n, step in enumerate(saga.steps) if step.do == "destroy")
        kind: Kind = "crash after" if crashes else "repeat"
        cloud.faults.add(StepFault(server.id, name, destroying, "forward", kind))
        assert await cloud.begin(beginning(cloud, name, server)) is None
        await _until_step(cloud, server.id, name, destroying)
        migration = (await cloud.server(server.id)).migration  # type: ignore[union-attr]
        for victim in (server.id, migration):
            if victim is not None:
                await somebody_adds(cloud, victim)
        after = await cloud.at_rest(server.id)
        assert after is None or after.fault is None, after
        await cloud.all_at_rest()
        held = await cloud.read(lambda view: {str(id) for id in view.consumers})
        assert held == (set() if name in ("delete", "shelve_away") else {server.id})


async def _until_step(cloud: SimCloud, id: str, saga: str, step: int) -> None:
    """Wait until the saga run of a server has come to a step."""
    async with asyncio.timeout(120):
        while True:
            runs = [run for run in await _runs(cloud) if (run.server, run.saga) == (id, saga)]
            if any(run.step >= step for run in runs):
                return
            await asyncio.sleep(0.02)


async def test_a_host_that_comes_back_cleans_up_before_it_is_up() -> None:
    async with running() as cloud:
        server = await _created(cloud)
        place = await host_dies(cloud, server)
        after = await done(cloud, "evacuate", server)
        assert after is not None
        assert cloud.hosts_with(server.id) == {place.name, after.place.name if after.place else ""}
        (migration,) = await cloud.read(lambda view: view.records.find(Migration, "server", server.id))
        held = await cloud.read(lambda view: held_now(view, migration.id))
        assert held == server.held, "what is on its disk is still allocated"
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        assert place.name not in cloud.hosts_with(server.id), "it was up before it was clean"
        await cloud.until(lambda view: not held_now(view, migration.id))
        await cloud.all_at_rest()
        await check_at_rest(cloud)


# -- pools --------------------------------------------------------------------------------------


ADDRESSED: Final = Flavor(
    id="addressed",
    name="addressed",
    vcpus=1,
    memory_mb=512,
    disk_gb=1,
    extra_specs={"resources:IPV4_ADDRESS": "1"},
)
SEGMENT: Final = "bbbbbbbb-0000-4000-8000-000000000001"


async def _share_addresses(cloud: SimCloud, total: int) -> None:
    """A segment of addresses for all hosts of the cloud."""
    client = cloud.client(_HEADERS)
    path = f"/resource_providers/{SEGMENT}"
    aggregate = "cccccccc-0000-4000-8000-000000000001"
    writes: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/resource_providers", {"uuid": SEGMENT, "name": "segment"}),
        ("PUT", f"{path}/inventories", {"inventories": {"IPV4_ADDRESS": {"total": total}}}),
        ("PUT", f"{path}/traits", {"traits": ["MISC_SHARES_VIA_AGGREGATE"]}),
        ("PUT", f"{path}/aggregates", {"aggregates": [aggregate]}),
    ]
    for generation, (method, where, body) in enumerate(writes, -1):
        sent = body if method == "POST" else {**body, "resource_provider_generation": generation}
        answer = await client.ask(method, where, sent)
        assert answer.status in (200, 201), answer.body
    for part in cloud.hosts.values():
        where = f"/resource_providers/{part.host.id}/aggregates"
        found = (await client.ask("GET", where)).body
        found["aggregates"].append(aggregate)
        assert (await client.ask("PUT", where, found)).status == 200


@pytest.mark.parametrize("rule", [None, Rule(outcome="fail", verb="prepare", times=1)])
async def test_servers_move_while_every_address_is_taken(rule: Rule | None) -> None:
    behaviour = QUICK if rule is None else msgspec.structs.replace(QUICK, rules=(rule,))

    async with running(behaviour=behaviour, hosts=4) as cloud:
        await _share_addresses(cloud, 3)
        servers = [await _created(cloud, flavor=ADDRESSED) for _ in range(3)]
        used = lambda view: sum(view.providers[ProviderId(SEGMENT)].used.values())  # noqa: E731
        for name in ("migrate", "confirm", "migrate", "revert", "live_migrate"):
            after = await done(cloud, name, servers[0])
            assert after is not None
            assert await cloud.read(used) == 3, name
            assert as_dict(after.held)[SEGMENT] == {"IPV4_ADDRESS": 1}
        place = await host_dies(cloud, servers[1])
        after = await done(cloud, "evacuate", servers[1])
        assert after is not None
        assert after.place != place
        assert await cloud.read(used) == 3
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        await cloud.all_at_rest()
        for server in servers:
            assert await done(cloud, "delete", server) is None
        assert await cloud.read(used) == 0
        assert await cloud.read(lambda view: not view.consumers)


def _make_pooled(name: str, vcpus: int, disk_gb: int) -> Flavor:
    specs = {"berth:disk": "pool", "resources:IPV4_ADDRESS": "1"}
    return Flavor(id=name, name=name, vcpus=vcpus, memory_mb=512, disk_gb=disk_gb, extra_specs=specs)


POOLS: Final = {"nas": ("DISK_GB", 100, 80), "segment": ("IPV4_ADDRESS", 3, 3)}
"""Of each what it has, how much, and how much of it is used."""


async def test_pools_say_the_same_after_every_command_of_every_move_of_any_server() -> None:
    """A pool of 100 with servers of 40 and 40, and all three addresses taken by them and a third one."""
    sizes = {"disk": (_make_pooled("a40", 1, 40), _make_pooled("b40", 2, 40))}
    sizes["none"] = (_make_pooled("a0", 1, 0), _make_pooled("b0", 2, 0))
    async with running(hosts=4, cells=1) as cloud:
        client = cloud.client(_HEADERS)
        for name, (kind, total, _) in POOLS.items():
            inventories = {kind: {"total": total}}
            pool = {"name": name, "inventories": inventories, "aggregates": [cell_aggregate("cell1")]}
            made = await client.ask("PUT", f"/berth/v1/pools/{provider_id(name)}", {"pool": pool})
            assert made.status in (200, 201), made.body
        servers = [
            await _created(cloud, flavor=sizes[size][0], name=size) for size in ("disk", "disk", "none")
        ]
        first = cloud.region.view.index
        for server in servers:
            for name, end in (("migrate", "revert"), ("migrate", "confirm")):
                await done(cloud, name, server)
                await done(cloud, end, server)
            for end in ("revert", "confirm"):
                assert await cloud.begin(_begin_resize(cloud, server, sizes[server.name][1])) is None
                await cloud.at_rest(server.id)
                await done(cloud, end, server)
            await done(cloud, "live_migrate", server)
            await done(cloud, "rebuild", server)
            place = await host_dies(cloud, server)
            await done(cloud, "evacuate", server)
            cloud.hosts[place.name].start()
            await cloud.until(lambda view: not len(view.down))
            await cloud.all_at_rest()
        last = cloud.region.view.index
        view = View()
        for batch in await cloud.region.history(Index(0), 100_000):
            for entry in batch.entries:
                for event in entry.events:
                    view.apply(event)
                if first < batch.index <= last:
                    for name, (_, _, used) in POOLS.items():
                        there = view.providers[ProviderId(provider_id(name))].used
                        assert sum(there.values()) == used, (batch.index, entry)
        assert last - first > 100
        for server in servers:
            assert await done(cloud, "delete", server) is None
        await check_at_rest(cloud)


def _begin_resize(cloud: SimCloud, server: Server, flavor: Flavor) -> Begin:
    context = cloud.context()._replace(resizes_in_place=False)
    return lambda view, now_s: resize.propose(view, now_s, context, server.id, flavor)


# -- logs ---------------------------------------------------------------------------------------


async def test_a_step_that_fails_is_logged_with_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as cloud:
        server = new_server(cloud)
        cloud.faults.add(StepFault(server.id, "create", 1, "forward", "fail"))
        assert await cloud.begin(beginning(cloud, "create", server)) is None
        await cloud.at_rest(server.id)
        about = [record for record in caplog.records if record.name == "berth.cell.conductor"]
        line, *_ = [
            text for record in about if (text := record.getMessage()).startswith(f"server {server.id}: ")
        ]
        assert "create: step build failed on host-000" in line
        assert "attempt 1, next: undo build" in line
        assert line.endswith(": injected")

"""Drains: every server leaves its host, one after the other, whatever its state; what cannot leave is told
with the reason, and what fails or is interrupted is tried again."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.drains import Drain
from berth.model.ids import ProviderId
from berth.model.servers import Server
from berth.sim.cloud import SimCloud
from tests.lifecycle.chaos import check_at_rest
from tests.lifecycle.stories import beginning, done, kept_apart, kept_together, new_server

QUICK: Final = SimBehaviour(build_seconds=0, live_migrate_seconds=2, other_seconds=0)


def running(**options: Any) -> AbstractAsyncContextManager[SimCloud]:
    return SimCloud(**{"seed": 5, "cells": 1, "hosts": 3, "behaviour": QUICK, **options}).running()


async def _created(cloud: SimCloud, host: str, **fields: object) -> Server:
    """A server on a host: the others are disabled meanwhile."""
    others = [name for name in cloud.hosts if name != host]
    for name in others:
        await _ask(cloud, "PATCH", f"/berth/v1/hosts/{name}", {"host": {"disabled": True}})
    server = await done(cloud, "create", new_server(cloud, **fields))
    for name in others:
        await _ask(cloud, "PATCH", f"/berth/v1/hosts/{name}", {"host": {"disabled": False}})
    assert server is not None
    assert server.place is not None
    assert server.place.name == host
    return server


async def _ask(cloud: SimCloud, method: str, path: str, body: object = None, status: int = 200) -> Any:
    answer = await cloud.client().ask(method, path, body)
    assert answer.status == status, (method, path, answer)
    return answer.body


async def _set_lock(cloud: SimCloud, locked: Server, is_locked: bool) -> None:
    def propose(view: Any, now_s: int) -> Enact:
        server = view.records.get(Server, locked.id)
        after = msgspec.structs.replace(server, is_locked=is_locked, locked_reason="month end")
        return Enact((replace_record(view, after),))

    assert await cloud.begin(propose) is None


async def _drained(cloud: SimCloud, host: str) -> dict[str, Any]:
    """What is said of the drain when nothing is left to do."""
    await cloud.until(lambda view: any(drain.state == "done" for drain in view.records.all(Drain)))
    await cloud.all_at_rest()
    shown: dict[str, Any] = (await _ask(cloud, "GET", f"/berth/v1/hosts/{host}/drain"))["drain"]
    return shown


async def test_servers_of_every_state_leave_in_one_plan() -> None:
    async with running() as cloud:
        host = next(iter(cloud.hosts))
        path = f"/berth/v1/hosts/{host}/drain"
        live = await _created(cloud, host)
        stopped = await _created(cloud, host)
        shelved = await _created(cloud, host)
        await done(cloud, "stop", stopped)
        await done(cloud, "shelve", shelved)
        plan = (await _ask(cloud, "POST", path, {"drain": {"dry_run": True}}))["drain"]
        assert plan["state"] == "planned"
        assert {move["server"]: move["how"] for move in plan["moves"]} == {
            live.id: "live",
            stopped.id: "cold",
            shelved.id: "offload",
        }
        places = {move["destination"] for move in plan["moves"] if move["how"] != "offload"}
        assert places <= set(cloud.hosts) - {host}
        assert not (await _ask(cloud, "GET", f"/berth/v1/hosts/{host}"))["host"]["disabled"]
        await _ask(cloud, "GET", path, status=404)

        begun = (await _ask(cloud, "POST", path, {"drain": {"reason": "new fans"}}, 202))["drain"]
        assert begun["state"] == "draining"
        shown = await _drained(cloud, host)
        assert (shown["state"], shown["moved"], shown["moves"], shown["stays"]) == ("done", 3, [], [])
        status = (await _ask(cloud, "GET", f"/berth/v1/hosts/{host}"))["host"]
        assert (status["disabled"], status["reason"], status["servers"]) == (True, "new fans", 0)
        states = [(await cloud.server(one.id)).state for one in (live, stopped, shelved)]  # type: ignore[union-attr]
        assert states == ["active", "stopped", "shelved_offloaded"]
        # Whoever enables the host wants it back: the drain is over.
        await _ask(cloud, "PATCH", f"/berth/v1/hosts/{host}", {"host": {"disabled": False}})
        await cloud.until(lambda view: not any(view.records.all(Drain)))
        await check_at_rest(cloud)


async def test_one_server_moves_at_a_time() -> None:
    async with running() as cloud:
        host = next(iter(cloud.hosts))
        for _ in range(3):
            await _created(cloud, host)
        most = 0

        def look(view: Any) -> bool:
            nonlocal most
            busy = [server for server in view.records.all(Server) if server.run is not None]
            most = max(most, len(busy))
            return not view.records.count_found(Server, "host", cloud.hosts[host].host.id) and not busy

        await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        await cloud.until(look)
        assert most == 1


async def test_a_locked_server_stays_until_it_is_unlocked_and_the_others_go_on() -> None:
    async with running() as cloud:
        host = next(iter(cloud.hosts))
        locked = await _created(cloud, host)
        other = await _created(cloud, host)

        await _set_lock(cloud, locked, True)
        await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        here = cloud.hosts[host].host.id
        await cloud.until(lambda view: view.records.count_found(Server, "host", here) == 1)
        (move,) = (await _ask(cloud, "GET", f"/berth/v1/hosts/{host}/drain"))["drain"]["moves"]
        assert (move["server"], move["state"]) == (locked.id, "blocked")
        assert "month end" in move["text"]
        assert "unlock" in move["text"]
        assert other.id != move["server"]
        await _set_lock(cloud, locked, False)
        assert (await _drained(cloud, host))["moved"] == 2


async def test_what_does_not_fit_is_said_and_moves_when_it_does() -> None:
    async with running(hosts=2) as cloud:
        host, refuge = cloud.hosts
        group = await kept_apart(cloud, "apart")
        member = await _created(cloud, host, group=group)
        other = await _created(cloud, refuge, group=group)
        plan = await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {"drain": {"dry_run": True}})
        (move,) = plan["drain"]["moves"]
        assert (move["server"], move["state"], move["destination"]) == (member.id, "blocked", None)
        assert "apart" in move["text"], move
        begun = await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        assert begun["drain"]["moves"][0]["state"] == "waiting", "it is tried all the same"
        await cloud.until(lambda view: any(one.moves[0].attempts for one in view.records.all(Drain)))
        assert await done(cloud, "delete", other) is None
        assert (await _drained(cloud, host))["moved"] == 1


async def test_a_move_that_fails_is_tried_again() -> None:
    behaviour = SimBehaviour(
        build_seconds=0,
        live_migrate_seconds=1,
        other_seconds=0,
        rules=(Rule(outcome="fail", verb="live_migrate", times=1),),
    )
    async with running(behaviour=behaviour) as cloud:
        host = next(iter(cloud.hosts))
        await _created(cloud, host)
        await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        await cloud.until(lambda view: any(one.moves[0].attempts for one in view.records.all(Drain)))
        (move,) = (await _ask(cloud, "GET", f"/berth/v1/hosts/{host}/drain"))["drain"]["moves"]
        assert (move["state"], move["attempts"]) == ("waiting", 1), move
        assert move["again_at"]
        assert move["text"]
        assert (await _drained(cloud, host))["moved"] == 1


async def test_asked_for_again_it_tries_at_once_what_has_failed_and_keeps_the_reason() -> None:
    behaviour = SimBehaviour(
        build_seconds=0,
        live_migrate_seconds=1,
        other_seconds=0,
        rules=(Rule(outcome="fail", verb="live_migrate", times=2),),
    )
    async with running(behaviour=behaviour) as cloud:
        host = next(iter(cloud.hosts))
        path = f"/berth/v1/hosts/{host}/drain"
        await _created(cloud, host)
        await _ask(cloud, "POST", path, {"drain": {"reason": "new fans"}}, 202)
        await cloud.until(lambda view: any(one.moves[0].attempts == 2 for one in view.records.all(Drain)))
        plan = (await _ask(cloud, "POST", path, {"drain": {"dry_run": True}}))["drain"]
        again = (await _ask(cloud, "POST", path, {}, 202))["drain"]
        for move in (plan["moves"][0], again["moves"][0]):
            assert (move["state"], move["attempts"], move["again_at"]) == ("planned", 0, None), move
        assert (await _ask(cloud, "GET", f"/berth/v1/hosts/{host}"))["host"]["reason"] == "new fans"
        assert (await _drained(cloud, host))["moved"] == 1


async def test_asked_for_again_it_confirms_at_once_what_could_not_be() -> None:
    """The source must destroy what is left of it there: that fails once."""
    behaviour = SimBehaviour(
        build_seconds=0, other_seconds=0, rules=(Rule(outcome="fail", verb="destroy", times=1),)
    )
    async with running(behaviour=behaviour) as cloud:
        host = next(iter(cloud.hosts))
        path = f"/berth/v1/hosts/{host}/drain"
        await done(cloud, "stop", await _created(cloud, host))
        await _ask(cloud, "POST", path, {}, 202)
        await cloud.until(lambda view: any(one.moves[0].attempts for one in view.records.all(Drain)))
        [move] = (await _ask(cloud, "POST", path, {}, 202))["drain"]["moves"]
        assert (move["state"], move["attempts"], move["again_at"]) == ("moving", 0, None), move
        assert (await _drained(cloud, host))["moved"] == 1
        await check_at_rest(cloud)


async def test_two_hosts_that_are_drained_at_once_do_not_fill_each_other() -> None:
    async with running() as cloud:
        one, other, refuge = cloud.hosts
        for host in (one, other):
            for _ in range(2):
                await _created(cloud, host)
        for host in (one, other):
            await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        there = cloud.hosts[refuge].host.id
        await cloud.until(lambda view: view.records.count_found(Server, "host", there) == 4)
        await cloud.until(lambda view: all(drain.state == "done" for drain in view.records.all(Drain)))
        await check_at_rest(cloud)


async def test_servers_of_a_host_that_dies_are_to_be_evacuated_in_every_state() -> None:
    async with running() as cloud:
        host = next(iter(cloud.hosts))
        path = f"/berth/v1/hosts/{host}/drain"
        servers = [await _created(cloud, host) for _ in range(2)]
        await _ask(cloud, "POST", path, {}, 202)
        await cloud.until(lambda view: any(one.moves[0].run for one in view.records.all(Drain)))
        cloud.hosts[host].kill()
        here = cloud.hosts[host].host.id
        await cloud.until(lambda view: view.hosts[ProviderId(here)].down)
        await cloud.all_at_rest()
        assert {(await cloud.server(one.id)).state for one in servers} == {"error", "active"}  # type: ignore[union-attr]
        for move in (await _ask(cloud, "GET", path))["drain"]["moves"]:
            assert (move["state"], move["text"]) == (
                "blocked",
                f"the host {host} is down: evacuate the server",
            )
        for server in servers:
            assert await done(cloud, "evacuate", server) is not None
        shown = await _drained(cloud, host)
        assert (shown["moved"], shown["stays_total"]) == (2, 2)
        for stay in shown["stays"]:
            assert "when the host is up again" in stay["text"]
            assert "confirm" not in stay["text"]
        cloud.hosts[host].revive()
        await cloud.until(
            lambda view: not any(part.consumers for part in view.providers[ProviderId(here)].tree())
        )
        assert (await _drained(cloud, host))["stays"] == []


async def test_a_host_that_is_renamed_or_removed_during_its_drain() -> None:
    async with running() as cloud:
        host = next(iter(cloud.hosts))
        id = cloud.hosts[host].host.id
        await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        cloud.hosts[host].kill()
        placement = cloud.client({"x-auth-token": "admin", "openstack-api-version": "placement 1.39"})
        answer = await placement.ask("PUT", f"/resource_providers/{id}", {"name": "host-new"})
        assert answer.status == 200, answer
        assert (await _ask(cloud, "GET", "/berth/v1/hosts/host-new/drain"))["drain"][
            "host_name"
        ] == "host-new"
        answer = await placement.ask("DELETE", f"/resource_providers/{id}")
        assert answer.status == 204, answer
        await cloud.until(lambda view: not any(view.records.all(Drain)))
        assert (await _ask(cloud, "GET", "/berth/v1/drains"))["drains"] == []


async def test_a_drain_can_be_stopped_and_survives_the_region() -> None:
    async with running() as cloud:
        host = next(iter(cloud.hosts))
        for _ in range(3):
            await _created(cloud, host)
        path = f"/berth/v1/hosts/{host}/drain"
        await _ask(cloud, "POST", path, {}, 202)
        here = cloud.hosts[host].host.id
        await cloud.until(lambda view: view.records.count_found(Server, "host", here) == 2)
        await _ask(cloud, "DELETE", path, status=204)
        await cloud.all_at_rest()
        left = await cloud.read(lambda view: view.records.count_found(Server, "host", here))
        assert 1 <= left <= 2
        assert (await _ask(cloud, "GET", f"/berth/v1/hosts/{host}"))["host"]["disabled"]
        await _ask(cloud, "DELETE", path, status=404)

        await _ask(cloud, "POST", path, {}, 202)
        for worker in cloud.workers:
            worker.kill()
            worker.revive()
        shown = await _drained(cloud, host)
        assert (shown["state"], shown["moved"]) == ("done", left)
        await check_at_rest(cloud)


async def test_others_who_hold_something_there_are_named() -> None:
    async with running() as cloud:
        host = next(iter(cloud.hosts))
        foreign = "99999999-0000-4000-8000-000000000001"
        claim = {
            "allocations": {cloud.hosts[host].host.id: {"resources": {"VCPU": 1}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
        answer = await cloud.client(headers).ask("PUT", f"/allocations/{foreign}", claim)
        assert answer.status == 204, answer
        await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        shown = (await _ask(cloud, "GET", "/berth/v1/drains"))["drains"][0]
        assert [one["consumer"] for one in shown["stays"]] == [foreign]
        assert "no server of this region" in shown["stays"][0]["text"]


# -- groups that must share a host ----------------------------------------------------------------


async def test_a_group_that_shares_a_host_leaves_together() -> None:
    async with running(hosts=4) as cloud:
        host = next(iter(cloud.hosts))
        group = await kept_together(cloud, "pair")
        live, stopped, shelved = [await _created(cloud, host, group=group) for _ in range(3)]
        await done(cloud, "stop", stopped)
        await done(cloud, "shelve", shelved)
        path = f"/berth/v1/hosts/{host}/drain"
        plan = (await _ask(cloud, "POST", path, {"drain": {"dry_run": True}}))["drain"]
        moves = {move["server"]: move for move in plan["moves"]}
        assert [move["state"] for move in moves.values()] == ["planned"] * 3
        assert moves[live.id]["destination"] == moves[stopped.id]["destination"] in set(cloud.hosts) - {host}
        assert moves[shelved.id]["how"] == "offload"
        await _ask(cloud, "POST", path, {}, 202)
        shown = await _drained(cloud, host)
        assert (shown["moved"], shown["stays"]) == (3, [])
        there = {(await cloud.server(one.id)).place.name for one in (live, stopped)}  # type: ignore[union-attr]
        assert len(there - {host}) == 1
        await check_at_rest(cloud)


async def test_a_member_whose_move_fails_follows_its_group() -> None:
    behaviour = SimBehaviour(
        build_seconds=0,
        live_migrate_seconds=1,
        other_seconds=0,
        rules=(Rule(outcome="fail", verb="live_migrate", times=1),),
    )
    async with running(behaviour=behaviour, hosts=4) as cloud:
        host = next(iter(cloud.hosts))
        group = await kept_together(cloud, "pair")
        members = [await _created(cloud, host, group=group) for _ in range(3)]
        await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        here = cloud.hosts[host].host.id
        await cloud.until(lambda view: view.records.count_found(Server, "host", here) == 1)
        assert (await _drained(cloud, host))["moved"] == 3
        places = {(await cloud.server(one.id)).place.name for one in members}  # type: ignore[union-attr]
        assert len(places) == 1
        await check_at_rest(cloud)


async def test_a_group_that_fits_on_no_other_host_says_why_and_what_to_do() -> None:
    """Each of its members alone would fit."""
    async with running(hosts=3) as cloud:
        host, *others = cloud.hosts
        group = await kept_together(cloud, "pair")
        members = [await _created(cloud, host, group=group) for _ in range(2)]
        each = members[0].flavor.disk_gb
        for other in others:
            id = cloud.hosts[other].host.id
            room = await cloud.read(lambda view, id=id: _free_disk(view, id))  # type: ignore[misc]
            claim = {
                "allocations": {id: {"resources": {"DISK_GB": room - each}}},
                "project_id": "project",
                "user_id": "user",
                "consumer_generation": None,
                "consumer_type": "WORKLOAD",
            }
            headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
            answer = await cloud.client(headers).ask("PUT", f"/allocations/{cloud.ids.uuid()}", claim)
            assert answer.status == 204, answer
        path = f"/berth/v1/hosts/{host}/drain"
        plan = (await _ask(cloud, "POST", path, {"drain": {"dry_run": True}}))["drain"]
        for move in plan["moves"]:
            assert (move["state"], move["destination"]) == ("blocked", None)
            for words in (
                "affinity of the group pair",
                "2 members",
                "DISK_GB",
                "Make room",
                "soft-affinity",
                group,
            ):
                assert words in move["text"], move["text"]
        await _ask(cloud, "POST", path, {}, 202)
        await cloud.until(lambda view: all(one.moves[0].attempts for one in view.records.all(Drain)))
        await _ask(cloud, "PATCH", f"/berth/v1/groups/{group}", {"group": {"policy": "soft-affinity"}})
        assert (await _drained(cloud, host))["moved"] == 2


def _free_disk(view: Any, host: str) -> int:
    rows, free = view.classes.column(view.classes.id_of("DISK_GB")).free()
    return int(free[list(rows).index(view.providers[ProviderId(host)].row)])


async def test_a_group_waits_for_the_member_that_is_locked() -> None:
    async with running(hosts=4) as cloud:
        host = next(iter(cloud.hosts))
        group = await kept_together(cloud, "pair")
        locked, other = [await _created(cloud, host, group=group, name=name) for name in ("db-1", "db-2")]
        await _set_lock(cloud, locked, True)
        await _ask(cloud, "POST", f"/berth/v1/hosts/{host}/drain", {}, 202)
        shown = (await _ask(cloud, "GET", f"/berth/v1/hosts/{host}/drain"))["drain"]
        texts = {move["server"]: move["text"] for move in shown["moves"]}
        assert {move["state"] for move in shown["moves"]} == {"blocked"}
        assert texts[other.id].startswith(
            "it can only leave together with db-1 of the group pair, and it is locked"
        )
        await _set_lock(cloud, locked, False)
        assert (await _drained(cloud, host))["moved"] == 2


# -- what others have changed, and what comes back ------------------------------------------------


async def test_a_server_that_others_have_changed_is_planned_and_moves() -> None:
    async with running() as cloud:
        host = next(iter(cloud.hosts))
        server = await _created(cloud, host)
        headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
        placement = cloud.client(headers)
        held = (await placement.ask("GET", f"/allocations/{server.id}")).body
        [resources] = [one["resources"] for one in held["allocations"].values()]
        held["allocations"] = {
            cloud.hosts[host].host.id: {"resources": resources | {"VCPU": 1 + resources["VCPU"]}}
        }
        answer = await placement.ask("PUT", f"/allocations/{server.id}", held)
        assert answer.status == 204, answer
        path = f"/berth/v1/hosts/{host}/drain"
        [move] = (await _ask(cloud, "POST", path, {"drain": {"dry_run": True}}))["drain"]["moves"]
        assert (move["state"], move["text"]) == ("planned", None)
        assert move["destination"] in set(cloud.hosts) - {host}
        await _ask(cloud, "POST", path, {}, 202)
        assert (await _drained(cloud, host))["moved"] == 1


async def test_a_server_that_comes_back_is_counted_once() -> None:
    """Its owner moves it while the drain begins, and reverts that."""
    slow = SimBehaviour(build_seconds=0, live_migrate_seconds=2, other_seconds=5)
    async with running(behaviour=slow) as cloud:
        host = next(iter(cloud.hosts))
        server = await _created(cloud, host)
        path = f"/berth/v1/hosts/{host}/drain"
        assert await cloud.begin(beginning(cloud, "migrate", server)) is None
        await _ask(cloud, "POST", path, {}, 202)
        assert (await _drained(cloud, host))["moved"] == 1
        assert await cloud.begin(beginning(cloud, "revert", server)) is None
        await cloud.until(lambda view: any(drain.moves for drain in view.records.all(Drain)))
        shown = (await _ask(cloud, "GET", path))["drain"]
        assert (shown["moved"], len(shown["moves"])) == (0, 1)
        assert (await _drained(cloud, host))["moved"] == 1

"""Quotas: how they are set and shown, and that nobody gets beyond them."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.engine import start_view
from berth.journal import SqliteAddress, open_journal
from berth.model.quotas import Quotas
from berth.model.servers import Image, Server
from berth.view.snapshot import dump, load
from tests.servers import ROOT
from tests.unit.native.clusters import CLUSTERS, cluster, data, fleet, kept, scaled
from tests.worlds import CIRROS, LARGE, SMALL, ApplicationWorld, HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

BLUE = "ann:blue"
SETS = "/os-quota-sets"
DEFAULT = {f"quota_{name}": limit for name, limit in msgspec.structs.asdict(Quotas()).items()}
IMAGES = "/image/v2/images"


async def ask_for(region: RegionWorld, who: str = BLUE, hints: object = None, **fields: Any) -> HttpAnswer:
    body: dict[str, Any] = {"server": {"name": "s", "flavorRef": SMALL.id, **fields}}
    if hints is not None:
        body["os:scheduler_hints"] = hints
    return await region.compute("POST", "/servers", body, who=who)


async def used(region: RegionWorld, project: str = "blue") -> dict[str, int]:
    detail = (await region.compute("GET", f"{SETS}/{project}/detail?all=true")).json["quota_set"]
    return {
        name: detail[name]["in_use"] for name in ("instances", "cores", "ram", "server_groups", "clusters")
    }


async def limit(region: RegionWorld, **limits: Any) -> HttpAnswer:
    answer = await region.compute("PUT", f"{SETS}/blue", {"quota_set": limits})
    assert answer.status == 200, answer.body
    return answer


def forbidden(answer: HttpAnswer) -> str:
    assert answer.status == 403, answer.body
    message: str = answer.json["forbidden"]["message"]
    return message


# -- what is refused ----------------------------------------------------------------------------------


async def test_a_project_that_says_nothing_has_novas_quotas(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, **DEFAULT).running() as region:
        await region.fleet(5)
        assert (await ask_for(region, min_count=10)).status == 202
        assert forbidden(await ask_for(region)) == (
            "Quota exceeded for cores, instances: Requested 2, 1, but already used 20, 10 of 20, 10 "
            "cores, instances"
        )
        assert (await ask_for(region, who="bob:red")).status == 202


async def test_of_many_at_once_exactly_as_many_get_in(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, **DEFAULT).running() as region:
        await region.fleet(5)
        answers = await asyncio.gather(*(ask_for(region) for _ in range(64)))
        assert sorted(answer.status for answer in answers) == [202] * 10 + [403] * 54
        assert (await used(region))["instances"] == 10


async def test_servers_for_which_there_is_no_place_count_too(tmp_path: Path) -> None:
    """They were a way to write without an end: a thousand records for 95 bytes."""
    async with RegionWorld(tmp_path, **DEFAULT).running() as region:
        await region.put(SMALL)
        assert forbidden(await ask_for(region, min_count=1000)).startswith(
            "Quota exceeded for cores, instances"
        )
        assert (await ask_for(region, min_count=10)).status == 202
        assert (await ask_for(region)).status == 403
        assert len(list(region.engine.view.records.all(Server))) == 10


async def test_as_many_are_made_as_there_is_room_for(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, **DEFAULT).running() as region:
        await region.fleet(5)
        assert (await ask_for(region, min_count=2, max_count=50)).status == 202
        assert await used(region) == {
            "instances": 10,
            "cores": 20,
            "ram": 20480,
            "server_groups": 0,
            "clusters": 0,
        }


async def test_what_goes_makes_room(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_instances=1).running() as region:
        await region.fleet(2)
        id = await region.active(who=BLUE)
        assert (await ask_for(region)).status == 403
        assert (await region.act(id, "shelve", who=BLUE)).status == 202
        await region.finish(id)
        assert region.record(id).state == "shelved_offloaded"
        assert (await ask_for(region)).status == 403
        assert (await region.act(id, "unshelve", who=BLUE)).status == 202
        await region.finish(id)
        assert (await region.compute("DELETE", f"/servers/{id}", who=BLUE)).status == 204
        await region.finish(id)
        assert (await used(region))["instances"] == 0
        assert (await ask_for(region)).status == 202


async def test_a_resize_asks_for_the_difference(region: RegionWorld) -> None:
    await region.fleet(3)
    id = await region.active(who=BLUE)
    await limit(region, cores=3)
    refused = await region.act(id, "resize", {"flavorRef": LARGE.id}, who=BLUE)
    assert forbidden(refused) == ("Quota exceeded for cores: Requested 2, but already used 2 of 3 cores")
    await limit(region, cores=4)
    assert (await region.act(id, "resize", {"flavorRef": LARGE.id}, who=BLUE)).status == 202
    await region.finish(id)
    assert (await used(region))["cores"] == 4
    await region.act(id, "confirmResize", who=BLUE)
    await region.finish(id)
    assert (await region.act(id, "resize", {"flavorRef": SMALL.id}, who=BLUE)).status == 202
    await region.finish(id)
    # Until it is confirmed it may become large again.
    assert (await used(region))["cores"] == 4
    assert (await ask_for(region)).status == 403
    await region.act(id, "revertResize", who=BLUE)
    await region.finish(id)
    assert (await used(region))["cores"] == 4


async def test_server_groups_and_their_members(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_server_groups=1, quota_server_group_members=3).running() as region:
        await region.fleet(3)
        body = {"server_group": {"name": "g", "policy": "soft-affinity"}}
        made = await region.compute("POST", "/os-server-groups", body, who=BLUE)
        assert made.status == 200, made.body
        group = made.json["server_group"]["id"]
        refused = await region.compute("POST", "/os-server-groups", body, who=BLUE)
        assert forbidden(refused) == "Quota exceeded, too many server groups. The project may have 1."
        assert (await ask_for(region, hints={"group": group}, min_count=2)).status == 202
        message = forbidden(await ask_for(region, hints={"group": group}, min_count=2))
        assert message.startswith(f"Quota exceeded, too many servers in group {group}: it has 2, 2 more")
        assert (await ask_for(region, hints={"group": group})).status == 202
        assert (await used(region))["server_groups"] == 1
        path = f"/os-server-groups/{group}"
        assert (await region.compute("DELETE", path, who=BLUE)).status == 204
        assert (await region.compute("POST", "/os-server-groups", body, who=BLUE)).status == 200


async def native_group(region: RegionWorld, *members: int) -> HttpAnswer:
    body = {"group": {"name": "g", "policy": "soft-affinity", "members": [uuid_of(one) for one in members]}}
    return await region.ask("POST", "/berth/v1/groups", body, token=BLUE, headers={"x-roles": "admin"})


async def change_members(region: RegionWorld, group: str, add: list[int], remove: list[int]) -> HttpAnswer:
    body = {"add": [uuid_of(one) for one in add], "remove": [uuid_of(one) for one in remove]}
    return await region.ask("POST", f"/berth/v1/groups/{group}/members", body)


async def test_groups_of_the_native_api_count_too(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_server_groups=1, quota_server_group_members=3).running() as region:
        refused = await native_group(region, 1, 2, 3, 4)
        assert (refused.status, refused.error["code"]) == (403, "berth.quota_exceeded")
        assert "it has 0, 4 more were asked for, and it may have 3" in refused.error["detail"]
        made = await native_group(region, 1, 1, 2)
        assert made.status == 201, made.body
        refused = await native_group(region)
        assert (refused.status, refused.error["code"]) == (403, "berth.quota_exceeded")
        assert (await used(region))["server_groups"] == 1
        group = made.json["group"]["uuid"]
        refused = await change_members(region, group, [2, 3, 4], [])
        assert (refused.status, refused.error["code"]) == (403, "berth.quota_exceeded")
        assert "it has 2, 2 more were asked for, and it may have 3" in refused.error["detail"]
        assert (await change_members(region, group, [3, 4], [1])).status == 200
        await limit(region, server_group_members=1, force=True)
        assert (await change_members(region, group, [5, 2], [3])).status == 200
        assert (await change_members(region, group, [], [4, 5])).status == 200


async def test_of_many_native_groups_at_once_exactly_as_many_get_in(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_server_groups=3).running() as region:
        answers = await asyncio.gather(*(native_group(region) for _ in range(8)))
        assert sorted(answer.status for answer in answers) == [201] * 3 + [403] * 5


async def test_groups_where_there_are_no_servers_are_not_counted(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path, quota_server_groups=1).running() as world:
        for _ in range(3):
            body = {"group": {"name": "g", "policy": "affinity"}}
            assert (await world.ask("POST", "/berth/v1/groups", body)).status == 201


async def test_metadata_of_a_server_has_a_quota(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_metadata_items=2).running() as region:
        await region.fleet(1)
        message = forbidden(await ask_for(region, metadata={"a": "1", "b": "2", "c": "3"}))
        assert message == "Maximum number of metadata items exceeds 2: this would be 3."
        id = await region.active(who=BLUE, metadata={"a": "1"})
        path = f"/servers/{id}/metadata"
        added = await region.compute("POST", path, {"metadata": {"b": "2", "c": "3"}}, who=BLUE)
        assert forbidden(added) == message
        fields = {"imageRef": CIRROS.id, "metadata": {"a": "1", "b": "2", "c": "3"}}
        assert forbidden(await region.act(id, "rebuild", fields, who=BLUE)) == message
        await limit(region, metadata_items=3)
        added = await region.compute("POST", path, {"metadata": {"b": "2", "c": "3"}}, who=BLUE)
        assert added.status == 200
        one_more = await region.compute("PUT", f"{path}/d", {"meta": {"d": "4"}}, who=BLUE)
        assert forbidden(one_more) == "Maximum number of metadata items exceeds 3: this would be 4."
        await limit(region, metadata_items=1)
        # Beyond a limit that was lowered there may still be less.
        assert (await region.compute("DELETE", f"{path}/c", who=BLUE)).status == 204
        assert (await region.compute("PUT", f"{path}/b", {"meta": {"b": "9"}}, who=BLUE)).status == 200


async def test_a_cluster_counts_with_its_servers(tmp_path: Path) -> None:
    """A cluster counts as one, and with its servers; its server groups are its own."""
    settings = {"quota_instances": 6, "quota_cores": 12, "quota_clusters": 1, "quota_server_groups": 0}
    async with RegionWorld(tmp_path, **settings, quota_server_group_members=1).running() as region:
        await fleet(region, 5)
        how: dict[str, Any] = {"token": BLUE}
        refused = await region.ask("POST", CLUSTERS, cluster(data(7)), **how)
        assert (refused.status, refused.error["code"]) == (403, "berth.quota_exceeded")
        assert refused.error["detail"] == (
            "Quota exceeded for cores, instances: Requested 14, 7, but already used 0, 0 of 12, 6 "
            "cores, instances"
        )
        made = await region.ask("POST", CLUSTERS, cluster(data(4)), **how)
        assert made.status == 202, made.body
        id = made.json["cluster"]["uuid"]
        assert await used(region) == {
            "instances": 4,
            "cores": 8,
            "ram": 8192,
            "server_groups": 0,
            "clusters": 1,
        }
        again = await region.ask("POST", CLUSTERS, cluster(data(1), name="other"), **how)
        assert again.error["detail"] == (
            "Quota exceeded for clusters: Requested 1, but already used 1 of 1 clusters"
        )
        grown = await region.ask("POST", f"{CLUSTERS}/{id}/scale", {"counts": {"data": 7}}, **how)
        assert grown.error["code"] == "berth.quota_exceeded"
        assert (await scaled(region, id, counts={"data": 6})).status == 202
        await kept(region)
        assert (await region.ask("DELETE", f"{CLUSTERS}/{id}", **how)).status == 202
        await kept(region)
        assert set((await used(region)).values()) == {0}


async def test_images_are_refused_in_glances_words(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_images=2, quota_image_size_total=1).running() as region:
        body = {"name": "i", "disk_format": "raw", "container_format": "bare"}
        ids = [(await region.ask("POST", IMAGES, body, token=BLUE)).json["id"] for _ in range(2)]
        refused = await region.ask("POST", IMAGES, body, token=BLUE)
        assert refused.status == 413
        assert refused.json["message"] == (
            "Resource image_count_total is over limit of 2 due to current usage 2 and delta 1."
        )
        media = {"content-type": "application/octet-stream"}
        content = b"x" * (700 << 10)
        first, second = (f"{IMAGES}/{id}/file" for id in ids)
        assert (await region.ask_raw("PUT", first, content, token=BLUE, headers=media)).status == 204
        refused = await region.ask_raw("PUT", second, content, token=BLUE, headers=media)
        assert refused.status == 413
        assert refused.json["message"] == (
            "Resource image_size_total is over limit of 1 due to current usage 1 and delta 1."
        )
        assert (await region.ask("DELETE", f"{IMAGES}/{ids[0]}", token=BLUE)).status == 204
        assert (await region.ask_raw("PUT", second, content, token=BLUE, headers=media)).status == 204


async def test_an_image_is_not_given_to_a_project_that_has_enough(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_images=1).running() as region:
        made = await region.ask("POST", IMAGES, {"name": "i"}, token="admin")
        await region.ask("POST", IMAGES, {"name": "j"}, token=BLUE)
        steps = [{"op": "replace", "path": "/owner", "value": "blue"}]
        headers = {"content-type": "application/openstack-images-v2.1-json-patch"}
        path = f"{IMAGES}/{made.json['id']}"
        assert (await region.ask("PATCH", path, steps, token="admin", headers=headers)).status == 413


# -- setting and showing ------------------------------------------------------------------------------


async def test_a_projects_own_quotas_come_first_then_the_class_then_the_settings(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, **DEFAULT).running() as region:

        async def cores() -> int:
            shown: int = (await region.compute("GET", f"{SETS}/blue")).json["quota_set"]["cores"]
            return shown

        assert await cores() == 20
        body = {"quota_class_set": {"cores": "30"}}
        answer = await region.compute("PUT", "/os-quota-class-sets/default", body)
        assert (answer.status, answer.json["quota_class_set"]["cores"]) == (200, 30)
        assert "id" not in answer.json["quota_class_set"]
        assert await cores() == 30
        answer = await limit(region, cores=40, ram=-1)
        assert "id" not in answer.json["quota_set"]
        assert await cores() == 40
        defaults = (await region.compute("GET", f"{SETS}/blue/defaults")).json["quota_set"]
        assert (defaults["id"], defaults["cores"], defaults["ram"]) == ("blue", 30, 51200)
        absolute = (await region.compute("GET", "/limits", who=BLUE)).json["limits"]["absolute"]
        assert (absolute["maxTotalCores"], absolute["maxTotalRAMSize"]) == (40, -1)
        assert (await region.compute("DELETE", f"{SETS}/blue")).status == 202
        assert (await region.compute("DELETE", f"{SETS}/blue")).status == 202
        assert await cores() == 30
        shown = (await region.compute("GET", "/os-quota-class-sets/default")).json["quota_class_set"]
        assert (shown["id"], shown["cores"], shown["instances"]) == ("default", 30, 10)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"quota_set": {"volumes": 3}}, "'volumes' is not a quota"),
        ({"quota_set": {"cores": -2}}, "cores is -2; it must be a whole number from -1"),
        ({"quota_set": {"cores": "2.5"}}, "cores is '2.5'"),
        ({"quota_set": {"cores": True}}, "cores is True"),
        ({"quota_set": {"cores": 1 << 31}}, "to 2147483647"),
        ({"quota_set": {"key_pairs": -2}}, "key_pairs is -2"),
        ({"quota_set": {"floating_ips": 5}}, "'floating_ips' is not a quota"),
        ({"quota_set": {"cores": 5, "force": "perhaps"}}, "force is 'perhaps'"),
        ({"quota_set": {}, "more": 1}, "more"),
        ({}, "quota_set"),
    ],
)
async def test_what_is_refused_of_a_quota(region: RegionWorld, body: object, words: str) -> None:
    answer = await region.compute("PUT", f"{SETS}/blue", body)
    assert answer.status == 400, answer.body
    assert words in answer.json["badRequest"]["message"]


async def test_no_limit_is_set_below_what_is_used_unless_it_is_forced(region: RegionWorld) -> None:
    await region.fleet(2)
    await ask_for(region, min_count=2)
    answer = await region.compute("PUT", f"{SETS}/blue", {"quota_set": {"cores": 3}})
    assert answer.status == 400
    assert answer.json["badRequest"]["message"] == (
        "Quota limit 3 for cores must be greater than or equal to already used and reserved 4."
    )
    await limit(region, cores=3, force="True")
    assert (await ask_for(region)).status == 403


@pytest.mark.parametrize(
    ("version", "networks", "injected"), [("2.35", True, True), ("2.36", False, True), ("2.57", False, False)]
)
async def test_a_version_shows_the_quotas_it_knows(
    region: RegionWorld, version: str, networks: bool, injected: bool
) -> None:
    for path in (f"{SETS}/blue", f"{SETS}/blue/detail", f"{SETS}/blue/defaults"):
        shown = (await region.compute("GET", path, version=version)).json["quota_set"]
        assert ("fixed_ips" in shown) == networks
        assert ("injected_files" in shown) == injected
        assert {"cores", "key_pairs", "server_groups"} < shown.keys()


@pytest.mark.parametrize(("version", "groups"), [("2.49", False), ("2.50", True)])
async def test_a_version_shows_the_quotas_of_the_class_it_knows(
    region: RegionWorld, version: str, groups: bool
) -> None:
    path = "/os-quota-class-sets/default"
    shown = (await region.compute("GET", path, version=version)).json["quota_class_set"]
    assert ("server_groups" in shown) == groups
    assert ("fixed_ips" in shown) == (not groups)
    body = {"quota_class_set": {"server_groups": 3}}
    assert (await region.compute("PUT", path, body, version=version)).status == (200 if groups else 400)
    assert (await region.compute("GET", "/os-quota-class-sets/gold", version=version)).status == 404


async def test_a_member_sees_its_own_and_sets_nothing(region: RegionWorld) -> None:
    assert (await region.compute("GET", f"{SETS}/blue", who=BLUE)).status == 200
    assert (await region.compute("GET", f"{SETS}/red", who=BLUE)).status == 403
    body = {"quota_set": {"cores": 1000}}
    assert (await region.compute("PUT", f"{SETS}/blue", body, who=BLUE)).status == 403
    assert (await region.compute("DELETE", f"{SETS}/blue", who=BLUE)).status == 403
    assert (await region.compute("GET", f"{SETS}/blue?user_id=ann", who=BLUE)).status == 200


# -- counting -----------------------------------------------------------------------------------------


async def test_what_is_counted_follows_from_the_journal(tmp_path: Path) -> None:
    """Replayed, loaded from a snapshot, and added up from the records: it is the same."""
    async with RegionWorld(tmp_path).running() as region:
        await fleet(region, 4)
        await region.put(Image(id=uuid_of(970), name="i", owner="blue", size=5))
        await region.ask("POST", CLUSTERS, cluster(data(3)), token=BLUE)
        await region.compute(
            "POST", "/os-server-groups", {"server_group": {"name": "g", "policy": "affinity"}}, who=BLUE
        )
        for number in range(4):
            id = await region.active(f"s{number}", who=BLUE)
            if number % 2:
                await region.act(id, "resize", {"flavorRef": LARGE.id}, who=BLUE)
                await region.finish(id)
        await kept(region)
        view = region.engine.view
    journal = open_journal(SqliteAddress(tmp_path / "journal.db"), shared=False)
    try:
        replayed = start_view(journal)
    finally:
        journal.close()
    loaded = load(dump(view))
    assert view.project_counts.state() == replayed.project_counts.state() == loaded.project_counts.state()
    servers = [server for server in view.records.all(Server) if server.project == "blue"]
    assert view.project_counts.of("blue") == {
        "instances": len(servers),
        "cores": sum(server.flavor.vcpus for server in servers),
        "ram": sum(server.flavor.memory_mb for server in servers),
        "images": 1,
        "image_bytes": 5,
        "clusters": 1,
        "server_groups": 1,
    }


async def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guides" / "quotas.md").read_text()
    requests = re.findall(r"^```http\n([A-Z]+) (\S+) -> (\d+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(requests) == 9

    async with RegionWorld(tmp_path, **DEFAULT).running() as region:
        await region.fleet(5)
        for method, path, status, body in requests:
            sent = json.loads(body) if body else None
            # Servers are asked for by the project itself.
            who = BLUE if method == "POST" else "admin"
            answer = await region.compute(method, path.removeprefix("/compute/v2.1"), sent, who=who)
            assert answer.status == int(status), (method, path, answer.body)
        assert (await used(region))["instances"] == 12

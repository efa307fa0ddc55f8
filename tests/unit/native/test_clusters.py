"""/berth/v1/clusters: what can be asked, what is refused and why, and what is shown of it."""

import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.servers import ROOT
from tests.unit.native.clusters import CLUSTERS, cluster, created, data, fleet, kept, scaled, shown
from tests.worlds import CIRROS, SMALL, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

MASTER = {"name": "master", "flavor": "1", "count": 1, "processes": ["namenode"]}
MEMBER = {"x-roles": "member"}


@contextlib.asynccontextmanager
async def filled(tmp_path: Path, hosts: int = 5, racks: int = 0) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path).running() as region:
        await fleet(region, hosts, racks)
        yield region


def hosts_of(one: Any, process: str = "data") -> Counter[str]:
    return Counter(node["host_name"] for node in one["nodes"] if node["node_group"] == process)


def groups_of(one: Any) -> Counter[str | None]:
    return Counter(node["group_uuid"] for node in one["nodes"])


# -- create -------------------------------------------------------------------------------------


async def test_a_flavor_or_an_image_that_no_server_could_be_made_of_is_refused(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        flavor = msgspec.structs.replace(
            SMALL, id="pinned", name="pinned", extra_specs={"hw:cpu_realtime": "yes"}
        )
        image = msgspec.structs.replace(
            CIRROS, id=uuid_of(990), name="pinned", properties={"hw_locked_memory": "true"}
        )
        await region.put(flavor, image)
        for group, key in (
            (data(1, flavor="pinned"), "hw:cpu_realtime"),
            (data(1, image="pinned"), "hw_locked_memory"),
        ):
            answer = await region.ask("POST", CLUSTERS, cluster(group))
            assert (answer.status, f"{key} is '" in answer.error["detail"]) == (400, True)


async def test_ten_nodes_on_five_hosts_with_ratio_two(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        answer = await region.ask("POST", CLUSTERS, cluster(data(10), MASTER))
        assert answer.status == 202
        one = answer.json["cluster"]
        assert answer.headers["location"] == f"{CLUSTERS}/{one['uuid']}"
        assert (one["name"], one["state"], one["anti_affinity_ratio"]) == ("hadoop", "building", 2)
        assert one["progress"] == {"ready": 0, "wanted": 11, "leaving": 0}
        await kept(region)
        one = await shown(region, one["uuid"])
        assert (one["state"], one["progress"]["ready"]) == ("active", 11)
        assert set(hosts_of(one).values()) == {2}
        assert len(hosts_of(one)) == 5
        first, second = one["groups"]
        assert groups_of(one) == {first: 5, second: 5, None: 1}
        nodes = {node["name"]: node for node in one["nodes"]}
        assert [nodes[f"data-{number}"]["group_uuid"] for number in range(4)] == [first, second] * 2
        assert nodes["master-0"]["group_uuid"] is None
        assert {node["status"] for node in one["nodes"]} == {"ACTIVE"}
        server = await region.server(nodes["data-0"]["server_uuid"])
        assert server["name"] == "hadoop-data-0"
        assert server["OS-EXT-SRV-ATTR:host"] == nodes["data-0"]["host_name"]
        assert server["hostId"] == nodes["data-0"]["host_id"]
        assert one["node_groups"][0] == {
            "name": "data",
            "flavor": "small",
            "image": "cirros",
            "count": 10,
            "processes": ["datanode"],
            "needs": [],
        }


async def test_every_node_of_a_node_group_has_its_needs(tmp_path: Path) -> None:
    need: dict[str, Any] = {"name": "uplink", "resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 600}}

    async with filled(tmp_path, hosts=3) as region:
        for number in range(1, 4):
            await region.host(10 + number, {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}, parent=number)
        one = await created(region, cluster(data(2, needs=[need]), MASTER, ratio=None, anti_affinity=[]))
        assert [group["needs"] for group in one["node_groups"]] == [
            [
                need
                | {
                    "required": [],
                    "forbidden": [],
                    "allocations": {},
                    "groups": [],
                    "same_subtree": [],
                    "group_policy": "none",
                    "port": None,
                }
            ],
            [],
        ]
        one = (await scaled(region, one["uuid"], counts={"data": 3})).json["cluster"]
        nodes = {node["name"]: node["server_uuid"] for node in one["nodes"]}
        for name, id in nodes.items():
            held = [amounts for amounts in (await region.held(id)).values() if len(amounts) == 1]
            assert held == ([] if name == "master-0" else [need["resources"]]), name
        answer = await scaled(region, one["uuid"], counts={"data": 4})
        assert (answer.status, answer.error["code"]) == (409, "berth.no_fit")
        assert "for the need uplink" in answer.error["detail"]
        replace = f"{CLUSTERS}/{one['uuid']}/nodes/data-0/replace"
        assert (await region.ask("POST", replace, {"force": True})).status == 202
        await kept(region)
        one = await shown(region, one["uuid"])
        (id,) = (node["server_uuid"] for node in one["nodes"] if node["name"] == "data-0")
        assert id != nodes["data-0"]
        assert need["resources"] in (await region.held(id)).values()
        shown_to_member = await region.ask("GET", f"{CLUSTERS}/{one['uuid']}", headers=MEMBER)
        assert [group["needs"] for group in shown_to_member.json["cluster"]["node_groups"]] == [None, None]


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ([{"name": "n", "resources": {"CUSTOM_NONE": 1}}], "There is no resource class CUSTOM_NONE."),
        ([{"name": "n"}], "node group data: need n: neither resources nor groups"),
        ([{"name": "n", "resources": {"VCPU": 1}, "color": 1}], "color"),
    ],
)
async def test_wrong_needs_of_a_node_group_are_refused(tmp_path: Path, needs: Any, words: str) -> None:
    async with filled(tmp_path, hosts=1) as region:
        answer = await region.ask("POST", CLUSTERS, cluster(data(1, needs=needs)))
        assert (answer.status, answer.error["code"]) == (400, "berth.bad_body")
        assert words in answer.error["detail"]


async def test_needs_of_a_node_group_are_for_administrators_and_services(tmp_path: Path) -> None:
    async with filled(tmp_path, hosts=1) as region:
        group = data(1, needs=[{"name": "n", "resources": {"VCPU": 1}}])
        answer = await region.ask("POST", CLUSTERS, cluster(group), headers=MEMBER)
        assert (answer.status, answer.error["code"]) == (403, "berth.forbidden")


async def test_a_ratio_that_is_too_small_is_refused_with_the_one_that_fits(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        answer = await region.ask("POST", CLUSTERS, cluster(data(10), ratio=1))
        assert (answer.status, answer.error["code"]) == (409, "berth.no_fit")
        assert "no place for its 10 new nodes together" in answer.error["detail"]
        assert "ratio of 1 per host. A ratio of 2 would fit." in answer.error["detail"]
        assert answer.error["fitting_ratio"] == 2
        assert (await region.get(CLUSTERS)).json == {"clusters": [], "next": None}
        assert (await region.get("/berth/v1/groups")).json["groups"] == []
        assert (await region.get("/berth/v1/consumers")).json["consumers"] == []


@pytest.mark.parametrize(("count", "fits"), [(13, True), (16, False)])
@pytest.mark.parametrize("racks", [0, 5])
async def test_ratio_three_on_five_domains(tmp_path: Path, count: int, fits: bool, racks: int) -> None:
    domain = {"anti_affinity_domain": "rack"} if racks else {}

    async with filled(tmp_path, hosts=10 if racks else 5, racks=racks) as region:
        body = cluster(data(count, flavor="small"), ratio=3, **domain)
        answer = await region.ask("POST", CLUSTERS, body)
        assert answer.status == (202 if fits else 409)
        if fits:
            one = answer.json["cluster"]
            rack_of = {f"host-{n}": f"r{(n - 1) % 5}" for n in range(1, 11)}
            domains = [rack_of[node["host_name"]] if racks else node["host_name"] for node in one["nodes"]]
            assert max(Counter(domains).values()) == 3


async def test_everything_but_the_size_has_a_default(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        body = {"cluster": {"name": "c", "node_groups": [{"name": "n", "flavor": "1", "count": 6}]}}
        one = await created(region, body)
        assert one["anti_affinity"] == []
        assert (one["anti_affinity_ratio"], one["anti_affinity_domain"]) == (1, "host")
        assert one["groups"] == []
        assert groups_of(one) == {None: 6}


def bad(**fields: Any) -> dict[str, Any]:
    return cluster(data(2), **fields)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "cluster"),
        (bad(name="a b"), "$.cluster.name"),
        (bad(name=""), "$.cluster.name"),
        (bad(name="x" * 51), "$.cluster.name"),
        (bad(color="red"), "color"),
        (bad(ratio=0), ">= 1"),
        (bad(ratio=101), "<= 100"),
        (bad(anti_affinity=[]), "anti_affinity_ratio is given without anti_affinity"),
        (
            bad(ratio=None, anti_affinity=[], anti_affinity_domain="rack"),
            "anti_affinity_domain is given without",
        ),
        (
            bad(anti_affinity=["x"]),
            "anti_affinity names x, which is no process of a node group; there are: datanode",
        ),
        (bad(anti_affinity=["datanode", "datanode"]), "datanode more than once"),
        (bad(anti_affinity_domain="rack"), "No aggregate has the kind rack"),
        (bad(anti_affinity_domain="no kind"), "anti_affinity_domain"),
        (bad(node_groups=[]), "node_groups"),
        (cluster(data(0)), "no node group has a node"),
        (cluster(data(-1)), ">= 0"),
        (cluster(data(1001)), "<= 1000"),
        (cluster(data(600), data(600, name="more")), "there are 1200 nodes; the limit is 1000"),
        (cluster(data(1), data(1)), "node_groups has data more than once"),
        (
            cluster(data(1, processes=["datanode", "a", "a"])),
            "node group data has the process a more than once",
        ),
        (cluster(data(1, flavor="none")), "asks for the flavor none, and there is none"),
        (cluster(data(1, image="none")), "asks for the image none, and there is none"),
        (cluster(*(data(1, name=f"n{n}") for n in range(51))), "length <= 50"),
    ],
)
async def test_what_is_refused_of_a_cluster(tmp_path: Path, body: dict[str, Any], words: str) -> None:
    async with filled(tmp_path, hosts=1) as region:
        answer = await region.ask("POST", CLUSTERS, body)
        assert (answer.status, answer.error["code"]) == (400, "berth.bad_body")
        assert words in answer.error["detail"]
        assert (await region.get(CLUSTERS)).json["clusters"] == []


async def test_each_refusal_in_the_writers_turn_is_counted_by_its_own_kind(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        bent = msgspec.structs.replace(SMALL, id="bent", name="bent", extra_specs={"hw:cpu_realtime": "yes"})
        queued = msgspec.structs.replace(CIRROS, id=uuid_of(991), name="queued", status="queued")
        twins = [msgspec.structs.replace(CIRROS, id=uuid_of(992 + n), name="twin") for n in range(2)]
        wide = msgspec.structs.replace(CIRROS, id=uuid_of(995), name="wide", min_memory_mb=1 << 20)
        await region.put(bent, queued, *twins, wide)
        id = (await created(region, cluster(data(2))))["uuid"]
        none = uuid_of(999)
        need = {"resources": {"VCPU": 1}}
        refused: list[tuple[str, str, str, Any]] = [
            ("NodeFlavorNotFound", "POST", CLUSTERS, cluster(data(1, flavor="none"))),
            ("NodeSpecInvalid", "POST", CLUSTERS, cluster(data(1, flavor="bent"))),
            ("NodeImageNotFound", "POST", CLUSTERS, cluster(data(1, image="none"))),
            ("NodeImageNotActive", "POST", CLUSTERS, cluster(data(1, image="queued"))),
            ("NodeImageAmbiguous", "POST", CLUSTERS, cluster(data(1, image="twin"))),
            ("NodeFlavorTooSmall", "POST", f"{CLUSTERS}/{id}/scale", {"add": [data(1, image="wide")]}),
            ("ClusterNotFound", "DELETE", f"{CLUSTERS}/{none}", None),
            ("GroupNotFound", "DELETE", f"/berth/v1/groups/{none}", None),
            ("ServerNotFound", "PUT", f"/berth/v1/servers/{none}/needs/x", need),
        ]
        for kind, method, path, body in refused:
            answer = await region.ask(method, path, body)
            assert 400 <= answer.status < 500, (kind, answer.body)
        assert await _kinds(region) == {kind for kind, *_ in refused}


async def _kinds(region: RegionWorld) -> set[str]:
    """The kinds of rejections that the engine has counted."""
    metrics = (await region.ask("GET", "/metrics")).body.decode()
    return set(re.findall(r'^berth_rejections_total\{kind="(\w+)"\}', metrics, re.MULTILINE))


# -- scale --------------------------------------------------------------------------------------


async def test_up_and_down_and_groups_stay_even(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        id = (await created(region, cluster(data(4), MASTER)))["uuid"]
        await kept(region)
        answer = await scaled(region, id, counts={"data": 9})
        assert answer.status == 202
        assert answer.json["cluster"]["state"] == "building"
        await kept(region)
        one = await shown(region, id)
        assert (one["state"], one["progress"]) == ("active", {"ready": 10, "wanted": 10, "leaving": 0})
        assert sorted(groups_of(one)[group] for group in one["groups"]) == [4, 5]
        assert max(hosts_of(one).values()) == 2
        answer = await scaled(region, id, counts={"data": 4}, remove=["master"])
        assert answer.json["cluster"]["state"] == "scaling"
        assert answer.json["cluster"]["progress"]["leaving"] == 6
        await kept(region)
        one = await shown(region, id)
        assert (one["state"], len(one["nodes"])) == ("active", 4)
        assert [groups_of(one)[group] for group in one["groups"]] == [2, 2]
        assert [group["name"] for group in one["node_groups"]] == ["data"]
        assert len((await region.get("/berth/v1/consumers")).json["consumers"]) == 4


async def test_a_node_group_is_added(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        id = (await created(region, cluster(data(3))))["uuid"]
        await kept(region)
        answer = await scaled(region, id, add=[data(3, name="more", flavor="2")], anti_affinity_ratio=2)
        assert answer.status == 202
        one = answer.json["cluster"]
        assert [groups_of(one)[group] for group in one["groups"]] == [3, 3]
        assert {node["name"] for node in one["nodes"] if node["status"] == "BUILD"} == {
            "more-0",
            "more-1",
            "more-2",
        }


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (
            {"counts": {"data": 5}, "anti_affinity_ratio": 3},
            409,
            "This cluster was created with 2 ratio, but now the ratio is 3. You will need to recreate",
        ),
        (
            {"anti_affinity_ratio": 1},
            409,
            "This cluster was created with 2 ratio, but now the ratio is 1. You will need to recreate",
        ),
        ({"counts": {"data": 11}}, 409, "no place for its 7 new nodes together"),
        ({"counts": {"none": 1}}, 404, "has no node group none; it has: data."),
        ({"remove": ["none"]}, 404, "has no node group none"),
        ({"add": [data(1)]}, 409, "already has a node group data"),
        ({"counts": {"data": 999}, "add": [data(2, name="x")]}, 409, "1001 nodes"),
        ({}, 400, "nothing is asked for"),
        ({"counts": {"data": 1}, "remove": ["data"]}, 400, "data is in counts and in remove"),
        ({"remove": ["data", "data"]}, 400, "remove names data more than once"),
        ({"counts": {"data": -1}}, 400, ">= 0"),
    ],
)
async def test_what_is_refused_of_scaling(
    tmp_path: Path, body: dict[str, Any], status: int, words: str
) -> None:
    async with filled(tmp_path) as region:
        id = (await created(region, cluster(data(4))))["uuid"]
        await kept(region)
        before = await shown(region, id)
        answer = await scaled(region, id, **body)
        assert answer.status == status, answer.body
        assert words in answer.error["detail"]
        assert await shown(region, id) == before


async def test_the_words_for_another_ratio_are_exactly_these(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        id = (await created(region, cluster(data(2))))["uuid"]
        answer = await scaled(region, id, anti_affinity_ratio=5)
        words = "This cluster was created with 2 ratio, but now the ratio is 5. You will need to recreate"
        assert (answer.status, answer.error["detail"]) == (409, words)


# -- replace and delete -------------------------------------------------------------------------


async def test_a_node_that_failed_is_replaced_in_its_group(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        id = (await created(region, cluster(data(4))))["uuid"]
        await kept(region, error="no more loop devices")
        one = await shown(region, id)
        assert (one["state"], one["progress"]["ready"]) == ("error", 0)
        assert "no more loop devices" in one["nodes"][0]["fault"]
        for node in one["nodes"]:
            answer = await region.ask("POST", f"{CLUSTERS}/{id}/nodes/{node['name']}/replace", {})
            assert answer.status == 202
        assert answer.json["cluster"]["state"] == "replacing"
        await kept(region)
        again = await shown(region, id)
        assert (again["state"], again["progress"]["ready"]) == ("active", 4)
        assert [node["group_uuid"] for node in again["nodes"]] == [
            node["group_uuid"] for node in one["nodes"]
        ]
        assert not {node["server_uuid"] for node in again["nodes"]} & {n["server_uuid"] for n in one["nodes"]}


async def test_a_node_whose_host_is_down_is_replaced_elsewhere(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        id = (await created(region, cluster(data(4), ratio=1)))["uuid"]
        await kept(region)
        before = (await shown(region, id))["nodes"][0]
        path = f"{CLUSTERS}/{id}/nodes/{before['name']}/replace"
        answer = await region.ask("POST", path, {})
        assert answer.status == 409
        assert "has not failed" in answer.error["detail"]
        await region.host_status(int(before["host_name"].removeprefix("host-")), down=True)
        assert (await region.ask("POST", path, {})).status == 202
        await kept(region)
        after = (await shown(region, id))["nodes"][0]
        assert (after["name"], after["status"]) == ("data-0", "ACTIVE")
        assert after["host_name"] != before["host_name"]
        forced = await region.ask("POST", path, {"force": True})
        assert forced.status == 202


async def test_a_cluster_is_deleted_with_everything(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        id = (await created(region, cluster(data(4), MASTER)))["uuid"]
        await kept(region)
        answer = await region.ask("DELETE", f"{CLUSTERS}/{id}")
        assert (answer.status, answer.json["cluster"]["state"]) == (202, "deleting")
        again = await scaled(region, id, counts={"data": 5})
        assert again.status == 409
        assert "is being deleted" in again.error["detail"]
        await kept(region)
        assert (await region.get(f"{CLUSTERS}/{id}")).status == 404
        assert (await region.get("/berth/v1/groups")).json["groups"] == []
        assert (await region.get("/berth/v1/consumers")).json["consumers"] == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/scale", {"counts": {"data": 1}}),
        ("POST", "/nodes/data-0/replace", {}),
    ],
)
async def test_a_cluster_that_is_not_there(tmp_path: Path, method: str, path: str, body: object) -> None:
    async with filled(tmp_path, hosts=1) as region:
        answer = await region.ask(method, f"{CLUSTERS}/{uuid_of(9)}{path}", body)
        assert (answer.status, answer.error["code"]) == (404, "berth.not_found")
        assert answer.error["detail"] == f"There is no cluster {uuid_of(9)}."


async def test_a_node_that_is_not_there(tmp_path: Path) -> None:
    async with filled(tmp_path, hosts=1) as region:
        id = (await created(region, cluster(data(1))))["uuid"]
        answer = await region.ask("POST", f"{CLUSTERS}/{id}/nodes/data-7/replace", {})
        assert (answer.status, answer.error["detail"]) == (404, f"Cluster {id} has no node data-7.")


# -- who may ------------------------------------------------------------------------------------


async def test_a_cluster_is_its_projects_and_an_administrators(tmp_path: Path) -> None:
    async with filled(tmp_path, hosts=2) as region:
        id = (await created(region, cluster(data(2)), token="u:blue", headers=MEMBER))["uuid"]
        mine = await shown(region, id, token="u:blue", headers=MEMBER)
        assert (mine["project_id"], mine["user_id"]) == ("blue", "u")
        assert {node["host_name"] for node in mine["nodes"]} == {None}, "where it is is an administrator's"
        assert len({node["host_id"] for node in mine["nodes"]}) == 2
        assert {node["host_name"] for node in (await shown(region, id))["nodes"]} <= {"host-1", "host-2"}
        for method, path, body in (
            ("GET", "", None),
            ("DELETE", "", None),
            ("POST", "/scale", {"counts": {"data": 1}}),
            ("POST", "/nodes/data-0/replace", {"force": True}),
        ):
            answer = await region.ask(method, f"{CLUSTERS}/{id}{path}", body, token="u:red", headers=MEMBER)
            assert answer.status == 404
        for token, count in (("u:blue", 1), ("u:red", 0), ("admin", 1)):
            headers = {} if token == "admin" else MEMBER
            answer = await region.ask("GET", CLUSTERS, token=token, headers=headers)
            assert len(answer.json["clusters"]) == count


async def test_a_flavor_of_others_is_not_there(tmp_path: Path) -> None:
    async with filled(tmp_path, hosts=2) as region:
        body = cluster(data(1, flavor="secret"))
        for token, status in (("u:blue", 202), ("u:red", 400), ("admin", 202)):
            headers = {} if token == "admin" else MEMBER
            assert (await region.ask("POST", CLUSTERS, body, token=token, headers=headers)).status == status


@pytest.mark.parametrize(
    ("method", "path", "rule"),
    [
        ("GET", CLUSTERS, "list"),
        ("POST", CLUSTERS, "create"),
        ("GET", f"{CLUSTERS}/x", "show"),
        ("DELETE", f"{CLUSTERS}/x", "delete"),
        ("POST", f"{CLUSTERS}/x/scale", "update"),
        ("POST", f"{CLUSTERS}/x/nodes/y/replace", "update"),
    ],
)
async def test_a_caller_without_the_role_is_refused(
    tmp_path: Path, method: str, path: str, rule: str
) -> None:
    async with filled(tmp_path, hosts=1) as region:
        answer = await region.ask(method, path, token="guest", headers={"x-roles": ""})
        assert answer.status == 403
        assert answer.error["detail"] == f"Policy doesn't allow berth:clusters:{rule} to be performed."


async def test_an_administrator_is_held_to_a_rule_that_is_for_the_clusters_own_project(
    tmp_path: Path,
) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text('"berth:clusters:delete": "project_id:%(project_id)s"\n')
    async with RegionWorld(tmp_path, policy_file=str(rules)).running() as region:
        await fleet(region, 1)
        id = (await created(region, cluster(data(1)), token="ann:blue"))["uuid"]
        answer = await region.ask("DELETE", f"{CLUSTERS}/{id}")
        assert (answer.status, answer.error["code"]) == (403, "berth.forbidden")
        assert answer.error["detail"] == "Policy doesn't allow berth:clusters:delete to be performed."
        assert await _kinds(region) == {"Forbidden"}


# -- reading ------------------------------------------------------------------------------------


async def test_clusters_are_listed_by_pages_and_names(tmp_path: Path) -> None:
    async with filled(tmp_path, hosts=3) as region:
        for number in range(3):
            await created(region, cluster(data(1), name=f"c{number}"))
        first = (await region.get(f"{CLUSTERS}?limit=2")).json
        rest = (await region.get(first["next"])).json
        names = {one["name"] for one in first["clusters"] + rest["clusters"]}
        assert (names, rest["next"]) == ({"c0", "c1", "c2"}, None)
        found = (await region.get(f"{CLUSTERS}?name=c1")).json["clusters"]
        assert [one["name"] for one in found] == ["c1"]


async def test_a_matching_tag_spares_the_answer_to_its_own_caller_only(tmp_path: Path) -> None:
    async with filled(tmp_path, hosts=2) as region:
        id = (await created(region, cluster(data(2))))["uuid"]
        tag = (await region.get(f"{CLUSTERS}/{id}")).headers["etag"]
        assert (await region.get(f"{CLUSTERS}/{id}", if_none_match=tag)).status == 304
        headers = {"x-roles": "member", "if-none-match": tag}
        assert (await region.ask("GET", f"{CLUSTERS}/{id}", token="u:admin", headers=headers)).status == 200
        await kept(region)
        assert (await region.get(f"{CLUSTERS}/{id}", if_none_match=tag)).status == 200


# -- the guide ----------------------------------------------------------------------------------


async def test_the_requests_of_the_guide_are_answered_as_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guides" / "clusters.md").read_text()
    requests = re.findall(
        r"^```http\n([A-Z]+) (\S+) -> (\d+) ?(\S*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    assert len(requests) >= 7

    async with filled(tmp_path, hosts=10, racks=5) as region:
        await region.put(msgspec.structs.replace(SMALL, name="m1.small"))
        id = ""
        for method, path, status, code, body in requests:
            sent = body.encode() if body.strip() else None
            answer = await region.ask_raw(method, path.replace("{cluster}", id), sent)
            assert answer.status == int(status), (method, path, answer.body)
            if code:
                assert answer.error["code"] == code
            else:
                id = answer.json["cluster"]["uuid"]
                await kept(region)
        assert (await region.get(CLUSTERS)).json["clusters"] == []


async def test_a_node_whose_host_is_down_is_not_ready(tmp_path: Path) -> None:
    async with filled(tmp_path) as region:
        one = await created(region, cluster(data(4)))
        await kept(region)
        name = one["nodes"][0]["host_name"]
        hosts = (await region.get("/berth/v1/hosts")).json["hosts"]
        path = next(f"/berth/v1/hosts/{host['uuid']}" for host in hosts if host["name"] == name)
        assert (await region.ask("PUT", path, {"host": {"down": True}})).status == 200
        on_it = [node["name"] for node in one["nodes"] if node["host_name"] == name]
        one = await shown(region, one["uuid"])
        assert one["state"] == "degraded"
        assert one["progress"] == {"ready": 4 - len(on_it), "wanted": 4, "leaving": 0}
        assert [node["name"] for node in one["nodes"] if node["host_down"]] == on_it
        assert (await region.ask("PUT", path, {"host": {"down": False}})).status == 200
        one = await shown(region, one["uuid"])
        assert (one["state"], one["progress"]["ready"]) == ("active", 4)

"""Random requests of a member, many at once: no quota is exceeded, what is counted is what there is, and no
answer tells of hosts or cells."""

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest

from berth.ledger.quotas import count_used
from berth.model.clusters import Cluster
from berth.model.quotas import amounts_of
from berth.model.servers import Flavor, Server
from berth.view import View
from tests.unit.native.clusters import CLUSTERS, fleet, kept
from tests.worlds import AVX, CIRROS, HUGE, HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

HOSTS, ROUNDS = 6, 40
ANN, MEMBER = "ann:blue", {"x-roles": "member"}
TINY = Flavor(id="9", name="tiny", vcpus=1, memory_mb=256)
LIMITS = {
    "instances": 12,
    "cores": 30,
    "ram": 40_000,
    "server_groups": 3,
    "server_group_members": 3,
    "clusters": 2,
    "metadata_items": 3,
}
SECRETS = re.compile(rf"host-\d|cell-\d|hosts? left|{'|'.join(uuid_of(n) for n in range(1, HOSTS + 1))}")
FLAVORS = ("1", "2", "3", "9")
ACTIONS = (
    "confirmResize",
    "revertResize",
    "os-stop",
    "os-start",
    "shelve",
    "unshelve",
    "lock",
    "unlock",
    "forceDelete",
)


class Ann:
    """A member that asks for whatever comes to its mind, and reads what it is told."""

    def __init__(self, region: RegionWorld, rng: random.Random) -> None:
        self.region = region
        self.rng = rng

    async def ask(self, method: str, path: str, body: object = None) -> HttpAnswer:
        if path.startswith(CLUSTERS):
            answer = await self.region.ask(method, path, body, token=ANN, headers=MEMBER)
        else:
            answer = await self.region.compute(method, path, body, who=ANN, headers=MEMBER)
        assert answer.status < 500, (method, path, body, answer.body)
        assert SECRETS.search(answer.body.decode()) is None, (method, path, body, answer.body)
        return answer

    def one_of(self, ids: list[str]) -> str:
        return self.rng.choice(ids or [uuid_of(77)])

    def server(self) -> str:
        return self.one_of([server.id for server in self.region.engine.view.records.all(Server)])

    def group(self) -> str:
        return self.one_of([str(id) for id in self.region.engine.view.groups.records])

    def cluster(self) -> str:
        return f"{CLUSTERS}/" + self.one_of([one.id for one in self.region.engine.view.records.all(Cluster)])

    def metadata(self) -> dict[str, str]:
        return {str(number): "x" for number in range(self.rng.choice((0, 1, 3, 4)))}

    async def do_something(self) -> None:
        pick = self.rng.choice
        kinds = {
            self.create: 6,
            self.act: 8,
            self.delete: 2,
            self.make_group: 1,
            self.delete_group: 1,
            self.make_cluster: 1,
            self.change_cluster: 2,
        }
        [kind] = self.rng.choices(list(kinds), list(kinds.values()))
        await kind(pick)

    async def create(self, pick: Any) -> None:
        server = {"name": "s", "flavorRef": pick(FLAVORS), "min_count": pick((1, 1, 2)), "max_count": 3}
        body: dict[str, Any] = {"server": server | {"metadata": self.metadata()}}
        hint, named = pick((("group", self.group()), ("same_host", self.server()), (None, "")))
        if hint is not None:
            body["os:scheduler_hints"] = {hint: named}
        if pick((True, False)):
            body["server"]["imageRef"] = pick((CIRROS.id, AVX.id))
        await self.ask("POST", "/servers", body)

    async def act(self, pick: Any) -> None:
        action = pick(
            (
                {"resize": {"flavorRef": pick(FLAVORS)}},
                {"rebuild": {"imageRef": pick((CIRROS.id, AVX.id)), "metadata": self.metadata()}},
                *({name: None} for name in ACTIONS),
            )
        )
        await self.ask("POST", f"/servers/{self.server()}/action", action)

    async def delete(self, pick: Any) -> None:
        await self.ask("DELETE", f"/servers/{self.server()}")

    async def make_group(self, pick: Any) -> None:
        policy = pick(("anti-affinity", "affinity", "soft-affinity"))
        await self.ask("POST", "/os-server-groups", {"server_group": {"name": "g", "policy": policy}})

    async def delete_group(self, pick: Any) -> None:
        await self.ask("DELETE", f"/os-server-groups/{self.group()}")

    async def make_cluster(self, pick: Any) -> None:
        nodes = {
            "name": "w",
            "flavor": pick(("small", "tiny")),
            "count": pick((1, 2, 4, 9)),
            "processes": ["p"],
        }
        rule = {"anti_affinity": ["p"], "anti_affinity_ratio": pick((1, 2))}
        await self.ask("POST", CLUSTERS, {"cluster": {"name": "c", "node_groups": [nodes], **rule}})

    async def change_cluster(self, pick: Any) -> None:
        method, path, body = pick(
            (
                ("POST", "/scale", {"counts": {"w": pick((0, 1, 2, 4))}}),
                ("POST", "/nodes/w-0/replace", {"force": True}),
                ("DELETE", "", None),
            )
        )
        await self.ask(method, self.cluster() + path, body)

    async def look_around(self) -> None:
        for server in (await self.ask("GET", "/servers/detail")).json["servers"]:
            path = f"/servers/{server['id']}/os-instance-actions"
            for action in (await self.ask("GET", path)).json["instanceActions"]:
                await self.ask("GET", f"{path}/{action['request_id']}")
        for path in ("/os-server-groups", "/limits", "/os-availability-zone", CLUSTERS, self.cluster()):
            await self.ask("GET", path)


def check(view: View) -> None:
    """Nothing is beyond its limit, and the counts are those of the records."""
    clusters = list(view.records.all(Cluster))
    of_clusters = {id for cluster in clusters for id in cluster.groups}
    groups = [group for group in view.groups.records.values() if group.id not in of_clusters]
    servers = list(view.records.all(Server))
    there = {"instances": len(servers), "server_groups": len(groups), "clusters": len(clusters)}
    for name in ("cores", "ram"):
        there[name] = sum(amounts_of(server)[1][name] for server in servers)
    used = count_used(view, "blue")
    assert {name: used[name] for name in there} == there
    assert [name for name, amount in there.items() if amount > LIMITS[name]] == []
    assert all(len(server.metadata) <= LIMITS["metadata_items"] for server in servers)
    for group in groups:
        members = sum(id == stands_for for id, stands_for in group.members.items())
        assert members <= LIMITS["server_group_members"]


@pytest.mark.parametrize("seed", range(4))
async def test_a_member_gets_no_more_than_its_quota_and_learns_nothing_of_hosts(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)

    async with RegionWorld(
        tmp_path, **{f"quota_{name}": limit for name, limit in LIMITS.items()}
    ).running() as region:
        await fleet(region, HOSTS)
        await region.put(HUGE, TINY, AVX)
        ann, view = Ann(region, rng), region.engine.view
        for number in range(ROUNDS):
            await asyncio.gather(*(ann.do_something() for _ in range(rng.choice((1, 4, 16)))))
            check(view)
            if rng.random() < 0.6:
                await kept(region, rng.choice((None, None, "host-2: no space left at host-3")))
                check(view)
            if rng.random() < 0.2:
                await region.host_status(rng.randint(1, HOSTS), down=rng.random() < 0.5)
            region.clock.advance(rng.choice((1, 5, 30)))
            if number % 5 == 0:
                await ann.look_around()

"""Clusters: nodes are distributed over as many groups as the ratio, placed at once, and reconciled."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from berth.cell import saga_runs
from berth.clusters import proposals as clusters
from berth.clusters.proposals import summarize_cluster
from berth.clusters.reconciler import DELETE_AGAIN_S, REPLACE_AGAIN_S, is_due, propose_next
from berth.doctor.findings import examine
from berth.ledger import decide
from berth.model import commands as c
from berth.model.clusters import NODES_MAX, Cluster, Node, NodeGroup
from berth.model.events import RecordChanged
from berth.model.groups import Group
from berth.model.ids import AggregateId, ConsumerId, GroupId
from berth.model.placement import Inventory, Label
from berth.model.rejections import (
    ClusterBeingDeleted,
    ClusterDoesNotFit,
    ClusterExists,
    ClusterNotFound,
    ClusterRatioFixed,
    GroupExists,
    GroupOfCluster,
    KindNotFound,
    NodeCountWrong,
    NodeGroupExists,
    NodeGroupNotFound,
    NodeLeaving,
    NodeNotFailed,
    NodeNotFound,
    NoFit,
    Rejection,
    TooManyNodes,
)
from berth.model.saga_runs import Outbox
from berth.model.servers import Image, Server
from berth.sagas.hosts import cell_aggregate
from berth.view.snapshot import dump, load
from tests.unit.sagas.regions import CELL, LARGE, NOW_S, SMALL, Faults, Region, host_id

pytestmark = pytest.mark.fast

DATANODE = "datanode"


def workers(count: int, name: str = "workers", **fields: Any) -> NodeGroup:
    return NodeGroup(name=name, flavor=SMALL, count=count, processes=(DATANODE, "namenode"), **fields)


def masters(count: int) -> NodeGroup:
    return NodeGroup(name="masters", flavor=SMALL, count=count, processes=("master",))


class ClusterRegion(Region):
    """A region with clusters, of which one is called c unless another is named."""

    def __init__(self, hosts: int = 5, vcpus: int = 16, racks: int = 0) -> None:
        super().__init__(hosts, vcpus)
        for rack in range(racks):
            self.do(c.LabelAggregate(AggregateId(f"rack-{rack}"), Label("rack", f"rack-{rack}")))
        for number in range(1, hosts + 1) if racks else ():
            aggregates = (cell_aggregate(CELL), AggregateId(f"rack-{number % racks}"))
            self.do(c.SetAggregates(host_id(number), None, aggregates))

    def create(self, *node_groups: NodeGroup, id: str = "c", **fields: Any) -> Rejection | None:
        named: dict[str, Any] = {"anti_affinity": (DATANODE,), "ratio": 1, **fields}
        cluster = Cluster(id=id, name=id, project="project", user="user", node_groups=node_groups, **named)
        return self.tries(lambda view, now_s: clusters.create(view, now_s, self.context(), cluster))

    def scale(self, counts: dict[str, int] | None = None, id: str = "c", **more: Any) -> Rejection | None:
        return self.tries(
            lambda view, now_s: clusters.scale(view, now_s, self.context(), id, counts or {}, **more)
        )

    def replace(self, node: str, id: str = "c", **more: Any) -> Rejection | None:
        return self.tries(lambda view, now_s: clusters.replace(view, now_s, self.context(), id, node, **more))

    def delete(self, id: str = "c") -> Rejection | None:
        return self.tries(lambda view, now_s: clusters.delete(view, now_s, self.context(), id))

    def step(self, id: str = "c") -> bool:
        """Take the next step for a cluster, if there is one."""
        before = self.view.state()
        command = propose_next(self.view, self.now_s, self.context(), id)
        assert self.view.state() == before, "a step only looks"
        if command is not None:
            self.do(command)
        return command is not None

    def carry_all_out(self, faults: Faults | None = None, most: int = 1_000) -> int:
        """Have the cell execute the runs in the outbox; how many there were."""
        outboxes = list(self.view.records.all(Outbox))[:most]
        for outbox in outboxes:
            assert outbox.run is not None
            taken = saga_runs.accept_run(self.cell, outbox.run, self.now_s * 10**9)
            assert isinstance(taken, c.Enact)
            self._write(self.cell, taken)
            self.put_away(outbox)
            self._finish(outbox.run.id, faults or Faults())
        return len(outboxes)

    def put_away(self, outbox: Outbox) -> None:
        self.do(c.Enact((RecordChanged(outbox, None),)))

    def settle(self, id: str = "c") -> None:
        """Take steps and execute runs until there is nothing left to do."""
        for _ in range(100):
            if not self.step(id) and not self.carry_all_out():
                return
        raise AssertionError("there is no end to it")

    def cluster(self, id: str = "c") -> Cluster:
        cluster = self.view.records.get(Cluster, id)
        assert cluster is not None
        return cluster

    def node(self, name: str, id: str = "c") -> Node:
        return next(node for node in self.cluster(id).nodes if node.name == name)

    def status(self, id: str = "c") -> str:
        return summarize_cluster(self.view, self.cluster(id)).status

    def per_host(self) -> Counter[str]:
        return Counter(
            server.place.name for server in self.view.records.all(Server) if server.place is not None
        )

    def per_group(self, id: str = "c") -> list[int]:
        """How many nodes of each group stay; none of them has two on one host."""
        cluster = self.cluster(id)
        nodes = [node for node in cluster.nodes if node.state != "leaving"]
        by_group = {group: [node for node in nodes if node.group == group] for group in cluster.groups}
        for some in by_group.values():
            hosts = [name for node in some for name in self.hosts_of(node.server)]
            assert len(hosts) == len(set(hosts))
        return [len(some) for some in by_group.values()]


# -- create -------------------------------------------------------------------------------------


def test_ten_nodes_on_five_hosts_with_ratio_two() -> None:
    region = ClusterRegion()
    assert region.create(workers(10), ratio=2) is None
    assert region.per_group() == [5, 5]
    assert set(region.per_host().values()) == {2}
    assert len(region.per_host()) == 5
    assert region.status() == "building"
    region.carry_all_out()
    assert region.status() == "active"
    assert summarize_cluster(region.view, region.cluster())[1:3] == (10, 10)


def test_a_ratio_that_does_not_fit_says_which_would() -> None:
    region = ClusterRegion()
    refused = region.create(workers(10), ratio=1)
    assert isinstance(refused, ClusterDoesNotFit)
    assert (refused.nodes, refused.ratio, refused.fitting_ratio) == (10, 1, 2)
    assert isinstance(refused.why, NoFit)
    assert (refused.why.needed, refused.why.fitting) == (10, 5)
    assert not region.view.consumers
    assert not region.view.groups.records


@pytest.mark.parametrize(("nodes", "fits"), [(13, True), (15, True), (16, False)])
def test_ratio_three_on_five_hosts(nodes: int, fits: bool) -> None:
    region = ClusterRegion()
    refused = region.create(workers(nodes), ratio=3)
    if fits:
        assert refused is None
        assert max(region.per_host().values()) == 3
        assert max(region.per_group()) - min(region.per_group()) <= 1
    else:
        assert isinstance(refused, ClusterDoesNotFit)
        assert refused.fitting_ratio == 4


@pytest.mark.parametrize(
    ("nodes", "ratio", "fitting"), [(10, 2, None), (10, 1, 2), (13, 3, None), (16, 3, 4)]
)
def test_the_same_over_racks(nodes: int, ratio: int, fitting: int | None) -> None:
    region = ClusterRegion(hosts=15, racks=5)
    refused = region.create(workers(nodes), ratio=ratio, domain="rack")
    if fitting is not None:
        assert isinstance(refused, ClusterDoesNotFit)
        assert refused.fitting_ratio == fitting
        return
    assert refused is None
    per_rack: Counter[int] = Counter()
    for name, count in region.per_host().items():
        per_rack[int(name.removeprefix("host-")) % 5] += count
    assert max(per_rack.values()) <= ratio
    assert sum(per_rack.values()) == nodes


def test_no_ratio_helps_where_there_is_no_room() -> None:
    region = ClusterRegion(vcpus=4)
    refused = region.create(workers(11))
    assert isinstance(refused, ClusterDoesNotFit)
    assert refused.fitting_ratio is None
    refused = region.create(workers(11), anti_affinity=(), ratio=1)
    assert isinstance(refused, ClusterDoesNotFit)
    assert refused.fitting_ratio is None


def test_nodes_are_dealt_in_turn_across_node_groups() -> None:
    region = ClusterRegion()
    assert region.create(workers(3), masters(2), workers(2, "more"), ratio=2) is None
    cluster = region.cluster()
    first, second = cluster.groups
    groups = [node.group for node in cluster.nodes]
    assert groups == [first, second, first, None, None, second, first]
    assert [node.name for node in cluster.nodes][-3:] == ["masters-1", "more-0", "more-1"]
    for node in cluster.nodes:
        server = region.server(node.server)
        assert server.group == node.group
        assert server.metadata == {"cluster": "c", "node": node.name}
        assert server.name == f"c-{node.name}"
    assert [region.view.groups.records[GroupId(id)].group.name for id in cluster.groups] == ["c-1", "c-2"]


def test_nodes_that_nobody_avoids_need_no_groups() -> None:
    region = ClusterRegion(hosts=1)
    assert region.create(masters(3), anti_affinity=()) is None
    assert region.cluster().groups == ()
    assert not region.view.groups.records
    assert region.per_host() == {"host-1": 3}


def test_what_an_image_says_holds_for_its_nodes() -> None:
    region = ClusterRegion()
    image = Image(id="i", status="active", properties={"trait:HW_CPU_X86_AVX2": "required"})
    refused = region.create(workers(2, image=image))
    assert isinstance(refused, ClusterDoesNotFit)
    for number in (2, 4):
        region.do(c.SetTraits(host_id(number), None, frozenset(("HW_CPU_X86_AVX2",))))
    assert region.create(workers(2, image=image)) is None
    assert set(region.per_host()) == {"host-2", "host-4"}


def test_where_the_fleet_is_nearly_full_room_is_what_counts() -> None:
    """Large nodes that all fit if the small ones leave the large hosts to them."""
    region = ClusterRegion(hosts=4, vcpus=4)
    for number in (1, 2):
        region.do(c.SetInventories(host_id(number), None, _stock(vcpus=2)))
    large = NodeGroup(name="large", flavor=LARGE, count=2, processes=(DATANODE,))
    assert region.create(workers(2), large, ratio=1) is None
    assert region.per_host() == {"host-1": 1, "host-2": 1, "host-3": 1, "host-4": 1}


def _stock(vcpus: int) -> dict[str, Inventory]:
    return {"VCPU": Inventory(vcpus), "MEMORY_MB": Inventory(4096), "DISK_GB": Inventory(100)}


def test_alternates_are_those_that_are_left_when_all_have_a_place() -> None:
    region = ClusterRegion(hosts=6)
    assert region.create(workers(10), ratio=2) is None
    hosts = {node.server: region.hosts_of(node.server)[0] for node in region.cluster().nodes}
    groups = {node.server: node.group for node in region.cluster().nodes}
    for outbox in region.view.records.all(Outbox):
        run = outbox.run
        assert run is not None
        peers = {hosts[id] for id, group in groups.items() if group == groups[run.server]}
        names = {way.place.name for way in run.alternates}
        assert names == {f"host-{number}" for number in range(1, 7)} - peers


def test_bad_requests_for_a_cluster_are_refused() -> None:
    region = ClusterRegion()
    assert region.create(workers(1), domain="rack") == KindNotFound("rack")
    assert region.create(workers(1), workers(2)) == NodeGroupExists("c", "workers")
    assert region.create(workers(NODES_MAX), masters(1)) == TooManyNodes(NODES_MAX + 1, NODES_MAX)
    assert region.create(workers(-1)) == NodeCountWrong("workers", -1)
    assert region.create(workers(1)) is None
    assert region.create(workers(1)) == ClusterExists("c")


def test_a_snapshot_has_clusters() -> None:
    region = ClusterRegion()
    assert region.create(workers(4), masters(1), ratio=2) is None
    assert load(dump(region.view)).state() == region.view.state()


# -- scale --------------------------------------------------------------------------------------


def test_nodes_that_come_continue_the_turn() -> None:
    region = ClusterRegion()
    assert region.create(workers(3), ratio=2) is None
    first, second = region.cluster().groups
    assert region.scale({"workers": 6}) is None
    groups = [node.group for node in region.cluster().nodes]
    assert groups == [first, second, first, second, first, second]
    more = NodeGroup(name="more", flavor=LARGE, count=2, processes=(DATANODE,))
    assert region.scale(add=(more,)) is None
    assert [node.group for node in region.cluster().nodes][6:] == [first, second]
    assert [(group.name, group.count) for group in region.cluster().node_groups] == [
        ("workers", 6),
        ("more", 2),
    ]


def test_scaling_down_keeps_the_balance_and_up_again_restores_it() -> None:
    region = ClusterRegion()
    assert region.create(workers(10), ratio=2) is None
    region.carry_all_out()
    for count in (9, 6, 3, 7, 10):
        assert region.scale({"workers": count}) is None
        sizes = region.per_group()
        assert sum(sizes) == count
        assert max(sizes) - min(sizes) <= 1
        region.settle()
        assert len(region.cluster().nodes) == count
        assert sum(region.per_host().values()) == count
    assert set(region.per_host().values()) == {2}


def test_those_who_go_are_of_the_largest_group_and_came_last() -> None:
    region = ClusterRegion()
    assert region.create(workers(5), ratio=2) is None
    assert region.scale({"workers": 2}) is None
    leaving = [node.name for node in region.cluster().nodes if node.state == "leaving"]
    assert leaving == ["workers-2", "workers-3", "workers-4"]
    assert region.per_group() == [1, 1]
    assert region.status() == "scaling"


def test_a_node_group_goes_with_its_nodes_and_may_come_again_when_they_are_gone() -> None:
    region = ClusterRegion()
    assert region.create(workers(4), masters(1), ratio=2) is None
    region.carry_all_out()
    assert region.scale(remove=("workers",)) is None
    assert [group.name for group in region.cluster().node_groups] == ["masters"]
    assert region.scale(add=(workers(2),)) == NodeGroupExists("c", "workers")
    region.settle()
    assert [node.name for node in region.cluster().nodes] == ["masters-0"]
    assert region.scale(add=(workers(2),)) is None
    assert [node.name for node in region.cluster().nodes] == ["masters-0", "workers-0", "workers-1"]


def test_scaling_that_does_not_fit_changes_nothing() -> None:
    region = ClusterRegion()
    assert region.create(workers(8), ratio=2) is None
    before = region.view.state()
    refused = region.scale({"workers": 11})
    assert isinstance(refused, ClusterDoesNotFit)
    assert (refused.nodes, refused.fitting_ratio) == (3, None)
    assert region.view.state() == before
    assert region.scale({"workers": 10}) is None


def test_another_ratio_is_refused() -> None:
    region = ClusterRegion()
    assert region.create(workers(4), ratio=2) is None
    refused = region.scale({"workers": 5}, ratio=3)
    assert isinstance(refused, ClusterRatioFixed)
    assert refused.sentence == (
        "This cluster was created with 2 ratio, but now the ratio is 3. You will need to recreate"
    )
    assert region.scale({"workers": 5}, ratio=2) is None


def test_scaling_to_what_there_is_changes_nothing() -> None:
    region = ClusterRegion()
    assert region.create(workers(4), ratio=2) is None
    before = region.view.state()
    assert region.scale({"workers": 4}) is None
    assert region.view.state() == before


def test_wrong_scalings_are_refused() -> None:
    region = ClusterRegion()
    assert region.create(workers(2)) is None
    assert region.scale(id="other") == ClusterNotFound("other")
    assert region.scale({"masters": 1}) == NodeGroupNotFound("c", "masters", ("workers",))
    assert region.scale(remove=("masters",)) == NodeGroupNotFound("c", "masters", ("workers",))
    assert region.scale({"workers": -1}) == NodeCountWrong("workers", -1)
    assert region.scale(add=(workers(1),)) == NodeGroupExists("c", "workers")
    assert region.scale({"workers": NODES_MAX + 1}) == TooManyNodes(NODES_MAX + 1, NODES_MAX)


# -- replace ------------------------------------------------------------------------------------


def test_a_node_whose_host_is_down_is_replaced_elsewhere_in_its_group() -> None:
    region = ClusterRegion(hosts=6)
    assert region.create(workers(10), ratio=2) is None
    region.carry_all_out()
    before = region.node("workers-3")
    (host,) = region.hosts_of(before.server)
    assert region.replace("workers-3") == NodeNotFailed("c", "workers-3", "active")
    region.set_down(int(host.removeprefix("host-")))
    assert region.replace("workers-3") is None
    assert region.status() == "replacing"
    region.settle()
    after = region.node("workers-3")
    assert after == msgspec.structs.replace(before, server=after.server)
    assert after.server != before.server
    assert region.hosts_of(after.server) != [host]
    assert region.server(after.server).state == "active"
    assert region.view.records.get(Server, before.server) is None
    assert region.per_group() == [5, 5]
    # Another node is on that host still.
    assert region.status() == "degraded"


def test_a_node_that_could_not_be_built_is_replaced() -> None:
    region = ClusterRegion()
    assert region.create(workers(1)) is None
    region.carry_all_out(Faults(fails=("build",)))
    assert region.status() == "error"
    assert summarize_cluster(region.view, region.cluster())[1:3] == (0, 1)
    assert region.replace("workers-0") is None
    region.settle()
    assert region.status() == "active"


def test_a_node_whose_server_somebody_has_deleted_is_replaced() -> None:
    region = ClusterRegion()
    assert region.create(workers(2)) is None
    region.carry_all_out()
    region.run("delete", region.node("workers-0").server)
    assert region.status() == "error"
    assert region.replace("workers-0") is None
    region.settle()
    assert region.status() == "active"
    assert region.per_group() == [2]


def test_a_replacement_that_does_not_fit_says_so_and_is_tried_again() -> None:
    region = ClusterRegion()
    assert region.create(workers(5)) is None
    region.carry_all_out()
    (host,) = region.hosts_of(region.node("workers-0").server)
    region.set_down(int(host.removeprefix("host-")))
    assert region.replace("workers-0") is None
    region.settle()
    fault = region.cluster().fault
    assert fault is not None
    assert "workers-0" in fault
    assert region.status() == "replacing"
    assert not is_due(region.view, region.cluster(), region.now_s)
    region.set_down(int(host.removeprefix("host-")), down=False)
    assert not region.step()
    region.now_s = NOW_S + REPLACE_AGAIN_S
    region.settle()
    assert region.cluster().fault is None
    assert region.status() == "active"
    assert region.per_group() == [5]


def test_a_node_in_good_health_is_replaced_by_force() -> None:
    region = ClusterRegion()
    assert region.create(workers(5)) is None
    region.carry_all_out()
    before = region.node("workers-2").server
    assert region.replace("workers-2", force=True) is None
    assert region.replace("workers-2", force=True) is None
    region.settle()
    assert region.node("workers-2").server != before
    assert region.status() == "active"


def test_wrong_replacements_are_refused() -> None:
    region = ClusterRegion()
    assert region.create(workers(2)) is None
    assert region.replace("workers-7") == NodeNotFound("c", "workers-7")
    assert region.replace("workers-0", id="other") == ClusterNotFound("other")
    assert region.scale({"workers": 1}) is None
    assert region.replace("workers-1") == NodeLeaving("c", "workers-1")
    assert region.delete() is None
    assert region.replace("workers-0") == ClusterBeingDeleted("c", "replace a node of")


# -- delete -------------------------------------------------------------------------------------


def test_delete_frees_everything() -> None:
    region = ClusterRegion()
    before = region.view.state()
    assert region.create(workers(10), masters(3), ratio=2) is None
    region.carry_all_out()
    assert region.delete() is None
    assert region.status() == "deleting"
    assert region.delete() is None
    assert region.scale({"workers": 1}) == ClusterBeingDeleted("c", "scale")
    region.settle()
    _nothing_is_left(region, before)


def test_delete_waits_for_what_is_being_built() -> None:
    region = ClusterRegion()
    before = region.view.state()
    assert region.create(workers(3)) is None
    assert region.delete() is None
    assert not region.step()
    region.settle()
    _nothing_is_left(region, before)


def test_a_deletion_that_failed_is_tried_again() -> None:
    region = ClusterRegion()
    before = region.view.state()
    assert region.create(workers(3)) is None
    region.carry_all_out()
    assert region.delete() is None
    assert region.step()
    region.carry_all_out(Faults(fails=("destroy",)))
    assert not region.step()
    region.now_s += DELETE_AGAIN_S
    region.settle()
    _nothing_is_left(region, before)


@pytest.mark.parametrize("crash_after", range(6))
def test_a_deletion_goes_on_wherever_it_was_stopped(crash_after: int) -> None:
    """A reconciler has no memory: what comes after a crash is a step from the records, as any other."""
    region = ClusterRegion()
    before = region.view.state()
    assert region.create(workers(4), ratio=2) is None
    region.carry_all_out()
    assert region.replace("workers-0", force=True) is None
    for _ in range(crash_after):
        if not region.step():
            region.carry_all_out()
    assert region.delete() is None
    region.settle()
    _nothing_is_left(region, before)


def test_a_group_is_deleted_though_others_have_joined_it() -> None:
    region = ClusterRegion()
    assert region.create(workers(2), ratio=2) is None
    region.carry_all_out()
    first, _ = region.cluster().groups
    region.run("create", "stranger", group=first)
    assert region.delete() is None
    region.settle()
    assert not region.view.groups.records
    assert [server.id for server in region.view.records.all(Server)] == ["stranger"]
    # It is in no group any more, and can be moved.
    assert region.server("stranger").group is None
    region.run("live_migrate", "stranger")


def test_a_clusters_groups_are_its_own() -> None:
    region = ClusterRegion()
    assert region.create(workers(2), ratio=2) is None
    region.carry_all_out()
    cluster = region.cluster()
    group, node = GroupId(cluster.groups[0]), ConsumerId(cluster.nodes[0].server)
    for command in (
        c.DeleteGroup(group, force=True),
        c.DeleteGroup(group, force=True, cluster="another"),
        c.ChangeGroup(group, policy="soft-anti-affinity"),
        c.ChangeMembers(group, (), (node,)),
    ):
        assert decide(region.view, command, NOW_S) == GroupOfCluster(group, cluster.id), command
    assert not isinstance(decide(region.view, c.ChangeGroup(group, name="other"), NOW_S), Rejection)


@pytest.mark.parametrize("counts", [{"b": 1, "a": 0}, {"a": 0, "b": 1}])
def test_whoever_leaves_is_chosen_for_all_node_groups_together(counts: dict[str, int]) -> None:
    region = ClusterRegion()
    assert region.create(workers(1, "a"), workers(2, "b"), workers(1, "z"), ratio=2) is None
    region.carry_all_out()
    assert region.scale(counts) is None
    staying = Counter(node.group for node in region.cluster().nodes if node.state == "wanted")
    assert sorted(staying.values()) == [1, 1]


def test_of_equal_nodes_one_that_has_failed_leaves() -> None:
    region = ClusterRegion()
    assert region.create(workers(3), ratio=3) is None
    region.carry_all_out()
    first = region.cluster().nodes[0]
    server = region.server(first.server)
    region.do(c.Enact((RecordChanged(server, msgspec.structs.replace(server, state="error")),)))
    assert region.scale({"workers": 2}) is None
    assert [node.name for node in region.cluster().nodes if node.state == "leaving"] == [first.name]


def test_a_cluster_is_not_written_down_for_each_node_that_goes() -> None:
    region = ClusterRegion()
    assert region.create(workers(10), ratio=2) is None
    region.carry_all_out()
    assert region.delete() is None
    assert region.step()
    written = 0
    while region.carry_all_out(most=1):
        before = region.cluster()
        region.step()
        written += region.view.records.get(Cluster, "c") != before
    assert written <= 5
    region.settle()
    assert region.view.records.get(Cluster, "c") is None


def _nothing_is_left(region: ClusterRegion, before: dict[str, object]) -> None:
    assert not region.view.consumers
    assert not region.view.groups.records
    assert examine(region.view, region.now_s) == ()
    records = region.view.state()["records"]
    assert isinstance(records, dict)
    # Administrators may look at deleted servers for a while.
    assert {kind: found for kind, found in records.items() if kind != "DeletedServer"} == before["records"]


# -- commands that depend on each other ---------------------------------------------------------


def test_a_change_may_claim_into_a_group_that_it_makes() -> None:
    region = ClusterRegion()
    group = Group("g", "anti-affinity", "host", 1, None, "project", "user", 0)
    claim = c.Claim(
        ConsumerId("a"), ((host_id(1), (("VCPU", 1),)),), "project", "user", None, None, GroupId("g")
    )
    other = msgspec.structs.replace(claim, consumer=ConsumerId("b"))
    make = c.CreateGroup(GroupId("g"), group)
    before = region.view.state()
    refused = decide(
        region.view, c.Enact((), (make, c.ReplaceAllocations((claim,)), c.ReplaceAllocations((other,)))), 0
    )
    assert type(refused).__name__ == "GroupPolicyBroken"
    assert decide(region.view, c.Enact((), (make, make)), 0) == GroupExists(GroupId("g"))
    assert region.view.state() == before
    region.do(c.Enact((), (make, c.ReplaceAllocations((claim,)))))
    assert region.hosts_of("a") == ["host-1"]

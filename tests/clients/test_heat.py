"""Heat's own engine on the templates of ``berth cluster template``: sound, and every server in the group that
Berth would deal it to."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.api.compute.servers.fields import FIELDS
from berth.api.native.cluster_bodies import NewCluster
from berth.cli import main
from berth.cli.heat_template import write
from tests.package_folders import PackagesMissing, package_folder
from tests.warm_start import WarmCommand, WarmStart

pytestmark = pytest.mark.clients

CLUSTER = {
    "name": "hadoop",
    "anti_affinity": ["datanode"],
    "anti_affinity_ratio": 2,
    "node_groups": [
        {
            "name": "data",
            "flavor": "small",
            "image": "cirros",
            "count": 5,
            "processes": ["datanode", "worker"],
        },
        {"name": "master", "flavor": "large", "image": "cirros", "count": 1, "processes": ["namenode"]},
        {"name": "more", "flavor": "large", "image": "cirros", "count": 3, "processes": ["datanode"]},
    ],
}


@pytest.fixture(scope="module")
def heat() -> Iterator[WarmCommand]:
    try:
        folder = package_folder("heat")
    except PackagesMissing as missing:
        pytest.skip(str(missing))
    env = {**os.environ, "PYTHONPATH": str(folder)}
    # Heat's own warnings are none of ours.
    program = WarmStart("tests.clients.heat_stack", options=["-W", "ignore"], env=env)
    with contextlib.closing(program):
        yield WarmCommand(program, "tests.clients.heat_stack:main")


def read_by_heat(heat: WarmCommand, folder: Path, name: str, **parameters: str) -> Any:
    done = heat.run([str(folder), name, json.dumps(parameters)], os.environ, timeout_s=120)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def resources(made: Any, node_group: str) -> list[Any]:
    """The servers of a node group, by their index."""
    group = made["resources"][f"nodes_{node_group}"]
    assert sorted(group, key=int) == [str(number) for number in range(len(group))]
    found = [group[str(number)]["server"] for number in range(len(group))]
    assert {server["type"] for server in found} <= {"OS::Nova::Server"}
    return found


def servers(made: Any, node_group: str) -> list[Any]:
    return [server["properties"] for server in resources(made, node_group)]


def test_what_heat_makes_of_a_cluster(heat: WarmCommand, tmp_path: Path) -> None:
    write(msgspec.convert(CLUSTER, NewCluster), tmp_path, overwrite=False)
    made = read_by_heat(heat, tmp_path, "hadoop.yaml", network="net")
    for number in (1, 2):
        group = made["resources"][f"server_group_{number}"]
        assert group["type"] == "OS::Nova::ServerGroup"
        assert group["properties"] == {"name": f"hadoop-{number}", "policies": ["anti-affinity"]}
    one, two = "server_group_1", "server_group_2"
    data, more, (master,) = servers(made, "data"), servers(made, "more"), servers(made, "master")
    assert [server["scheduler_hints"]["group"] for server in data] == [one, two, one, two, one]
    assert [server["scheduler_hints"]["group"] for server in more] == [two, one, two]
    assert "scheduler_hints" not in master
    assert [server["name"] for server in data] == [f"hadoop-data-{number}" for number in range(5)]
    assert (master["name"], master["flavor"], master["image"]) == ("hadoop-master-0", "large", "cirros")
    assert {server["networks"][0]["network"] for server in (*data, *more, master)} == {"net"}
    assert made["outputs"] == ["servers_data", "servers_master", "servers_more"]


def test_berths_own_compute_api_takes_the_servers_of_a_template(heat: WarmCommand, tmp_path: Path) -> None:
    write(msgspec.convert(CLUSTER, NewCluster), tmp_path, overwrite=False)
    made = read_by_heat(heat, tmp_path, "hadoop.yaml")
    found = [one for group in ("data", "master", "more") for one in resources(made, group)]
    assert [server["nics"] for server in found] == ["auto"] * 9
    assert "auto" in FIELDS["create"]["networks"].harmless


def test_a_node_group_without_nodes_and_a_cluster_without_anti_affinity(
    heat: WarmCommand, tmp_path: Path
) -> None:
    cluster = {
        "name": "plain",
        "node_groups": [
            {"name": "a", "flavor": "small", "image": "cirros", "count": 2},
            {"name": "b", "flavor": "small", "image": "cirros", "count": 0},
        ],
    }
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"cluster": cluster}))
    assert main(["cluster", "template", str(file), "--output", str(tmp_path)]) == 0
    made = read_by_heat(heat, tmp_path, "plain.yaml")
    assert [server["name"] for server in servers(made, "a")] == ["plain-a-0", "plain-a-1"]
    assert servers(made, "b") == []
    assert set(made["resources"]) == {"nodes_a", "nodes_b"}


def test_heat_would_refuse_what_is_wrong(heat: WarmCommand, tmp_path: Path) -> None:
    """So that a reader which reads everything is noticed."""
    write(msgspec.convert(CLUSTER, NewCluster), tmp_path, overwrite=False)
    node = tmp_path / "hadoop-apart-node.yaml"
    for right, wrong in (
        ("scheduler_hints", "scheduler_hint"),
        ("get_param: flavor", "get_param: flavour"),
        ("OS::Nova::Server", "OS::Nova::Servant"),
        ("comma_delimited_list", "list"),
    ):
        text = node.read_text()
        assert right in text
        node.write_text(text.replace(right, wrong))
        with pytest.raises(AssertionError, match=r"heat/(engine|common)/"):
            read_by_heat(heat, tmp_path, "hadoop.yaml")
        node.write_text(text)

"""Clusters as Heat templates: sound, distributed as by Berth, refused where stock OpenStack could not."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from berth.api.native.cluster_bodies import NewCluster
from berth.cli.command import CommandError
from berth.cli.heat_template import templates, write
from berth.clusters.distribution import add_nodes
from berth.model.clusters import Cluster, NodeGroup
from berth.model.servers import Flavor
from berth.runtime.ids import Ids
from tests.unit.templates.hot import faults

pytestmark = pytest.mark.fast


def node_group(name: str, count: int, *processes: str) -> dict[str, Any]:
    return {"name": name, "flavor": "small", "image": "cirros", "count": count, "processes": processes}


def cluster(*groups: dict[str, Any], ratio: int = 2, **fields: Any) -> NewCluster:
    given = {
        "name": "c",
        "anti_affinity": ["d"],
        "anti_affinity_ratio": ratio,
        "node_groups": groups,
        **fields,
    }
    return msgspec.convert(given, NewCluster)


def read(asked: NewCluster) -> dict[str, Any]:
    return {name: yaml.safe_load(text) for name, text in templates(asked).items()}


def names_of(main: Any, name: str) -> list[str]:
    """``SERVER_GROUP_NAMES`` of a node group."""
    properties = main["resources"][f"nodes_{name}"]["properties"]["resource_def"]["properties"]
    return [entry["get_resource"] for entry in properties["SERVER_GROUP_NAMES"]]


def test_the_templates_are_sound() -> None:
    made = read(cluster(node_group("data", 5, "d"), node_group("master", 1, "m")))
    assert list(made) == ["c.yaml", "c-apart-node.yaml", "c-node.yaml"]
    assert faults(made) == []
    assert names_of(made["c.yaml"], "data") == [f"server_group_{number}" for number in (1, 2, 1, 2, 1)]
    assert made["c.yaml"]["resources"]["server_group_2"]["properties"]["policies"] == ["anti-affinity"]
    hint = made["c-apart-node.yaml"]["resources"]["server"]["properties"]["scheduler_hints"]
    assert hint == {"group": {"get_param": ["SERVER_GROUP_NAMES", {"get_param": "instance_index"}]}}
    assert "scheduler_hints" not in made["c-node.yaml"]["resources"]["server"]["properties"]


def test_what_is_not_sound_is_found() -> None:
    made = read(cluster(node_group("data", 2, "d")))
    node = made["c-apart-node.yaml"]
    node["resources"]["server"]["properties"]["flavor"] = {"get_param": "flavour"}
    node["resources"]["server"]["properties"]["colour"] = "red"
    node["conditions"] = {"other": node["conditions"].pop("names_no_network")}
    del made["c.yaml"]["resources"]["server_group_2"]
    del made["c.yaml"]["resources"]["nodes_data"]["properties"]["resource_def"]["properties"]["image"]
    found = "\n".join(faults(made))
    assert "get_param of flavour" in found
    assert "unknown property colour" in found
    assert "if of names_no_network" in found
    assert "get_resource of server_group_2" in found
    assert "is given" in found


counts = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=5)


@given(sizes=counts, ratio=st.integers(1, 5))
def test_nodes_are_dealt_as_berth_deals_them(sizes: list[tuple[int, bool]], ratio: int) -> None:
    groups = [
        node_group(f"g{number}", count, *(["d"] if is_apart else []))
        for number, (count, is_apart) in enumerate(sizes)
    ]
    groups.append(node_group("last", 1, "d"))
    asked = cluster(*groups, ratio=ratio)
    made = read(asked)
    assert faults(made) == []
    ours = _dealt(asked)
    for group in asked.node_groups:
        resource = made["c.yaml"]["resources"][f"nodes_{group.name}"]["properties"]
        assert resource["count"] == group.count
        if "d" in group.processes:
            assert names_of(made["c.yaml"], group.name) == ours[group.name]
        else:
            assert "SERVER_GROUP_NAMES" not in resource["resource_def"]["properties"]


def _dealt(asked: NewCluster) -> dict[str, list[str | None]]:
    """The server groups of the nodes of each node group, as Berth deals them."""
    flavor = Flavor(id="1", name="small", vcpus=1, memory_mb=1)
    whole = Cluster(
        id="c",
        name="c",
        project="p",
        user="u",
        anti_affinity=asked.anti_affinity,
        ratio=asked.ratio,
        groups=tuple(f"server_group_{number}" for number in range(1, asked.ratio + 1)),
        node_groups=tuple(
            NodeGroup(name=group.name, flavor=flavor, processes=group.processes)
            for group in asked.node_groups
        ),
    )
    ids = Ids(seed=1)
    for group in asked.node_groups:
        whole = add_nodes(whole, group.name, group.count, ids.uuid)
    found: dict[str, list[str | None]] = {group.name: [] for group in asked.node_groups}
    for node in whole.nodes:
        found[node.node_group].append(node.group)
    return found


VGPU_NEED = {"name": "n", "resources": {"VGPU": 1}}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (cluster(node_group("a", 1, "d"), anti_affinity_domain="rack"), "anti_affinity_domain is rack"),
        (cluster(node_group("a", 1, "d") | {"needs": [VGPU_NEED]}), "a has needs"),
        (cluster({"name": "a", "flavor": "f", "count": 1, "processes": ["d"]}), "a names no image"),
    ],
)
def test_what_a_stock_openstack_cannot_do(asked: NewCluster, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        templates(asked)


def test_files_are_left_alone_unless_it_is_forced(tmp_path: Path) -> None:
    asked = cluster(node_group("a", 1, "d"))
    written = write(asked, tmp_path / "new", overwrite=False)
    assert [path.name for path in written.files] == ["c.yaml", "c-apart-node.yaml"]
    assert written.command == f"openstack stack create --template {written.files[0]} c"
    written.files[1].write_text("mine")
    with pytest.raises(CommandError, match=r"c\.yaml is there already"):
        write(asked, tmp_path / "new", overwrite=False)
    assert written.files[1].read_text() == "mine"
    write(asked, tmp_path / "new", overwrite=True)
    assert written.files[1].read_text() != "mine"
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(CommandError, match="cannot be written"):
        write(asked, blocked, overwrite=False)

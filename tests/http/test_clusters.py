"""The guide to clusters, followed by a newcomer with a running ``berth up``: racks, a cluster, two racks that
burn, replacements, more nodes and fewer, and nothing left in the end."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.clouds import Cloud, cloud_running
from tests.servers import ROOT
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.http

URL = "http://127.0.0.1:8778"
GUIDE = ROOT / "docs" / "guides" / "clusters.md"
STEPS = (
    *("fleet", "racks", "create", "too many", "break", "replace", "replace more", "scale", "ratio", "delete"),
    "template",
)


def blocks() -> dict[str, str]:
    found = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    return dict(zip(STEPS, found, strict=True))


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("clusters")
    cloud = Cloud(directory)
    cloud.shell(blocks()["fleet"])
    options = "--cells 2 --build-seconds 0.2 --heartbeat-timeout 1 --seed 3 --log-level info"
    with cloud_running(directory, "--fleet", str(directory / "fleet.toml"), *options.split()) as cloud:
        yield cloud
        assert cloud.stop(WITHIN_S) == 0, cloud.everything
    assert '"ERROR"' not in cloud.everything


def follow(cloud: Cloud, step: str) -> str:
    # What did not work is said too, beside what did.
    return cloud.shell("exec 2>&1\n" + blocks()[step].replace(URL, cloud.url))


def clusters(cloud: Cloud) -> list[Any]:
    """All clusters, with their nodes."""
    token = json.loads((cloud.data / "secrets.json").read_text())["admin"]

    def get(path: str) -> Any:
        with urlopen(Request(f"{cloud.url}{path}", headers={"x-auth-token": token}), timeout=30) as answer:
            return json.load(answer)

    found = get("/berth/v1/clusters")["clusters"]
    return [get(f"/berth/v1/clusters/{one['uuid']}")["cluster"] for one in found]


def the_cluster(cloud: Cloud) -> Any:
    (one,) = clusters(cloud)
    return one


def racks_of_voters(cloud: Cloud) -> dict[str, str]:
    return {
        node["name"]: node["host_name"].partition("-")[0]
        for node in the_cluster(cloud)["nodes"]
        if node["node_group"] == "voters"
    }


def test_the_guide_can_be_followed(cloud: Cloud, tmp_path: Path) -> None:
    follow(cloud, "racks")
    printed = follow(cloud, "create")
    assert "active: 7 of 7 nodes ready" in printed
    before = racks_of_voters(cloud)
    assert len(set(before.values())) == 5

    printed = follow(cloud, "too many")
    assert "409: The cluster eight does not fit" in printed
    assert "A ratio of 2 would fit." in printed
    assert printed.endswith("refused\n")
    assert len(clusters(cloud)) == 1

    burnt = {before["voters-0"], before["voters-1"]}
    assert len(re.findall(r"is broken", follow(cloud, "break"))) == 4
    assert re.search(r"(active: 7|degraded: [56]) of 7 nodes ready", follow(cloud, "replace"))
    assert "active: 7 of 7 nodes ready" in follow(cloud, "replace more")
    after = racks_of_voters(cloud)
    assert len(set(after.values())) == 5
    assert not set(after.values()) & burnt
    assert {name: after[name] for name in ("voters-2", "voters-3", "voters-4")} == {
        name: before[name] for name in ("voters-2", "voters-3", "voters-4")
    }
    assert {node["status"] for node in the_cluster(cloud)["nodes"] if node["node_group"] == "voters"} == {
        "ACTIVE"
    }

    printed = follow(cloud, "scale")
    assert "refused\n" in printed
    assert "active: 9 of 9 nodes ready" in printed
    assert "active: 4 of 4 nodes ready" in printed
    shown = the_cluster(cloud)
    assert (shown["state"], len(shown["nodes"])) == ("active", 4)
    assert len(set(racks_of_voters(cloud).values())) == 3

    printed = follow(cloud, "ratio")
    words = "This cluster was created with 1 ratio, but now the ratio is 2. You will need to recreate"
    assert f"409: {words}\nrefused\n" in printed
    assert the_cluster(cloud) == shown

    printed = follow(cloud, "delete")
    assert "\ndeleted\n" in printed
    assert printed.endswith("nothing is wrong\n")
    assert clusters(cloud) == []

    assert "templates/hadoop.yaml" in follow(cloud, "template")
    assert (cloud.directory / "templates" / "hadoop-apart-node.yaml").exists()

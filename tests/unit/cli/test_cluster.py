"""``berth cluster``, against a region whose clusters come on with every look at them."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from berth.api.native.cluster_bodies import CreateCluster, ReplaceNode, ScaleCluster
from berth.cli import cluster as cluster_command
from berth.cli import main
from berth.cli.cluster import watch
from berth.cli.command import CommandError
from berth.client import Client, ClientError
from tests.clocks import FakeClock

pytestmark = pytest.mark.fast

PATH = "/berth/v1/clusters"
ID = "c0000000-0000-4000-8000-00000000000{}"
BODY = {
    "cluster": {
        "name": "db",
        "anti_affinity": ["voter"],
        "anti_affinity_ratio": 2,
        "node_groups": [
            {"name": "voters", "flavor": "small", "image": "cirros", "count": 3, "processes": ["voter"]}
        ],
    }
}
TOML = """
[cluster]
name = "db"
anti_affinity = ["voter"]
anti_affinity_ratio = 2

[[cluster.node_groups]]
name = "voters"
flavor = "small"
image = "cirros"
count = 3
processes = ["voter"]
"""
FLAGS = [
    "--name=db",
    "--anti-affinity=voter",
    "--ratio=2",
    "--node-group=name=voters,flavor=small,image=cirros,count=3,process=voter",
]


class RegionStub(ThreadingHTTPServer):
    """A region. ``coming``: what a cluster's looks say one after the other; None: it is gone."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Gate)
        self.clusters: dict[str, Any] = {}
        self.coming: list[Any] = []
        self.asked: list[tuple[str, str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, number: int, name: str = "db", **fields: Any) -> Any:
        made = shown(ID.format(number), name, **fields)
        self.clusters[made["uuid"]] = made
        return made

    def look(self, id: str) -> Any:
        if self.coming:
            found = self.coming.pop(0)
            if found is None:
                self.clusters.pop(id, None)
            elif isinstance(found, int):
                return found
            else:
                self.clusters[id] = {**self.clusters[id], **found}
        return self.clusters.get(id, 404)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.asked.append((method, path, body))
        parts = urlsplit(path)
        id = parts.path.removeprefix(PATH).strip("/").partition("/")[0]
        if method == "GET" and not id:
            name = parse_qs(parts.query).get("name", [None])[0]
            found = [one for one in self.clusters.values() if name in (None, one["name"])]
            return 200, {"clusters": found, "next": None}
        one = self.look(id) if id else self.add(1)
        if isinstance(one, int):
            return one, {"errors": [{"detail": f"There is no cluster {id}."}]}
        return 200 if method == "GET" else 202, {"cluster": one}


class _Gate(BaseHTTPRequestHandler):
    server: RegionStub
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        assert self.headers["x-auth-token"] == "secret"
        status, content = self.server.answer(self.command, self.path, body)
        sent = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


def shown(id: str, name: str, state: str = "building", ready: int = 0, **fields: Any) -> Any:
    return {
        "uuid": id,
        "name": name,
        "state": state,
        "progress": progress(ready),
        "anti_affinity": ["voter"],
        "anti_affinity_ratio": 2,
        "anti_affinity_domain": "host",
        "fault": None,
        "groups": ["g1", "g2"],
        "nodes": [node(number) for number in range(3)],
        **fields,
    }


def node(number: int, **fields: Any) -> Any:
    return {
        "name": f"voters-{number}",
        "state": "wanted",
        "status": "ACTIVE",
        "host_name": f"host-{number}",
        "host_id": "abcdef0123456789",
        "host_down": False,
        "group_uuid": f"g{number % 2 + 1}",
        "server_uuid": f"s{number}",
        "fault": None,
        **fields,
    }


def progress(ready: int, wanted: int = 3, leaving: int = 0) -> dict[str, int]:
    return {"ready": ready, "wanted": wanted, "leaving": leaving}


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegionStub]:
    monkeypatch.setenv("BERTH_TOKEN", "secret")
    monkeypatch.setattr(cluster_command, "PAUSE_S", 0)
    with RegionStub() as region:
        thread = threading.Thread(target=region.serve_forever, args=(0.02,))
        thread.start()
        yield region
        region.shutdown()
        thread.join()


def cluster(region: RegionStub, *words: str) -> int:
    return main(["cluster", *words, "--url", region.url])


def sent(region: RegionStub) -> Any:
    """The body of the request that changed something."""
    (body,) = (body for method, _, body in region.asked if method == "POST")
    return body


# -- create -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["toml", "json", "flags"])
def test_create_from_a_file_or_from_flags(
    region: RegionStub, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    file = tmp_path / f"cluster.{form}"
    file.write_text(TOML if form == "toml" else json.dumps(BODY))
    assert cluster(region, "create", *(FLAGS if form == "flags" else [str(file)])) == 0
    assert region.asked == [("POST", PATH, BODY)]
    assert capsys.readouterr().out == f"{ID.format(1)}  db\nbuilding: 0 of 3 nodes ready\n"


def test_create_waits_until_the_cluster_is_active(
    region: RegionStub, capsys: pytest.CaptureFixture[str]
) -> None:
    region.coming = [
        {},
        {"progress": progress(1)},
        {"progress": progress(1)},
        {"state": "active", "progress": progress(3)},
    ]
    assert cluster(region, "create", *FLAGS, "--wait") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [
        "building: 0 of 3 nodes ready",
        "building: 1 of 3 nodes ready",
        "active: 3 of 3 nodes ready",
    ]
    assert lines[-1].split() == ["voters-2", "ACTIVE", "host-2", "1", "s2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cluster", "this is not TOML"),
        ("{", "this is not JSON"),
        ("[cluster]\nname = 'a'\n", "missing required field `node_groups`"),
        (TOML.replace('["voter"]\nanti', "[]\nanti"), "anti_affinity_ratio is given without anti_affinity"),
        (TOML.replace("count = 3", "count = -1"), ">= 0"),
        (TOML + 'color = "red"\n', "color"),
    ],
)
def test_a_file_that_is_wrong_is_not_sent(
    region: RegionStub, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    assert cluster(region, "create", str(file)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"berth: {file}: ")
    assert words in said
    assert region.asked == []


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["nowhere.toml"], "nowhere.toml cannot be read: No such file or directory"),
        (["nowhere.toml", "--name=x"], "nowhere.toml: a file describes all of it"),
        ([], "the options: Object missing required field `name`"),
        (["--name=x"], "missing required field `node_groups`"),
        (["--name=x", "--node-group=name=a,flavor=f"], "missing required field `count`"),
    ],
)
def test_options_that_are_refused(
    region: RegionStub, capsys: pytest.CaptureFixture[str], words: list[str], refusal: str
) -> None:
    assert cluster(region, "create", *words) == 2
    assert refusal in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["create", "--node-group=colour=red"], "'colour=red' is refused"),
        (["create", "--node-group=name=a,name=b"], "name is given more than once"),
        (["create", "--node-group=count=1001"], "'1001' is not a whole number from 0 to 1000"),
        (["create", "--ratio=0"], "'0' is not a whole number from 1 to 100"),
        (["scale", "db", "voters"], "NODE_GROUP=COUNT is expected"),
        (["scale", "db", "voters=x"], "'x' is not a whole number"),
        (["show", "db", "--watch", "--timeout=0"], "'0' is not a number of seconds"),
    ],
)
def test_words_that_are_not_understood(
    capsys: pytest.CaptureFixture[str], words: list[str], refusal: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", *words])
    assert ended.value.code == 2
    assert refusal in capsys.readouterr().err


# -- list and show ------------------------------------------------------------------------------


def test_list_shows_clusters_as_a_table(region: RegionStub, capsys: pytest.CaptureFixture[str]) -> None:
    region.add(1, state="active", ready=3)
    region.add(2, "other", anti_affinity=[])
    assert cluster(region, "list") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["NAME", "STATE", "READY", "RATIO", "ID"]
    assert rows[1] == ["db", "active", "3/3", "2", "per", "host", ID.format(1)]
    assert rows[2][-2] == "-"
    assert cluster(region, "list", "--json") == 0
    clusters = json.loads(capsys.readouterr().out)["clusters"]
    assert [one["uuid"] for one in clusters] == [ID.format(1), ID.format(2)]


@pytest.mark.parametrize("named", ["db", ID.format(1)])
def test_a_cluster_is_shown_by_its_id_or_its_name(
    region: RegionStub, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    nodes = [node(0, host_name=None, fault="no more loop devices", status="ERROR"), node(1, state="leaving")]
    region.add(1, nodes=nodes, progress=progress(0, 1, 1), state="scaling", fault="x")
    assert cluster(region, "show", named) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{ID.format(1)}  db  2 per host"
    assert lines[1] == "scaling: 0 of 1 node ready, 1 leaving; x"
    assert lines[-2].split(maxsplit=5) == ["voters-0", "ERROR", "abcdef01", "1", "s0", "no more loop devices"]
    assert lines[-1].split() == ["voters-1", "ACTIVE", "host-1", "2", "s1", "leaving"]


def test_unknown_and_ambiguous_names_are_refused(
    region: RegionStub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster(region, "show", "db") == 2
    assert "There is no cluster db." in capsys.readouterr().err
    region.add(1)
    region.add(2)
    assert cluster(region, "delete", "db") == 2
    assert f"several clusters are called db: name one by its id, {ID.format(1)}, {ID.format(2)}" in (
        capsys.readouterr().err
    )
    assert {method for method, _, _ in region.asked} == {"GET"}


def test_watching_ends_when_it_is_settled(region: RegionStub, capsys: pytest.CaptureFixture[str]) -> None:
    region.add(1)
    region.coming = [{}, 503, {"state": "error", "progress": progress(2)}]
    assert cluster(region, "show", "db", "--watch") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["building: 0 of 3 nodes ready", "error: 2 of 3 nodes ready"]
    region.coming = [401]
    assert cluster(region, "show", "db", "--watch") == 2


async def test_a_wait_has_a_deadline(region: RegionStub) -> None:
    region.add(1)
    clock = FakeClock()

    async def pause(seconds: float) -> None:
        clock.advance(4)

    async def wait() -> None:
        client = Client(region.url, {"x-auth-token": "secret"})
        try:
            await watch(client, f"{PATH}/{ID.format(1)}", 10, clock, pause)
        finally:
            await client.close()

    with pytest.raises(
        CommandError, match="after 10 seconds the cluster is not settled; it is building: 0 of 3"
    ):
        await wait()
    assert len(region.asked) == 4
    region.coming = [503] * 10
    with pytest.raises(ClientError, match="503"):
        await wait()


# -- changes ------------------------------------------------------------------------------------


def test_scale_sends_the_counts(
    region: RegionStub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    region.add(1)
    file = tmp_path / "more.toml"
    file.write_text('[[node_groups]]\nname = "more"\nflavor = "small"\ncount = 2\nprocesses = ["voter"]\n')
    words = ["voters=5", "others=0", "--add", str(file), "--remove=old", "--ratio=2"]
    assert cluster(region, "scale", "db", *words) == 0
    assert sent(region) == {
        "counts": {"voters": 5, "others": 0},
        "add": [{"name": "more", "flavor": "small", "count": 2, "processes": ["voter"]}],
        "remove": ["old"],
        "anti_affinity_ratio": 2,
    }
    assert region.asked[-1][1] == f"{PATH}/{ID.format(1)}/scale"
    assert cluster(region, "scale", "db", "voters=5", "voters=6") == 2
    assert "a node group is given two counts" in capsys.readouterr().err


def test_replace_sends_the_node(region: RegionStub) -> None:
    region.add(1)
    assert cluster(region, "replace", "db", "voters-1") == 0
    assert region.asked[-1] == ("POST", f"{PATH}/{ID.format(1)}/nodes/voters-1/replace", {"force": False})
    assert cluster(region, "replace", "db", "b c?", "--force") == 0
    assert region.asked[-1] == ("POST", f"{PATH}/{ID.format(1)}/nodes/b%20c%3F/replace", {"force": True})


def test_delete_waits_until_the_cluster_is_gone(
    region: RegionStub, capsys: pytest.CaptureFixture[str]
) -> None:
    region.add(1, state="active", ready=3)
    region.coming = [
        {"state": "deleting", "progress": progress(0, 0, 3)},
        {"progress": progress(0, 0, 1)},
        None,
    ]
    assert cluster(region, "delete", "db", "--wait") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["deleting: 0 of 0 nodes ready, 1 leaving", "deleted"]


def test_what_is_sent_is_what_the_api_takes(region: RegionStub, tmp_path: Path) -> None:
    cluster(region, "create", *FLAGS)
    cluster(region, "scale", "db", "voters=5")
    cluster(region, "replace", "db", "voters-0")
    kinds = (CreateCluster, ScaleCluster, ReplaceNode)
    bodies = [body for method, _, body in region.asked if method == "POST"]
    for body, kind in zip(bodies, kinds, strict=True):
        msgspec.convert(body, kind)


def test_a_command_without_a_token_is_refused(
    region: RegionStub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BERTH_TOKEN")
    assert cluster(region, "list") == 2
    assert f"no user is named for {region.url}. Give one of: --os-cloud" in capsys.readouterr().err


# -- templates ----------------------------------------------------------------------------------


def test_templates_need_no_region(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(TOML)
    words = ["cluster", "template", str(file), "--output", str(tmp_path)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    for name in ("db.yaml", "db-apart-node.yaml"):
        assert (tmp_path / name).exists()
        assert str(tmp_path / name) in printed
    assert main(words) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0

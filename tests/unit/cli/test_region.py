"""Which region a command asks, and as whom: folders, clouds, variables and tokens."""

import argparse
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from berth.cli import main
from berth.cli.command import CommandError
from berth.cli.folder import Folder, Running
from berth.cli.region import add_region, connect
from tests.keystone import PASSWORD, REFUSED, FakeKeystone, running

PREFIX = "/of/berth"


class RegionServer(ThreadingHTTPServer):
    """A region below a path, with no clusters. It notes what it is asked, and with which token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _RegionHandler)
        self.asked: list[tuple[str, str]] = []
        self.statuses: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{PREFIX}"


class _RegionHandler(BaseHTTPRequestHandler):
    server: RegionServer

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["x-auth-token"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        content = json.dumps({"clusters": [], "next": None} if status == 200 else {}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegionServer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("BERTH_TOKEN", "BERTH_URL", "OS_CLOUD", "OS_AUTH_URL"):
        monkeypatch.delenv(variable, raising=False)
    with RegionServer() as region:
        thread = threading.Thread(target=region.serve_forever, args=(0.01,))
        thread.start()
        yield region
        region.shutdown()
        thread.join()


@pytest.fixture
def keystone(region: RegionServer) -> Iterator[FakeKeystone]:
    with running() as keystone:
        keystone.endpoints = {"placement": region.url, "compute": "http://127.0.0.1:1/v2.1"}
        yield keystone


def write_clouds(path: Path, keystone: FakeKeystone, **more: object) -> None:
    auth = {"auth_url": f"{keystone.url}/v3", "username": "op", "project_name": "admin"}
    auth |= {"user_domain_name": "Default", "project_domain_name": "Default"}
    cloud = {"auth": auth, "region_name": "RegionOne", "compute_api_version": "2.1", **more}
    (path / "clouds.yaml").write_text(json.dumps({"clouds": {"one": cloud}}))
    secret = {"clouds": {"one": {"auth": {"password": PASSWORD}}}}
    (path / "secure.yaml").write_text(json.dumps(secret))


def ask(*words: str) -> int:
    return main(["cluster", "list", *words])


def test_a_cloud_of_clouds_yaml(region: RegionServer, keystone: FakeKeystone, tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "openstack"
    folder.mkdir(parents=True)
    write_clouds(folder, keystone)
    assert ask("--os-cloud", "one") == 0
    assert region.asked == [(f"{PREFIX}/berth/v1/clusters", "service-token-2")]
    [*_, body] = keystone.bodies
    assert body["auth"]["scope"]["project"]["name"] == "admin"


def test_a_cloud_named_by_a_variable(
    region: RegionServer, keystone: FakeKeystone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_clouds(tmp_path, keystone)
    monkeypatch.setenv("OS_CLOUD", "one")
    assert ask() == 0
    assert len(region.asked) == 1


def test_variables_describe_a_cloud(
    region: RegionServer, keystone: FakeKeystone, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "AUTH_URL": f"{keystone.url}/v3",
        "USERNAME": "op",
        "PASSWORD": PASSWORD,
        "PROJECT_NAME": "admin",
        "USER_DOMAIN_NAME": "Default",
        "PROJECT_DOMAIN_NAME": "Default",
        "IDENTITY_API_VERSION": "3",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"OS_{name}", value)
    assert ask() == 0
    assert region.asked[0][0] == f"{PREFIX}/berth/v1/clusters"


def test_an_application_credential(
    region: RegionServer, keystone: FakeKeystone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = {
        "auth_url": f"{keystone.url}/v3",
        "application_credential_id": "abc",
        "application_credential_secret": PASSWORD,
    }
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"clouds": {"app": {"auth": auth}}}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    assert ask("--os-cloud", "app") == 0
    assert keystone.bodies[0]["auth"]["identity"]["methods"] == ["application_credential"]


def test_a_token_and_an_address_with_a_path(
    region: RegionServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BERTH_TOKEN", "secret")
    assert ask("--url", region.url + "/") == 0
    monkeypatch.setenv("BERTH_URL", region.url)
    assert ask() == 0
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("other\n")
    assert ask("--token-file", str(file)) == 0
    path = f"{PREFIX}/berth/v1/clusters"
    assert region.asked == [(path, "secret"), (path, "secret"), (path, "other")]


def test_the_folder_of_an_up(region: RegionServer, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    secrets = folder.prepare()
    folder.note(Running(url=region.url, cells=("cell1",), hosts=()), secrets)
    assert ask("--data", "data") == 0
    assert ask() == 0, "it is in the current folder, under its usual name"
    assert {token for _, token in region.asked} == {secrets.admin}


def test_a_read_is_repeated_while_the_region_is_unavailable(
    region: RegionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTH_TOKEN", "secret")
    region.statuses = [503, 502]
    assert ask("--url", region.url) == 0
    assert len(region.asked) == 3


# -- refusals -----------------------------------------------------------------------------------


def refuse(*words: str, **environ: str) -> str:
    command = argparse.ArgumentParser()
    add_region(command)
    with pytest.raises(CommandError) as caught:
        connect(command.parse_args(words), environ)
    return str(caught.value)


def test_nobody_is_named(region: RegionServer) -> None:
    assert refuse().startswith("no region and no user are named. Give one of: --os-cloud NAME")
    assert refuse("--url", "http://h:1").startswith("no user is named for http://h:1.")


def test_what_was_asked_of_whom(
    region: RegionServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERTH_TOKEN", "secret")
    region.statuses = [403]
    assert ask("--url", region.url) == 2
    said = capsys.readouterr().err
    assert said == f"berth: GET /berth/v1/clusters: {region.url} answered 403: status 403\n"
    monkeypatch.setenv("BERTH_URL", "ftp://x")
    assert ask() == 2
    assert "BERTH_URL: 'ftp://x' is refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("clouds: {two: {}}", "there is no cloud one; there are: two"),
        ("clouds: [", "is not YAML"),
        ("clouds: 1", "clouds is not a table"),
        ("clouds: {one: {profile: far}}", "the profile far is in no clouds-public.yaml"),
        ("clouds: {one: {interface: sideways}}", "interface is 'sideways'"),
        ("clouds: {one: {auth_type: magic}}", "there is no auth_type magic; there are: admin_token, "),
        ("clouds: {one: {auth: {auth_url: x, pasword: y}}}", "auth_type password has no pasword"),
        (
            "clouds: {one: {auth: {auth_url: 'http://127.0.0.1:1/v3', user_id: a, password: b}}}",
            "the cloud one of clouds.yaml: signing in as the user a failed at http://127.0.0.1:1/v3: ",
        ),
    ],
)
def test_a_cloud_that_cannot_be_used(content: str, reason: str, tmp_path: Path, region: RegionServer) -> None:
    (tmp_path / "clouds.yaml").write_text(content)
    assert reason in refuse("--os-cloud", "one")


def test_a_file_that_is_not_there(region: RegionServer) -> None:
    assert "there is no clouds.yaml: neither clouds.yaml, " in refuse("--os-cloud", "one")
    gone = "OS_CLIENT_CONFIG_FILE names /nowhere, which does not exist"
    assert gone in refuse("--os-cloud", "one", OS_CLIENT_CONFIG_FILE="/nowhere")


def test_a_folder_names_everything(region: RegionServer) -> None:
    said = refuse("--data", "x", "--os-cloud", "one")
    assert said == "--data names the region and its user: leave out --os-cloud"


def test_a_wrong_password(region: RegionServer, keystone: FakeKeystone, tmp_path: Path) -> None:
    write_clouds(tmp_path, keystone)
    (tmp_path / "secure.yaml").write_text("clouds: {one: {auth: {password: wrong}}}")
    said = refuse("--os-cloud", "one")
    assert said.startswith(
        "the cloud one of clouds.yaml: signing in as op to the project admin was refused by "
        f"{keystone.url}/v3: {REFUSED}"
    )
    assert "wrong" not in said


def test_a_wrong_password_of_variables(region: RegionServer, keystone: FakeKeystone) -> None:
    said = refuse(OS_AUTH_URL=f"{keystone.url}/v3", OS_USER_ID="op", OS_PASSWORD="wrong")
    assert said.startswith(
        "the cloud that OS_* variables describe: signing in as the user op was refused by "
        f"{keystone.url}/v3: {REFUSED}"
    )


def test_a_wrong_secret_of_an_application(region: RegionServer, keystone: FakeKeystone) -> None:
    said = refuse(
        OS_AUTH_URL=f"{keystone.url}/v3",
        OS_APPLICATION_CREDENTIAL_ID="abc",
        OS_APPLICATION_CREDENTIAL_SECRET="wrong",
    )
    assert f"signing in with the application credential abc was refused by {keystone.url}/v3: " in said


def test_a_wrong_password_for_an_address_that_is_given(
    region: RegionServer, keystone: FakeKeystone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_clouds(tmp_path, keystone)
    (tmp_path / "secure.yaml").write_text("clouds: {one: {auth: {password: wrong}}}")
    assert ask("--os-cloud", "one", "--url", region.url) == 2
    said = capsys.readouterr().err
    assert f"no token for {region.url}: the cloud one of clouds.yaml: signing in as op " in said
    assert region.asked == []


def test_a_catalog_without_placement(region: RegionServer, keystone: FakeKeystone, tmp_path: Path) -> None:
    write_clouds(tmp_path, keystone)
    del keystone.endpoints["placement"]
    assert "the cloud one of clouds.yaml: no public endpoint of placement" in refuse("--os-cloud", "one")

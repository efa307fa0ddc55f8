"""``berth up``: all parts come up, are kept alive, and go in good order. And what the README tells to try of
Placement."""

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from berth.cli import main
from tests.clouds import PROGRAMS, Cloud, cloud_running, wait_for
from tests.servers import ROOT, free_port
from tests.waiting import WITHIN_S

pytestmark = [
    pytest.mark.http,
    pytest.mark.skipif(
        shutil.which("curl") is None, reason="curl is not installed, and newcomers are told to use it"
    ),
]

DEFAULT_URL = "http://127.0.0.1:8778"
HOSTS = ["host-0001", "host-0002", "host-0003", "host-0004"]
PARTS = ["region", "cell1", "cell2", "cell1-agents", "cell2-agents"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    options = ["--hosts", "4", "--cells", "2", "--heartbeat-timeout", "2"]
    with cloud_running(tmp_path_factory.mktemp("up"), *options, is_warm=False) as cloud:
        yield cloud
        assert cloud.stop(WITHIN_S) == 0, cloud.everything
    assert '"ERROR"' not in cloud.everything


def parts_of(cloud: Cloud) -> dict[int, str]:
    """The processes that run for it now: their numbers and command lines."""
    children = Path(f"/proc/{cloud.pid}/task/{cloud.pid}/children").read_text().split()
    return {int(number): words for number in children if "berth.cli" in (words := words_of(number))}


def words_of(number: str) -> str:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(number: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def names_up(cloud: Cloud) -> list[str]:
    """The hosts that are up; none, if the region does not answer now."""
    secrets = json.loads((cloud.data / "secrets.json").read_text())
    words = [
        "curl",
        "-sf",
        "-H",
        f"X-Auth-Token: {secrets['admin']}",
        f"{cloud.url}/compute/v2.1/os-services",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    services = json.loads(done.stdout)["services"] if done.returncode == 0 else []
    return sorted(row["host"] for row in services if row["state"] == "up")


def test_each_part_is_an_ordinary_process(cloud: Cloud) -> None:
    words = list(parts_of(cloud).values())
    assert len(words) == len(PARTS)
    assert sum(" region " in line for line in words) == 1
    assert sum(" cell " in line for line in words) == 2
    assert sum(" agent " in line for line in words) == 2
    assert names_up(cloud) == HOSTS


def test_no_secret_is_on_a_command_line_or_open_to_others(cloud: Cloud) -> None:
    secrets = json.loads((cloud.data / "secrets.json").read_text())
    for words in parts_of(cloud).values():
        assert not [name for name, secret in secrets.items() if secret in words]
    for name in ("secrets.json", "tokens.toml", "clouds.yaml"):
        assert stat.S_IMODE((cloud.data / name).stat().st_mode) == 0o600, name


def test_a_cell_knows_its_database_and_placement_and_nothing_else(cloud: Cloud) -> None:
    ((number, words),) = ((n, words) for n, words in parts_of(cloud).items() if " --name cell1 " in words)
    flags = set(re.findall(r" (--[a-z-]+)", words))
    assert flags == {
        *("--name", "--database", "--placement", "--listen", "--heartbeat-timeout", "--worker-hung-seconds"),
        *("--build-seconds", "--log-level", "--log-format"),
    }
    assert "region.db" not in words
    variables = Path(f"/proc/{number}/environ").read_text().split("\0")
    ours = {variable.partition("=")[0] for variable in variables if variable.startswith("BERTH_")}
    assert ours == {"BERTH_PLACEMENT_TOKEN", "BERTH_AGENT_TOKEN"}


def test_the_placement_commands_of_the_readme_work(cloud: Cloud) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "curl" in block)
    assert DEFAULT_URL in block
    named = "export OS_CLIENT_CONFIG_FILE=$PWD/data/clouds.yaml OS_CLOUD=berth\n"
    printed = cloud.shell(named + block.replace(DEFAULT_URL, cloud.url))
    assert '"allocation_requests":[{' in printed
    assert "HTTP/1.1 204" in printed
    last = printed.strip().splitlines()[-1]
    held, end = json.JSONDecoder().raw_decode(last)
    placed = json.loads(last[end:])
    assert len(placed["placements"]) == 3
    consumer = "22222222-2222-4222-8222-222222222222"
    assert held["allocations"][consumer]["resources"] == {"VCPU": 2, "MEMORY_MB": 4096}


def test_the_commands_of_the_guide_work(cloud: Cloud) -> None:
    guide = (ROOT / "docs" / "guides" / "command-line.md").read_text()
    [block] = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    printed = cloud.shell(block)
    assert "4 hosts: 4 up, 0 down, 0 disabled" in printed
    assert "host-0002  disabled  " in printed
    assert " more fit, on 4 hosts" in printed
    assert "it fits\n" in printed
    assert "it does not fit" in printed


def test_the_commands_for_the_night_work(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a server that has found no place. What is wrong is told by the exit status, too. The commands are
    run in this process: there are many of them."""
    guide = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    lines = list(dict.fromkeys("".join(blocks).replace(DEFAULT_URL, cloud.url).splitlines()))
    commands = [line for line in lines if line.startswith("berth ")]
    assert len(commands) > 15
    cloud.shell("\n".join(line for line in lines if line not in commands))
    monkeypatch.chdir(cloud.directory)
    secrets = json.loads((cloud.data / "secrets.json").read_text())
    headers = {"X-Auth-Token": secrets["admin"], "OpenStack-API-Version": "compute 2.94"}
    with httpx.Client(base_url=f"{cloud.url}/compute/v2.1", headers=headers) as client:
        flavor = {"id": "huge", "name": "huge", "vcpus": 5_000, "ram": 1, "disk": 0}
        assert client.post("/flavors", json={"flavor": flavor}).status_code == 200
        [image] = client.get(f"{cloud.url}/image/v2/images").json()["images"]
        asked = {"name": "web", "flavorRef": "huge", "imageRef": image["id"], "networks": "none"}
        made = client.post("/servers", json={"server": asked})
        assert made.status_code == 202, made.text
        try:
            ended = {line: main(shlex.split(line)[1:]) for line in commands}
        finally:
            client.delete(f"/servers/{made.json()['server']['id']}")
            client.delete("/flavors/huge")
    printed = capsys.readouterr()
    assert {line for line, status in ended.items() if status not in (0, 1)} == set(), printed.err
    assert ended["berth op web"] == ended["berth why web"] == ended["berth status"] == 1
    assert ended["berth cells"] == 0
    assert "No valid host was found." in printed.out


def test_every_command_that_it_prints_works(cloud: Cloud) -> None:
    printed = re.search(r"From another terminal: [^\n]*:\n\n(.*?)\n\nLogs are in", cloud.log, re.DOTALL)
    assert printed is not None
    lines = [line for line in printed[1].splitlines() if line.startswith("  ")]
    # What does not fit is told by the exit status, too.
    commands = "\n".join(f"{line} || test $? = 1" if " why " in line else line for line in lines)
    # Paths are as short as they can be said where it was started.
    done = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "host-0004" in done.stdout
    assert "host-0001 is broken" in done.stdout
    cloud.shell("berth sim heal host-0001")
    wait_for(lambda: names_up(cloud) == HOSTS, lambda: cloud.everything, cloud)


def test_a_wrong_password_is_refused_by_name(cloud: Cloud) -> None:
    """By our own identity API."""
    login = {"AUTH_URL": f"{cloud.url}/identity/v3", "USERNAME": "admin", "PASSWORD": "wrong"}
    login |= {"PROJECT_NAME": "admin", "USER_DOMAIN_NAME": "Default", "PROJECT_DOMAIN_NAME": "Default"}
    env = {"PATH": os.environ["PATH"], **{f"OS_{name}": value for name, value in login.items()}}
    words = [str(PROGRAMS / "berth"), "hosts"]
    done = subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "berth: the cloud that OS_* variables describe: signing in as admin to the project admin was refused "
        f"by {cloud.url}/identity/v3: The request you have made requires authentication: the user, password "
    )


def test_a_host_is_broken_and_healed(cloud: Cloud) -> None:
    assert "host-0002 is broken" in cloud.shell("berth sim break host-0002")
    wait_for(lambda: "host-0002" not in names_up(cloud), lambda: cloud.everything)
    assert names_up(cloud) == ["host-0001", "host-0003", "host-0004"]
    assert "host-0002 is healed" in cloud.shell("berth sim heal host-0002")
    wait_for(lambda: "host-0002" in names_up(cloud), lambda: cloud.everything)


def test_an_unknown_host_is_refused_by_name(cloud: Cloud) -> None:
    words = [str(PROGRAMS / "berth"), "sim", "break", "host-9999", "--data", str(cloud.data)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("berth: there is no simulated host 'host-9999'")


@pytest.mark.parametrize("kind", [" cell ", " agent ", " region "])
def test_a_part_that_dies_is_started_again(cloud: Cloud, kind: str) -> None:
    ended = "has ended (SIGKILL), restarting in"
    before = cloud.log.count(ended)
    victim = next(number for number, words in parts_of(cloud).items() if kind in words)
    os.kill(victim, signal.SIGKILL)
    wait_for(
        lambda: cloud.log.count(ended) > before and len(parts_of(cloud)) == len(PARTS),
        lambda: cloud.everything,
        cloud,
    )
    # What is left of a region that was killed may still answer for a moment; the next one takes its place.
    wait_for(
        lambda: names_up(cloud) == HOSTS and victim not in parts_of(cloud), lambda: cloud.everything, cloud
    )


def test_a_second_start_finds_everything(cloud: Cloud) -> None:
    secrets = (cloud.data / "secrets.json").read_text()
    assert cloud.stop(WITHIN_S) == 0, cloud.everything
    cloud.start()
    assert (cloud.data / "secrets.json").read_text() == secrets
    assert names_up(cloud) == HOSTS
    flavors = cloud.shell(
        f"OS_CLIENT_CONFIG_FILE={cloud.data}/clouds.yaml openstack --os-cloud berth flavor list -f json"
    )
    names = sorted(row["Name"] for row in json.loads(flavors))
    assert names == ["m1.large", "m1.medium", "m1.small", "m1.tiny"]
    images = cloud.shell(
        f"OS_CLIENT_CONFIG_FILE={cloud.data}/clouds.yaml openstack --os-cloud berth image list -f json"
    )
    assert [(row["Name"], row["Status"]) for row in json.loads(images)] == [("cirros", "active")]


def test_parts_go_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with cloud_running(tmp_path, "--hosts", "2", "--cells", "1", is_warm=False) as cloud:
        parts = parts_of(cloud)
        assert len(parts) == 3
        cloud.kill()
        wait_for(lambda: not any(map(is_alive, parts)), lambda: cloud.everything)


# -- parts by themselves ------------------------------------------------------------------------


def test_a_cell_and_its_agents_wait_for_what_is_away_and_stop_on_a_signal(tmp_path: Path) -> None:
    port, away = free_port(), f"http://127.0.0.1:{free_port()}"
    cell = f"cell --name c --database sqlite:///c.db --placement {away} --listen 127.0.0.1:{port}"
    agent = f"agent --conductor http://127.0.0.1:{port} --driver sim --hosts 2 --data agents"
    env = {"PATH": os.environ["PATH"], "BERTH_PLACEMENT_TOKEN": "x" * 20, "BERTH_AGENT_TOKEN": "y" * 20}
    parts = []
    try:
        for name, words in (("cell", cell), ("agent", agent)):
            with (tmp_path / f"{name}.log").open("wb") as log:
                command = [str(PROGRAMS / "berth"), *words.split()]
                parts.append(subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log))
        # The agent has been let in, and Placement was asked for it.
        wait_for(
            lambda: f"no answer from {away}" in (tmp_path / "agent.log").read_text(),
            lambda: "".join(path.read_text() for path in tmp_path.glob("*.log")),
        )
        for part in reversed(parts):
            part.send_signal(signal.SIGTERM)
            assert part.wait(WITHIN_S) == 0
    finally:
        for part in parts:
            part.kill()
            part.wait()


def test_a_conductor_that_hangs_is_replaced(tmp_path: Path) -> None:
    port = free_port()
    words = f"cell --name c --database sqlite:///c.db --placement http://127.0.0.1:{free_port()}"
    words += f" --listen 127.0.0.1:{port} --worker-hung-seconds 5"
    env = {"PATH": os.environ["PATH"], "BERTH_PLACEMENT_TOKEN": "x" * 20, "BERTH_AGENT_TOKEN": "y" * 20}

    def is_ready() -> bool:
        asked = ["curl", "-sf", "-m", "1", f"http://127.0.0.1:{port}/readyz"]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [str(PROGRAMS / "berth"), *words.split()]
        cell = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=output, stderr=output)
    try:
        wait_for(is_ready, log.read_text)
        children = Path(f"/proc/{cell.pid}/task/{cell.pid}/children").read_text().split()
        # The housekeeper was started before it.
        hung = max(map(int, children))
        os.kill(hung, signal.SIGSTOP)
        wait_for(lambda: "was killed: no heartbeat for 5 s" in log.read_text(), log.read_text)
        wait_for(is_ready, log.read_text)
        assert not is_alive(hung)
        cell.send_signal(signal.SIGTERM)
        assert cell.wait(WITHIN_S) == 0
    finally:
        cell.kill()
        cell.wait()


# -- not starting -------------------------------------------------------------------------------


def refused(*words: str, cwd: Path) -> str:
    command = [str(PROGRAMS / "berth"), "up", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def test_an_address_that_is_taken(cloud: Cloud, tmp_path: Path) -> None:
    said = refused("--listen", f"127.0.0.1:{cloud.port}", cwd=tmp_path)
    assert said == f"berth: cannot listen on 127.0.0.1:{cloud.port}: Address already in use\n"
    assert not (tmp_path / "data").exists()


def test_a_fleet_with_a_cell_that_is_not_there(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[host]]\nname = "a"\ncell = "cell9"\ninventories = { VCPU = 4 }\n')
    said = refused("--listen", f"127.0.0.1:{free_port()}", "--fleet", str(fleet), cwd=tmp_path)
    assert said == "berth: the host a is to be in the cell cell9; there are cell1, cell2\n"


def test_a_folder_that_another_one_runs_in(cloud: Cloud, tmp_path: Path) -> None:
    said = refused("--listen", f"127.0.0.1:{free_port()}", "--data", str(cloud.data), cwd=tmp_path)
    assert said.startswith(f"berth: another 'berth up' runs in {cloud.data}")
    assert names_up(cloud) == HOSTS


def test_a_part_that_cannot_start_ends_all_of_it(tmp_path: Path) -> None:
    """And says why, instead of trying for ever."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "region.db").write_text(
        "this is no database, and long enough to be taken for one" * 20
    )
    command = [str(PROGRAMS / "berth"), "up", "--listen", f"127.0.0.1:{free_port()}", "--hosts", "1"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "berth: region has ended (status 1)." in done.stderr
    assert "is no SQLite database: name another file" in done.stderr


def test_the_requests_of_the_guides_can_be_sent(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guides" / "requests.md").read_text()
    start, ask, needs = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    fleet, _, command = start.rpartition("berth up ")
    subprocess.run(["sh", "-ec", fleet], cwd=tmp_path, check=True)
    options = command.replace("--data three ", "").replace("--listen 127.0.0.1:8778", "").split()
    with cloud_running(
        tmp_path, *(str(tmp_path / word) if word.endswith(".toml") else word for word in options)
    ) as cloud:
        here = ask.replace(DEFAULT_URL, cloud.url).replace("/three/", "/data/")
        assert cloud.shell(here).endswith("\n200\n")
        said = cloud.shell(f"{here}\n{needs}")
        assert '"NET_BW_EGR_KILOBIT_PER_SEC":400' in said
        assert said.endswith("\n200\n")
        assert cloud.stop(WITHIN_S) == 0, cloud.everything

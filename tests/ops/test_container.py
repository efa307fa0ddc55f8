"""``ops/oci/Containerfile``: what it says of the container holds, and its command runs in such a container.

No registry can be reached from here, so no base image is fetched: the container is this machine's own root,
read-only, in namespaces of its own, with the user, variables and command of the file.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.servers import HOST, ROOT, ServerProcess, running
from tests.waiting import WITHIN_S

FILE: Final = ROOT / "ops" / "oci" / "Containerfile"


def read_instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.split("\n") if line)
    ]


def find(name: str) -> list[str]:
    """What the file says of the container that is run, not of the one that builds."""
    instructions = read_instructions()
    last = max(place for place, (one, _) in enumerate(instructions) if one == "FROM")
    return [rest for one, rest in instructions[last:] if one == name]


def test_nothing_is_copied_that_is_not_there() -> None:
    copied = [rest.split()[:-1] for name, rest in read_instructions() if name == "COPY"]
    sources = [source for words in copied if not words[0].startswith("--from") for source in words]
    assert sources == ["requirements.txt", "pyproject.toml", "README.md", "LICENSE", "src"]
    assert all((ROOT / source).exists() for source in sources)


def test_it_is_nobody_in_particular() -> None:
    (user,) = find("USER")
    uid, gid = map(int, user.split(":"))
    assert uid > 0
    assert gid > 0
    assert f"--uid {uid} " in " ".join(find("RUN"))


# -- running it ---------------------------------------------------------------------------------

IN_CONTAINER: Final = """
set -eu
mount --make-rprivate /
mount --bind "$STATE" "$STATE"
mount -o remount,bind,ro /
exec unshare --user --map-user="${OWNER%:*}" --map-group="${OWNER#*:}" -- "$@"
"""


class Container:
    """``state``: the folder that can be written to, its /var/lib/berth and /etc/berth."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.port = 0
        self.env = dict(variable.split("=", 1) for variable in find("ENV"))
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}:/usr/sbin:/sbin"

    def wrap(self, words: Sequence[str]) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", IN_CONTAINER, "sh", *map(self.translate, words)]

    def translate(self, word: str) -> str:
        for there in ("/etc/berth", "/var/lib/berth"):
            word = word.replace(there, str(self.state))
        for port in (8778, 9178):
            word = word.replace(f"0.0.0.0:{port}", f"{HOST}:{self.port}").replace(f":{port}", f":{self.port}")
        return word

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.wrap(words),
            env=self.make_env(),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def make_env(self) -> dict[str, str]:
        given = {name: self.translate(value) for name, value in self.env.items()}
        return {**given, "STATE": str(self.state), "OWNER": find("USER")[0]}

    def make_server(self, words: Sequence[str] | None = None) -> ServerProcess:
        """``words``: the part to run, in place of a region."""

        def command(port: int) -> list[str]:
            self.port = port
            return self.wrap([*json.loads(find("ENTRYPOINT")[0]), *(words or json.loads(find("CMD")[0]))])

        return ServerProcess(command, self.state / "server.log", self.make_env())


@pytest.fixture
def container(tmp_path: Path) -> Container:
    made = Container(tmp_path)
    probe = made.run("true")
    if probe.returncode != 0:
        pytest.skip(f"no container can be made here: {probe.stderr.strip()}")
    return made


def test_a_root_that_can_only_be_read_is_enough(container: Container) -> None:
    config = container.state / "region.toml"
    config.touch(0o600)
    region, cell = (f"sqlite:///{container.state}/{name}.db" for name in ("region", "cell1"))
    config.write_text(f'database = "{region}"\ncells = ["cell1={cell}"]\n')
    seen = container.run("sh", "-c", f"id -u; touch {ROOT}/written")
    assert seen.stdout == "64535\n"
    assert "Read-only file system" in seen.stderr
    (health,) = find("HEALTHCHECK")
    check = json.loads(health[health.index("[") :])
    assert container.run(*check).returncode != 0
    server = container.make_server()
    with running(server):
        looked = container.run(*check)
        assert looked.returncode == 0, looked.stderr
        assert server.stop(WITHIN_S) == 0
    assert server.complaints() == []
    assert (container.state / "region.db").exists()


def read_agent_command() -> tuple[dict[str, str], list[str]]:
    """How the comment of the file, and the guide, have an agent run: its variables, and the words behind the
    image."""
    comment = "\n".join(line[4:] for line in FILE.read_text().splitlines() if line.startswith("#   "))
    (words,) = (one for one in find_commands(comment) if "agent" in one)
    assert words in find_commands((ROOT / "docs/guides/run-in-production.md").read_text())
    published, _ = words[words.index("--publish") + 1].split(":")
    assert published in find("EXPOSE")[0].split()
    given = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
    return dict(one.split("=", 1) for one in given), words[words.index("berth") + 1 :]


def find_commands(text: str) -> list[list[str]]:
    return [one.split() for one in re.findall("podman run .*", text.replace("\\\n", " "))]


def test_an_agent_is_watched_as_a_region_is(container: Container) -> None:
    variables, words = read_agent_command()
    # Nobody is there: an agent shows how it is all the same.
    words[words.index("--conductor") + 1] = f"http://{HOST}:1"
    container.env |= variables
    (health,) = find("HEALTHCHECK")
    check = json.loads(health[health.index("[") :])
    server = container.make_server(words)
    with running(server):
        looked = container.run(*check)
        assert looked.returncode == 0, looked.stderr
        assert (
            "\nberth_agent_hosts_registered 0.0\n"
            in httpx.get(f"{server.url}/metrics", timeout=WITHIN_S).text
        )
        assert server.stop(WITHIN_S) == 0

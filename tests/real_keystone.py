"""OpenStack Keystone itself, run for tests with a database of its own, and what administrators do there."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.package_folders import PackagesMissing, package_folder
from tests.servers import HOST, ROOT, ServerProcess, free_port, running

PASSWORD: Final = "correct horse"
_PROGRAM: Final = ROOT / "tests" / "keystone_program.py"
_START_S: Final = 240
_ADMIN: Final = {"name": "admin", "domain": {"id": "default"}}


class Reply(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


def ask(method: str, url: str, token: str | None = None, body: object = None, **headers: str) -> Reply:
    """What a server answers; headers of the question with _ for -."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent |= {"content-type": "application/json", "accept": "application/json"}
    if token is not None:
        sent["x-auth-token"] = token
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, sent, method=method)
    try:
        with contextlib.closing(urllib.request.urlopen(request, timeout=120)) as answer:
            return _reply(answer.status, answer.read(), answer.headers)
    except urllib.error.HTTPError as refused:
        with contextlib.closing(refused):
            return _reply(refused.code, refused.read(), refused.headers)


def _reply(status: int, content: bytes, headers: Any) -> Reply:
    body = json.loads(content) if content.startswith((b"{", b"[")) else content.decode()
    return Reply(status, body, {name.lower(): value for name, value in headers.items()})


class Person(NamedTuple):
    """A user of Keystone's, and the project that it has roles in."""

    id: str
    name: str
    project: str


class RealKeystone:
    def __init__(self, process: ServerProcess, words: list[str], env: dict[str, str]) -> None:
        self.process = process
        self._words = words
        self._env = env
        self._admin = ""
        self._count = 0
        self._roles: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"{self.process.url}/v3"

    # -- tokens ---------------------------------------------------------------------------------

    def issue(self, identity: dict[str, Any], scope: object = None) -> Reply:
        auth: dict[str, Any] = {"identity": identity}
        if scope is not None:
            auth["scope"] = scope
        return ask("POST", f"{self.url}/auth/tokens", body={"auth": auth})

    def log_in(self, person: Person, scope: object = "project") -> str:
        """A token by password. ``scope``: as Keystone has it; the person's project."""
        if scope == "project":
            scope = {"project": {"id": person.project}}
        user = {"id": person.id, "password": PASSWORD}
        return self._token(self.issue({"methods": ["password"], "password": {"user": user}}, scope))

    def log_in_as_admin(self, scope: object = None) -> str:
        user = {**_ADMIN, "password": "secret"}
        scope = scope or {"project": _ADMIN}
        return self._token(self.issue({"methods": ["password"], "password": {"user": user}}, scope))

    def log_in_by_credential(self, credential: dict[str, Any]) -> str:
        shown = {"id": credential["id"], "secret": credential["secret"]}
        identity = {"methods": ["application_credential"], "application_credential": shown}
        return self._token(self.issue(identity))

    def issue_expired(self, person: Person) -> str:
        """A token of a project that has expired a minute ago."""
        command = [*self._words, "issue", person.id, person.project]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=_START_S)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    def revoke(self, token: str) -> None:
        reply = ask("DELETE", f"{self.url}/auth/tokens", self.admin, x_subject_token=token)
        assert reply.status == 204, reply

    def _token(self, reply: Reply) -> str:
        assert reply.status == 201, reply
        return reply.headers["x-subject-token"]

    # -- what an administrator does -------------------------------------------------------------

    @property
    def admin(self) -> str:
        self._admin = self._admin or self.log_in_as_admin()
        return self._admin

    def make(self, plural: str, one: str, body: dict[str, Any], token: str | None = None) -> dict[str, Any]:
        reply = ask("POST", f"{self.url}/{plural}", token or self.admin, {one: body})
        assert reply.status == 201, reply
        made: dict[str, Any] = reply.body[one]
        return made

    def add_person(self, *roles: str) -> Person:
        """A new user with roles in a new project."""
        self._count += 1
        name = f"person-{self._count}"
        user = self.make("users", "user", {"name": name, "password": PASSWORD})
        project = self.make("projects", "project", {"name": f"project-{self._count}"})
        for role in roles:
            path = f"projects/{project['id']}/users/{user['id']}/roles/{self.role(role)}"
            assert ask("PUT", f"{self.url}/{path}", self.admin).status == 204
        return Person(user["id"], name, project["id"])

    def role(self, name: str) -> str:
        if not self._roles:
            found = ask("GET", f"{self.url}/roles", self.admin).body["roles"]
            self._roles = {one["name"]: one["id"] for one in found}
        return self._roles[name]

    def add_endpoint(self, type: str, url: str) -> None:
        service = self.make("services", "service", {"type": type, "name": type})
        for interface in ("public", "internal", "admin"):
            endpoint = {
                "service_id": service["id"],
                "interface": interface,
                "url": url,
                "region_id": "RegionOne",
            }
            self.make("endpoints", "endpoint", endpoint)


@contextlib.contextmanager
def running_keystone(folder: Path) -> Iterator[RealKeystone]:
    """Keystone on a port that stays its own. Where it cannot be installed, the test is skipped."""
    try:
        packages = package_folder("keystone")
    except PackagesMissing as missing:
        pytest.skip(str(missing))
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    words = [str(python), "-P", "-W", "ignore", str(_PROGRAM), str(folder)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "BERTH_"))}
    env |= {"PYTHONPATH": str(packages)}
    process = ServerProcess(
        lambda port: [*words, str(port)], folder / "output.log", env, address=(HOST, free_port())
    )
    with running(process, _START_S):
        yield RealKeystone(process, words, env)

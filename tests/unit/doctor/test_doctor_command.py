"""``berth doctor``, against a server that has findings until they are repaired."""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from berth.cli import main
from berth.cli.command import CommandError
from berth.cli.doctor import check, remove
from berth.client import Client

pytestmark = pytest.mark.fast


def finding(number: int, repair: str | None) -> dict[str, Any]:
    return {
        "id": f"orphan_consumer:{number}",
        "kind": "orphan_consumer",
        "subject": str(number),
        "sentence": "nobody knows it",
        "holds": {"5a8f6d1e-4c1b": {"VCPU": 2, "MEMORY_MB": 512}},
        "should_hold": {},
        "repair": repair,
        "unsafe": None if repair else "it is too young",
    }


async def ask_doctor(endpoint: str, token: str, **options: Any) -> int:
    return await check(Client(endpoint, {"x-auth-token": token}), **options)


class DoctorServer(ThreadingHTTPServer):
    """Findings that are gone when they are repaired; those without a repair stay."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _DoctorHandler)
        self.findings: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def repair(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        by_id = {one["id"]: one for one in self.findings}
        repairs = []
        for id in body["findings"]:
            one = by_id[id]
            words = ("would remove", "removed") if body.get("remove") else ("would repair", "repaired")
            outcome = words[0] if body["dry_run"] else words[1]
            if one["repair"] is None:
                outcome = "refused"
            elif not body["dry_run"]:
                self.findings.remove(one)
            repairs.append({"id": id, "outcome": outcome, "detail": one["repair"] or one["unsafe"]})
        return {"dry_run": body["dry_run"], "repairs": repairs}


class _DoctorHandler(BaseHTTPRequestHandler):
    server: DoctorServer

    def do_GET(self) -> None:
        assert self.path == "/berth/v1/doctor"
        self._answer({"findings": self.server.findings, "truncated": False})

    def do_POST(self) -> None:
        assert self.path == "/berth/v1/doctor/repair"
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._answer(self.server.repair(body))

    def _answer(self, content: object) -> None:
        known = self.headers["x-auth-token"] == "admin"
        sent = json.dumps(
            content if known else {"errors": [{"detail": "The token is invalid or has expired."}]}
        )
        self.send_response(200 if known else 401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[DoctorServer]:
    with DoctorServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_no_findings_is_said_and_exits_with_0(
    server: DoctorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ask_doctor(server.endpoint, "admin", repair=True, yes=True) == 0
    assert capsys.readouterr().out == "nothing is wrong\n"
    assert server.asked == []


async def test_findings_are_a_table(server: DoctorServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.findings = [finding(1, "release what it holds"), finding(22, None)]
    assert await ask_doctor(server.endpoint, "admin", repair=False, yes=False) == 1
    heading, first, second, empty, count = capsys.readouterr().out.splitlines()
    assert heading.split() == ["KIND", "SUBJECT", "HOLDS", "SHOULD", "HOLD", "WHAT", "REPAIR"]
    assert first.startswith("orphan consumer  1 ")
    assert "5a8f6d1e: 2 VCPU, 512 MEMORY_MB  nothing" in first
    assert second.endswith("none: it is too young")
    assert first.index("5a8f6d1e") == second.index("5a8f6d1e") == heading.index("HOLDS")
    assert (empty, count) == ("", "2 findings")
    assert server.asked == []


async def test_findings_and_repairs_as_json(server: DoctorServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.findings = [finding(1, "release what it holds"), finding(2, None)]
    assert await ask_doctor(server.endpoint, "admin", repair=False, yes=False, as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {"findings": server.findings, "truncated": False}
    assert await ask_doctor(server.endpoint, "admin", repair=True, yes=True, as_json=True) == 1
    said = json.loads(capsys.readouterr().out)
    assert [one["outcome"] for one in said["repairs"]] == ["repaired"]
    assert said["left"] == [finding(2, None)]


def test_json_asks_no_questions(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--repair"], ["--remove", "1"]):
        assert main(["doctor", *words, "--json"]) == 2
        assert (
            capsys.readouterr().err == "berth: --json asks no questions: to repair or remove give --yes too\n"
        )
    assert main(["doctor", "--remove", "1", "--repair"]) == 2


async def test_a_repair_is_shown_first_and_then_asked_about(
    server: DoctorServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.findings = [finding(1, "release what it holds")]
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert await ask_doctor(server.endpoint, "admin", repair=True, yes=False) == 1
    assert [body["dry_run"] for body in server.asked] == [True]
    out = capsys.readouterr().out
    assert "dry run: nothing has been changed" in out
    assert out.endswith("repair 1 finding? [y/N] nothing has been changed\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert await ask_doctor(server.endpoint, "admin", repair=True, yes=False) == 0
    assert [body["dry_run"] for body in server.asked] == [True, True, False]
    assert capsys.readouterr().out.endswith("nothing is wrong any more\n")


async def test_what_cannot_be_repaired_is_left_and_said(
    server: DoctorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.findings = [finding(1, "release what it holds"), finding(2, None)]
    assert await ask_doctor(server.endpoint, "admin", repair=True, yes=True, grace_s=5) == 1
    dry, real = server.asked
    assert dry == {"findings": ["orphan_consumer:1", "orphan_consumer:2"], "grace_s": 5, "dry_run": True}
    assert real == {"findings": ["orphan_consumer:1"], "grace_s": 5, "dry_run": False}
    assert capsys.readouterr().out.endswith("1 finding left\n")
    assert await ask_doctor(server.endpoint, "admin", repair=True, yes=True) == 1
    assert capsys.readouterr().out.endswith("nothing can be repaired safely\n")


def unknown(number: int, repair: str | None) -> dict[str, Any]:
    return {**finding(number, repair), "id": f"unknown_server:{number}", "kind": "unknown_server"}


async def test_what_is_removed_is_shown_first_and_then_asked_about(
    server: DoctorServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.findings = [unknown(1, "destroy it"), unknown(2, None), unknown(3, "destroy it")]
    admin = {"x-auth-token": "admin"}
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert await remove(Client(server.endpoint, admin), ["1"], yes=False) == 1
    assert [(body["dry_run"], body["remove"]) for body in server.asked] == [(True, True)]
    assert capsys.readouterr().out.endswith("destroy 1 server for good? [y/N] nothing has been changed\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert await remove(Client(server.endpoint, admin), ["1"], yes=False) == 0
    assert server.asked[-1] == {"findings": ["unknown_server:1"], "dry_run": False, "remove": True}
    # One that is refused does not hold up the other, and nobody is asked.
    capsys.readouterr()
    assert await remove(Client(server.endpoint, admin), ["2", "3"], yes=True, as_json=True) == 1
    said = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in said["removed"]] == ["unknown_server:3"]
    assert [one["id"] for one in said["refused"]] == ["unknown_server:2"]
    assert [one["id"] for one in server.findings] == ["unknown_server:2"]
    assert await remove(Client(server.endpoint, admin), ["2"], yes=True) == 1
    assert len(server.asked) == 6


async def test_a_region_that_refuses_the_token_or_cannot_be_reached(server: DoctorServer) -> None:
    with pytest.raises(CommandError, match=r"The token is invalid or has expired\."):
        await ask_doctor(server.endpoint, "nobody", repair=False, yes=False)
    with pytest.raises(CommandError, match=r"no answer from https://127\.0\.0\.1:1: Connection refused"):
        await ask_doctor("https://127.0.0.1:1", "admin", repair=False, yes=False)

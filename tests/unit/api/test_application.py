"""One exchange end to end, without a network: the order of refusals, and what frames every answer."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from berth.api.kernel.auth.caller import AuthUnavailable, Caller
from berth.api.kernel.auth.policy import Policy
from berth.engine import Engine, Overloaded, Unavailable
from tests.worlds import ApplicationWorld, HttpAnswer, scope_of

pytestmark = pytest.mark.fast

P = "11111111-1111-1111-1111-111111111111"
JSON = {"content-type": "application/json"}


class SomePolicy:
    """Admins may do everything, others nothing."""

    def allows(self, rule: str, caller: Caller, project_id: str | None = None) -> bool:
        return "admin" in caller.roles


class SomeAuth:
    challenge = "Somebody must know"

    async def identify(self, headers: Mapping[str, str], peer: str = "") -> Caller | None:
        token = headers.get("x-auth-token")
        if token == "down":
            raise AuthUnavailable("keystone is away")
        return None if token is None else Caller(token, "project", (token,))


class FramedWorld(ApplicationWorld):
    """An application whose callers have the role that their token names. It sends what it is told to
    send, and no more."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, authenticator=SomeAuth(), policy=cast(Policy, SomePolicy()), **settings)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        version: int | None = None,
        token: str | None = "admin",
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        sent = {"host": "berth.example", **(headers or {})}
        if body:
            sent["content-length"] = str(len(body))
        if version is not None:
            sent["openstack-api-version"] = f"placement 1.{version}"
        if token is not None:
            sent["x-auth-token"] = token
        return await self.send(scope_of(method, path, sent), body)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[FramedWorld]:
    async with FramedWorld(tmp_path).running() as world:
        yield world


# -- what frames every answer -------------------------------------------------------------------


async def test_the_root_needs_no_token(world: FramedWorld) -> None:
    answer = await world.request("GET", "/", token=None, version=39)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["openstack-api-version"] == "placement 1.39"
    assert answer.headers["vary"] == "openstack-api-version, accept-encoding"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-openstack-request-id"].startswith("req-")


async def test_a_missing_token_is_refused_before_anything_else(world: FramedWorld) -> None:
    answer = await world.request(
        "GET", "/no/such/path", token=None, headers={"openstack-api-version": "placement 9.9"}
    )
    assert answer.status == 401
    assert set(json.loads(answer.body)) == {"message", "code", "title"}
    assert answer.headers["www-authenticate"] == "Somebody must know"
    assert "openstack-api-version" not in answer.headers


async def test_an_identity_service_that_is_away_is_a_503(world: FramedWorld) -> None:
    answer = await world.request("GET", "/traits", token="down")
    assert answer.status == 503
    assert "keystone is away" in answer.error["detail"]


async def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    async with FramedWorld(tmp_path, body_bytes_max=1024).running() as world:
        answer = await world.request("POST", "/resource_providers", b"x" * 1025, headers=JSON, version=23)
    assert answer.status == 413
    assert answer.headers["openstack-api-version"] == "placement 1.23"
    assert answer.headers["vary"] == "openstack-api-version"
    assert "larger than the limit of 1024 bytes" in answer.error["detail"]


async def test_a_bug_is_a_500_that_names_the_request(
    world: FramedWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def explode(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(Engine, "read", explode)
    answer = await world.request("GET", f"/allocations/{P}", version=23)
    assert answer.status == 500
    assert answer.headers["openstack-api-version"] == "placement 1.23"
    assert answer.headers["vary"] == "openstack-api-version"
    assert answer.error["code"] == "placement.undefined_code"
    assert answer.error["request_id"] in answer.error["detail"]
    assert b"secret" not in answer.body
    assert "secret" in caplog.text


@pytest.mark.parametrize("failure", [Overloaded("full"), Unavailable("gone")])
async def test_an_engine_that_cannot_answer_is_a_503(
    world: FramedWorld, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def refuse(*_: object) -> None:
        raise failure

    monkeypatch.setattr(Engine, "read", refuse)
    answer = await world.request("GET", f"/allocations/{P}", version=39)
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert str(failure) in answer.error["detail"]


# -- routes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/resource_providers/", "/resource_providers//inventories", "/a/b/c/d/e/f", "/traits/A/B"],
)
async def test_an_unknown_path_is_not_found(world: FramedWorld, path: str) -> None:
    answer = await world.request("GET", path)
    assert answer.status == 404
    assert answer.error["detail"] == "The resource could not be found.\n\n   "
    assert answer.headers["openstack-api-version"] == "placement 1.0"
    assert "vary" not in answer.headers


async def test_an_unknown_method_is_not_allowed(world: FramedWorld) -> None:
    answer = await world.request("DELETE", "/resource_providers")
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, POST"
    assert "The method DELETE is not allowed for this resource." in answer.error["detail"]
    assert (await world.request("HEAD", "/resource_providers")).status == 405


async def test_a_body_needs_a_content_type(world: FramedWorld) -> None:
    answer = await world.request("PUT", "/traits/CUSTOM_A", b"{}", version=6)
    assert answer.status == 400
    assert "content-type header required when content-length > 0" in answer.error["detail"]
    answer = await world.request("GET", "/", headers={"content-length": "hi mom"})
    assert "content-length header must be an integer" in answer.error["detail"]


PLAIN = {"content-type": "text/plain"}
HTML = {"accept": "text/html"}


@pytest.mark.parametrize(
    ("method", "path", "version", "token", "headers", "status"),
    [
        # The version is asked for first, but by aggregates.
        ("POST", "/resource_classes", 1, "admin", PLAIN, 404),
        ("POST", "/resource_classes", 2, "admin", PLAIN, 415),
        ("GET", "/resource_classes", 1, "admin", HTML, 404),
        ("GET", "/resource_classes", 2, "admin", HTML, 406),
        ("PUT", f"/resource_providers/{P}/aggregates", 0, "admin", PLAIN, 415),
        ("PUT", f"/resource_providers/{P}/aggregates", 0, "admin", JSON, 404),
        ("GET", f"/resource_providers/{P}/aggregates", 0, "admin", HTML, 406),
        ("PUT", f"/resource_providers/{P}/traits", 5, "admin", PLAIN, 404),
        ("POST", "/allocations", 12, "admin", PLAIN, 404),
        ("POST", "/reshaper", 29, "admin", PLAIN, 404),
        ("GET", "/usages", 8, "admin", HTML, 404),
        ("DELETE", f"/resource_providers/{P}/inventories", 4, "admin", {}, 405),
        # The media types come before the policy, and the policy before the body and the provider.
        ("POST", "/resource_providers", 39, "user", PLAIN, 415),
        ("POST", "/resource_providers", 39, "user", JSON, 403),
        ("POST", "/resource_providers", 39, "admin", JSON, 400),
        ("GET", "/resource_providers?bad=1", 39, "user", {}, 403),
        ("GET", f"/resource_providers/{P}", 39, "user", {}, 403),
        ("GET", "/usages", 39, "user", {}, 403),
        # A missing provider comes before a bad body, but not for traits.
        ("PUT", f"/resource_providers/{P}", 39, "admin", JSON, 404),
        ("PUT", f"/resource_providers/{P}/aggregates", 39, "admin", JSON, 404),
        ("PUT", f"/resource_providers/{P}/inventories", 39, "admin", JSON, 404),
        ("POST", f"/resource_providers/{P}/inventories", 39, "admin", JSON, 404),
        ("PUT", f"/resource_providers/{P}/inventories/VCPU", 39, "admin", JSON, 404),
        ("PUT", f"/resource_providers/{P}/traits", 39, "admin", JSON, 400),
        # A class is renamed by a body before 1.7 and needs none from then on.
        ("PUT", "/resource_classes/CUSTOM_A", 6, "admin", PLAIN, 415),
        ("PUT", "/resource_classes/CUSTOM_A", 7, "admin", PLAIN, 201),
        # The consumer's uuid comes before its claim.
        ("PUT", "/allocations/nobody", 39, "admin", JSON, 400),
    ],
)
async def test_refusals_come_in_upstreams_order(
    world: FramedWorld, method: str, path: str, version: int, token: str, headers: dict[str, str], status: int
) -> None:
    assert (await world.request(method, path, version=version, token=token, headers=headers)).status == status


async def test_a_refusal_by_policy_names_the_rule(world: FramedWorld) -> None:
    answer = await world.request("GET", "/resource_providers", token="user")
    assert (
        "Policy does not allow placement:resource_providers:list to be performed." in answer.error["detail"]
    )
    assert "vary" not in answer.headers


# -- writing ------------------------------------------------------------------------------------


async def test_a_location_is_absolute(world: FramedWorld) -> None:
    body = json.dumps({"name": "a", "uuid": P.replace("-", "")}).encode()
    answer = await world.request("POST", "/resource_providers", body, headers=JSON)
    assert (answer.status, answer.body) == (201, b"")
    assert answer.headers["location"] == f"http://berth.example/resource_providers/{P}"
    assert "content-type" not in answer.headers


async def test_a_claim_on_too_many_providers_is_refused(tmp_path: Path) -> None:
    claim = {
        "allocations": {f"{P[:-1]}{digit}": {"resources": {"VCPU": 1}} for digit in range(3)},
        "project_id": "p",
        "user_id": "u",
    }
    async with FramedWorld(tmp_path, request_providers_max=2).running() as world:
        for method, path, body in (("PUT", f"/allocations/{P}", claim), ("POST", "/allocations", {P: claim})):
            answer = await world.request(method, path, json.dumps(body).encode(), headers=JSON, version=20)
            assert answer.status == 400
            assert "names 3 resource providers, more than the limit of 2" in answer.error["detail"]


async def test_a_claim_of_the_oldest_version_has_no_project_and_no_user(world: FramedWorld) -> None:
    nobody = "00000000-0000-0000-0000-000000000000"
    name = json.dumps({"name": "a", "uuid": P}).encode()
    await world.request("POST", "/resource_providers", name, headers=JSON)
    inventory = b'{"resource_class": "VCPU", "total": 4}'
    await world.request("POST", f"/resource_providers/{P}/inventories", inventory, headers=JSON)
    claim = {"allocations": [{"resource_provider": {"uuid": P}, "resources": {"VCPU": 1}}]}
    upper = "ABCDEFAB-1111-1111-1111-111111111111"
    put = await world.request("PUT", f"/allocations/{upper}", json.dumps(claim).encode(), headers=JSON)
    assert put.status == 204
    claimed = await world.request("GET", f"/allocations/{upper.lower()}", version=39)
    assert claimed.json == {
        "allocations": {P: {"resources": {"VCPU": 1}, "generation": 2}},
        "project_id": nobody,
        "user_id": nobody,
        "consumer_generation": 1,
        "consumer_type": "unknown",
    }


async def test_a_consumer_is_called_what_the_body_calls_it(world: FramedWorld) -> None:
    upper = "ABCDEFAB-1111-1111-1111-111111111111"
    claim: dict[str, object] = {"allocations": {}, "project_id": "p", "user_id": "u"}
    claim["consumer_generation"] = None

    # Two spellings are two consumers. The third writes to the first, which is not new any more.
    bodies = [json.dumps({id: claim}).encode() for id in (upper, upper.lower(), upper)]
    asked = [await world.request("POST", "/allocations", body, headers=JSON, version=28) for body in bodies]
    assert [answer.status for answer in asked] == [204, 204, 409]


# -- health and cross-origin --------------------------------------------------------------------


async def test_health_needs_no_token(world: FramedWorld) -> None:
    assert (await world.request("GET", "/healthz", token=None)).status == 200
    ready = await world.request("GET", "/readyz", token=None)
    assert (ready.status, json.loads(ready.body)) == (200, {"status": "ready", "index": 0})
    metrics = await world.request("GET", "/metrics", token=None)
    assert metrics.headers["content-type"].startswith("text/plain")
    assert b"berth_" in metrics.body


async def test_a_server_that_cannot_read_is_not_ready(
    world: FramedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise Unavailable("disk on fire")

    monkeypatch.setattr(Engine, "read", refuse)
    answer = await world.request("GET", "/readyz", token=None)
    assert answer.status == 503
    assert json.loads(answer.body)["reason"] == "disk on fire"


ORIGIN = {
    "origin": "http://good",
    "access-control-request-method": "GET",
    "access-control-request-headers": "OpenStack-API-Version",
}


async def test_answers_of_allowed_origins_say_so(tmp_path: Path) -> None:
    settings = {
        "cors_allowed_origins": ("http://good",),
        "cors_allow_headers": ("openstack-api-version",),
    }
    async with FramedWorld(tmp_path, **settings).running() as world:
        allowed = await world.request("OPTIONS", "/", headers=ORIGIN)
        denied = await world.request("OPTIONS", "/", headers={**ORIGIN, "origin": "http://bad"})
        plain = await world.request("GET", "/", headers={"origin": "http://good"})
    assert allowed.status == 200
    assert allowed.headers["access-control-allow-origin"] == "http://good"
    assert allowed.headers["access-control-allow-headers"] == "OpenStack-API-Version"
    assert denied.status == 200
    assert not any(name.startswith("access-control") for name in denied.headers)
    assert plain.headers["vary"] == "openstack-api-version,Origin, accept-encoding"


async def test_without_allowed_origins_there_is_no_preflight(world: FramedWorld) -> None:
    assert (await world.request("OPTIONS", "/", headers=ORIGIN)).status == 405


async def test_probes_of_health_are_logged_at_debug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """They come every second, and would be most of a log."""
    caplog.set_level(logging.DEBUG)
    async with FramedWorld(tmp_path, log_format="json").running() as world:
        for path in ("/healthz", "/readyz", "/metrics", "/traits"):
            await world.request("GET", path)
        await asyncio.sleep(0)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert {line["path"]: line["level"] for line in lines if line["logger"] == "berth.access"} == {
        "/healthz": "DEBUG",
        "/readyz": "DEBUG",
        "/metrics": "DEBUG",
        "/traits": "INFO",
    }

"""One exchange end to end, without a network: the order of refusals, and what frames every answer."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import pytest

from berth.api.kernel.application import Application
from berth.api.kernel.auth.caller import AuthUnavailable, Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.call import Services
from berth.api.kernel.cors import Cors
from berth.api.kernel.health import Health
from berth.api.native.api import NativeApi
from berth.api.placement.api import PlacementApi
from berth.engine import Engine, Overloaded, Unavailable
from berth.journal import SqliteAddress, open_journal
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.runtime.telemetry import Telemetry
from berth.scheduler.options import scheduler_options

pytestmark = pytest.mark.fast

P = "11111111-1111-1111-1111-111111111111"
JSON = {"content-type": "application/json"}
T = TypeVar("T")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        [error] = json.loads(self.body)["errors"]
        return cast(dict[str, Any], error)


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


class World:
    """An application on a journal of its own."""

    def __init__(self, path: Path, *, origins: tuple[str, ...] = (), **settings: Any) -> None:
        self.path = path
        self.settings = Settings(**settings)
        self.origins = origins

    def run(self, story: Callable[["World"], Awaitable[T]]) -> T:
        async def told() -> T:
            clock, ids = SystemClock(), Ids(seed=1)
            telemetry = Telemetry(self.settings, clock)
            journal = open_journal(SqliteAddress(self.path / "journal.db"), shared=False)
            self.engine = Engine(journal, clock, ids, telemetry)
            await self.engine.start()
            policy = cast(Policy, SomePolicy())
            services = Services(self.engine, ids, clock, scheduler_options(), self.settings, policy)
            self.application = Application(
                (PlacementApi(services), NativeApi(services)),
                Health(self.engine, telemetry.exposition),
                SomeAuth(),
                Cors(self.origins, ("openstack-api-version",)),
                clock,
                ids,
                telemetry,
                body_bytes_max=self.settings.body_bytes_max,
            )
            try:
                return await story(self)
            finally:
                await self.engine.stop()

        return asyncio.run(told())

    def ask(self, method: str, path: str, body: bytes = b"", **options: Any) -> Answer:
        return self.run(lambda world: world.request(method, path, body, **options))

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        version: int | None = None,
        token: str | None = "admin",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = {"host": "berth.example", **(headers or {})}
        if body:
            sent["content-length"] = str(len(body))
        if version is not None:
            sent["openstack-api-version"] = f"placement 1.{version}"
        if token is not None:
            sent["x-auth-token"] = token
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("192.0.2.1", 5),
        }
        messages: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        await self.application(scope, receive, send)
        start, rest = messages
        return Answer(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            rest["body"],
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# -- what frames every answer -------------------------------------------------------------------


def test_root_is_open_to_all(world: World) -> None:
    answer = world.ask("GET", "/", token=None, version=39)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["openstack-api-version"] == "placement 1.39"
    assert answer.headers["vary"] == "openstack-api-version"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-openstack-request-id"].startswith("req-")


def test_without_a_token_nothing_else_matters(world: World) -> None:
    answer = world.ask("GET", "/no/such/path", token=None, headers={"openstack-api-version": "placement 9.9"})
    assert answer.status == 401
    assert set(json.loads(answer.body)) == {"message", "code", "title"}
    assert answer.headers["www-authenticate"] == "Somebody must know"
    assert "openstack-api-version" not in answer.headers


def test_identity_service_away(world: World) -> None:
    answer = world.ask("GET", "/traits", token="down")
    assert answer.status == 503
    assert "keystone is away" in answer.error["detail"]


def test_body_too_large(tmp_path: Path) -> None:
    answer = World(tmp_path, body_bytes_max=1024).ask(
        "POST", "/resource_providers", b"x" * 1025, headers=JSON, version=23
    )
    assert answer.status == 413
    assert answer.headers["openstack-api-version"] == "placement 1.23"
    assert answer.headers["vary"] == "openstack-api-version"
    assert "larger than the limit of 1024 bytes" in answer.error["detail"]


def test_surprise_is_a_500_that_names_the_request(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def explode(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(Engine, "read", explode)
    answer = world.ask("GET", f"/allocations/{P}", version=23)
    assert answer.status == 500
    assert answer.headers["openstack-api-version"] == "placement 1.23"
    assert answer.headers["vary"] == "openstack-api-version"
    assert answer.error["code"] == "placement.undefined_code"
    assert answer.error["request_id"] in answer.error["detail"]
    assert b"secret" not in answer.body
    assert "secret" in caplog.text


@pytest.mark.parametrize("failure", [Overloaded("full"), Unavailable("gone")])
def test_engine_that_cannot_answer(world: World, monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    async def refuse(*_: object) -> None:
        raise failure

    monkeypatch.setattr(Engine, "read", refuse)
    answer = world.ask("GET", f"/allocations/{P}", version=39)
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert str(failure) in answer.error["detail"]


# -- routes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/resource_providers/", "/resource_providers//inventories", "/a/b/c/d/e/f", "/traits/A/B"],
)
def test_no_such_path(world: World, path: str) -> None:
    answer = world.ask("GET", path)
    assert answer.status == 404
    assert answer.error["detail"] == "The resource could not be found.\n\n   "
    assert answer.headers["openstack-api-version"] == "placement 1.0"
    assert "vary" not in answer.headers


def test_no_such_method(world: World) -> None:
    answer = world.ask("DELETE", "/resource_providers")
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, POST"
    assert "The method DELETE is not allowed for this resource." in answer.error["detail"]
    assert world.ask("HEAD", "/resource_providers").status == 405


def test_body_needs_a_type(world: World) -> None:
    answer = world.ask("PUT", "/traits/CUSTOM_A", b"{}", version=6)
    assert answer.status == 400
    assert "content-type header required when content-length > 0" in answer.error["detail"]
    answer = world.ask("GET", "/", headers={"content-length": "hi mom"})
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
def test_order_of_refusals(
    world: World, method: str, path: str, version: int, token: str, headers: dict[str, str], status: int
) -> None:
    assert world.ask(method, path, version=version, token=token, headers=headers).status == status


def test_forbidden_is_bare(world: World) -> None:
    answer = world.ask("GET", "/resource_providers", token="user")
    assert (
        "Policy does not allow placement:resource_providers:list to be performed." in answer.error["detail"]
    )
    assert "vary" not in answer.headers


# -- writing ------------------------------------------------------------------------------------


def test_location_is_absolute(world: World) -> None:
    body = json.dumps({"name": "a", "uuid": P.replace("-", "")}).encode()
    answer = world.ask("POST", "/resource_providers", body, headers=JSON)
    assert (answer.status, answer.body) == (201, b"")
    assert answer.headers["location"] == f"http://berth.example/resource_providers/{P}"
    assert "content-type" not in answer.headers


def test_too_many_providers(tmp_path: Path) -> None:
    world = World(tmp_path, request_providers_max=2)
    claim = {
        "allocations": {f"{P[:-1]}{digit}": {"resources": {"VCPU": 1}} for digit in range(3)},
        "project_id": "p",
        "user_id": "u",
    }
    for method, path, body in (("PUT", f"/allocations/{P}", claim), ("POST", "/allocations", {P: claim})):
        answer = world.ask(method, path, json.dumps(body).encode(), headers=JSON, version=20)
        assert answer.status == 400
        assert "names 3 resource providers, more than the limit of 2" in answer.error["detail"]


def test_oldest_claims_belong_to_nobody_in_particular(world: World) -> None:
    async def story(world: World) -> Answer:
        name = json.dumps({"name": "a", "uuid": P}).encode()
        await world.request("POST", "/resource_providers", name, headers=JSON)
        inventory = b'{"resource_class": "VCPU", "total": 4}'
        await world.request("POST", f"/resource_providers/{P}/inventories", inventory, headers=JSON)
        claim = {"allocations": [{"resource_provider": {"uuid": P}, "resources": {"VCPU": 1}}]}
        upper = "ABCDEFAB-1111-1111-1111-111111111111"
        put = await world.request("PUT", f"/allocations/{upper}", json.dumps(claim).encode(), headers=JSON)
        assert put.status == 204
        return await world.request("GET", f"/allocations/{upper.lower()}", version=39)

    nobody = "00000000-0000-0000-0000-000000000000"
    assert json.loads(world.run(story).body) == {
        "allocations": {P: {"resources": {"VCPU": 1}, "generation": 2}},
        "project_id": nobody,
        "user_id": nobody,
        "consumer_generation": 1,
        "consumer_type": "unknown",
    }


def test_a_consumer_is_called_what_the_body_calls_it(world: World) -> None:
    upper = "ABCDEFAB-1111-1111-1111-111111111111"
    claim: dict[str, object] = {"allocations": {}, "project_id": "p", "user_id": "u"}
    claim["consumer_generation"] = None

    async def story(world: World) -> list[int]:
        bodies = [json.dumps({id: claim}).encode() for id in (upper, upper.lower(), upper)]
        asked = [
            await world.request("POST", "/allocations", body, headers=JSON, version=28) for body in bodies
        ]
        return [answer.status for answer in asked]

    # Two spellings are two consumers. The third writes to the first, which is not new any more.
    assert world.run(story) == [204, 204, 409]


# -- health and cross-origin --------------------------------------------------------------------


def test_health_needs_nothing(world: World) -> None:
    assert world.ask("GET", "/healthz", token=None).status == 200
    ready = world.ask("GET", "/readyz", token=None)
    assert (ready.status, json.loads(ready.body)) == (200, {"status": "ready", "index": 0})
    metrics = world.ask("GET", "/metrics", token=None)
    assert metrics.headers["content-type"].startswith("text/plain")
    assert b"berth_" in metrics.body


def test_not_ready(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise Unavailable("disk on fire")

    monkeypatch.setattr(Engine, "read", refuse)
    answer = world.ask("GET", "/readyz", token=None)
    assert answer.status == 503
    assert json.loads(answer.body)["reason"] == "disk on fire"


def test_cross_origin(tmp_path: Path) -> None:
    world = World(tmp_path, origins=("http://good",))
    asked = {
        "access-control-request-method": "GET",
        "access-control-request-headers": "OpenStack-API-Version",
    }
    allowed = world.ask("OPTIONS", "/", headers={"origin": "http://good", **asked})
    assert allowed.status == 200
    assert allowed.headers["access-control-allow-origin"] == "http://good"
    assert allowed.headers["access-control-allow-headers"] == "OpenStack-API-Version"
    denied = world.ask("OPTIONS", "/", headers={"origin": "http://bad", **asked})
    assert denied.status == 200
    assert not any(name.startswith("access-control") for name in denied.headers)
    plain = world.ask("GET", "/", headers={"origin": "http://good"})
    assert plain.headers["vary"] == "openstack-api-version,Origin"
    assert World(tmp_path).ask("OPTIONS", "/", headers={"origin": "http://good", **asked}).status == 405

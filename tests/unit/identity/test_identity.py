"""/identity/v3: logging in with a tokens file, what tokens are good for, and where services are found."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.tokens import Tokens
from tests.worlds import HttpAnswer, RegionWorld

pytestmark = pytest.mark.fast

ADMIN = "admin-token-0123456789"
ANN = "ann-token-0123456789"
TOKENS = "/identity/v3/auth/tokens"


def entry(token: str, user: str, project: str, roles: str = "[]") -> str:
    return f'[[token]]\ntoken = "{token}"\nuser = "{user}"\nproject = "{project}"\nroles = {roles}\n'


DIGEST = "sha256:" + hashlib.sha256(ANN.encode()).hexdigest()
FILE = entry(ADMIN, "admin", "ops", '["admin", "member"]') + entry(DIGEST, "ann", "blue", '["member"]')


def by_password(user: str, password: str, **scope: Any) -> dict[str, Any]:
    named = {"name": user, "domain": {"name": "Default"}, "password": password}
    auth: dict[str, Any] = {"identity": {"methods": ["password"], "password": {"user": named}}}
    if scope:
        auth["scope"] = {"project": {"domain": {"id": "default"}, **scope}}
    return {"auth": auth}


def by_token(token: str) -> dict[str, Any]:
    return {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}}}


async def log_in(region: RegionWorld, body: object, **how: Any) -> HttpAnswer:
    return await region.ask("POST", TOKENS, body, token=None, **how)


async def issued(region: RegionWorld, user: str = "ann", password: str = ANN) -> str:
    answer = await log_in(region, by_password(user, password))
    assert answer.status == 201, answer.body
    return answer.headers["x-subject-token"]


async def test_versions_are_for_everybody(region: RegionWorld) -> None:
    headers = {"host": "cloud:5", "x-forwarded-proto": "https"}
    for path in ("/identity", "/identity/", "/identity/v3", "/identity/v3/"):
        answer = await region.ask("GET", path, token=None, headers=headers)
        found = answer.json
        version = found["version"] if "v3" in path else found["versions"]["values"][0]
        assert version["links"] == [{"rel": "self", "href": "https://cloud:5/identity/v3/"}]
        assert (version["id"], version["status"]) == ("v3.14", "stable")
    refused = await region.ask("GET", "/identity/v3/projects", token=None)
    assert (refused.status, refused.json["error"]["title"]) == (401, "Unauthorized")
    # Not below the prefix, though it begins alike: this is Placement's to refuse.
    assert "errors" in (await region.ask("GET", "/identities", token=ADMIN)).json


async def test_a_password_gets_a_token_with_a_catalog(region: RegionWorld) -> None:
    answer = await log_in(region, by_password("ann", ANN, name="blue"), headers={"host": "cloud:5"})
    assert answer.status == 201
    token = answer.json["token"]
    domain = {"id": "default", "name": "Default"}
    assert token["user"] == {"id": "ann", "name": "ann", "domain": domain, "password_expires_at": None}
    assert token["project"] == {"id": "blue", "name": "blue", "domain": domain}
    assert token["roles"] == [{"id": role, "name": role} for role in ("member", "reader")]
    assert (token["methods"], token["is_domain"]) == (["password"], False)
    assert token["issued_at"] == "2026-01-01T00:00:00.000000Z"
    assert token["expires_at"] == "2026-01-01T12:00:00.000000Z"
    urls = {
        service["type"]: {(one["interface"], one["region"], one["url"]) for one in service["endpoints"]}
        for service in token["catalog"]
    }
    paths = {
        "compute": "/compute/v2.1",
        "placement": "",
        "image": "/image",
        "identity": "/identity/v3",
    }
    assert urls == {
        type: {
            (interface, "RegionOne", f"http://cloud:5{path}") for interface in ("public", "internal", "admin")
        }
        for type, path in paths.items()
    }
    lean = await region.ask("POST", f"{TOKENS}?nocatalog", by_password("ann", ANN), token=None)
    assert "catalog" not in lean.json["token"]


async def test_an_issued_token_is_good_everywhere_and_not_the_password(region: RegionWorld) -> None:
    token = await issued(region, "admin", ADMIN)
    assert ADMIN not in token
    for path in ("/compute/v2.1/flavors", "/image/v2/images", "/resource_providers", "/berth/v1/groups"):
        assert (await region.ask("GET", path, token=token)).status == 200, path
    # Another worker knows nothing but the file.
    other = Tokens(str(region.tokens_file), region.clock, issues=True)
    caller = await other.identify({"x-auth-token": token})
    assert caller == Caller("admin", "ops", ("admin", "member", "manager", "reader"))
    # The plain token goes on being one.
    assert (await region.ask("GET", "/compute/v2.1/flavors", token=ADMIN)).status == 200


@pytest.mark.parametrize(
    "body",
    [
        by_password("ann", ADMIN),
        by_password("admin", ANN),
        by_password("ann", ANN + "x"),
        by_password("ann", DIGEST),
        by_password("nobody", ANN),
        by_password("ann", ANN, name="ops"),
        by_password("ann", ANN, id="ops"),
        by_token("berth1.a.b.c"),
        by_token("nonsense"),
        {"auth": {"identity": {"methods": ["totp"]}}},
    ],
)
async def test_who_is_not_let_in(region: RegionWorld, body: Any) -> None:
    answer = await log_in(region, body)
    assert answer.status == 401
    error = answer.json["error"]
    assert (error["code"], error["title"]) == (401, "Unauthorized")
    assert "x-subject-token" not in answer.headers


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"auth": {"identity": {"methods": []}}},
        {"auth": {"identity": {"methods": ["password"]}}},
        {"auth": {"identity": {"methods": ["token"], "token": {"id": ADMIN}}, "scope": {"system": {}}}},
        {"auth": {"identity": {"methods": ["token"], "token": {"id": ADMIN}}, "scope": {"project": {}}}},
    ],
)
async def test_what_is_no_way_to_log_in(region: RegionWorld, body: Any) -> None:
    answer = await log_in(region, body)
    assert (answer.status, answer.json["error"]["code"]) == (400, 400)


async def test_a_changed_token_is_nobodys(region: RegionWorld) -> None:
    token = await issued(region)
    version, name, grant, seal = token.split(".")
    of_admin = (await issued(region, "admin", ADMIN)).split(".")
    for forged in (
        f"{version}.{name}.{grant}.{seal[:-2]}AA",
        f"{version}.{name}.{of_admin[2]}.{seal}",
        f"{version}.{of_admin[1]}.{grant}.{seal}",
        f"{version}.{name}.{grant}.",
        f"{version}.{name}.{grant}",
        f"{version}.{name}.{grant}.{seal}é",
    ):
        assert (await region.ask("GET", "/compute/v2.1/flavors", token=forged)).status == 401, forged
    assert (await region.ask("GET", "/compute/v2.1/flavors", token=token)).status == 200


async def test_a_token_ends_after_twelve_hours_and_with_its_entry(region: RegionWorld) -> None:
    token = await issued(region)

    async def status() -> int:
        return (await region.ask("GET", "/compute/v2.1/flavors", token=token)).status

    region.clock.advance(12 * 3600 - 1)
    assert await status() == 200
    # A token that is got for it does not outlive it.
    again = await log_in(region, by_token(token))
    assert again.json["token"]["expires_at"] == "2026-01-01T12:00:00.000000Z"
    assert again.json["token"]["methods"] == ["token", "password"]
    region.clock.advance(1)
    assert await status() == 401
    renewed = again.headers["x-subject-token"]
    assert (await region.ask("GET", "/compute/v2.1/flavors", token=renewed)).status == 401

    token = await issued(region)
    assert await status() == 200
    region.write_tokens(entry(ADMIN, "admin", "ops", '["admin"]') + entry(DIGEST, "ann", "red"))
    region.clock.advance(2)
    # The entry is there, for another project: the token was for the old one.
    assert await status() == 401
    region.write_tokens(entry(ADMIN, "admin", "ops", '["admin"]'))
    region.clock.advance(2)
    assert await status() == 401


@pytest.mark.parametrize("methods", [["token"], ["token", "password"], ["password", "token"]])
async def test_a_token_that_is_exchanged_keeps_its_expiry(region: RegionWorld, methods: list[str]) -> None:
    token = await issued(region)
    for _ in range(3):
        region.clock.advance(3600)
        body = by_password("ann", ANN)
        body["auth"]["identity"] |= {"methods": methods, "token": {"id": token}}
        exchanged = await log_in(region, body)
        assert exchanged.status == 201
        assert exchanged.json["token"]["expires_at"] == "2026-01-01T12:00:00.000000Z"
        token = exchanged.headers["x-subject-token"]


async def test_without_cells_issued_tokens_are_not_believed(region: RegionWorld) -> None:
    token = await issued(region)
    plain = Tokens(str(region.tokens_file), region.clock)
    assert await plain.identify({"x-auth-token": token}) is None
    assert await plain.identify({"x-auth-token": ANN}) == Caller("ann", "blue", ("member", "reader"))


async def test_a_token_is_shown_to_its_user_and_to_admins(region: RegionWorld) -> None:
    token = await issued(region)

    async def ask(method: str, who: str, subject: str | None) -> HttpAnswer:
        headers = {} if subject is None else {"x-subject-token": subject}
        return await region.ask(method, TOKENS, token=who, headers=headers)

    for who in (token, ANN, ADMIN):
        answer = await ask("GET", who, token)
        assert (answer.status, answer.headers["x-subject-token"]) == (200, token)
        assert answer.json["token"]["expires_at"] == "2026-01-01T12:00:00.000000Z"
    assert (await ask("HEAD", ADMIN, token)).status == 200
    assert (await ask("GET", token, ADMIN)).status == 403
    assert (await ask("GET", ADMIN, "nobody")).status == 404
    assert (await ask("GET", ADMIN, None)).status == 400
    assert (await ask("DELETE", token, token)).status == 204
    assert (await ask("DELETE", ANN, "nobody")).status == 404


async def test_lists_of_what_there_is(region: RegionWorld) -> None:
    async def ids(path: str, who: str = ADMIN) -> list[str]:
        answer = await region.ask("GET", f"/identity/v3/{path}", token=who)
        assert answer.status == 200, answer.body
        [items] = [value for value in answer.json.values() if isinstance(value, list)]
        return [item["id"] for item in items]

    assert await ids("projects") == ["ops", "blue"]
    assert await ids("projects?name=blue") == ["blue"]
    assert await ids("projects?domain_id=default&name=none") == []
    assert await ids("projects", ANN) == ["blue"]
    # As Keystone has it: clients then take the name for an id.
    for name in ("ops", "none"):
        refused = await region.ask("GET", f"/identity/v3/projects?name={name}", token=ANN)
        assert refused.status == 403
    assert await ids("auth/projects") == ["ops"]
    assert await ids("users") == ["admin", "ann"]
    assert await ids("users", ANN) == ["ann"]
    assert await ids("users/ann/projects") == ["blue"]
    assert await ids("users/admin/projects", ANN) == []
    assert await ids("roles") == ["admin", "member", "manager", "reader"]
    assert await ids("domains") == ["default"]
    assert await ids("regions") == ["RegionOne"]
    assert len(await ids("services")) == 4
    assert len(await ids("endpoints")) == 12
    assert len(await ids("endpoints?interface=public")) == 4
    assert len(await ids("auth/catalog", ANN)) == 4
    one = await region.ask("GET", "/identity/v3/projects/blue", token=ANN)
    assert one.json["project"]["name"] == "blue"
    for path in ("projects/ops", "projects/none", "things"):
        missing = await region.ask("GET", f"/identity/v3/{path}", token=ANN)
        assert (missing.status, missing.json["error"]["code"]) == (404, 404)


@pytest.mark.parametrize("path", ["projects?tags-any=a", "users?tags=a", "endpoints?type=image", "roles?a=b"])
async def test_a_list_is_refused_with_a_word_that_it_does_not_know(region: RegionWorld, path: str) -> None:
    """All of it was listed."""
    refused = await region.ask("GET", f"/identity/v3/{path}", token=ADMIN)
    assert refused.status == 400
    assert "is not supported in a request for" in refused.json["error"]["message"]


async def test_where_everybody_is_believed_any_password_will_do(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path).running() as region:
        answer = await log_in(region, by_password("admin", "whatever", name="ops"))
        assert answer.headers["x-subject-token"] == "admin:ops"
        assert [role["name"] for role in answer.json["token"]["roles"]] == [
            "admin",
            "manager",
            "member",
            "reader",
        ]
        unscoped = await log_in(region, by_password("ann", ""))
        assert unscoped.headers["x-subject-token"] == "ann:ann"
        assert (await log_in(region, by_token("ann:blue"))).headers["x-subject-token"] == "ann:blue"
        for user in ("", "a:b", "a\r\nset-cookie: x", "ü", "a b"):
            assert (await log_in(region, by_password(user, ""))).status == 401, user
        shown = await region.ask("GET", TOKENS, token="admin:ops", headers={"x-subject-token": "ann:blue"})
        assert shown.json["token"]["project"]["id"] == "blue"
        listed = await region.ask("GET", "/identity/v3/projects", token="admin:ops")
        assert [project["id"] for project in listed.json["projects"]] == ["ops"]


async def test_entries_of_one_user_do_not_lend_each_other_roles(tmp_path: Path) -> None:
    weak, strong = "weak-token-0123456789", "strong-token-0123456789"
    region = RegionWorld(tmp_path, entry(strong, "ann", "blue", '["admin"]') + entry(weak, "ann", "blue"))
    async with region.running():
        token = await issued(region, "ann", weak)
    tokens = Tokens(str(region.tokens_file), region.clock, issues=True)
    assert await tokens.identify({"x-auth-token": token}) == Caller("ann", "blue", ())

"""What /berth/v1 refuses, in which shape and in which words."""

from pathlib import Path

import pytest

from tests.worlds import ApplicationWorld, uuid_of

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("consumers?color=red", "unknown_parameter", "'color' here; known are: project, user, type, "),
        ("openapi.json?x=1", "unknown_parameter", "known are: none"),
        ("consumers?limit=0", "bad_parameter", "limit: it must be a whole number from 1 to 1000; it is '0'"),
        ("consumers?limit=1001", "bad_parameter", "from 1 to 1000; it is '1001'"),
        ("consumers?limit=01", "bad_parameter", "it is '01'"),
        ("consumers?limit=1.0", "bad_parameter", "it is '1.0'"),
        ("consumers?limit=", "bad_parameter", "it is ''"),
        ("consumers?limit=" + "9" * 5000, "bad_parameter", "..."),
        ("consumers?limit=1&limit=2", "bad_parameter", "limit: it is given more than once"),
        ("consumers?provider=", "bad_parameter", "provider: it must be a text of 1 to 255 characters"),
        ("consumers?marker=x", "bad_parameter", "marker: it must be a uuid"),
        ("consumers?project=", "bad_parameter", "project: it must be a text of 1 to 255 characters"),
        ("consumers?project=%ff", "bad_parameter", "not UTF-8"),
        ("allocations?resource_class=NONE", "bad_parameter", "there is no resource class 'NONE'"),
        ("usage", "bad_parameter", "by: it is missing, and it must be one of aggregate, project, "),
        ("usage?by=rack", "bad_parameter", "it is 'rack'"),
        ("usage?by=root&resource_class=NONE", "bad_parameter", "there is no resource class 'NONE'"),
        ("events?after=-1", "bad_parameter", "after: it must be a whole number from 0 to"),
        ("events?stream=yes", "bad_parameter", "one of false, true"),
    ],
)
async def test_a_bad_parameter_is_refused_by_name(
    world: ApplicationWorld, path: str, code: str, words: str
) -> None:
    answer = await world.get(f"/berth/v1/{path}")
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.error) == {"status", "title", "detail", "code", "request_id"}
    assert answer.error["code"] == f"berth.{code}"
    assert words in answer.error["detail"]
    assert len(answer.body) < 1000


@pytest.mark.parametrize("more", ["", "&stream=true"])
async def test_an_index_that_the_journal_does_not_have_any_more_is_gone(
    world: ApplicationWorld, more: str
) -> None:
    """It was a 400, which no client takes for a reason to begin anew."""
    answer = await world.get(f"/berth/v1/events?after=1{more}")
    assert answer.status == 410
    assert answer.error["code"] == "berth.index_ahead"
    assert "the journal ends at index 0; 1 is beyond it" in answer.error["detail"]
    assert answer.error["start_at"] == "/berth/v1/events?after=0"


async def test_a_missing_token_is_refused(world: ApplicationWorld) -> None:
    answer = await world.ask("GET", "/berth/v1/consumers", token=None)
    assert answer.status == 401
    assert answer.error["code"] == "berth.unauthorized"


async def test_a_caller_without_the_role_is_refused(world: ApplicationWorld) -> None:
    answer = await world.ask("GET", "/berth/v1/events", token="guest")
    assert answer.status == 403
    assert answer.error["detail"] == "Policy doesn't allow berth:events:list to be performed."


async def test_the_description_is_for_everybody_who_is_known(world: ApplicationWorld) -> None:
    answer = await world.ask("GET", "/berth/v1/openapi.json", token="guest")
    assert answer.status == 200


@pytest.mark.parametrize(
    "path", ["/berth/v1", "/berth/v1/", "/berth/v1/consumers/", "/berth/v1/groups//members"]
)
async def test_an_unknown_path_is_not_found(world: ApplicationWorld, path: str) -> None:
    answer = await world.get(path)
    assert answer.status == 404
    assert answer.error["code"] == "berth.not_found"
    assert "/berth/v1/consumers" in answer.error["detail"]


async def test_a_path_that_only_looks_like_ours_is_not_ours(world: ApplicationWorld) -> None:
    answer = await world.get("/berth/v10", accept="application/json")
    assert answer.status == 404
    assert "code" in answer.error
    assert not answer.error["code"].startswith("berth.")


async def test_a_list_is_only_read(world: ApplicationWorld) -> None:
    answer = await world.ask("POST", "/berth/v1/consumers", {})
    assert answer.status == 405
    assert answer.headers["allow"] == "GET"
    assert answer.error["code"] == "berth.method_not_allowed"


async def test_only_json_is_offered(world: ApplicationWorld) -> None:
    answer = await world.get("/berth/v1/consumers", accept="text/event-stream")
    assert answer.status == 406
    assert answer.error["code"] == "berth.not_acceptable"


async def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path, body_bytes_max=1024).running() as world:
        answer = await world.ask("GET", "/berth/v1/consumers", {"x": "y" * 2000})
    assert answer.status == 413
    assert answer.error["code"] == "berth.body_too_large"


async def test_an_engine_that_has_stopped_is_a_503(world: ApplicationWorld) -> None:
    await world.engine.stop()
    answer = await world.get("/berth/v1/events?after=0")
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.error["code"] == "berth.unavailable"


async def test_providers_may_be_spelled_in_capitals(world: ApplicationWorld) -> None:
    id = "abcdef00-0000-0000-0000-000000000001"
    await world.change("POST", "/resource_providers", {"name": "h", "uuid": id})
    answer = await world.get(f"/berth/v1/usage?by=provider&tree={id.upper()}")
    assert [row["key"] for row in answer.json["usage"]] == [id]
    assert (await world.get(f"/berth/v1/consumers?tree={uuid_of(1)}")).json["consumers"] == []

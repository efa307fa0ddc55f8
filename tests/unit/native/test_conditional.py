"""Conditional reads: a tag is the same while the answer is, and another when the answer is another."""

from pathlib import Path

import pytest

from tests.worlds import ApplicationWorld, HttpAnswer, uuid_of

pytestmark = pytest.mark.fast

P = f"/resource_providers/{uuid_of(1)}"
SINGLE = [
    P,
    f"{P}/inventories",
    f"{P}/inventories/VCPU",
    f"{P}/usages",
    f"{P}/aggregates",
    f"{P}/allocations",
    f"{P}/traits",
    f"/allocations/{uuid_of(11)}",
    "/resource_classes",
    "/resource_classes/VCPU",
    "/traits",
    "/usages?project_id=p",
    "/berth/v1/openapi.json",
]
SEARCHES = [
    "/resource_providers",
    "/resource_providers?resources=VCPU:1",
    "/allocation_candidates?resources=VCPU:1",
    "/berth/v1/consumers",
    "/berth/v1/allocations",
    "/berth/v1/usage?by=root",
]


async def fill(world: ApplicationWorld) -> None:
    await world.host(1)
    await world.claim(11, {1: {"VCPU": 1}})


async def again(world: ApplicationWorld, path: str, tag: str) -> HttpAnswer:
    return await world.get(path, if_none_match=tag)


async def test_an_answer_that_is_still_so_is_spared(world: ApplicationWorld) -> None:
    await fill(world)
    for path in SINGLE + SEARCHES:
        whole = await world.get(path)
        assert whole.status == 200, path
        spared = await again(world, path, whole.headers["etag"])
        assert (spared.status, spared.body) == (304, b""), path
        assert "content-length" not in spared.headers
        assert "content-type" not in spared.headers
        for name in ("etag", "cache-control", "openstack-api-version", "vary"):
            assert spared.headers.get(name) == whole.headers.get(name), (path, name)
        assert "accept-encoding" in whole.headers["vary"], path


async def test_tags_are_the_same_in_another_process(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path).running() as world:
        await fill(world)
    seen = []
    for _ in range(2):
        async with ApplicationWorld(tmp_path).running() as world:
            seen.append([(await world.get(path)).headers["etag"] for path in SINGLE + SEARCHES])
    assert seen[0] == seen[1]


async def test_what_is_small_keeps_its_tag_through_other_changes(world: ApplicationWorld) -> None:
    await fill(world)
    tags = {path: (await world.get(path)).headers["etag"] for path in SINGLE + SEARCHES}
    await world.host(2)
    for path, tag in tags.items():
        expected = 304 if path in SINGLE else 200
        assert (await again(world, path, tag)).status == expected, path


@pytest.mark.parametrize("path", [P, "/resource_providers", "/allocation_candidates?resources=VCPU:1"])
async def test_a_rename_is_another_answer_even_within_a_second(world: ApplicationWorld, path: str) -> None:
    await fill(world)
    for number in range(3):
        tag = (await world.get(path)).headers["etag"]
        await world.change("PUT", P, {"name": f"renamed-{number}"})
        assert (await again(world, path, tag)).status == 200


async def test_a_class_that_is_renamed_is_another_answer(world: ApplicationWorld) -> None:
    await world.change("PUT", "/resource_classes/CUSTOM_A")
    await world.host(1, {"CUSTOM_A": 1})
    tag = (await world.get(f"{P}/inventories")).headers["etag"]
    await world.change("PUT", "/resource_classes/CUSTOM_A", {"name": "CUSTOM_B"}, version="1.6")
    assert (await again(world, f"{P}/inventories", tag)).status == 200


async def test_versions_and_urls_have_tags_of_their_own(world: ApplicationWorld) -> None:
    await fill(world)
    tag = (await world.get("/resource_providers")).headers["etag"]
    older = await world.ask("GET", "/resource_providers", version="1.5", headers={"if-none-match": tag})
    assert older.status == 200
    for path in ("/resource_providers?name=host-1", "/resource_providers?name=none"):
        assert (await again(world, path, tag)).status == 200


@pytest.mark.parametrize("listed", ['"x", {tag}', "W/{tag}", '{tag},W/"y"', "*"])
async def test_any_tag_of_a_list_matches(world: ApplicationWorld, listed: str) -> None:
    await fill(world)
    for path in (P, "/resource_providers", "/berth/v1/consumers"):
        tag = (await world.get(path)).headers["etag"].removeprefix("W/")
        assert (await again(world, path, listed.format(tag=tag))).status == 304


async def test_only_a_success_of_get_is_judged(world: ApplicationWorld) -> None:
    await fill(world)
    condition = {"if-none-match": "*"}
    missing = await again(world, f"/resource_providers/{uuid_of(9)}", "*")
    assert missing.status == 404
    assert "etag" not in missing.headers
    assert (await again(world, "/resource_providers?in_tree=x", "*")).status == 400
    assert (await again(world, "/berth/v1/consumers?limit=0", "*")).status == 400
    assert (await world.ask("GET", P, token="guest", headers=condition)).status == 403
    assert (await world.ask("GET", P, token=None, headers=condition)).status == 401
    renamed = await world.ask("PUT", P, {"name": "renamed"}, headers=condition)
    assert renamed.status == 200
    assert "etag" not in renamed.headers


async def test_who_may_not_read_learns_nothing_from_a_tag(world: ApplicationWorld) -> None:
    await fill(world)
    for path in (P, "/resource_providers", "/berth/v1/consumers"):
        tag = (await world.get(path)).headers["etag"]
        refused = await world.ask("GET", path, token="guest", headers={"if-none-match": tag})
        assert refused.status == 403


CALLERS: list[dict[str, str]] = [
    {},
    {"x-roles": "service"},
    {"x-project-id": "another"},
]


@pytest.mark.parametrize("path", ["/berth/v1/groups", "/berth/v1/hosts"])
async def test_a_tag_is_of_what_its_caller_may_see(world: ApplicationWorld, path: str) -> None:
    """A list says to each caller what that caller may see: another's tag is no proof of having seen that."""
    await fill(world)
    wholes = [await world.ask("GET", path, headers=who) for who in CALLERS]
    assert {whole.headers["vary"] for whole in wholes} == {"x-auth-token, accept-encoding"}
    for mine, who in zip(wholes, CALLERS, strict=True):
        for whole in wholes:
            headers = {**who, "if-none-match": whole.headers["etag"]}
            answer = await world.ask("GET", path, headers=headers)
            assert answer.status == (304 if whole is mine else 200), who
            assert answer.headers["vary"] == "x-auth-token, accept-encoding"


async def test_a_random_choice_has_no_tag(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path, randomize_allocation_candidates=True).running() as world:
        await fill(world)
        assert "etag" not in (await world.get("/allocation_candidates?resources=VCPU:1")).headers


async def test_settings_that_shape_answers_are_part_of_the_tag(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path).running() as world:
        await fill(world)
        tag = (await world.get("/allocation_candidates?resources=VCPU:1")).headers["etag"]
    async with ApplicationWorld(tmp_path, max_allocation_candidates=1).running() as world:
        assert (await world.get("/allocation_candidates?resources=VCPU:1")).headers["etag"] != tag

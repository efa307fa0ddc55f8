"""How much one request may ask for: every list has an end, and what is beyond it is refused in words."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.api.kernel.problem import Problem
from berth.api.placement.allocation_candidates import parse_candidates_query
from berth.api.placement.query import CLASSES_MAX, NAMES_MAX, PARAMETERS_MAX, Query
from berth.model.scheduling import CandidatesRequest
from tests.unit.api.test_application import FramedWorld

pytestmark = pytest.mark.fast

A = "11111111-1111-1111-1111-111111111111"
B = "22222222-2222-2222-2222-222222222222"
C = "33333333-3333-3333-3333-333333333333"
JSON = {"content-type": "application/json"}


def parse(text: str, version: int = 39, groups_max: int = 128) -> CandidatesRequest:
    return parse_candidates_query(Query(text), version, groups_max)


def refusal(text: str, version: int = 39, groups_max: int = 128) -> str:
    with pytest.raises(Problem) as caught:
        parse(text, version, groups_max)
    assert caught.value.status == 400
    return caught.value.text


# -- repeated parameters ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits", ["limit=abc&limit=1", "limit=1&limit=abc", "limit=-5&limit=1", "limit=&limit=1"]
)
@pytest.mark.parametrize("version", [16, 25, 39])
def test_every_limit_is_judged(limits: str, version: int) -> None:
    text = refusal(f"resources=VCPU:1&{limits}", version)
    assert text.startswith("Invalid query string parameters: ")
    assert " does not match '^[1-9][0-9]*$'" in text or "non-empty" in text or "too short" in text


@pytest.mark.parametrize(
    ("limits", "limit"), [("limit=0&limit=4", None), ("limit=%2B3&limit=4", 3), ("limit=+02&limit=4", 2)]
)
def test_a_first_limit_is_read_as_upstream_reads_it(limits: str, limit: int | None) -> None:
    assert parse(f"resources=VCPU:1&{limits}").limit == limit


def test_of_several_group_policies_the_schema_sees_the_last_and_the_first_counts() -> None:
    assert "'bogus' is not one of" in refusal("resources=VCPU:1&group_policy=none&group_policy=bogus")
    assert not parse("resources=VCPU:1&group_policy=+isolate&group_policy=isolate").isolate
    two = "resources1=VCPU:1&resources2=VCPU:1"
    assert not parse(f"{two}&group_policy=bogus&group_policy=isolate").isolate
    assert '"group_policy" parameter is required' in refusal(f"{two}&group_policy=&group_policy=isolate")


def test_every_resources_and_in_tree_is_read_and_the_last_counts() -> None:
    first = "00000000-0000-0000-0000-000000000001"
    [group] = parse(f"resources=VCPU:1&in_tree={first}&resources=VCPU:2&in_tree={first[:-1]}2").groups
    assert group.resources == (("VCPU", 2),)
    assert group.in_tree == f"{first[:-1]}2"
    assert "requires amount >= 1" in refusal("resources=VCPU:0&resources=VCPU:17")
    assert "to be a format of uuid" in refusal(f"resources=VCPU:1&in_tree=x&in_tree={first}")
    assert "to be a format of uuid" in refusal("resources=VCPU:1&in_tree=x&resources=VCPU:0")


def test_the_first_of_several_good_ones_counts() -> None:
    request = parse("resources=VCPU:1&limit=3&limit=4&group_policy=isolate&group_policy=none")
    assert request.limit == 3
    assert request.isolate


def test_a_limit_beyond_all_is_as_good_as_none() -> None:
    assert parse("resources=VCPU:1&limit=1" + "0" * 5000).limit == 2**31 - 1
    assert parse("resources=VCPU:1&limit=99999999999").limit == 2**31 - 1


# -- queries ------------------------------------------------------------------------------------


def test_too_many_parameters_are_refused() -> None:
    assert len(Query("&".join(["a=1"] * PARAMETERS_MAX)).pairs) == PARAMETERS_MAX
    text = refusal("&".join(f"x{number}" for number in range(PARAMETERS_MAX + 1)))
    assert f"{PARAMETERS_MAX + 1} parameters were sent, at most {PARAMETERS_MAX} are allowed" in text


def test_too_many_groups_are_refused_before_they_are_read() -> None:
    query = "&".join(f"resources{number}=nonsense" for number in range(1, 4))
    assert "Too many request groups: 3 were sent, at most 2" in refusal(query, groups_max=2)


def test_too_many_classes_in_one_query() -> None:
    def query(count: int) -> str:
        halves = (range(0, count, 2), range(1, count, 2))
        groups = (",".join(f"CUSTOM_{number}:1" for number in half) for half in halves)
        return "&".join(f"resources{at}={group}" for at, group in enumerate(groups, 1)) + "&group_policy=none"

    assert len(parse(query(CLASSES_MAX)).groups) == 2
    text = refusal(query(CLASSES_MAX + 1))
    assert f"{CLASSES_MAX + 1} were sent, at most {CLASSES_MAX} are allowed" in text


def names(count: int) -> str:
    return ",".join(f"CUSTOM_{number}" for number in range(count))


def ids(count: int) -> str:
    return "in:" + ",".join(f"{A[:-4]}{number:04d}" for number in range(count))


@pytest.mark.parametrize(
    "template",
    [
        "resources=VCPU:1&required={names}",
        "resources=VCPU:1&required={names}&required=in:{one}",
        "resources=VCPU:1&required={one}&resources1=VCPU:1&required1={names}",
        "resources=VCPU:1&root_required={names}",
        "resources=VCPU:1&member_of={ids}",
        "resources=VCPU:1&member_of={ids}&member_of=!" + B,
        "resources_A=VCPU:1&same_subtree={names}",
    ],
)
def test_too_many_names_in_one_query(template: str) -> None:
    query = template.format(names=names(NAMES_MAX + 1), ids=ids(NAMES_MAX + 1), one="CUSTOM_X")
    text = refusal(query)
    assert "were sent, at most" in text
    assert f"at most {NAMES_MAX} are allowed" in text


def test_as_many_names_as_are_allowed() -> None:
    request = parse(f"resources=VCPU:1&required={names(NAMES_MAX)}&member_of={ids(NAMES_MAX)}")
    assert len(request.groups[0].required) == NAMES_MAX


async def test_providers_are_asked_for_within_the_same_limits(tmp_path: Path) -> None:
    queries = (
        f"required={names(NAMES_MAX + 1)}",
        f"member_of={ids(NAMES_MAX + 1)}",
        "resources=" + ",".join(f"CUSTOM_{number}:1" for number in range(NAMES_MAX + 1)),
    )
    async with FramedWorld(tmp_path).running() as world:
        for query in queries:
            answer = await world.request("GET", f"/resource_providers?{query}", version=39)
            assert answer.status == 400
            assert f"{NAMES_MAX + 1} were sent, at most" in answer.error["detail"]


# -- writes -------------------------------------------------------------------------------------


def claim(**allocations: Any) -> dict[str, Any]:
    return {
        "allocations": {A: {"resources": allocations or {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
    }


INVENTORIES = {
    "resource_provider_generation": 0,
    "inventories": {name: {"total": 1} for name in ("VCPU", "MEMORY_MB", "DISK_GB")},
}
THREE_CLASSES = {"VCPU": 1, "MEMORY_MB": 1, "DISK_GB": 1}
GENERATION = {"resource_provider_generation": 0}


@pytest.mark.parametrize(
    ("method", "path", "body", "what"),
    [
        ("PUT", f"/resource_providers/{A}/aggregates", {"aggregates": [A, B, C], **GENERATION}, "aggregates"),
        ("PUT", f"/resource_providers/{A}/traits", {"traits": ["A", "B", "C"], **GENERATION}, "traits"),
        ("PUT", f"/resource_providers/{A}/inventories", INVENTORIES, "inventories"),
        ("PUT", f"/allocations/{A}", claim(**THREE_CLASSES), "resource classes"),
        ("POST", "/allocations", {A: claim(**THREE_CLASSES)}, "resource classes"),
        ("POST", "/allocations", {A: claim(), B: claim(), C: claim()}, "consumers"),
        ("POST", "/reshaper", {"inventories": {A: INVENTORIES}, "allocations": {}}, "inventories"),
        (
            "POST",
            "/reshaper",
            {
                "inventories": {A: {"inventories": {}, **GENERATION}},
                "allocations": {A: claim(), B: claim(), C: claim()},
            },
            "consumers",
        ),
    ],
)
async def test_too_long_a_list_in_one_write(
    tmp_path: Path, method: str, path: str, body: Any, what: str
) -> None:
    async with FramedWorld(tmp_path, request_list_max=2).running() as world:
        provider = json.dumps({"name": "a", "uuid": A}).encode()
        assert (await world.request("POST", "/resource_providers", provider, headers=JSON)).status == 201
        answer = await world.request(method, path, json.dumps(body).encode(), headers=JSON, version=33)
    assert answer.status == 400
    assert f"The request lists 3 {what}, more than the limit of 2" in answer.error["detail"]


async def test_too_long_a_list_in_an_old_claim(tmp_path: Path) -> None:
    claim = {"allocations": [{"resource_provider": {"uuid": A}, "resources": THREE_CLASSES}]}
    async with FramedWorld(tmp_path, request_list_max=2).running() as world:
        answer = await world.request("PUT", f"/allocations/{A}", json.dumps(claim).encode(), headers=JSON)
    assert answer.status == 400
    assert "The request lists 3 resource classes, more than the limit of 2" in answer.error["detail"]


@pytest.mark.parametrize("path", ["/allocations", "/reshaper"])
async def test_too_many_allocations_in_one_write(tmp_path: Path, path: str) -> None:
    claims = {consumer: claim() for consumer in (A, B)}
    inventories = {A: {"inventories": {"VCPU": {"total": 8}}, **GENERATION}}
    body = claims if path == "/allocations" else {"inventories": inventories, "allocations": claims}
    async with FramedWorld(tmp_path, request_allocations_max=1).running() as world:
        answer = await world.request("POST", path, json.dumps(body).encode(), headers=JSON, version=33)
    count = 2 if path == "/allocations" else 3
    assert answer.status == 400
    assert (
        f"The request writes {count} allocations and inventories, more than the limit of 1."
        in answer.error["detail"]
    )


# -- a name that looks like JSON ----------------------------------------------------------------


async def test_a_class_named_like_json_is_no_json(tmp_path: Path) -> None:
    path = '/resource_classes/CUSTOM_A", "name": "CUSTOM_B'
    async with FramedWorld(tmp_path).running() as world:
        answer = await world.request("PUT", path, version=7)
    assert answer.status == 400
    assert "does not match '^CUSTOM_[A-Z0-9_]+$'" in answer.error["detail"]

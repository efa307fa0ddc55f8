"""/berth/v1/consumers, /allocations and /usage: what is listed, what is filtered out, and pages."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.worlds import ApplicationWorld, uuid_of

pytestmark = pytest.mark.fast

AGGREGATE = uuid_of(900)
OTHER_AGGREGATE = uuid_of(901)


async def fill(world: ApplicationWorld) -> None:
    """Hosts 1 (with cell 2 below) and 3; consumers 11 to 14."""
    await world.host(1, {"VCPU": 8, "MEMORY_MB": 1000})
    await world.host(2, {"VCPU": 4}, parent=1)
    await world.host(3, {"VCPU": 2})
    await world.join(1, AGGREGATE)
    await world.join(3, AGGREGATE, OTHER_AGGREGATE)
    await world.claim(11, {1: {"VCPU": 2, "MEMORY_MB": 100}, 2: {"VCPU": 1}}, project="a")
    await world.claim(12, {2: {"VCPU": 3}}, project="b", user="v", type="MIGRATION")
    await world.claim(13, {3: {"VCPU": 1}}, project="a", type=None)
    await world.claim(14, {1: {"MEMORY_MB": 7}, 3: {"VCPU": 1}}, project="b")


@pytest.fixture(scope="module")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApplicationWorld]:
    """Filled once, for tests that only read."""
    async with ApplicationWorld(tmp_path_factory.mktemp("filled")).running() as world:
        await fill(world)
        yield world


def numbers(rows: list[dict[str, Any]], key: str) -> list[int]:
    return [int(row[key][-12:]) for row in rows]


# -- consumers ----------------------------------------------------------------------------------


async def test_a_consumer_is_shown_whole(filled: ApplicationWorld) -> None:
    first, *_ = (await filled.get("/berth/v1/consumers")).json["consumers"]
    assert first.pop("created_at") == first.pop("updated_at")
    assert first == {
        "uuid": uuid_of(11),
        "project_id": "a",
        "user_id": "u",
        "consumer_type": "INSTANCE",
        "generation": 1,
        "providers": 2,
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [11, 12, 13, 14]),
        ("?project=a", [11, 13]),
        ("?user=v", [12]),
        ("?type=INSTANCE", [11, 14]),
        ("?type=unknown", [13]),
        ("?type=NONE", []),
        (f"?provider={uuid_of(1)}", [11, 14]),
        (f"?provider={uuid_of(2)}", [11, 12]),
        (f"?tree={uuid_of(2)}", [11, 12, 14]),
        (f"?tree={uuid_of(2)}&project=b&type=INSTANCE", [14]),
        (f"?tree={uuid_of(1)}&provider={uuid_of(2)}", [11, 12]),
        (f"?tree={uuid_of(1)}&provider={uuid_of(3)}", []),
        (f"?provider={uuid_of(99)}", []),
        (f"?tree={uuid_of(99)}", []),
        (f"?marker={uuid_of(12)}", [13, 14]),
        (f"?marker={uuid_of(99)}", []),
    ],
)
async def test_consumers_are_filtered(filled: ApplicationWorld, query: str, expected: list[int]) -> None:
    answer = (await filled.get(f"/berth/v1/consumers{query}")).json
    assert numbers(answer["consumers"], "uuid") == expected
    assert answer["next"] is None


async def test_pages_stay_in_step_while_consumers_come_and_go(world: ApplicationWorld) -> None:
    await world.host(1, {"VCPU": 1000})
    for number in range(20, 60, 2):
        await world.claim(number, {1: {"VCPU": 1}})
    seen, path, page = [], "/berth/v1/consumers?limit=3&project=p", 0
    while path:
        answer = (await world.get(path)).json
        assert len(answer["consumers"]) <= 3
        seen += numbers(answer["consumers"], "uuid")
        path, page = answer["next"], page + 1
        if page == 2:
            await world.change("DELETE", f"/allocations/{uuid_of(seen[-1])}")  # the marker itself
            await world.change("DELETE", f"/allocations/{uuid_of(40)}")  # one to come
            await world.claim(21, {1: {"VCPU": 1}})  # behind us
            await world.claim(41, {1: {"VCPU": 1}})  # before us
    assert seen == sorted({*range(20, 60, 2), 41} - {40})


# -- allocations --------------------------------------------------------------------------------


async def test_an_allocation_is_shown_whole(filled: ApplicationWorld) -> None:
    rows = (await filled.get(f"/berth/v1/allocations?provider={uuid_of(2)}&project=a")).json
    assert rows["allocations"] == [
        {
            "consumer_uuid": uuid_of(11),
            "consumer_name": None,
            "resource_provider_uuid": uuid_of(2),
            "resource_provider_name": "host-2",
            "root_provider_uuid": uuid_of(1),
            "resources": {"VCPU": 1},
            "project_id": "a",
            "user_id": "u",
            "consumer_type": "INSTANCE",
        }
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [(11, 1), (11, 2), (12, 2), (13, 3), (14, 1), (14, 3)]),
        ("?resource_class=MEMORY_MB", [(11, 1), (14, 1)]),
        (f"?tree={uuid_of(1)}", [(11, 1), (11, 2), (12, 2), (14, 1)]),
        (f"?tree={uuid_of(1)}&resource_class=VCPU", [(11, 1), (11, 2), (12, 2)]),
        (f"?provider={uuid_of(3)}&type=unknown", [(13, 3)]),
    ],
)
async def test_allocations_are_filtered(
    filled: ApplicationWorld, query: str, expected: list[tuple[int, int]]
) -> None:
    rows = (await filled.get(f"/berth/v1/allocations{query}")).json["allocations"]
    found = zip(numbers(rows, "consumer_uuid"), numbers(rows, "resource_provider_uuid"), strict=True)
    assert list(found) == expected


@pytest.mark.parametrize(
    ("limit", "pages"), [(1, [[11, 11], [12], [13], [14, 14]]), (3, [[11, 11, 12], [13, 14, 14]]), (6, None)]
)
async def test_a_consumers_rows_are_on_one_page(
    filled: ApplicationWorld, limit: int, pages: list[list[int]] | None
) -> None:
    found, path = [], f"/berth/v1/allocations?limit={limit}"
    while path:
        answer = (await filled.get(path)).json
        found.append(numbers(answer["allocations"], "consumer_uuid"))
        path = answer["next"]
    assert found == (pages or [[11, 11, 12, 13, 14, 14]])


# -- usage --------------------------------------------------------------------------------------


def vcpu(capacity: int, used: int) -> dict[str, int]:
    return {"capacity": capacity, "used": used, "free": capacity - used}


MEMORY = {"capacity": 1000, "used": 107, "free": 893}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "by=provider",
            {1: {"VCPU": vcpu(8, 2), "MEMORY_MB": MEMORY}, 2: {"VCPU": vcpu(4, 4)}, 3: {"VCPU": vcpu(2, 2)}},
        ),
        ("by=root", {1: {"VCPU": vcpu(12, 6), "MEMORY_MB": MEMORY}, 3: {"VCPU": vcpu(2, 2)}}),
        ("by=root&resource_class=MEMORY_MB", {1: {"MEMORY_MB": MEMORY}}),
        (
            "by=aggregate",
            {900: {"VCPU": vcpu(10, 4), "MEMORY_MB": MEMORY}, 901: {"VCPU": vcpu(2, 2)}},
        ),
        (f"by=aggregate&tree={uuid_of(2)}", {900: {"VCPU": vcpu(8, 2), "MEMORY_MB": MEMORY}}),
        (
            f"by=provider&aggregate={AGGREGATE}&resource_class=VCPU&marker={uuid_of(1)}",
            {3: {"VCPU": vcpu(2, 2)}},
        ),
        (f"by=provider&tree={uuid_of(99)}", {}),
        (f"by=provider&aggregate={uuid_of(99)}", {}),
    ],
)
async def test_usage_is_summed_by_place(
    filled: ApplicationWorld, query: str, expected: dict[int, object]
) -> None:
    answer = (await filled.get(f"/berth/v1/usage?{query}")).json
    assert {int(row["key"][-12:]): row["resources"] for row in answer["usage"]} == expected
    named = query.startswith(("by=provider", "by=root"))
    assert all(("name" in row) is named for row in answer["usage"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"MEMORY_MB": MEMORY, "VCPU": vcpu(14, 8)}),
        (f"&tree={uuid_of(2)}", {"MEMORY_MB": MEMORY, "VCPU": vcpu(12, 6)}),
        ("&resource_class=VCPU", {"VCPU": vcpu(14, 8)}),
        (
            "&project=b",
            {"MEMORY_MB": {**MEMORY, "used": 7}, "VCPU": {"capacity": 14, "used": 4, "free": 6}},
        ),
    ],
)
async def test_usage_is_summed_by_class(
    filled: ApplicationWorld, query: str, expected: dict[str, object]
) -> None:
    answer = (await filled.get(f"/berth/v1/usage?by=resource_class{query}")).json
    assert {row["key"]: row["resources"][row["key"]] for row in answer["usage"]} == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"a": ({"VCPU": 4, "MEMORY_MB": 100}, 2), "b": ({"VCPU": 4, "MEMORY_MB": 7}, 2)}),
        ("&project=b", {"b": ({"VCPU": 4, "MEMORY_MB": 7}, 2)}),
        ("&project=c", {}),
        (
            f"&tree={uuid_of(1)}",
            {"a": ({"VCPU": 3, "MEMORY_MB": 100}, 1), "b": ({"VCPU": 3, "MEMORY_MB": 7}, 2)},
        ),
        (f"&aggregate={OTHER_AGGREGATE}", {"a": ({"VCPU": 1}, 1), "b": ({"VCPU": 1}, 1)}),
        (f"&tree={uuid_of(3)}&resource_class=MEMORY_MB", {}),
    ],
)
async def test_usage_is_summed_by_project(
    filled: ApplicationWorld, query: str, expected: dict[str, object]
) -> None:
    answer = (await filled.get(f"/berth/v1/usage?by=project{query}")).json
    assert {row["key"]: (row["used"], row["consumers"]) for row in answer["usage"]} == expected


async def test_usage_has_pages_too(filled: ApplicationWorld) -> None:
    keys, path = [], "/berth/v1/usage?by=provider&limit=1"
    while path:
        answer = (await filled.get(path)).json
        keys += numbers(answer["usage"], "key")
        path = answer["next"]
    assert keys == [1, 2, 3]


async def test_what_is_over_capacity_takes_nothing_from_the_others(world: ApplicationWorld) -> None:
    await world.host(1)
    await world.host(2)
    await world.claim(11, {1: {"VCPU": 8}})
    await world.change(
        "PUT",
        f"/resource_providers/{uuid_of(1)}/inventories/VCPU",
        {"resource_provider_generation": 2, "total": 4},
    )
    [row] = (await world.get("/berth/v1/usage?by=resource_class")).json["usage"]
    assert row["resources"]["VCPU"] == {"capacity": 12, "used": 8, "free": 8}

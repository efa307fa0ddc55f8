"""Random requests to Berth and to upstream, from fixed seeds; ``make soak-wire`` tries more of them."""

from pathlib import Path

import pytest

from tests.differential.comparison import compare, shrink
from tests.differential.exchange import WireRequest
from tests.differential.upstream import Upstream
from tests.differential.worlds import AGGREGATES, CONSUMERS, PROVIDERS, Author
from tests.worlds import ApplicationWorld

_SEEDS = range(1, 13)


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return Upstream(tmp_path_factory.mktemp("upstream"))


async def test_random_requests_are_answered_alike(upstream: Upstream) -> None:
    for seed in _SEEDS:
        difference = await compare(upstream, Author(seed).sequence(100))
        assert difference is None, f"seed {seed}:\n{await shrink(upstream, difference)}"


async def test_a_difference_is_found_and_shrunk(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: here upstream is made to forget that a provider was created."""
    ask = upstream.ask

    def forget(request: WireRequest) -> object:
        answer = ask(request)
        if request.path == "/resource_providers" and request.body["name"] == "p1":
            ask(WireRequest("DELETE", f"/resource_providers/{PROVIDERS[1]}", 39))
        return answer

    monkeypatch.setattr(upstream, "ask", forget)
    difference = await compare(upstream, Author(1).sequence(5))
    assert difference is not None
    smallest = await shrink(upstream, difference)
    assert len(smallest.requests) == 2
    assert smallest.requests[0].body["name"] == "p1"


# -- what was found once ------------------------------------------------------------------------

_A = AGGREGATES[0]
_WORLD = (
    WireRequest("POST", "/resource_providers", 39, {"name": "p0", "uuid": PROVIDERS[0]}),
    WireRequest(
        "PUT",
        f"/resource_providers/{PROVIDERS[0]}/inventories",
        39,
        {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}, "DISK_GB": {"total": 8}}},
    ),
)


@pytest.mark.parametrize(
    "query",
    [
        # Every occurrence of a repeated parameter is validated.
        "/allocation_candidates?resources=VCPU:0&resources=VCPU:7",
        "/allocation_candidates?resources=VCPU:1&in_tree=x&resources=VCPU:0",
        # Of group_policy and limit the first counts, and the last is validated.
        "/allocation_candidates?resources1=VCPU:1&resources2=DISK_GB:1&group_policy=+isolate&group_policy=isolate",
        "/allocation_candidates?resources1=VCPU:1&resources2=DISK_GB:1&group_policy=&group_policy=isolate",
        "/allocation_candidates?resources=VCPU:1&limit=0&limit=1",
        "/allocation_candidates?root_required=&same_subtree=",
        # An empty name is no name.
        "/resource_providers?name=",
        # An unknown name behind something that nothing meets is not seen.
        "/allocation_candidates?resources1=VCPU:9&resources2=!DISK_GB:2&group_policy=none",
        "/allocation_candidates?resources1=VCPU:9&resources2=VCPU:1&required2=in:xCUSTOM_T&group_policy=none",
        f"/allocation_candidates?resources=VCPU:1&member_of={_A}&required=CUSTOM_NO_TRAIT",
        f"/allocation_candidates?resources=VCPU:1&in_tree={_A}&required=CUSTOM_NO_TRAIT",
        "/allocation_candidates?resources=VCPU:1,CUSTOM_NOPE:1",
        "/allocation_candidates?resources=VCPU:1&root_required=MISC_SHARES_VIA_AGGREGATE&resources1=CUSTOM_NOPE:1",
        f"/resource_providers?member_of={_A}&resources=NOPE:1",
        f"/resource_providers?in_tree={_A}&required=NOPE",
        "/resource_providers?required=HW_CPU_X86_AVX,!NOPE",
        "/resource_providers?resources=VCPU:9,NOPE:1",
    ],
)
async def test_one_request_is_answered_alike(upstream: Upstream, query: str) -> None:
    assert await compare(upstream, [*_WORLD, WireRequest("GET", query, 39)]) is None


async def test_a_way_is_not_lost_because_another_root_has_it_too(tmp_path: Path) -> None:
    """Upstream keeps one of two ways that differ only in their root, whichever its set met first, and may
    then find nothing: here p1 shares its disk with p0, and is the root of the GPU itself. That the way is a
    good one is shown by claiming it."""
    shared = [
        WireRequest("PUT", "/resource_classes/CUSTOM_GPU", 39),
        WireRequest("POST", "/resource_providers", 39, {"name": "p0", "uuid": PROVIDERS[0]}),
        *_provider(1, None, {"DISK_GB": {"total": 5}}, ["MISC_SHARES_VIA_AGGREGATE"]),
        *_provider(2, PROVIDERS[1], {"CUSTOM_GPU": {"total": 3}}, []),
        WireRequest("PUT", f"/resource_providers/{PROVIDERS[0]}/aggregates", 18, [_A]),
        WireRequest("PUT", f"/resource_providers/{PROVIDERS[1]}/aggregates", 18, [_A]),
    ]

    async with ApplicationWorld(tmp_path).running() as world:
        for request in shared:
            made = await world.ask_raw(
                request.method, request.path, request.content, version=f"1.{request.version}"
            )
            assert made.status < 300, made
        found = await world.ask("GET", "/allocation_candidates?resources1=CUSTOM_GPU:2&resources=DISK_GB:4")
        [way] = found.json["allocation_requests"]
        assert set(way["allocations"]) == {PROVIDERS[1], PROVIDERS[2]}
        claim = {
            **way,
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        assert (await world.ask("PUT", f"/allocations/{CONSUMERS[0]}", claim)).status == 204


def _provider(number: int, parent: str | None, inventories: object, traits: list[str]) -> list[WireRequest]:
    id = PROVIDERS[number]
    return [
        WireRequest(
            "POST",
            "/resource_providers",
            39,
            {"name": f"p{number}", "uuid": id, "parent_provider_uuid": parent},
        ),
        WireRequest(
            "PUT",
            f"/resource_providers/{id}/inventories",
            39,
            {"resource_provider_generation": 0, "inventories": inventories},
        ),
        WireRequest(
            "PUT",
            f"/resource_providers/{id}/traits",
            39,
            {"resource_provider_generation": 1, "traits": traits},
        ),
    ]

"""/os-services: taking hosts out of service, and how that goes together with what cells say of them."""

from typing import Any

import pytest

from berth.model.ids import ProviderId
from berth.model.placement import HEALTHY, HostStatus
from tests.unit.compute.fleets import hear, known_fleet
from tests.worlds import HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast


async def put(region: RegionWorld, number: int = 1, version: str = "2.53", **wanted: Any) -> HttpAnswer:
    return await region.compute("PUT", f"/os-services/{uuid_of(number)}", wanted, version=version)


def status_of(region: RegionWorld, number: int = 1) -> HostStatus:
    return region.engine.view.hosts.get(ProviderId(uuid_of(number)), HEALTHY)


async def service(region: RegionWorld, number: int = 1) -> Any:
    answer = await region.compute("GET", f"/os-services?host=host-{number}")
    [found] = answer.json["services"]
    return found


async def test_services_are_the_agents(region: RegionWorld) -> None:
    await known_fleet(region)
    answer = await region.compute("GET", "/os-services")
    assert [one["host"] for one in answer.json["services"]] == ["host-1", "host-2", "host-3"]
    assert await service(region, 2) == {
        "id": uuid_of(2),
        "binary": "nova-compute",
        "host": "host-2",
        "zone": "nova",
        "status": "enabled",
        "state": "up",
        "disabled_reason": None,
        "updated_at": "2026-01-01T00:00:00.000000",
        "forced_down": False,
    }
    [old] = (await region.compute("GET", "/os-services?host=host-2", version="2.10")).json["services"]
    assert (old["id"], "forced_down" in old) == (2, False)
    assert (await region.compute("GET", "/os-services?binary=nova-scheduler")).json == {"services": []}
    assert (await region.compute("GET", "/os-services", who="ann")).status == 403
    gone = await region.compute("DELETE", f"/os-services/{uuid_of(2)}")
    assert gone.status == 409
    assert (await region.compute("DELETE", f"/os-services/{uuid_of(99)}")).status == 404


async def test_disabled_hosts_are_not_scheduled_to(region: RegionWorld) -> None:
    await known_fleet(region, 2)
    answer = await put(region, status="disabled", disabled_reason="new disk")
    shown = answer.json["service"]
    assert (shown["status"], shown["disabled_reason"]) == ("disabled", "new disk")
    assert status_of(region) == HostStatus(disabled=True, reason="new disk")
    places = [region.record(await region.create()).place for _ in range(2)]
    assert [place and place.name for place in places] == ["host-2", "host-2"]
    assert (await put(region, status="enabled")).json["service"]["disabled_reason"] is None
    assert status_of(region) == HEALTHY


@pytest.mark.parametrize("api", ["compute", "native"])
async def test_who_asks_placement_can_leave_disabled_hosts_out(region: RegionWorld, api: str) -> None:
    """By the trait that Nova sets for that; the other traits of the host stay."""

    async def disable(region: RegionWorld, disabled: bool) -> None:
        if api == "compute":
            answer = await put(region, status="disabled" if disabled else "enabled")
        else:
            answer = await region.ask(
                "PUT", f"/berth/v1/hosts/{uuid_of(1)}", {"host": {"disabled": disabled}}
            )
        assert answer.status == 200, answer.body

    await known_fleet(region, 2)
    path = f"/resource_providers/{uuid_of(1)}/traits"
    found = (await region.ask("GET", path, version="1.39")).json
    found["traits"].append("HW_CPU_X86_AVX2")
    await region.ask("PUT", path, found, version="1.39")
    query = "/allocation_candidates?resources=VCPU:1&required=!COMPUTE_STATUS_DISABLED"
    for disabled in (True, False, True, False):
        await disable(region, disabled)
        offered = (await region.ask("GET", query, version="1.39")).json["provider_summaries"]
        assert sorted(offered) == ([] if disabled else [uuid_of(1)]) + [uuid_of(2)]
        traits = (await region.ask("GET", path, version="1.39")).json["traits"]
        assert "HW_CPU_X86_AVX2" in traits


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({}, "There is nothing to change: give status or forced_down."),
        ({"status": "off"}, "status is 'off'; it must be enabled or disabled."),
        ({"disabled_reason": "x"}, "disabled_reason is for a service that is being disabled."),
        (
            {"status": "enabled", "disabled_reason": "x"},
            "disabled_reason is for a service that is being disabled.",
        ),
    ],
)
async def test_a_bad_change_of_a_service_is_refused(
    region: RegionWorld, wanted: dict[str, Any], why: str
) -> None:
    await known_fleet(region, 1)
    answer = await put(region, **wanted)
    assert (answer.status, answer.json["badRequest"]["message"]) == (400, why)


async def test_forced_down_is_down_whatever_the_cell_says(region: RegionWorld) -> None:
    await known_fleet(region)
    await put(region, status="disabled", disabled_reason="fenced")
    assert (await put(region, forced_down=True)).json["service"]["state"] == "down"
    await hear(region, 1)
    assert status_of(region) == HostStatus(disabled=True, down=True, reason="fenced")
    shown = (await put(region, forced_down=False)).json["service"]
    assert (shown["state"], shown["forced_down"], shown["disabled_reason"]) == ("up", False, "fenced")


@pytest.mark.parametrize("silent_first", [True, False])
async def test_let_up_again_a_host_is_what_its_cell_last_said(
    region: RegionWorld, silent_first: bool
) -> None:
    await known_fleet(region)
    if silent_first:
        await hear(region, 1, is_down=True)
        await put(region, forced_down=True)
    else:
        await put(region, forced_down=True)
        await hear(region, 1, is_down=True)
    assert (await put(region, forced_down=False)).json["service"]["state"] == "down"
    await hear(region, 1)
    assert (await service(region))["state"] == "up"


async def test_old_versions_enable_and_disable_by_action(region: RegionWorld) -> None:
    await known_fleet(region)
    named = {"host": "host-1", "binary": "nova-compute"}

    async def old(action: str, version: str = "2.11", **more: Any) -> HttpAnswer:
        return await region.compute("PUT", f"/os-services/{action}", {**named, **more}, version=version)

    assert (await old("disable")).json == {"service": {**named, "status": "disabled"}}
    assert (await old("disable-log-reason")).status == 400
    assert (await old("disable-log-reason", disabled_reason="x")).json == {
        "service": {**named, "status": "disabled", "disabled_reason": "x"}
    }
    assert status_of(region) == HostStatus(disabled=True, reason="x")
    assert (await old("enable")).json == {"service": {**named, "status": "enabled"}}
    assert (await old("force-down", forced_down=True)).json == {"service": {**named, "forced_down": True}}
    assert status_of(region).down
    assert (await old("force-down", forced_down="false")).status == 200
    assert status_of(region) == HEALTHY
    assert (await old("force-down", "2.10", forced_down=True)).status == 404
    assert (await old("polish")).status == 404
    assert (await old("enable", host="host-9")).status == 404
    assert (await old("enable", binary="nova-scheduler")).status == 404

"""What a host has changes while it is in use: the host stays up, what cannot be written is a complaint that
people can see, and what is gone is not handed out again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import msgspec
import pytest

from berth.agent.fleet import SimInventory, SimProvider, provider_id
from berth.cell import hosts, providers, saga_runs
from berth.cell.conductor import Conductor
from berth.client import WireRequest
from berth.doctor.findings import examine
from berth.ledger import inventories
from berth.model.events import Origin
from berth.model.ids import ProviderId
from berth.model.saga_runs import Agent, HostTree
from berth.model.servers import Host
from berth.sagas.hosts import cell_aggregate
from berth.sim.cloud import HostPart, SimCloud
from berth.sim.network import Mishap, Weather
from berth.view import View
from tests.lifecycle.chaos import check_at_rest
from tests.lifecycle.stories import done, host_dies, new_server

HEADERS: Final = {
    "x-auth-token": "admin:project",
    "openstack-api-version": "placement 1.39,compute 2.94",
}
NAME: Final = "host-0004"
ID: Final = provider_id(NAME)
GPU0: Final = provider_id(f"{NAME}-gpu0")
GPU1: Final = provider_id(f"{NAME}-gpu1")
PATIENCE_S: Final = 120
HOLDER: Final = "99999999-0000-4000-8000-000000000001"


class Operator:
    """Somebody who looks after a cloud through its APIs, and after the machine host-0004."""

    def __init__(self, cloud: SimCloud) -> None:
        self.cloud = cloud
        self.client = cloud.client(HEADERS)

    async def ask(self, method: str, path: str, body: object = None, expects: Iterable[int] = (200,)) -> Any:
        answer = await self.client.ask(method, path, body)
        assert answer.status in expects, f"{method} {path}: {answer.status}: {answer.body}"
        return answer.body

    async def inventories(self, provider: str) -> dict[str, Any]:
        found = await self.ask("GET", f"/resource_providers/{provider}/inventories")
        return dict(found["inventories"])

    async def write(self, provider: str, inventories: dict[str, Any]) -> None:
        """Have these inventories beside those that are there."""
        path = f"/resource_providers/{provider}/inventories"
        found = await self.ask("GET", path)
        found["inventories"] |= inventories
        await self.ask("PUT", path, found)

    async def claim(self, provider: str, resources: dict[str, int], expects: int = 204) -> None:
        body = {
            "allocations": {provider: {"resources": resources}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
            "consumer_type": "LICENSE",
        }
        await self.ask("PUT", f"/allocations/{HOLDER}", body, (expects,))

    async def release(self) -> None:
        await self.ask("DELETE", f"/allocations/{HOLDER}", None, (204,))

    async def is_there(self, provider: str) -> bool:
        answer = await self.client.ask("GET", f"/resource_providers/{provider}")
        return answer.status == 200

    async def until_written(self, provider: str) -> None:
        """Wait until a provider is there, with its inventories."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.is_there(provider) or not await self.inventories(provider):
                await asyncio.sleep(0.5)

    async def restart(self, *children: SimProvider, **fields: object) -> None:
        """Start the agent again, on a machine with these devices."""
        part = self.cloud.hosts[NAME]
        part.kill()
        given = {"children": children, **fields}
        part.host = msgspec.structs.replace(part.host, **given)
        part.start()

    async def is_up_for_a_while(self) -> None:
        """All are up, also after the time in which a host is down that is not heard of."""
        await asyncio.sleep(2.5 * self.cloud.heartbeat_timeout_s)
        await self.cloud.until(lambda view: not len(view.down))

    def placement_fails(
        self, fails: Callable[[WireRequest], bool] | None, how: Mishap = "request cut"
    ) -> None:
        """Have some of the conductor's requests to Placement go wrong; None: no more."""
        self.cloud.network.decide = (
            None
            if fails is None
            else lambda source, address, request: how if source == "cell1" and fails(request) else None
        )

    async def complaints(self) -> list[str]:
        shown = await self.ask("GET", f"/berth/v1/hosts/{ID}")
        return list(shown["host"]["complaints"])

    async def until_complaints(self, *words: str) -> list[str]:
        """The complaints, when there are as many as these, each with these words in it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.complaints()
                if len(found) == len(words) and all(map(lambda w, c: w in c, words, found)):
                    return found
                await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Operator]:
    async with SimCloud(seed=5, hosts=4).running() as cloud:
        operator = Operator(cloud)
        # A host is up before all that it reported is written.
        for device in (GPU0, GPU1):
            await operator.until_written(device)
        yield operator


def is_about_providers(request: WireRequest) -> bool:
    return request.path.startswith("/resource_providers")


def units_named(view: View) -> dict[str, tuple[str, ...]]:
    """The classes with units of each provider of the host, as the region knows them."""
    host = view.records.get(Host, ID)
    return {} if host is None else dict(host.unit_classes)


def gpu(number: int, **fields: Any) -> SimProvider:
    given: dict[str, Any] = {"inventories": {"VGPU": SimInventory(total=4)}, "traits": ("HW_GPU_API_VULKAN",)}
    return SimProvider(name=f"gpu{number}", **(given | fields))


async def test_what_operators_set_stays_and_the_host_is_up() -> None:
    """Registration was refused for ever, and the host was down, because of a licence that was in use."""

    async with running() as operator:
        await operator.ask("PUT", "/resource_classes/CUSTOM_LICENSE", None, (201,))
        await operator.ask("PUT", "/traits/CUSTOM_GOLD", None, (201,))
        vcpu = (await operator.inventories(ID))["VCPU"] | {"allocation_ratio": 3.0, "reserved": 2}
        await operator.write(ID, {"CUSTOM_LICENSE": {"total": 5}, "VCPU": vcpu})
        path = f"/resource_providers/{ID}/traits"
        found = await operator.ask("GET", path)
        found["traits"] += ["CUSTOM_GOLD", "HW_CPU_X86_SGX"]
        await operator.ask("PUT", path, found)
        await operator.claim(ID, {"CUSTOM_LICENSE": 2})

        await operator.restart(gpu(0), gpu(1), traits=("COMPUTE_NODE",))
        await operator.is_up_for_a_while()

        assert await operator.complaints() == []
        after = await operator.inventories(ID)
        assert after["CUSTOM_LICENSE"]["total"] == 5
        assert (after["VCPU"]["allocation_ratio"], after["VCPU"]["reserved"]) == (3.0, 2)
        traits = (await operator.ask("GET", path))["traits"]
        assert sorted(traits) == ["COMPUTE_NODE", "CUSTOM_GOLD", "HW_CPU_X86_SGX"], "AVX2 was the agent's own"


async def test_what_an_agent_changes_is_written_where_no_operator_has_set_it() -> None:
    async with running() as operator:
        sizes = {
            "VCPU": SimInventory(total=64, allocation_ratio=2.0, reserved=1),
            "MEMORY_MB": SimInventory(total=1024),
        }
        await operator.restart(inventories=sizes)
        async with asyncio.timeout(PATIENCE_S):
            while "DISK_GB" in await operator.inventories(ID):
                await asyncio.sleep(0.5)
        after = await operator.inventories(ID)
        assert {
            kind: (one["total"], one["reserved"], one["allocation_ratio"]) for kind, one in after.items()
        } == {
            "VCPU": (64, 1, 2.0),
            "MEMORY_MB": (1024, 0, 1.0),
        }


async def test_a_device_that_is_gone_is_deleted() -> None:
    async with running() as operator:
        await operator.restart(gpu(0))
        async with asyncio.timeout(PATIENCE_S):
            while await operator.is_there(GPU1):
                await asyncio.sleep(0.5)
        await operator.is_up_for_a_while()
        assert await operator.is_there(GPU0)
        assert await operator.complaints() == []
        await operator.restart(gpu(0), gpu(1))
        await operator.until_written(GPU1)
        assert (await operator.inventories(GPU1))["VGPU"]["reserved"] == 0


async def test_nothing_new_fits_on_a_device_that_is_gone_and_in_use() -> None:
    """A server was built on a GPU that was not there any more, and was ACTIVE."""

    async with running() as operator:
        await operator.claim(GPU1, {"VGPU": 1})
        await operator.restart()
        (complaint,) = await operator.until_complaints(
            f"{NAME}-gpu1 is gone from the host and in use by {HOLDER}"
        )
        await operator.is_up_for_a_while()
        assert not await operator.is_there(GPU0)
        assert (await operator.inventories(GPU1))["VGPU"]["reserved"] == 4
        candidates = await operator.ask("GET", "/allocation_candidates?resources=VGPU:1")
        assert candidates["allocation_requests"] == []

        # Where people look.
        services = await operator.ask("GET", "/compute/v2.1/os-services")
        (service,) = (one for one in services["services"] if one["host"] == NAME)
        assert (service["status"], service["state"]) == ("enabled", "up")
        assert service["disabled_reason"] == complaint
        (finding,) = await operator.cloud.read(lambda view: examine(view, 10**10))
        assert (finding.kind, finding.subject, finding.repair) == ("host_complaint", ID, None)
        assert complaint in finding.sentence

        # It is released: nothing is left of it.
        await operator.release()
        await operator.until_complaints()
        assert not await operator.is_there(GPU1)
        services = await operator.ask("GET", "/compute/v2.1/os-services")
        assert [one["disabled_reason"] for one in services["services"]] == [None] * 4


async def test_a_device_that_comes_back_has_what_it_had() -> None:
    async with running() as operator:
        vgpu = (await operator.inventories(GPU1))["VGPU"]
        await operator.write(GPU1, {"VGPU": vgpu | {"reserved": 1, "allocation_ratio": 0.9}})
        await operator.claim(GPU1, {"VGPU": 1})
        await operator.restart(gpu(0))
        await operator.until_complaints("gpu1 is gone")
        await operator.restart(gpu(0), gpu(1))
        await operator.until_complaints()
        back = (await operator.inventories(GPU1))["VGPU"]
        assert (back["total"], back["reserved"], back["allocation_ratio"]) == (4, 1, 0.9)


async def test_a_class_with_units_cannot_be_overcommitted() -> None:
    """Its ratio was accepted, and builds failed when the units were gone."""
    async with running() as operator:
        await operator.cloud.until(lambda view: GPU1 in units_named(view))
        path = f"/resource_providers/{GPU1}/inventories"
        await operator.ask("PUT", "/resource_classes/CUSTOM_LICENSE", None, (201,))
        there = await operator.ask("GET", path)
        twice = there["inventories"]["VGPU"] | {"allocation_ratio": 2.0}
        whole = {**there, "inventories": {"VGPU": twice}}
        one = {**twice, "resource_provider_generation": there["resource_provider_generation"]}
        for method, where, body in (
            ("PUT", path, whole),
            ("PUT", f"{path}/VGPU", one),
            ("POST", "/reshaper", {"inventories": {GPU1: whole}, "allocations": {}}),
        ):
            (error,) = (await operator.ask(method, where, body, (400,)))["errors"]
            assert f"Invalid inventory for 'VGPU' on resource provider '{GPU1}'." in error["detail"]
            assert "the allocation ratio cannot be 2, it is 1 at most" in error["detail"]
        await operator.ask("DELETE", f"{path}/VGPU", None, (204,))
        await operator.ask("POST", path, {"resource_class": "VGPU", **twice}, (400,))
        # Fewer than there are, and what has no units.
        await operator.write(GPU1, {"VGPU": twice | {"allocation_ratio": 0.5}})
        licenses = {"total": 4, "allocation_ratio": 2.0}
        await operator.write(GPU1, {"CUSTOM_LICENSE": licenses})
        assert (await operator.inventories(GPU1))["CUSTOM_LICENSE"]["allocation_ratio"] == 2


@pytest.mark.parametrize("total", [3, 5])
async def test_nobody_but_its_agent_says_how_many_units_there_are(total: int) -> None:
    """A total of 16 of 8 VFs was accepted, and the host was chosen for servers that it could not build."""
    async with running() as operator:
        await operator.cloud.until(lambda view: GPU1 in units_named(view))
        path = f"/resource_providers/{GPU1}/inventories"
        there = await operator.ask("GET", path)
        vgpu = there["inventories"]["VGPU"]
        changed = vgpu | {"total": total}
        whole = {**there, "inventories": {"VGPU": changed}}
        one = {**changed, "resource_provider_generation": there["resource_provider_generation"]}
        for method, where, body in (
            ("PUT", path, whole),
            ("PUT", f"{path}/VGPU", one),
            ("POST", "/reshaper", {"inventories": {GPU1: whole}, "allocations": {}}),
        ):
            (error,) = (await operator.ask(method, where, body, (400,)))["errors"]
            assert f"the total is 4, and only the agent can make it {total}" in error["detail"]
        await operator.write(GPU1, {"VGPU": vgpu | {"reserved": 1}})
        await operator.restart(gpu(0), gpu(1, inventories={"VGPU": SimInventory(total=total)}))
        async with asyncio.timeout(PATIENCE_S):
            while (await operator.inventories(GPU1))["VGPU"]["total"] != total:
                await asyncio.sleep(0.5)
        assert await operator.complaints() == []


async def test_a_ratio_from_before_units_were_named_is_1_from_then_on() -> None:
    """As after an upgrade of the agent, which names units now."""
    kind, amounts = "CUSTOM_FPGA", {"CUSTOM_FPGA": SimInventory(total=2)}
    async with running() as operator:
        await operator.restart(gpu(1, inventories=amounts))
        async with asyncio.timeout(PATIENCE_S):
            while kind not in await operator.inventories(GPU1):
                await asyncio.sleep(0.5)
        there = (await operator.inventories(GPU1))[kind]
        await operator.write(GPU1, {kind: there | {"allocation_ratio": 4.0}})
        await operator.restart(gpu(1, inventories=amounts, units={kind: ("card-0", "card-1")}))
        await operator.until_complaints(f"{NAME}-gpu1: {kind} was overcommitted")
        assert (await operator.inventories(GPU1))[kind]["allocation_ratio"] == 1
        await operator.until_complaints()
        assert (await operator.inventories(GPU1))[kind]["allocation_ratio"] == 1


async def test_a_device_that_was_overcommitted_is_reserved_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of it could be written, and what was gone was given to others. Its ratio is from a release that
    accepted it; clients that change something else of the inventory are not refused either."""
    async with running() as operator:
        await operator.cloud.until(lambda view: GPU1 in units_named(view))
        vgpu = (await operator.inventories(GPU1))["VGPU"]
        with monkeypatch.context() as before:
            before.setattr(inventories, "_find_overcommitted", lambda *_: None)
            await operator.write(GPU1, {"VGPU": vgpu | {"allocation_ratio": 2.0}})
        await operator.write(GPU1, {"VGPU": vgpu | {"allocation_ratio": 2.0, "reserved": 1}})
        await operator.claim(GPU1, {"VGPU": 1})
        await operator.restart(gpu(0))
        await operator.until_complaints(f"{NAME}-gpu1 is gone from the host and in use by {HOLDER}")
        assert (await operator.inventories(GPU1))["VGPU"]["reserved"] == 4
        await operator.restart(gpu(0), gpu(1))
        await operator.until_complaints()
        back = (await operator.inventories(GPU1))["VGPU"]
        assert (back["reserved"], back["allocation_ratio"]) == (1, 1)


async def test_a_device_that_is_in_use_in_its_old_shape_gets_no_new_one_beside_it() -> None:
    """A PF that is split into VFs, of which one is in use, is made a whole one."""
    split = SimProvider(name="pf0", inventories={"SRIOV_NET_VF": SimInventory(total=8)})
    whole = SimProvider(name="pf0", inventories={"CUSTOM_PF": SimInventory(total=1)})
    pf = provider_id(f"{NAME}-pf0")

    async with running() as operator:
        await operator.restart(split)
        await operator.until_written(pf)
        await operator.claim(pf, {"SRIOV_NET_VF": 1})
        await operator.restart(whole)
        (said,) = await operator.until_complaints(
            f"SRIOV_NET_VF is gone from the host and in use by {HOLDER}"
        )
        assert "has to wait" in said
        await operator.is_up_for_a_while()
        there = await operator.inventories(pf)
        assert list(there) == ["SRIOV_NET_VF"]
        assert there["SRIOV_NET_VF"]["reserved"] == 8
        await operator.release()
        await operator.until_complaints()
        assert list(await operator.inventories(pf)) == ["CUSTOM_PF"]


async def test_what_placement_refuses_is_a_complaint_and_the_rest_is_written() -> None:
    odd = gpu(0, inventories={"VGPU": SimInventory(total=3), "NO_SUCH_CLASS": SimInventory(total=1)})
    odd = msgspec.structs.replace(odd, traits=("HW_GPU_API_VULKAN", "NO_SUCH_TRAIT", "CUSTOM_FINE"))

    async with running() as operator:
        taken = {"uuid": "99999999-0000-4000-8000-000000000002", "name": f"{NAME}-gpu7"}
        await operator.ask("POST", "/resource_providers", taken)
        await operator.restart(odd, gpu(7), inventories={"VCPU": SimInventory(total=8)})
        complaints = await operator.until_complaints("NO_SUCH_CLASS", "NO_SUCH_TRAIT", "gpu7")
        assert all(text.isprintable() for text in complaints)
        await operator.is_up_for_a_while()
        assert (await operator.inventories(GPU0))["VGPU"]["total"] == 3
        found = await operator.ask("GET", f"/resource_providers/{GPU0}/traits")
        assert sorted(found["traits"]) == ["CUSTOM_FINE", "HW_GPU_API_VULKAN"]
        assert (await operator.inventories(ID))["VCPU"]["total"] == 8


async def test_one_bad_name_among_many_takes_few_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = providers._Placement.ask
    writes = 0

    async def count_writes(placement: Any, method: str, path: str, body: object = None) -> Any:
        nonlocal writes
        writes += method == "PUT" and path.endswith((f"{GPU0}/traits", f"{GPU0}/inventories"))
        return await asked(placement, method, path, body)

    kinds = {f"CUSTOM_{number}": SimInventory(total=1) for number in range(100)}
    odd = gpu(0, inventories={"VGPU": SimInventory(total=3), "NO_SUCH_CLASS": SimInventory(total=1), **kinds})
    odd = msgspec.structs.replace(odd, traits=("NO_SUCH_TRAIT", *kinds))

    async with running() as operator:
        monkeypatch.setattr(providers._Placement, "ask", count_writes)
        await operator.restart(odd)
        await operator.until_complaints("NO_SUCH_CLASS", "NO_SUCH_TRAIT")
        assert len(await operator.inventories(GPU0)) == 101
        assert writes < 40


async def test_a_host_does_not_bring_names_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_NAMES_MAX", 3)
    async with running() as operator:
        for number in range(2):
            traits = (f"CUSTOM_{number}_A", f"CUSTOM_{number}_B")
            await operator.restart(msgspec.structs.replace(gpu(0), traits=traits))
            async with asyncio.timeout(PATIENCE_S):
                path = f"/resource_providers/{GPU0}/traits"
                while traits[0] not in (await operator.ask("GET", path))["traits"]:
                    await asyncio.sleep(0.5)
        await operator.until_complaints("has brought 3 new traits", "CUSTOM_1_B cannot be set")
        found = await operator.ask("GET", "/traits?name=startswith:CUSTOM_")
        assert "CUSTOM_1_B" not in found["traits"]
        assert {"CUSTOM_0_A", "CUSTOM_0_B", "CUSTOM_1_A"} <= set(found["traits"])
        await operator.is_up_for_a_while()


async def test_a_new_host_is_written_without_reading_what_it_cannot_have() -> None:
    cloud = SimCloud(seed=5, hosts=4, racks=2)
    asked: list[tuple[str, str]] = []

    def note(source: str, request: WireRequest) -> None:
        if source == "cell1" and any(f"/{id}/" in request.path for id in (ID, GPU0, GPU1)):
            asked.append((request.method, request.path))

    cloud.network.sent.append(note)
    async with cloud.running():
        await Operator(cloud).until_written(GPU1)
    contents = [
        (ID, "aggregates"),
        *((id, what) for id in (ID, GPU0, GPU1) for what in ("inventories", "traits")),
    ]
    assert asked == [("PUT", f"/resource_providers/{id}/{what}") for id, what in contents]


async def test_names_are_sent_only_where_placement_does_not_know_them() -> None:
    names = ("CUSTOM_A", "CUSTOM_B")
    odd = gpu(0, traits=names, inventories={"CUSTOM_C": SimInventory(total=1)})
    sent: list[str] = []

    def note(source: str, request: WireRequest) -> None:
        if source == "cell1" and request.path.startswith(("/traits/", "/resource_classes/")):
            sent.append(request.path)

    async with running() as operator:
        operator.cloud.network.sent.append(note)
        for _ in range(2):
            await operator.restart(odd)
            await operator.is_up_for_a_while()
            await operator.until_complaints()
            assert sorted(await operator.inventories(GPU0)) == ["CUSTOM_C"]
            found = await operator.ask("GET", f"/resource_providers/{GPU0}/traits")
            assert sorted(found["traits"]) == list(names)
        assert sorted(sent) == ["/resource_classes/CUSTOM_C", "/traits/CUSTOM_A", "/traits/CUSTOM_B"]


async def test_a_class_that_shrinks_below_its_use_is_told_of() -> None:
    async with running() as operator:
        await operator.claim(GPU0, {"VGPU": 3})
        await operator.restart(gpu(0, inventories={"VGPU": SimInventory(total=2)}), gpu(1))
        await operator.until_complaints("3 of VGPU are in use, the host has 2")
        await operator.is_up_for_a_while()
        assert (await operator.inventories(GPU0))["VGPU"]["total"] == 2


async def test_an_evacuated_host_comes_back_whatever_is_held_on_it() -> None:
    """The migration held the licence until the host was up, and the host was not up because it was held."""

    async with running() as operator:
        cloud = operator.cloud
        await operator.ask("PUT", "/resource_classes/CUSTOM_LICENSE", None, (201,))
        server = await done(cloud, "create", new_server(cloud))
        assert server is not None
        assert server.place is not None
        place = server.place
        await operator.write(place.id, {"CUSTOM_LICENSE": {"total": 5}})
        await operator.claim(place.id, {"CUSTOM_LICENSE": 2})
        await host_dies(cloud, server)
        await done(cloud, "evacuate", server)
        assert cloud.hosts_with(server.id) != {place.name}
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        await cloud.all_at_rest()
        assert len(cloud.hosts_with(server.id)) == 1
        await operator.release()
        await check_at_rest(cloud)


async def test_a_host_is_up_though_placement_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as operator:
        operator.placement_fails(is_about_providers)
        await operator.restart(gpu(0))
        await operator.until_complaints("Placement did not answer")
        await operator.is_up_for_a_while()
        operator.placement_fails(None)
        await operator.until_complaints()
        assert not await operator.is_there(GPU1)


async def test_a_host_is_up_though_placement_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as operator:
        # Slow, and not so slow that nobody waits for it.
        operator.cloud.network.weather = Weather(delayed_s=9)
        operator.placement_fails(is_about_providers, "delayed")
        await operator.restart(gpu(0), gpu(2))
        await operator.until_complaints("still being written")
        await operator.is_up_for_a_while()
        await operator.until_complaints()
        assert not await operator.is_there(GPU1)
        assert await operator.is_there(provider_id(f"{NAME}-gpu2"))


async def test_complaints_are_few_and_short() -> None:
    children = tuple(gpu(number, traits=(f"X{'Y' * 200}_{number}",)) for number in range(30))

    async with running() as operator:
        await operator.restart(*children)
        await operator.cloud.until(lambda view: len(_host(view).complaints) > 1)
        found = await operator.complaints()
        assert len(found) == 20
        assert found[-1] == "and 11 more"
        assert max(map(len, found)) <= 400
        services = await operator.ask("GET", "/compute/v2.1/os-services")
        assert max(len(one["disabled_reason"] or "") for one in services["services"]) == 255


async def test_a_report_that_the_journal_cannot_keep_is_a_complaint() -> None:
    async with running() as operator:
        engine = operator.cloud.cells["cell1"].engine
        assert engine is not None
        engine._command_bytes_max = 4_000
        await operator.restart(*(gpu(number) for number in range(30)))
        await operator.until_complaints("too large for the cell")
        await operator.is_up_for_a_while()
        assert await operator.is_there(GPU1)
        engine._command_bytes_max = 1 << 20
        await operator.until_complaints()
        assert await operator.is_there(provider_id(f"{NAME}-gpu29"))


async def test_a_host_that_is_none_is_not_shown() -> None:
    async with running() as operator:
        await operator.ask("GET", f"/berth/v1/hosts/{HOLDER}", None, (404,))
        refused = await operator.ask("GET", f"/berth/v1/hosts/{GPU0}", None, (400, 404, 409))
        assert refused["errors"]


def _host(view: Any) -> Host:
    host = view.records.get(Host, ProviderId(ID))
    assert isinstance(host, Host)
    return host


@pytest.mark.parametrize("left", [(), (gpu(1, inventories={"PGPU": SimInventory(total=1)}),)])
async def test_a_device_comes_back_as_it_was_though_placement_was_away_when_it_was_gone(
    monkeypatch: pytest.MonkeyPatch, left: tuple[SimProvider, ...]
) -> None:
    """What was reserved of a device before it was withheld is known, wherever the report was cut off."""

    async with running() as operator:
        is_away = False

        def is_cut_off(request: WireRequest) -> bool:
            """The device is withheld, and nothing more is heard."""
            nonlocal is_away
            was_away = is_away
            path = f"/resource_providers/{GPU1}/inventories"
            is_away = is_away or (request.method, request.path) == ("PUT", path)
            return was_away and is_about_providers(request)

        await operator.claim(GPU1, {"VGPU": 1})
        operator.placement_fails(is_cut_off)
        await operator.restart(gpu(0), *left)
        await operator.until_complaints("Placement did not answer")
        operator.placement_fails(None)
        await operator.until_complaints("gone from the host")
        assert (await operator.inventories(GPU1))["VGPU"]["reserved"] == 4
        await operator.restart(gpu(0), gpu(1))
        await operator.until_complaints()
        assert (await operator.inventories(GPU1))["VGPU"]["reserved"] == 0


async def test_a_conductor_that_was_replaced_writes_nothing_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It still hears agents until it ends, and marked hosts down that its successor hears."""
    # It does not notice that it is to end.
    monkeypatch.setattr(Conductor, "run", lambda conductor: asyncio.Event().wait())

    async with running() as operator:
        cloud = operator.cloud
        reader = cloud.readers["cell1"]
        await cloud.until(lambda view: not any(host.complaints for host in view.records.all(Host)))
        await reader.submit(saga_runs.begin_term, Origin("", "test", None, "test"), lambda *_: None)

        def hosts(view: Any) -> list[Any]:
            return [*view.records.all(Agent), *view.records.all(HostTree)]

        before = await reader.read(hosts)
        cloud.hosts["host-0001"].kill()
        await operator.restart(gpu(0))
        client = cloud.network.client(
            cloud.outside, "cell1", {"x-agent-version": "2", "x-agent-credential": f"{HOLDER}:{'s' * 43}"}
        )
        joining = {
            "host": HOLDER,
            "name": "new",
            "driver": "sim",
            "providers": [{"id": HOLDER, "name": "new"}],
        }
        answer = await client.ask("POST", "/agent/v1/register", joining)
        assert (answer.status, answer.detail) == (503, "another conductor has taken over this cell")
        await asyncio.sleep(2.5 * cloud.heartbeat_timeout_s)
        assert await reader.read(hosts) == before
        assert not await operator.is_there(HOLDER)
        assert await operator.is_there(GPU1)


async def test_complaints_of_a_host_without_a_provider_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region knew nothing of a host that had joined and whose provider could not be created."""

    async with running() as operator:
        cloud = operator.cloud
        operator.placement_fails(
            lambda request: (request.method, request.path) == ("POST", "/resource_providers")
        )
        add_host(cloud, "host-0005")
        new = provider_id("host-0005")
        await cloud.until(lambda view: view.records.get(Host, new) is not None)
        shown = (await operator.ask("GET", f"/berth/v1/hosts/{new}"))["host"]
        (complaint,) = shown["complaints"]
        assert (shown["name"], shown["domains"]) == ("host-0005", [])
        assert complaint.startswith("Placement did not answer")
        listed = await operator.ask("GET", "/berth/v1/hosts")
        assert [one["complaints"] for one in listed["hosts"] if one["uuid"] == new] == [[complaint]]
        assert [one["uuid"] for one in listed["hosts"]] == sorted(one["uuid"] for one in listed["hosts"])
        services = await operator.ask("GET", "/compute/v2.1/os-services")
        (service,) = (one for one in services["services"] if one["host"] == "host-0005")
        assert service["disabled_reason"] == complaint
        (finding,) = await cloud.read(lambda view: examine(view, 10**10))
        assert (finding.kind, finding.subject) == ("host_complaint", new)
        assert complaint in finding.sentence
        operator.placement_fails(None)
        await cloud.until(lambda view: not any(host.complaints for host in view.records.all(Host)))
        assert await operator.is_there(new)
        assert (await operator.ask("GET", f"/berth/v1/hosts/{new}"))["host"]["domains"] != []


def add_host(cloud: SimCloud, name: str, **fields: Any) -> None:
    """Another host, like the first, which joins the first cell."""
    host = msgspec.structs.replace(cloud.hosts["host-0001"].host, name=name, **fields)
    cloud.hosts[name] = HostPart(cloud, host)
    cloud.hosts[name].start()


@pytest.mark.parametrize("lost", ["host", "device", "cell"])
async def test_what_others_have_deleted_of_a_host_is_written_again(
    monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """It was told of, and stayed lost until the agent was started again."""
    monkeypatch.setattr(hosts, "_CHECK_EVERY", 1)

    async with running() as operator:
        cloud = operator.cloud
        await cloud.until(lambda view: not any(host.complaints for host in view.records.all(Host)))
        before = [await operator.ask("GET", f"/resource_providers/{id}/inventories") for id in (ID, GPU0)]
        if lost == "cell":
            path = f"/resource_providers/{ID}/aggregates"
            found = await operator.ask("GET", path)
            await operator.ask("PUT", path, found | {"aggregates": []})
        else:
            for id in (GPU0,) if lost == "device" else (GPU0, GPU1, ID):
                await operator.ask("DELETE", f"/resource_providers/{id}", None, (204,))
        (finding, *_) = await cloud.read(lambda view: examine(view, 10**10)) or (None,)
        assert (finding is None) == (lost == "device"), "the region does not know what devices there are"
        cell = cell_aggregate("cell1")
        await cloud.until(
            lambda view: (
                {ID, GPU0, GPU1} <= set(view.providers) and cell in view.providers[ProviderId(ID)].aggregates
            )
        )
        await operator.until_complaints()
        after = [await operator.ask("GET", f"/resource_providers/{id}/inventories") for id in (ID, GPU0)]
        assert [one["inventories"] for one in after] == [one["inventories"] for one in before]
        assert await cloud.read(lambda view: examine(view, 10**10)) == ()
        await operator.is_up_for_a_while()


async def test_no_host_is_down_because_the_database_was_away_for_longer_than_the_heartbeat_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was away for less than the engine waits for it, so nobody was refused: heartbeats waited, and were
    old when it was back."""
    caplog.set_level("INFO")
    async with SimCloud(seed=11, hosts=5, heartbeat_timeout_s=4).running() as cloud:
        await asyncio.sleep(30)
        caplog.clear()
        for _ in range(5):
            cloud.cells["cell1"].database.is_away = True
            await asyncio.sleep(8)
            cloud.cells["cell1"].database.is_away = False
            await asyncio.sleep(30)
        assert [text for text in caplog.messages if ": down" in text] == []
        # One that is silent is down all the same.
        cloud.hosts[NAME].kill()
        await cloud.until(lambda view: len(view.down) == 1)

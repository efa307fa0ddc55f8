"""Nothing that is asked for is ignored: it is used, reaches the driver, or is refused by its name."""

from typing import Any

import msgspec
import pytest

from berth.api.compute.api import ROUTES
from berth.model.servers import Flavor, Host, Image
from tests.unit.compute.test_keypairs import PUBLIC_KEY
from tests.worlds import CIRROS, LARGE, SECRET, SMALL, HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

PINNED = Flavor(id="pinned", name="pinned", vcpus=1, memory_mb=512, extra_specs={"hw:cpu_realtime": "yes"})
OLD_IMAGE = Image(
    id=uuid_of(950),
    name="old",
    status="active",
    visibility="public",
    properties={"hw_locked_memory": "true"},
)


def body(**fields: Any) -> dict[str, Any]:
    return {"server": {"name": "one", "flavorRef": SMALL.id, "imageRef": CIRROS.id, **fields}}


def said(answer: HttpAnswer) -> str:
    assert answer.status == 400, answer.body
    message: str = answer.json["badRequest"]["message"]
    return message


# -- fields -------------------------------------------------------------------------------------

DISK = {"uuid": CIRROS.id, "boot_index": 0, "source_type": "image", "destination_type": "local"}
REFUSED: dict[str, dict[str, Any]] = {
    "a boot volume": {"block_device_mapping_v2": [DISK | {"destination_type": "volume", "volume_size": 1}]},
    "a second disk": {"block_device_mapping_v2": [DISK, {"source_type": "blank", "boot_index": -1}]},
    "another image as disk": {"block_device_mapping_v2": [DISK | {"uuid": uuid_of(901)}]},
    "an old boot volume": {"block_device_mapping": [{"device_name": "vda", "volume_id": uuid_of(1)}]},
    "a port": {"networks": [{"port": uuid_of(1)}]},
    "a network": {"networks": [{"uuid": uuid_of(1)}]},
    "an address": {"networks": [{"fixed_ip": "10.0.0.1"}]},
    "a network by a word": {"networks": "all"},
    "a security group": {"security_groups": [{"name": "web"}]},
    "files": {"personality": [{"path": "/a", "contents": "eA=="}]},
    "certificates": {"trusted_image_certificates": ["x"]},
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_server_is_refused_with_what_is_not_offered(region: RegionWorld, case: str) -> None:
    await region.fleet()
    [(name, _)] = REFUSED[case].items()
    answer = await region.compute("POST", "/servers", body(**REFUSED[case]))
    assert said(answer).startswith(f"Invalid input: {name} is ")
    assert (await region.compute("GET", "/servers")).json == {"servers": []}


@pytest.mark.parametrize(
    "fields",
    [
        {"networks": "auto"},
        {"networks": "none"},
        {"networks": []},
        {"block_device_mapping_v2": [DISK | {"delete_on_termination": True}]},
        {"security_groups": [{"name": "default"}]},
        {"config_drive": False, "tags": [], "user_data": None, "OS-DCF:diskConfig": "MANUAL"},
    ],
)
async def test_what_clients_send_when_nothing_is_asked_for_is_accepted(
    region: RegionWorld, fields: dict[str, Any]
) -> None:
    await region.fleet()
    assert (await region.compute("POST", "/servers", body(**fields))).status == 202


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("rebuild", {"imageRef": CIRROS.id, "preserve_ephemeral": True}),
        ("resize", {"flavorRef": LARGE.id, "OS-DCF:diskConfig": "AUTO"}),
        ("os-migrateLive", {"host": None, "block_migration": False}),
        ("os-migrateLive", {"host": None, "block_migration": "auto", "force": True}),
        ("evacuate", {"host": "host-2", "adminPass": "x"}),
        ("evacuate", {"host": "host-2", "force": True}),
    ],
)
async def test_an_action_is_refused_with_what_is_not_offered(
    region: RegionWorld, action: str, fields: dict[str, Any]
) -> None:
    await region.fleet()
    id = await region.active(host="host-1")
    answer = await region.act(id, action, fields)
    assert said(answer).startswith(f"Invalid input: {list(fields)[-1]} is ")
    assert region.record(id).task is None


async def test_a_change_is_refused_with_what_is_not_kept(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    for name, value in (("accessIPv4", "10.0.0"), ("pinned_availability_zone", None)):
        answer = await region.compute("PUT", f"/servers/{id}", {"server": {name: value}})
        assert said(answer).startswith(f"Invalid input: {name} is ")


async def test_hints_are_used_or_refused(region: RegionWorld) -> None:
    await region.fleet()
    for name, hints in (
        ("query", {"query": '[">=", "$free_ram_mb", 1]'}),
        ("build_near_host_ip", {"build_near_host_ip": "10.0.0.1"}),
        ("colour", {"colour": "red"}),
    ):
        answer = await region.compute("POST", "/servers", {**body(), "os:scheduler_hints": hints})
        assert f"the hint {name} is not supported" in said(answer)
        assert "Supported: group, same_host, different_host." in said(answer)
    both: dict[str, Any] = {"os:scheduler_hints": {}, "OS-SCH-HNT:scheduler_hints": {}}
    assert "under two names" in said(await region.compute("POST", "/servers", {**body(), **both}))
    assert "hints" in said(await region.compute("POST", "/servers", {**body(), "hints": {}}))


# -- flavors and images -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hw:cpu_realtime", "yes"),
        ("hw:numa_nodes", "banana"),
        ("hw:mem_page_size", "4096"),
        ("hw:numa_cpus.0", "all"),
        ("hw:no_such_thing", "1"),
        ("pci_passthrough:alias", "gpu"),
        ("accel:device_profile", ""),
        ("capabilities:vcpus", ">= 4"),
        ("os:secure_boot", "required"),
        ("quota:cpu_shares", "many"),
        ("quota:cpu_limit", "1"),
        ("trait:NO_SUCH_TRAIT", "required"),
        ("resources:NO_SUCH_CLASS", "1"),
        ("aggregate_instance_extra_specs:ssd", ">= many"),
        ("same_subtree", "1,2"),
        ("ssd", "true"),
    ],
)
async def test_a_flavor_does_not_get_what_nobody_would_heed(
    region: RegionWorld, key: str, value: str
) -> None:
    await region.fleet()
    path = f"/flavors/{SMALL.id}/os-extra_specs"
    answer = await region.compute("POST", path, {"extra_specs": {key: value}})
    assert said(answer).startswith(f"{key} is {value!r}; it must be ")
    answer = await region.compute("PUT", f"{path}/{key}", {key: value})
    assert said(answer).startswith(f"{key} is {value!r}; it must be ")
    assert (await region.compute("GET", path)).json == {"extra_specs": {}}


async def test_several_groups_need_a_policy(region: RegionWorld) -> None:
    await region.fleet()
    path = f"/flavors/{SMALL.id}/os-extra_specs"
    two = {"resources1:VCPU": "1", "resources2:VCPU": "1"}
    assert said(await region.compute("POST", path, {"extra_specs": two})) == (
        "group_policy is 'not given'; it must be none or isolate, because there are 2 numbered groups."
    )
    assert (await region.compute("POST", path, {"extra_specs": two | {"group_policy": "none"}})).status == 200


async def test_what_a_flavor_had_before_is_refused_where_something_is_made_of_it(region: RegionWorld) -> None:
    await region.fleet()
    await region.put(PINNED, OLD_IMAGE)
    made = await region.compute("POST", "/servers", body(flavorRef=PINNED.id))
    assert said(made).startswith("Flavor pinned cannot be used: hw:cpu_realtime is 'yes'; it must be")
    id = await region.active(imageRef=CIRROS.id)
    assert "hw:cpu_realtime" in said(await region.act(id, "resize", {"flavorRef": PINNED.id}))
    assert "hw_locked_memory" in said(await region.compute("POST", "/servers", body(imageRef=OLD_IMAGE.id)))
    assert "hw_locked_memory" in said(await region.act(id, "rebuild", {"imageRef": OLD_IMAGE.id}))
    # It can be taken away, and then the flavor can be used.
    path = f"/flavors/{PINNED.id}/os-extra_specs/hw:cpu_realtime"
    assert (await region.compute("DELETE", path)).status == 200
    assert (await region.compute("POST", "/servers", body(flavorRef=PINNED.id))).status == 202


async def test_a_server_from_before_can_be_moved(region: RegionWorld) -> None:
    """The refusal is about what is asked for now; who is there already must be able to leave a host."""
    await region.fleet()
    id = await region.active(host="host-1")
    record = region.record(id)
    assert record.flavor.id == SMALL.id
    pinned = Flavor(id="old", name="old", vcpus=2, memory_mb=2048, disk_gb=10, extra_specs=PINNED.extra_specs)
    await region.put(_with_flavor(record, pinned))
    assert (await region.act(id, "migrate")).status == 202


def _with_flavor(record: Any, flavor: Flavor) -> Any:
    return msgspec.structs.replace(record, flavor=flavor)


async def test_what_is_for_the_driver_reaches_it(region: RegionWorld) -> None:
    await region.fleet()
    path = f"/flavors/{SMALL.id}/os-extra_specs"
    specs = {"quota:disk_total_iops_sec": "500", "site:note": "x"}
    assert (await region.compute("POST", path, {"extra_specs": specs})).status == 200
    image = Image(
        id=uuid_of(951),
        name="tuned",
        status="active",
        visibility="public",
        properties={
            "hw_disk_bus": "scsi",
            "owner_specified.x": "y" * 60_000,
            "hw_qemu_guest_agent": "Yes",
        },
    )
    await region.put(image)
    id = await region.create(imageRef=image.id)
    spec = region.saga_run(id).spec
    assert spec.flavor.extra_specs == specs
    assert spec.image_properties == {"hw_disk_bus": "scsi", "hw_qemu_guest_agent": "true"}
    # What nobody reads is not carried along.
    assert region.record(id).image_properties == spec.image_properties


# -- lists --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/servers?name=(", "name"),
        ("/servers/detail?ip=10.0.0.*?", "ip"),
        ("/servers?whatever=1", "whatever"),
        ("/servers?instance_name=x", "instance_name"),
        ("/servers?sort_key=colour", "sort_key"),
        ("/servers?sort_dir=up", "sort_dir"),
        ("/servers?status=ACTIVE&status=ERROR", "status"),
        ("/flavors?name=x", "name"),
        ("/flavors?sort_key=rxtx_factor", "sort_key"),
        ("/flavors?sort_dir=up", "sort_dir"),
        ("/os-migrations?colour=red", "colour"),
        ("/os-migrations?hidden=true", "hidden"),
        ("/os-hypervisors?colour=red", "colour"),
        ("/os-services?topic=compute", "topic"),
        ("/os-server-groups?colour=red", "colour"),
        ("/os-aggregates?name=x", "name"),
        ("/os-availability-zone?name=x", "name"),
        ("/os-keypairs?colour=red", "colour"),
        ("/limits?project_id=x", "project_id"),
    ],
)
async def test_a_list_is_refused_with_a_word_that_it_does_not_know(
    region: RegionWorld, path: str, name: str
) -> None:
    await region.fleet()
    assert name in said(await region.compute("GET", path))


async def test_a_list_of_actions_is_refused_with_a_word_that_it_does_not_know(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    path = f"/servers/{id}/os-instance-actions"
    assert "colour" in said(await region.compute("GET", f"{path}?colour=red"))
    early = said(await region.compute("GET", f"{path}?changes-before=2026-01-01", version="2.60"))
    assert "not supported before microversion 2.66" in early


# -- aggregates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cpu_weight_multiplier", "2.0"),
        ("max_instances_per_host", "3"),
        ("instance_type", "large"),
        ("trait:CUSTOM_LICENSED", "forbidden"),
        ("filter_tenant_id", " , "),
    ],
)
async def test_an_aggregate_does_not_get_what_nobody_would_heed(
    region: RegionWorld, key: str, value: str
) -> None:
    await region.fleet()
    await region.compute("POST", "/os-aggregates", {"aggregate": {"name": "a"}})
    given = {"set_metadata": {"metadata": {key: value}}}
    assert said(await region.compute("POST", "/os-aggregates/1/action", given)).startswith(f"{key} is ")
    label = {"aggregate": {"kind": None, "name": "b", "metadata": {key: value}}}
    answer = await region.ask(
        "PUT", f"/berth/v1/aggregates/{uuid_of(700)}", label, token="admin", headers={"x-roles": "admin"}
    )
    assert answer.status == 400


async def give_traits(region: RegionWorld, number: int, *traits: str) -> None:
    path = f"/resource_providers/{uuid_of(number)}"
    generation = (await region.change("GET", path))["generation"]
    body = {"resource_provider_generation": generation, "traits": traits}
    await region.change("PUT", f"{path}/traits", body)


async def isolate(region: RegionWorld, number: int, **metadata: str) -> None:
    """A host of its own aggregate, which says this."""
    await region.join(number, uuid_of(500), uuid_of(700 + number))
    label = {"kind": None, "name": f"only-{number}", "metadata": metadata}
    await region.change("PUT", f"/berth/v1/aggregates/{uuid_of(700 + number)}", {"aggregate": label})


async def test_hosts_of_other_projects_take_no_server(region: RegionWorld) -> None:
    await region.fleet(2)
    await isolate(region, 1, filter_tenant_id="blue, green", filter_tenant_id_more="red")
    places = {region.record(await region.create(f"a{n}")).place for n in range(3)}
    assert {place.name for place in places if place is not None} == {"host-2"}
    for who in ("ann:blue", "bob:green", "cat:red"):
        id = await region.create(availability_zone=None, who=who)
        assert region.record(id).place is not None
    refused = await region.create("no", host="host-1")
    assert "open to the project admin" in (await region.server(refused))["fault"]["message"]


async def test_hosts_that_are_kept_for_a_trait_take_no_other_server(region: RegionWorld) -> None:
    await region.fleet(2)
    await give_traits(region, 1, "HW_CPU_X86_AVX2")
    await isolate(region, 1, **{"trait:HW_CPU_X86_AVX2": "required"})
    for number in range(3):
        place = region.record(await region.create(f"a{number}")).place
        assert place is not None
        assert place.name == "host-2"
    id = await region.create(imageRef=uuid_of(901))
    place = region.record(id).place
    assert place is not None
    assert place.name == "host-1"


async def test_an_image_goes_to_hosts_of_its_architecture_and_hypervisor(region: RegionWorld) -> None:
    await region.fleet(3)
    await give_traits(region, 2, "HW_ARCH_AARCH64")
    arm = Image(
        id=uuid_of(952),
        name="arm",
        status="active",
        visibility="public",
        properties={"architecture": "aarch64"},
    )
    kvm = Image(
        id=uuid_of(953),
        name="kvm",
        status="active",
        visibility="public",
        properties={"hypervisor_type": "kvm"},
    )
    await region.put(arm, kvm)
    for number in range(2):
        place = region.record(await region.create(f"a{number}", imageRef=arm.id)).place
        assert place is not None
        assert place.name == "host-2"
    fault = (await region.server(await region.create("k", imageRef=kvm.id)))["fault"]["message"]
    assert "the hypervisor kvm" in fault
    here = await region.active("x", host="host-1")
    assert "the architecture aarch64" in said(await region.act(here, "rebuild", {"imageRef": arm.id}))


async def test_an_image_stays_out_of_aggregates_that_say_otherwise(region: RegionWorld) -> None:
    await region.fleet(2)
    await isolate(region, 1, os_type="windows")
    linux = Image(
        id=uuid_of(954),
        name="linux",
        status="active",
        visibility="public",
        properties={"os_type": "linux"},
    )
    await region.put(linux)
    for number in range(3):
        place = region.record(await region.create(f"a{number}", imageRef=linux.id)).place
        assert place is not None
        assert place.name == "host-2"
    assert (await region.server(await region.create("x", host="host-1"))).get("fault") is None
    here = await region.active("y", host="host-1")
    assert "os_type" in said(await region.act(here, "rebuild", {"imageRef": linux.id}))


async def test_a_conflict_of_flavor_and_image_names_both_values(region: RegionWorld) -> None:
    await region.fleet()
    shared = msgspec.structs.replace(PINNED, id="shared", extra_specs={"hw:cpu_policy": "shared"})
    pinning = msgspec.structs.replace(OLD_IMAGE, properties={"hw_cpu_policy": "dedicated"})
    await region.put(shared, pinning)
    made = await region.compute("POST", "/servers", body(flavorRef=shared.id, imageRef=pinning.id))
    assert made.status == 400
    assert "hw_cpu_policy is 'dedicated'" in said(made)
    assert "hw:cpu_policy=shared" in said(made)


async def test_an_alias_that_nobody_has_configured_is_refused_by_its_name(region: RegionWorld) -> None:
    await region.fleet()
    await region.put(msgspec.structs.replace(PINNED, extra_specs={"pci_passthrough:alias": "modem:1"}))
    made = await region.compute("POST", "/servers", body(flavorRef=PINNED.id))
    assert "pci_passthrough:alias is 'modem:1'" in said(made)
    assert "modem is not" in said(made)


async def test_a_rebuild_cannot_make_another_guest(region: RegionWorld) -> None:
    await region.fleet()
    await region.put(msgspec.structs.replace(OLD_IMAGE, properties={"hw_numa_nodes": "2"}))
    id = await region.active(imageRef=CIRROS.id)
    refused = said(await region.act(id, "rebuild", {"imageRef": OLD_IMAGE.id}))
    assert "hw_numa_nodes is '2'" in refused
    assert "a resize can change that" in refused


async def test_a_rebuild_cannot_change_the_pages_of_a_guest(region: RegionWorld) -> None:
    """The first thing that is asked for stays the same, and the guest is another."""
    await region.fleet()
    pages = msgspec.structs.replace(PINNED, id="pages", extra_specs={"hw:mem_page_size": "any"})
    small = msgspec.structs.replace(OLD_IMAGE, properties={"hw_mem_page_size": "small"})
    await region.put(pages, small)
    id = await region.active(imageRef=CIRROS.id, flavorRef=pages.id)
    refused = said(await region.act(id, "rebuild", {"imageRef": small.id}))
    assert "hw_mem_page_size is 'small'" in refused


# -- parameters ---------------------------------------------------------------------------------

NOT_SHOWN = {
    "/os-hypervisors/{id}/uptime",
    "/os-hosts/{host}/startup",
    "/os-hosts/{host}/shutdown",
    "/os-hosts/{host}/reboot",
    "/servers/{id}/tags/{tag}",
}
"""What is refused whatever the parameters are."""


async def test_a_parameter_that_is_not_known_is_refused_wherever_something_is_read(
    region: RegionWorld,
) -> None:
    await region.fleet()
    await region.put(Host(id=uuid_of(1), number=1, name="host-1", cell="cell-1"), OLD_IMAGE)
    server = f"/servers/{await region.active('one', metadata={'role': 'web'})}"
    await region.act(server[9:], "os-migrateLive", {"host": None, "block_migration": "auto"})
    (moving,) = region.migrations(server[9:])
    (action, *_) = (await region.compute("GET", f"{server}/os-instance-actions")).json["instanceActions"]
    specs = {"extra_specs": {"hw:cpu_policy": "dedicated"}}
    await region.compute("POST", f"/flavors/{SMALL.id}/os-extra_specs", specs)
    made = await region.compute("POST", "/os-aggregates", {"aggregate": {"name": "a"}})
    pair = {"name": "k", "public_key": PUBLIC_KEY}
    assert (await region.compute("POST", "/os-keypairs", {"keypair": pair})).status == 201
    filled = {
        "/extensions/{alias}": "/extensions/os-hosts",
        "/images/{id}": f"/images/{CIRROS.id}",
        "/images/{id}/metadata": f"/images/{CIRROS.id}/metadata",
        "/images/{id}/metadata/{key}": f"/images/{OLD_IMAGE.id}/metadata/hw_locked_memory",
        "/os-hosts/{host}": "/os-hosts/host-1",
        "/os-instance_usage_audit_log/{before}": "/os-instance_usage_audit_log/2026-01-01",
        "/os-keypairs/{name}": "/os-keypairs/k",
        "/servers/{id}/ips/{network}": f"{server}/ips/public",
        "/flavors/{id}/os-extra_specs/{key}": f"/flavors/{SMALL.id}/os-extra_specs/hw:cpu_policy",
        "/flavors/{id}/os-flavor-access": f"/flavors/{SECRET.id}/os-flavor-access",
        "/os-aggregates/{id}": f"/os-aggregates/{made.json['aggregate']['id']}",
        "/os-quota-class-sets/{name}": "/os-quota-class-sets/default",
        "/os-server-groups/{id}": f"/os-server-groups/{await region.group()}",
        "/servers/{id}/metadata/{key}": f"{server}/metadata/role",
        "/servers/{id}/migrations/{migration}": f"{server}/migrations/{moving.number}",
        "/servers/{id}/os-instance-actions/{request_id}": (
            f"{server}/os-instance-actions/{action['request_id']}"
        ),
    }
    for path in sorted({route.path for route in ROUTES if route.method == "GET"} - NOT_SHOWN):
        where = filled.get(path, path).replace("/servers/{id}", server).replace("/flavors/{id}", "/flavors/1")
        where = where.replace("{pattern}", "host").replace("{project}", "project").replace("{id}", uuid_of(1))
        version = "2.52" if "{pattern}" in path or "statistics" in path else "2.94"
        if path.startswith(("/images", "/os-hosts")):
            version = "2.1"
        known = await region.compute("GET", where, version=version)
        assert known.status == 200, (where, known.body)
        refused = await region.compute("GET", f"{where}?colour=red", version=version)
        assert "'colour' is not supported" in said(refused), path


async def test_parameters_that_clients_send_with_the_id_of_a_server_are_taken(region: RegionWorld) -> None:
    await region.fleet()
    server = await region.active()
    assert (await region.compute("GET", f"/servers/{server}?all_projects=True")).status == 200

"""What a flavor and an image ask for."""

import pytest

from berth.model.rejections import SpecInvalid
from berth.model.scheduling import CandidatesRequest
from berth.scheduler.flavors import FlavorAsk, FlavorSize, check_flavor, read_flavor

pytestmark = pytest.mark.fast


def asked(specs: dict[str, str], image: dict[str, str] | None = None) -> FlavorAsk:
    found = read_flavor(FlavorSize(vcpus=2, memory_mb=4096, disk_gb=20, extra_specs=specs), image or {})
    assert isinstance(found, FlavorAsk), found
    return found


def wrong(specs: dict[str, str], image: dict[str, str] | None = None) -> SpecInvalid:
    found = read_flavor(FlavorSize(vcpus=2, memory_mb=4096, disk_gb=20, extra_specs=specs), image or {})
    assert isinstance(found, SpecInvalid), found
    return found


def resources(ask: CandidatesRequest) -> dict[str, dict[str, int]]:
    return {group.suffix: dict(group.resources) for group in ask.groups}


def test_sizes_are_resources() -> None:
    assert resources(asked({}).ask) == {"": {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20}}


def test_ephemeral_and_swap_disks_count_and_a_volume_does_not() -> None:
    flavor = FlavorSize(vcpus=1, memory_mb=1, disk_gb=10, ephemeral_gb=5, swap_mb=1025)
    for root_disk, disk_gb in ((True, 17), (False, 7)):
        found = read_flavor(flavor, root_disk=root_disk)
        assert isinstance(found, FlavorAsk)
        assert resources(found.ask)[""]["DISK_GB"] == disk_gb


def test_extra_specs_change_take_away_and_add() -> None:
    found = asked({"resources:VCPU": "0", "resources:DISK_GB": "7", "resources:CUSTOM_IRON": "1"})
    assert resources(found.ask) == {"": {"MEMORY_MB": 4096, "DISK_GB": 7, "CUSTOM_IRON": 1}}


def test_suffixed_groups_have_their_own_and_take_the_place_of_sizes() -> None:
    specs = {
        "resources1:VCPU": "2",
        "resources1:MEMORY_MB": "512",
        "trait1:HW_NUMA_ROOT": "required",
        "resources_NET-a:SRIOV_NET_VF": "1",
        "trait_NET-a:CUSTOM_SLOW": "forbidden",
        "group_policy": "isolate",
    }
    ask = asked(specs).ask
    assert resources(ask) == {
        "": {"DISK_GB": 20},
        "1": {"VCPU": 2, "MEMORY_MB": 512},
        "_NET-a": {"SRIOV_NET_VF": 1},
    }
    assert ask.isolate
    assert [group.required for group in ask.groups] == [(), (("HW_NUMA_ROOT",),), ()]
    assert [group.forbidden for group in ask.groups] == [frozenset(), frozenset(), frozenset({"CUSTOM_SLOW"})]


def test_traits_of_flavor_and_image_come_together() -> None:
    specs = {"trait:HW_CPU_X86_AVX": "required", "trait:STORAGE_DISK_HDD": "forbidden"}
    (group,) = asked(specs, {"trait:STORAGE_DISK_SSD": "required", "hw_disk_bus": "scsi"}).ask.groups
    assert group.required == (("HW_CPU_X86_AVX",), ("STORAGE_DISK_SSD",))
    assert group.forbidden == {"STORAGE_DISK_HDD"}


def test_aggregates_must_say_what_is_in_their_scope() -> None:
    specs = {"aggregate_instance_extra_specs:ssd": "true", "aggregate_instance_extra_specs:a:b": "x"}
    assert asked(specs).metadata == (("ssd", "true"), ("a:b", "x"))


def test_groups_can_be_in_one_subtree() -> None:
    specs = {"resources1:VCPU": "1", "resources_B:VGPU": "1", "group_policy": "none", "same_subtree": "1, _B"}
    assert asked(specs).ask.same_subtrees == (frozenset({"1", "_B"}),)
    two = {"resources1:VCPU": "1", "resources2:VGPU": "1", "group_policy": "none"}
    assert asked(two | {"same_subtree1": "1,2", "same_subtree2": "2"}).ask.same_subtrees == (
        frozenset({"1", "2"}),
        frozenset({"2"}),
    )


@pytest.mark.parametrize("named", ["2", "1,2", "1;2", ""])
def test_groups_in_one_subtree_must_ask_for_resources(named: str) -> None:
    specs = {"resources1:VCPU": "1", "resources2:VGPU": "0", "same_subtree": named}
    wrong = check_flavor(FlavorSize(vcpus=2, memory_mb=4096, extra_specs=specs))
    assert isinstance(wrong, SpecInvalid)
    assert (wrong.key, wrong.value) == ("same_subtree", named)


def test_a_group_that_asks_for_nothing_needs_no_policy() -> None:
    specs = {"resources1:VCPU": "1", "resources2:VGPU": "0"}
    assert isinstance(check_flavor(FlavorSize(vcpus=2, memory_mb=4096, extra_specs=specs)), FlavorAsk)


def test_a_server_that_is_there_keeps_a_flavor_that_would_be_refused_today() -> None:
    specs = {
        "hw:cpu_realtime": "yes",
        "quota:vif_inbound_average": "x",
        "ssd": "yes",
        "same_subtree": "9",
    }
    assert asked(specs) == asked({})
    flavor = FlavorSize(vcpus=2, memory_mb=4096, extra_specs=specs)
    assert check_flavor(flavor) == SpecInvalid(
        "hw:cpu_realtime", "yes", "left out: realtime cpus are not implemented"
    )


def test_image_properties_reach_filters_under_their_present_names() -> None:
    properties = {
        "architecture": "AMD64",
        "hw_qemu_guest_agent": "yes",
        "os_distro": "debian",
        "vmware_ostype": "other",
        "note": "x",
        "hw_locked_memory": "true",
    }
    assert dict(asked({}, properties).image) == {
        "hw_architecture": "x86_64",
        "hw_qemu_guest_agent": "true",
        "os_distro": "debian",
    }


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("resources:VCPU", "two", "a whole number from 0 to 2147483647"),
        ("resources:VCPU", "-1", "a whole number from 0 to 2147483647"),
        ("resources:VCPU", "2147483648", "a whole number from 0 to 2147483647"),
        ("resources:VCPU", "9" * 1000, "a whole number from 0 to 2147483647"),
        ("resources:VCPU", "٣", "a whole number from 0 to 2147483647"),
        ("resources:", "1", "the name of a resource class behind the colon: A-Z, 0-9 and _"),
        ("resources2:vcpu", "1", "the name of a resource class behind the colon: A-Z, 0-9 and _"),
        ("trait:CUSTOM_A", "yes", "required or forbidden"),
        ("trait:custom", "required", "the name of a trait behind the colon: A-Z, 0-9 and _"),
        ("group_policy", "isolated", "none or isolate"),
        ("trait1:CUSTOM_A", "required", "traits of a group that asks for resources1: too"),
        (
            "aggregate_instance_extra_specs:",
            "x",
            "the key that an aggregate's metadata must have, behind the colon",
        ),
    ],
)
def test_what_cannot_be_understood_is_named(key: str, value: str, accepted: str) -> None:
    assert wrong({key: value}) == SpecInvalid(key, value, accepted)


def test_what_cannot_be_asked_for_is_refused() -> None:
    assert wrong({}, {"trait:CUSTOM_A": "forbidden"}).key == "trait:CUSTOM_A"
    assert wrong({"trait:CUSTOM_A": "forbidden"}, {"trait:CUSTOM_A": "required"}).key == "trait:CUSTOM_A"
    nothing = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    assert wrong(nothing).key == "resources"
    assert isinstance(read_flavor(FlavorSize(vcpus=-1, memory_mb=1)), SpecInvalid)
    assert isinstance(
        read_flavor(FlavorSize(vcpus=1, memory_mb=1, disk_gb=2**31 - 1, ephemeral_gb=1)), SpecInvalid
    )


def test_numbers_of_specs_and_groups_are_bounded() -> None:
    assert wrong({f"hw:{n}": "x" for n in range(1001)}).key == "extra_specs"
    assert wrong({f"resources{n}:VCPU": "1" for n in range(200)}).accepted == "100 groups at most"


@pytest.mark.parametrize("place", ["local", "pool"])
def test_a_disk_is_on_the_host_or_in_a_pool(place: str) -> None:
    ask = asked({"berth:disk": place}).ask
    assert resources(ask) == {"": {"VCPU": 2, "MEMORY_MB": 4096}, "_disk": {"DISK_GB": 20}}
    disk = ask.groups[-1]
    shares = "MISC_SHARES_VIA_AGGREGATE"
    assert (disk.required, disk.forbidden) == (
        (((shares,),), frozenset()) if place == "pool" else ((), frozenset((shares,)))
    )


def test_an_amount_of_disk_that_the_flavor_names_is_placed_too() -> None:
    assert resources(asked({"berth:disk": "pool", "resources:DISK_GB": "7"}).ask)["_disk"] == {"DISK_GB": 7}
    assert "_disk" not in resources(asked({"berth:disk": "pool", "resources:DISK_GB": "0"}).ask)


@pytest.mark.parametrize(
    "specs", [{"resources1:DISK_GB": "5"}, {"resources_disk:VGPU": "1"}, {"berth:disk": "shared"}]
)
def test_a_disk_that_cannot_be_placed_is_refused(specs: dict[str, str]) -> None:
    assert wrong({"berth:disk": "pool", **specs}).key == "berth:disk"


def test_other_keys_of_ours_are_refused() -> None:
    refused = check_flavor(FlavorSize(vcpus=1, memory_mb=1, extra_specs={"berth:disc": "pool"}))
    assert isinstance(refused, SpecInvalid)
    assert refused.key == "berth:disc"

"""What each key about hardware asks for, key by key; what is refused, by name; and where guests then go."""

import random

import pytest

from berth.model.commands import DeleteProvider, SetInventories
from berth.model.devices import NumaPolicy
from berth.model.ids import ConsumerId
from berth.model.placement import HYPERTHREADING, NUMA_ROOT, SOCKET_TRAITS, Inventory
from berth.model.rejections import NoFit, SpecInvalid
from berth.model.scheduling import (
    Affinity,
    CandidatesRequest,
    Explanation,
    HostCandidate,
    Plan,
    RequestGroup,
    ScheduleRequest,
)
from berth.scheduler.capacity.members import count_capacity
from berth.scheduler.devices import WrongDevice, read_catalog
from berth.scheduler.explain import explain
from berth.scheduler.flavors import FlavorAsk, FlavorSize, check_flavor, read_flavor
from berth.scheduler.joint import plan_jointly
from berth.scheduler.plan import plan
from berth.scheduler.topology import read_threads
from tests.options import scheduler_options
from tests.unit.scheduler.fleets import Fleet

pytestmark = pytest.mark.fast

DEVICES = read_catalog(
    [
        '{"name": "nic", "vendor_id": "15b3", "product_id": "1017", "device_type": "type-PF"}',
        '{"name": "vf", "resource_class": "SRIOV_NET_VF", "traits": "CUSTOM_PHYSNET_A"}',
        '{"name": "close", "resource_class": "PGPU", "numa_policy": "required"}',
        '{"name": "rather", "resource_class": "PGPU", "numa_policy": "preferred"}',
    ],
    ['{"name": "crypto", "groups": [{"resources:FPGA": "1", "trait:CUSTOM_AES": "required"}]}'],
)
OPTIONS = scheduler_options()
NEAR = frozenset({"_numa0"})


def flavor(specs: dict[str, str], vcpus: int = 4, memory_mb: int = 4096, disk_gb: int = 10) -> FlavorSize:
    return FlavorSize(vcpus=vcpus, memory_mb=memory_mb, disk_gb=disk_gb, extra_specs=specs)


def asked(specs: dict[str, str], image: dict[str, str] | None = None, vcpus: int = 4) -> FlavorAsk:
    found = check_flavor(flavor(specs, vcpus), image or {}, DEVICES)
    assert isinstance(found, FlavorAsk), found
    return found


def amounts(ask: CandidatesRequest) -> dict[str, dict[str, int]]:
    return {group.suffix: dict(group.resources) for group in ask.groups}


def group(ask: CandidatesRequest, suffix: str) -> RequestGroup:
    return next(group for group in ask.groups if group.suffix == suffix)


# -- what is asked for --------------------------------------------------------------------------

DISK = {"": {"DISK_GB": 10}}
WHOLE = {"": {"VCPU": 4, "MEMORY_MB": 4096, "DISK_GB": 10}}


def one_cell(**resources: int) -> dict[str, dict[str, int]]:
    return {**DISK, "_numa0": resources}


REQUESTS: dict[str, tuple[dict[str, str], dict[str, str], list[dict[str, dict[str, int]]]]] = {
    "nothing": ({}, {}, [WHOLE, WHOLE]),
    "shared": ({"hw:cpu_policy": "shared"}, {}, [WHOLE, WHOLE]),
    "dedicated": (
        {"hw:cpu_policy": "dedicated"},
        {},
        [
            one_cell(PCPU=4, MEMORY_MB=4096),
            one_cell(PCPU=8, MEMORY_MB=4096),
            {"": {"PCPU": 4, "MEMORY_MB": 4096, "DISK_GB": 10}},
            {"": {"PCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 10}},
        ],
    ),
    "dedicated by the image": (
        {"hw:numa_nodes": "1"},
        {"hw_cpu_policy": "dedicated"},
        [one_cell(PCPU=4, MEMORY_MB=4096), one_cell(PCPU=8, MEMORY_MB=4096)],
    ),
    "dedicated by amounts alone": (
        {"resources:PCPU": "4"},
        {},
        [{"": {"MEMORY_MB": 4096, "DISK_GB": 10, "PCPU": n}} for n in (4, 8, 4, 8)],
    ),
    "dedicated by amounts": (
        {"resources:PCPU": "4", "hw:numa_nodes": "1"},
        {},
        [one_cell(PCPU=4, MEMORY_MB=4096), one_cell(PCPU=8, MEMORY_MB=4096)],
    ),
    "dedicated by amounts, and a device that must be near": (
        {"resources:PCPU": "4", "pci_passthrough:alias": "close:1"},
        {},
        [
            {**one_cell(PCPU=4, MEMORY_MB=4096), "_pci0": {"PGPU": 1}},
            {**one_cell(PCPU=8, MEMORY_MB=4096), "_pci0": {"PGPU": 1}},
        ],
    ),
    "dedicated by amounts of a group": (
        {"resources1:PCPU": "4"},
        {},
        [{"": {"MEMORY_MB": 4096, "DISK_GB": 10}, "1": {"PCPU": n}} for n in (4, 8, 4, 8)],
    ),
    "dedicated by amounts of a group, with the emulator apart": (
        {"resources1:PCPU": "5", "hw:emulator_threads_policy": "isolate"},
        {},
        [{"": {"MEMORY_MB": 4096, "DISK_GB": 10}, "1": {"PCPU": n}} for n in (5, 6, 8, 5, 6, 8)],
    ),
    "dedicated by amounts of a group, on cores of their own": (
        {"resources1:PCPU": "4", "hw:cpu_thread_policy": "isolate"},
        {},
        [{"": {"MEMORY_MB": 4096, "DISK_GB": 10}, "1": {"PCPU": 4}}] * 2,
    ),
    "no amounts beside a policy": (
        {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1", "resources:PCPU": "0"},
        {},
        [one_cell(PCPU=4, MEMORY_MB=4096), one_cell(PCPU=8, MEMORY_MB=4096)],
    ),
    "mixed": (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0-1", "hw:numa_nodes": "1"},
        {},
        [
            one_cell(VCPU=2, PCPU=2, MEMORY_MB=4096),
            one_cell(VCPU=2, PCPU=4, MEMORY_MB=4096),
            one_cell(VCPU=2, PCPU=8, MEMORY_MB=4096),
        ],
    ),
    "isolated threads": (
        {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate", "hw:numa_nodes": "1"},
        {},
        [one_cell(PCPU=4, MEMORY_MB=4096)],
    ),
    "emulator apart": (
        {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate", "hw:numa_nodes": "2"},
        {},
        [
            {**DISK, "_numa0": {"PCPU": 3, "MEMORY_MB": 2048}, "_numa1": {"PCPU": 2, "MEMORY_MB": 2048}},
            {**DISK, "_numa0": {"PCPU": 4, "MEMORY_MB": 2048}, "_numa1": {"PCPU": 2, "MEMORY_MB": 2048}},
            {**DISK, "_numa0": {"PCPU": 4, "MEMORY_MB": 2048}, "_numa1": {"PCPU": 4, "MEMORY_MB": 2048}},
            {**DISK, "_numa0": {"PCPU": 8, "MEMORY_MB": 2048}, "_numa1": {"PCPU": 8, "MEMORY_MB": 2048}},
        ],
    ),
    "emulator shared": ({"hw:emulator_threads_policy": "share"}, {}, [WHOLE, WHOLE]),
    "cells": (
        {"hw:numa_nodes": "2"},
        {},
        [{**DISK, "_numa0": {"VCPU": 2, "MEMORY_MB": 2048}, "_numa1": {"VCPU": 2, "MEMORY_MB": 2048}}],
    ),
    "cells of the image": (
        {},
        {"hw_numa_nodes": "2"},
        [{**DISK, "_numa0": {"VCPU": 2, "MEMORY_MB": 2048}, "_numa1": {"VCPU": 2, "MEMORY_MB": 2048}}],
    ),
    "uneven cells": (
        {
            "hw:numa_nodes": "2",
            "hw:numa_cpus.0": "0-2",
            "hw:numa_cpus.1": "3",
            "hw:numa_mem.0": "3072",
            "hw:numa_mem.1": "1024",
        },
        {},
        [{**DISK, "_numa0": {"VCPU": 3, "MEMORY_MB": 3072}, "_numa1": {"VCPU": 1, "MEMORY_MB": 1024}}],
    ),
    "uneven cells of the image": (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "3"},
        {
            "hw_numa_nodes": "2",
            "hw_numa_cpus.0": "0-2",
            "hw_numa_cpus.1": "3",
            "hw_numa_mem.0": "3072",
            "hw_numa_mem.1": "1024",
        },
        [
            {**DISK, "_numa0": {"VCPU": 3, "MEMORY_MB": 3072}, "_numa1": {"PCPU": n, "MEMORY_MB": 1024}}
            for n in (1, 2, 4, 8)
        ],
    ),
    "small pages": (
        {"hw:mem_page_size": "small"},
        {},
        [one_cell(VCPU=4, MEMORY_MB=4096), WHOLE],
    ),
    "pages of 2 MB": (
        {"hw:mem_page_size": "2048", "hw:numa_nodes": "1"},
        {},
        [one_cell(VCPU=4, CUSTOM_MEMORY_PAGES_2M=2048)],
    ),
    "pages of 1 GB": (
        {"hw:mem_page_size": "1GB", "hw:numa_nodes": "2"},
        {},
        [
            {
                **DISK,
                "_numa0": {"VCPU": 2, "CUSTOM_MEMORY_PAGES_1G": 2},
                "_numa1": {"VCPU": 2, "CUSTOM_MEMORY_PAGES_1G": 2},
            }
        ],
    ),
    "large pages": (
        {"hw:mem_page_size": "large"},
        {},
        [
            one_cell(VCPU=4, CUSTOM_MEMORY_PAGES_1G=4),
            one_cell(VCPU=4, CUSTOM_MEMORY_PAGES_2M=2048),
            {"": {"VCPU": 4, "CUSTOM_MEMORY_PAGES_1G": 4, "DISK_GB": 10}},
            {"": {"VCPU": 4, "CUSTOM_MEMORY_PAGES_2M": 2048, "DISK_GB": 10}},
        ],
    ),
    "any pages": (
        {"hw:mem_page_size": "any", "hw:numa_nodes": "1"},
        {},
        [
            one_cell(VCPU=4, MEMORY_MB=4096),
            one_cell(VCPU=4, CUSTOM_MEMORY_PAGES_2M=2048),
            one_cell(VCPU=4, CUSTOM_MEMORY_PAGES_1G=4),
        ],
    ),
    "pages that the image chooses": (
        {"hw:mem_page_size": "large", "hw:numa_nodes": "1"},
        {"hw_mem_page_size": "2MB"},
        [one_cell(VCPU=4, CUSTOM_MEMORY_PAGES_2M=2048)],
    ),
    "small pages that the image chooses": (
        {"hw:mem_page_size": "large", "hw:numa_nodes": "1"},
        {"hw_mem_page_size": "small"},
        [one_cell(VCPU=4, MEMORY_MB=4096)],
    ),
    "any pages that the image chooses": (
        {"hw:mem_page_size": "large", "hw:numa_nodes": "1"},
        {"hw_mem_page_size": "any"},
        [
            one_cell(VCPU=4, MEMORY_MB=4096),
            one_cell(VCPU=4, CUSTOM_MEMORY_PAGES_2M=2048),
            one_cell(VCPU=4, CUSTOM_MEMORY_PAGES_1G=4),
        ],
    ),
    "devices": (
        {"pci_passthrough:alias": "nic:2, vf:1"},
        {},
        [
            {
                **WHOLE,
                "_pci0": {"CUSTOM_PCI_15B3_1017": 1},
                "_pci1": {"CUSTOM_PCI_15B3_1017": 1},
                "_pci2": {"SRIOV_NET_VF": 1},
            }
        ]
        * 2,
    ),
    "a profile": ({"accel:device_profile": "crypto"}, {}, [{**WHOLE, "_accel0": {"FPGA": 1}}] * 2),
    "a VGPU": ({"resources:VGPU": "1"}, {}, [{"": {**WHOLE[""], "VGPU": 1}}] * 2),
    "a numbered group": (
        {"resources1:VGPU": "1", "hw:numa_nodes": "1"},
        {},
        [{**DISK, "1": {"VGPU": 1}, "_numa0": {"VCPU": 4, "MEMORY_MB": 4096}}],
    ),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_a_key_asks_for(case: str) -> None:
    specs, image, expected = REQUESTS[case]
    found = asked(specs, image)
    assert [amounts(ask) for ask in (found.ask, *found.otherwise)] == expected


def test_guest_cells_are_on_different_cells_of_the_host_and_a_guest_without_them_may_be_split() -> None:
    ask = asked({"hw:numa_nodes": "2"}).ask
    assert ask.distinct == (frozenset({"_numa0", "_numa1"}),)
    assert group(ask, "_numa0").required == ((NUMA_ROOT,),)
    assert (ask.isolate, ask.split) == (False, frozenset())
    whole = asked({"hw:cpu_policy": "dedicated"})
    assert group(whole.ask, "_numa0").required == ()
    assert whole.otherwise[-1].split == {"PCPU", "MEMORY_MB"}
    assert asked({}).otherwise[0].split == {"VCPU", "MEMORY_MB"}


@pytest.mark.parametrize(
    ("specs", "image", "required", "forbidden"),
    [
        ({}, {}, False, False),
        ({"hw:cpu_thread_policy": "prefer"}, {}, False, False),
        ({"hw:cpu_thread_policy": "require"}, {}, True, False),
        ({"hw:cpu_thread_policy": "isolate"}, {}, False, True),
        ({}, {"hw_cpu_thread_policy": "isolate"}, False, True),
        ({"hw:cpu_thread_policy": "prefer"}, {"hw_cpu_thread_policy": "require"}, True, False),
    ],
)
def test_thread_policies_are_a_trait(
    specs: dict[str, str], image: dict[str, str], required: bool, forbidden: bool
) -> None:
    cell = group(asked({"hw:cpu_policy": "dedicated", **specs}, image).ask, "_numa0")
    assert ((HYPERTHREADING,) in cell.required, HYPERTHREADING in cell.forbidden) == (required, forbidden)


def test_devices_are_near_the_guest_as_their_policy_says() -> None:
    def affinities(specs: dict[str, str], image: dict[str, str] | None = None) -> list[tuple[Affinity, ...]]:
        found = asked(specs, image)
        return [ask.affinities for ask in (found.ask, *found.otherwise)]

    pinned = {"hw:numa_nodes": "1"}
    near, legacy = (Affinity("_pci0", NEAR),), (Affinity("_pci0", NEAR, or_outside=True),)
    on_socket = (Affinity("_pci0", NEAR, by_socket=True),)
    assert affinities({"pci_passthrough:alias": "vf:1"}) == [(), ()]
    assert affinities({"pci_passthrough:alias": "vf:1", **pinned}) == [legacy]
    assert affinities({"pci_passthrough:alias": "close:1"}) == [near]
    assert affinities({"pci_passthrough:alias": "rather:1"}) == [(), ()]
    assert affinities({"pci_passthrough:alias": "rather:1", **pinned}) == [near, ()]
    for policy, expected in {
        "required": [near],
        "socket": [on_socket],
        "legacy": [legacy],
        "preferred": [near, ()],
    }.items():
        specs = {"pci_passthrough:alias": "vf:1", **pinned}
        assert affinities({**specs, "hw:pci_numa_affinity_policy": policy}) == expected
        assert affinities(specs, {"hw_pci_numa_affinity_policy": policy}) == expected


def test_devices_beside_the_flavor_are_near_the_guest_as_their_policy_says() -> None:
    """A port's VF, by the policy of the port, of flavor or image, or else as Nova does without one."""

    def affinities(
        specs: dict[str, str], own: NumaPolicy | None = None, image: dict[str, str] | None = None
    ) -> list[tuple[Affinity, ...]]:
        found = read_flavor(flavor(specs), image or {}, pci_groups=(("_need_port", own),))
        assert isinstance(found, FlavorAsk), found
        return [ask.affinities for ask in (found.ask, *found.otherwise)]

    pinned = {"hw:numa_nodes": "1"}
    near, legacy = (Affinity("_need_port", NEAR),), (Affinity("_need_port", NEAR, or_outside=True),)
    on_socket = (Affinity("_need_port", NEAR, by_socket=True),)
    assert affinities({}) == [(), ()]
    assert affinities({}, "required") == [near]
    assert affinities(pinned) == [legacy]
    assert affinities({"hw:pci_numa_affinity_policy": "required"}) == [near]
    assert affinities(pinned, image={"hw_pci_numa_affinity_policy": "preferred"}) == [near, ()]
    assert affinities({**pinned, "hw:pci_numa_affinity_policy": "required"}, "legacy") == [legacy]
    assert affinities({**pinned, "hw:pci_numa_affinity_policy": "legacy"}, "socket") == [on_socket]
    refused = read_flavor(flavor({"resources:VCPU": "4"}), pci_groups=(("_need_port", "required"),))
    assert refused == SpecInvalid(
        "resources:VCPU",
        "4",
        "left out: numa_affinity_policy of a port takes cpus and memory as the flavor has them",
    )


def test_isolation_is_about_numbered_groups_and_not_about_cells_and_devices() -> None:
    specs = {
        "resources1:VGPU": "1",
        "resources2:VGPU": "1",
        "group_policy": "isolate",
        "hw:numa_nodes": "2",
        "pci_passthrough:alias": "vf:1",
    }
    ask = asked(specs).ask
    assert ask.isolate is False
    assert ask.distinct == (frozenset({"1", "2"}), frozenset({"_numa0", "_numa1"}))


@pytest.mark.parametrize("disk_gb", [0, 10])
def test_traits_of_a_guest_with_cells_are_asked_of_its_host_its_cells_and_its_disk(disk_gb: int) -> None:
    specs = {"hw:numa_nodes": "1", "trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden"}
    found = check_flavor(flavor(specs, disk_gb=disk_gb))
    assert isinstance(found, FlavorAsk)
    assert found.ask.guest_required == (("CUSTOM_A",),)
    assert found.ask.guest_groups == {"", "_numa0"}
    assert found.ask.root_forbidden == {"CUSTOM_B"}
    assert all(group.forbidden == {"CUSTOM_B"} for group in found.ask.groups)
    assert list(amounts(found.ask)) == (["", "_numa0"] if disk_gb else ["_numa0"])


# -- what is refused ----------------------------------------------------------------------------

DEDICATED = {"hw:cpu_policy": "dedicated"}
REFUSED: dict[str, tuple[dict[str, str], dict[str, str], str, str]] = {
    "policy": ({"hw:cpu_policy": "pinned"}, {}, "hw:cpu_policy", "one of shared, dedicated, mixed"),
    "mask without mixed": ({**DEDICATED, "hw:cpu_dedicated_mask": "0"}, {}, "hw:cpu_dedicated_mask", "mixed"),
    "mixed without mask": ({"hw:cpu_policy": "mixed"}, {}, "hw:cpu_policy", "hw:cpu_dedicated_mask"),
    "image mixed": ({}, {"hw_cpu_policy": "mixed"}, "hw_cpu_policy", "hw:cpu_dedicated_mask"),
    "mask of all": (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3"},
        {},
        "hw:cpu_dedicated_mask",
        "not all of them",
    ),
    "mask beyond": (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "3-4"},
        {},
        "hw:cpu_dedicated_mask",
        "0 to 3",
    ),
    "threads": ({**DEDICATED, "hw:cpu_thread_policy": "share"}, {}, "hw:cpu_thread_policy", "prefer"),
    "threads of shared": ({"hw:cpu_thread_policy": "isolate"}, {}, "hw:cpu_thread_policy", "shared"),
    "threads of the image": ({}, {"hw_cpu_thread_policy": "require"}, "hw_cpu_thread_policy", "shared"),
    "threads twice": (
        {**DEDICATED, "hw:cpu_thread_policy": "isolate", "trait:HW_CPU_HYPERTHREADING": "required"},
        {},
        "hw:cpu_thread_policy",
        "trait:HW_CPU_HYPERTHREADING=required",
    ),
    "emulator of shared": (
        {"hw:emulator_threads_policy": "isolate"},
        {},
        "hw:emulator_threads_policy",
        "shared",
    ),
    "no cells": ({"hw:numa_nodes": "0"}, {}, "hw:numa_nodes", "from 1 to 64"),
    "cells that do not divide": ({"hw:numa_nodes": "3"}, {}, "hw:numa_nodes", "divides 4 cpus and 4096 MB"),
    "cells by halves": (
        {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-1", "hw:numa_cpus.1": "2-3"},
        {},
        "hw:numa_nodes",
        "numa_mem.N of each cell, 0 to 1",
    ),
    "cells without a number": ({"hw:numa_cpus.0": "0-3"}, {}, "hw:numa_cpus.0", "hw:numa_nodes"),
    "a cpu in no cell": (
        {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-2", "hw:numa_mem.0": "4096"},
        {},
        "hw:numa_cpus.0 to .0",
        "cpu 3 is in none",
    ),
    "a cpu that the flavor has not": (
        {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-7", "hw:numa_mem.0": "4096"},
        {},
        "hw:numa_cpus.0 to .0",
        "the flavor has 4, and no cpu 7",
    ),
    "a key that is almost one": (
        {"hw:cpu_polcy": "dedicated"},
        {},
        "hw:cpu_polcy",
        "there is no such extra spec; the most similar one is hw:cpu_policy",
    ),
    "a property that is almost one": (
        {},
        {"hw_numa_node": "1"},
        "hw_numa_node",
        "there is no such property of an image; the most similar one is hw_numa_nodes",
    ),
    "memory of cells": (
        {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "4000"},
        {},
        "hw:numa_mem.0 to .0",
        "4096 MB in all",
    ),
    "pages": ({"hw:mem_page_size": "16MB"}, {}, "hw:mem_page_size", "small, large, any"),
    "pages of the image alone": (
        {},
        {"hw_mem_page_size": "large"},
        "hw_mem_page_size",
        "the flavor has none",
    ),
    "device": (
        {"pci_passthrough:alias": "modem:1"},
        {},
        "pci_passthrough:alias",
        "(close, nic, rather, vf); modem is not",
    ),
    "number of devices": ({"pci_passthrough:alias": "vf:65"}, {}, "pci_passthrough:alias", "64 devices"),
    "no device": ({"pci_passthrough:alias": "vf:0"}, {}, "pci_passthrough:alias", "NAME:COUNT"),
    "profile": ({"accel:device_profile": "x"}, {}, "accel:device_profile", "is configured (crypto)"),
    "policy of devices": (
        {"hw:pci_numa_affinity_policy": "near"},
        {},
        "hw:pci_numa_affinity_policy",
        "socket",
    ),
    "amounts beside a policy": (
        {**DEDICATED, "resources:PCPU": "4"},
        {},
        "hw:cpu_policy",
        "left out beside resources:PCPU=4",
    ),
    "amounts of a group beside a policy": (
        {"hw:cpu_policy": "shared", "resources1:PCPU": "4"},
        {},
        "hw:cpu_policy",
        "left out beside resources1:PCPU=4",
    ),
    "amounts of a group beside a policy of the image": (
        {"resources1:PCPU": "4"},
        {"hw_cpu_policy": "shared"},
        "hw_cpu_policy",
        "left out beside resources1:PCPU=4",
    ),
    "shared amounts beside a policy": (
        {"hw:cpu_policy": "shared", "resources:VCPU": "4"},
        {},
        "hw:cpu_policy",
        "left out beside resources:VCPU=4",
    ),
    "the trait of threads without dedicated cpus": (
        {"trait:HW_CPU_HYPERTHREADING": "forbidden"},
        {},
        "trait:HW_CPU_HYPERTHREADING",
        "no cpu is dedicated",
    ),
    "the image's trait of threads without dedicated cpus": (
        {"hw:numa_nodes": "2"},
        {"trait:HW_CPU_HYPERTHREADING": "required"},
        "trait:HW_CPU_HYPERTHREADING",
        "no cpu is dedicated",
    ),
    "a cell by another spelling of its number": (
        {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "4096", "hw:numa_cpus.00": "0"},
        {},
        "hw:numa_cpus.00",
        "there is no such extra spec",
    ),
    "a cell of the image by another spelling of its number": (
        {},
        {"hw_numa_nodes": "1", "hw_numa_cpus.0": "0-3", "hw_numa_mem.00": "4096"},
        "hw_numa_mem.00",
        "there is no such property of an image",
    ),
    "pages in other digits": ({"hw:mem_page_size": "２０４８"}, {}, "hw:mem_page_size", "small, large, any"),  # noqa: RUF001
    "amounts beside cells": (
        {"hw:numa_nodes": "2", "resources:MEMORY_MB": "1"},
        {},
        "resources:MEMORY_MB",
        "hw:numa_nodes=2",
    ),
    "both kinds of cpu": (
        {"resources:VCPU": "4", "resources:PCPU": "4"},
        {},
        "resources:PCPU",
        "left out beside resources:VCPU=4",
    ),
    "another number of cpus": (
        {"resources1:PCPU": "3"},
        {},
        "resources1:PCPU",
        "4, for the flavor has 4 vcpus",
    ),
    "a group of ours": (
        {"hw:numa_nodes": "1", "resources_numa0:VGPU": "1"},
        {},
        "resources_numa0:",
        "the group _numa0 is taken",
    ),
    "shared and dedicated": (
        {"hw:cpu_policy": "shared"},
        {"hw_cpu_policy": "dedicated"},
        "hw_cpu_policy",
        "hw:cpu_policy=shared",
    ),
    "mixed and dedicated": (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"},
        {"hw_cpu_policy": "dedicated"},
        "hw_cpu_policy",
        "hw:cpu_policy=mixed",
    ),
    "threads of both": (
        {**DEDICATED, "hw:cpu_thread_policy": "isolate"},
        {"hw_cpu_thread_policy": "require"},
        "hw_cpu_thread_policy",
        "hw:cpu_thread_policy=isolate",
    ),
    "cells of both": ({"hw:numa_nodes": "2"}, {"hw_numa_nodes": "2"}, "hw_numa_nodes", "hw:numa_nodes=2"),
    "lists of both": (
        {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "4096"},
        {"hw_numa_cpus.0": "0-3"},
        "hw_numa_cpus.0",
        "hw:numa_cpus.0=0-3",
    ),
    "pages of both": (
        {"hw:mem_page_size": "2MB"},
        {"hw_mem_page_size": "2MB"},
        "hw_mem_page_size",
        "hw:mem_page_size=2MB",
    ),
    "policies of both": (
        {"hw:pci_numa_affinity_policy": "required"},
        {"hw_pci_numa_affinity_policy": "legacy"},
        "hw_pci_numa_affinity_policy",
        "hw:pci_numa_affinity_policy=required",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_key_is_refused_by_name(case: str) -> None:
    specs, image, key, accepted = REFUSED[case]
    found = check_flavor(flavor(specs), image, DEVICES)
    assert isinstance(found, SpecInvalid), found
    assert found.key == key
    assert accepted in found.accepted
    assert found.value == {**specs, **image}.get(key, found.value)


def test_pages_that_do_not_divide_the_memory_are_refused() -> None:
    found = check_flavor(flavor({"hw:mem_page_size": "1GB"}, memory_mb=1536))
    assert isinstance(found, SpecInvalid)
    assert (found.key, found.value) == ("hw:mem_page_size", "1GB")
    assert "1536 MB" in found.accepted


@pytest.mark.parametrize(
    ("alias", "profile", "words"),
    [
        ('{"name": "a"}', None, "a: vendor_id and product_id, or resource_class, are needed"),
        ('{"name": "a", "vendor_id": "8086"}', None, "are needed"),
        ('{"name": "a", "vendor_id": "8086", "product_id": "1", "x": 1}', None, "pci_aliases"),
        (
            '{"name": "a", "vendor_id": "8086", "product_id": "0001", "device_type": "type-VF"}',
            None,
            "VFs are units of their PF",
        ),
        ('{"name": "a", "resource_class": "MODEM"}', None, "'MODEM' is no resource class"),
        ('{"name": "a", "resource_class": "PGPU", "traits": "FAST"}', None, "'FAST' is no trait"),
        ("gpu", None, "pci_aliases: gpu"),
        (None, '{"name": "p", "groups": []}', "device_profiles"),
        (None, '{"name": "p", "groups": [{"trait:CUSTOM_A": "required"}]}', "no resources"),
        (None, '{"name": "p", "groups": [{"accel:x": "1"}]}', "accel:x is not understood"),
        (None, '{"name": "p", "groups": [{"resources:FPGA": "0"}]}', "resources:FPGA is '0'"),
    ],
)
def test_a_device_that_cannot_be_is_refused_at_the_start(
    alias: str | None, profile: str | None, words: str
) -> None:
    with pytest.raises(WrongDevice) as refused:
        read_catalog([alias] if alias else [], [profile] if profile else [])
    assert words in str(refused.value)


# -- where they go ------------------------------------------------------------------------------


def machine(
    fleet: Fleet, name: str, cells: int = 2, sockets: tuple[int, ...] = (), **amounts: Inventory | int
) -> None:
    """A host with NUMA cells of so much each, on these sockets."""
    fleet.provider(name, {"DISK_GB": 100})
    for cell in range(cells):
        socket = (SOCKET_TRAITS[sockets[cell]],) if sockets else ()
        fleet.provider(f"{name}-numa{cell}", amounts, parent=name, traits=(NUMA_ROOT, *socket))


def request(
    specs: dict[str, str], vcpus: int = 4, members: int = 1, alternates: int = 0, name: str = "member"
) -> ScheduleRequest:
    found = asked(specs, vcpus=vcpus)
    return ScheduleRequest(
        ask=found.ask,
        otherwise=found.otherwise,
        members=tuple(ConsumerId(f"{name}-{number}") for number in range(members)),
        at_least=members,
        project="p",
        user="u",
        alternates=alternates,
    )


def place(fleet: Fleet, wanted: ScheduleRequest) -> Plan:
    found = plan(fleet.view, wanted, OPTIONS, random.Random(1), 0)
    assert isinstance(found, Plan), found
    return found


def held(candidate: HostCandidate) -> dict[str, dict[str, int]]:
    return {provider.removeprefix("id-of-"): dict(amounts) for provider, amounts in candidate.wanted}


def test_each_guest_cell_is_on_a_cell_of_its_own() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    (placement,) = place(fleet, request({"hw:numa_nodes": "2"})).placements
    half = {"VCPU": 2, "MEMORY_MB": 2048}
    assert held(placement.chosen) == {"a": {"DISK_GB": 10}, "a-numa0": half, "a-numa1": half}
    assert isinstance(plan(fleet.view, request({"hw:numa_nodes": "4"}), OPTIONS, random.Random(1), 0), NoFit)


def test_a_guest_without_cells_can_use_cells_that_are_each_too_small() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    fleet.take("a-numa0", {"VCPU": 5})
    fleet.take("a-numa1", {"VCPU": 2})
    (placement,) = place(fleet, request({}, vcpus=9)).placements
    assert held(placement.chosen) == {
        "a": {"DISK_GB": 10},
        "a-numa0": {"VCPU": 3},
        "a-numa1": {"VCPU": 6, "MEMORY_MB": 4096},
    } or held(placement.chosen) == {
        "a": {"DISK_GB": 10},
        "a-numa0": {"VCPU": 3, "MEMORY_MB": 4096},
        "a-numa1": {"VCPU": 6},
    }
    assert isinstance(plan(fleet.view, request({}, vcpus=10), OPTIONS, random.Random(1), 0), NoFit)
    # A guest that asks for one cell gets one, or none.
    one = request({"hw:numa_nodes": "1"}, vcpus=7)
    assert isinstance(plan(fleet.view, one, OPTIONS, random.Random(1), 0), NoFit)


def test_one_cell_is_preferred_to_two() -> None:
    fleet = Fleet()
    machine(fleet, "a", PCPU=4, MEMORY_MB=2048)
    machine(fleet, "b", PCPU=4, MEMORY_MB=8192)
    wanted = request({"hw:cpu_policy": "dedicated"}, alternates=1)
    (placement,) = place(fleet, wanted).placements
    assert held(placement.chosen) in (
        {"b": {"DISK_GB": 10}, f"b-numa{n}": {"PCPU": 4, "MEMORY_MB": 4096}} for n in range(2)
    )
    # The alternate is a host on which it has to be split.
    (other,) = placement.alternates
    assert {name: part["MEMORY_MB"] for name, part in held(other).items() if "MEMORY_MB" in part} == {
        "a-numa0": 2048,
        "a-numa1": 2048,
    }


@pytest.mark.parametrize("specs", [{}, {"hw:cpu_policy": "shared"}, {"resources:PCPU": "4"}])
def test_a_guest_is_whole_where_one_cell_has_room_and_others_have_room_for_parts(
    specs: dict[str, str],
) -> None:
    fleet = Fleet()
    machine(fleet, "a", cells=3, VCPU=8, PCPU=8, MEMORY_MB=8192)
    fleet.take("a-numa0", {"MEMORY_MB": 8000})
    fleet.take("a-numa1", {"VCPU": 8, "PCPU": 8})
    (placement,) = place(fleet, request(specs)).placements
    cpus = "PCPU" if "resources:PCPU" in specs else "VCPU"
    assert held(placement.chosen) == {"a": {"DISK_GB": 10}, "a-numa2": {cpus: 4, "MEMORY_MB": 4096}}


def test_cpus_and_memory_that_are_not_dedicated_may_be_of_two_cells_of_the_chosen_host() -> None:
    """The emptier host is chosen, although the other has a cell with room for both."""
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=65536)
    fleet.take("a-numa0", {"MEMORY_MB": 62000})
    fleet.take("a-numa1", {"VCPU": 6})
    machine(fleet, "b", VCPU=4, MEMORY_MB=4096)
    (placement,) = place(fleet, request({})).placements
    assert held(placement.chosen) == {
        "a": {"DISK_GB": 10},
        "a-numa0": {"VCPU": 4},
        "a-numa1": {"MEMORY_MB": 4096},
    }
    (placement,) = place(fleet, request({"hw:numa_nodes": "1"})).placements
    assert placement.chosen.host_name == "b"


def test_a_host_without_numa_information_serves_whoever_asks_for_no_cell() -> None:
    fleet = Fleet()
    fleet.provider("flat", {"VCPU": 8, "PCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 100})
    assert place(fleet, request({})).placements
    assert place(fleet, request({"hw:cpu_policy": "dedicated"})).placements
    for key in ("hw:numa_nodes",):
        assert isinstance(plan(fleet.view, request({key: "1"}), OPTIONS, random.Random(1), 0), NoFit)


def test_a_batch_takes_whole_cells_first_and_splits_what_is_left() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=6, MEMORY_MB=16384)
    placements = place(fleet, request({}, members=3)).placements
    taken = [
        {name: part["VCPU"] for name, part in held(one.chosen).items() if "VCPU" in part}
        for one in placements
    ]
    assert sorted(len(parts) for parts in taken) == [1, 1, 2]
    assert sum(sum(parts.values()) for parts in taken) == 12
    found = count_capacity(fleet.view, request({}), OPTIONS)
    assert (found.count, found.exact) == (3, True)  # type: ignore[union-attr]


def test_dedicated_cpus_of_hosts_with_threads_are_taken_in_whole_cores() -> None:
    fleet = Fleet()
    machine(fleet, "a", PCPU=Inventory(8, min_unit=2, step_size=2), MEMORY_MB=8192)
    (placement,) = place(fleet, request({"hw:cpu_policy": "dedicated"}, vcpus=3)).placements
    assert 4 in {part.get("PCPU") for part in held(placement.chosen).values()}
    machine(fleet, "b", PCPU=8, MEMORY_MB=8192)
    (placement,) = place(fleet, request({"hw:cpu_policy": "dedicated"}, vcpus=3)).placements
    assert placement.chosen.host_name == "b"
    assert 3 in {part.get("PCPU") for part in held(placement.chosen).values()}


def test_dedicated_cpus_of_numbered_groups_are_taken_in_whole_cores_too() -> None:
    fleet = Fleet()
    threads = Inventory(8, min_unit=2, step_size=2)
    fleet.provider("a", {"DISK_GB": 100, "MEMORY_MB": 8192, "PCPU": threads}, traits=(HYPERTHREADING,))
    (placement,) = place(fleet, request({"resources1:PCPU": "3"}, vcpus=3)).placements
    assert held(placement.chosen)["a"]["PCPU"] == 4
    required = request({"resources1:PCPU": "3", "hw:cpu_thread_policy": "require"}, vcpus=3)
    assert held(place(fleet, required).placements[0].chosen)["a"]["PCPU"] == 4
    for isolated in ({"hw:cpu_thread_policy": "isolate"}, {f"trait:{HYPERTHREADING}": "forbidden"}):
        wanted = request({"resources1:PCPU": "2", **isolated}, vcpus=2)
        assert isinstance(plan(fleet.view, wanted, OPTIONS, random.Random(1), 0), NoFit)


def test_a_server_from_before_a_rule_can_still_be_moved() -> None:
    """What new servers are refused, those that are there may have been created with."""
    for specs in (
        {"hw:cpu_policy": "shared", "resources:VCPU": "4"},
        {"hw:cpu_policy": "shared", "resources1:PCPU": "4"},
        {f"trait:{HYPERTHREADING}": "forbidden"},
    ):
        assert isinstance(check_flavor(flavor(specs)), SpecInvalid)
        assert isinstance(read_flavor(flavor(specs)), FlavorAsk)


def gpus(fleet: Fleet, name: str, cells: tuple[str, ...]) -> None:
    for number, parent in enumerate(cells):
        fleet.provider(f"{name}-gpu{number}", {"PGPU": 1}, parent=parent)


def traits_fleet(root: tuple[str, ...], cells: tuple[str, ...], pool: bool) -> Fleet:
    """A host of two cells, with its disk on itself or in a pool."""
    fleet = Fleet()
    fleet.provider("h", {} if pool else {"DISK_GB": 100}, traits=root, aggregates=("san",))
    if pool:
        fleet.provider("pool", {"DISK_GB": 100}, traits=("MISC_SHARES_VIA_AGGREGATE",), aggregates=("san",))
    for number in range(2):
        amounts: dict[str, Inventory | int] = {"PCPU": 8, "VCPU": 8, "MEMORY_MB": 16384}
        fleet.provider(f"h-numa{number}", amounts, parent="h", traits=(NUMA_ROOT, *cells))
    return fleet


TRAIT = ("HW_CPU_X86_AVX2",)


@pytest.mark.parametrize("specs", [{"hw:numa_nodes": "2"}, {"hw:cpu_policy": "dedicated"}])
@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("root", "cells"), [((), ()), (TRAIT, ()), ((), TRAIT), (TRAIT, TRAIT)])
def test_a_trait_of_a_guest_with_cells_is_looked_for_on_its_host_and_on_its_cells(
    root: tuple[str, ...], cells: tuple[str, ...], pool: bool, specs: dict[str, str]
) -> None:
    fleet = traits_fleet(root, cells, pool)
    for value, fits in (("required", bool(root or cells)), ("forbidden", not root and not cells)):
        wanted = request({**specs, f"trait:{TRAIT[0]}": value})
        found = plan(fleet.view, wanted, OPTIONS, random.Random(1), 0)
        assert isinstance(found, Plan if fits else NoFit), (value, found)


def test_a_trait_that_one_cell_has_leads_a_guest_there() -> None:
    fleet = Fleet()
    fleet.provider("h", {"DISK_GB": 100})
    for number, traits in enumerate(((), TRAIT)):
        fleet.provider(
            f"h-numa{number}", {"VCPU": 8, "MEMORY_MB": 16384}, parent="h", traits=(NUMA_ROOT, *traits)
        )
    for value, cell in (("required", "h-numa1"), ("forbidden", "h-numa0")):
        for disk in ({}, {"resources:DISK_GB": "0"}):
            found = place(fleet, request({"hw:numa_nodes": "1", f"trait:{TRAIT[0]}": value, **disk}))
            assert cell in held(found.placements[0].chosen)
    wanted = request({"hw:numa_nodes": "1", f"trait:{TRAIT[0]}": "required"})
    capacity = count_capacity(fleet.view, wanted, OPTIONS)
    assert capacity.count == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["flavor", "image"])
def test_the_trait_of_threads_is_a_thread_policy(where: str) -> None:
    trait = {f"trait:{HYPERTHREADING}": "required"}
    specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2", **(trait if where == "flavor" else {})}
    ask = asked(specs, trait if where == "image" else {}).ask
    assert all((HYPERTHREADING,) in group(ask, f"_numa{number}").required for number in range(2))
    isolated = asked({"resources:PCPU": "4", f"trait:{HYPERTHREADING}": "forbidden"})
    cell = group(isolated.ask, "_numa0")
    assert (dict(cell.resources)["PCPU"], HYPERTHREADING in cell.forbidden) == (4, True)
    assert not any(dict(group.resources).get("PCPU", 4) != 4 for group in isolated.otherwise[0].groups)


@pytest.mark.parametrize(
    ("specs", "image", "policy"),
    [
        ({}, {}, "prefer"),
        ({"hw:cpu_thread_policy": "require"}, {}, "require"),
        ({}, {"hw_cpu_thread_policy": "isolate"}, "isolate"),
        ({"hw:cpu_thread_policy": "prefer"}, {"hw_cpu_thread_policy": "require"}, "require"),
        ({f"trait:{HYPERTHREADING}": "forbidden"}, {}, "isolate"),
        ({f"trait1:{HYPERTHREADING}": "required"}, {}, "require"),
        ({}, {f"trait:{HYPERTHREADING}": "required"}, "require"),
    ],
)
def test_units_are_chosen_by_the_policy_that_was_asked_for(
    specs: dict[str, str], image: dict[str, str], policy: str
) -> None:
    assert read_threads(specs, image) == policy


def test_a_guest_that_requires_siblings_is_split_over_cells_that_have_them() -> None:
    specs = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"}
    fleet = Fleet()
    fleet.provider("h", {"DISK_GB": 100})
    for number, threads in enumerate((2, 1)):
        amounts: dict[str, Inventory | int] = {
            "PCPU": Inventory(8, step_size=threads, min_unit=threads),
            "MEMORY_MB": 16384,
        }
        traits = (NUMA_ROOT, HYPERTHREADING) if threads > 1 else (NUMA_ROOT,)
        fleet.provider(f"h-numa{number}", amounts, parent="h", traits=traits)
    wanted = request(specs, vcpus=12)
    assert isinstance(plan(fleet.view, wanted, OPTIONS, random.Random(1), 0), NoFit)
    more: dict[str, Inventory | int] = {"PCPU": Inventory(8, step_size=2, min_unit=2), "MEMORY_MB": 16384}
    fleet.provider("h-numa2", more, parent="h", traits=(NUMA_ROOT, HYPERTHREADING))
    parts = held(place(fleet, wanted).placements[0].chosen)
    assert parts["h-numa0"]["PCPU"] + parts["h-numa2"]["PCPU"] == 12


def test_a_device_is_below_a_cell_of_the_guest_where_it_must_be() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a-numa1",))
    (placement,) = place(fleet, request({"pci_passthrough:alias": "close:1"})).placements
    assert held(placement.chosen) == {
        "a": {"DISK_GB": 10},
        "a-numa1": {"VCPU": 4, "MEMORY_MB": 4096},
        "a-gpu0": {"PGPU": 1},
    }
    fleet.take("a-numa1", {"VCPU": 6})
    far = request({"pci_passthrough:alias": "close:1"})
    assert isinstance(plan(fleet.view, far, OPTIONS, random.Random(1), 0), NoFit)
    rather = request({"pci_passthrough:alias": "rather:1", "hw:numa_nodes": "1"})
    (placement,) = place(fleet, rather).placements
    assert "a-numa0" in held(placement.chosen)


ON_SOCKET = {"pci_passthrough:alias": "close:1", "hw:pci_numa_affinity_policy": "socket"}


@pytest.mark.parametrize(
    ("sockets", "fits"), [((0, 0, 1, 1), True), ((0, 1, 0, 1), False), ((1, 1, 1, 1), True), ((), False)]
)
def test_a_device_of_another_cell_of_the_socket_will_do_where_the_policy_says_so(
    sockets: tuple[int, ...], fits: bool
) -> None:
    """The device is in a cell that is full. Where sockets are not known, it must be in a cell of the
    guest."""
    fleet = Fleet()
    machine(fleet, "a", 4, sockets, VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a-numa1",))
    own = held(place(fleet, request(ON_SOCKET)).placements[0].chosen)
    assert own["a-gpu0"] == {"PGPU": 1}
    for cell in (1, 2, 3):
        fleet.take(f"a-numa{cell}", {"VCPU": 6})
    found = plan(fleet.view, request(ON_SOCKET), OPTIONS, random.Random(1), 0)
    assert isinstance(found, Plan) is fits
    if isinstance(found, Plan):
        (placement,) = found.placements
        assert held(placement.chosen) == {
            "a": {"DISK_GB": 10},
            "a-numa0": {"VCPU": 4, "MEMORY_MB": 4096},
            "a-gpu0": {"PGPU": 1},
        }
        assert count_capacity(fleet.view, request(ON_SOCKET), OPTIONS).count == 1  # type: ignore[union-attr]
    near = request({"pci_passthrough:alias": "close:1"})
    assert isinstance(plan(fleet.view, near, OPTIONS, random.Random(1), 0), NoFit)


def test_the_cells_with_the_devices_are_found_among_many_without() -> None:
    """There are too many sets of 4 of 16 cells to look at; of those 5 that have devices there are few. No two
    cells have the same left."""
    fleet = Fleet()
    machine(fleet, "a", 16, VCPU=8, MEMORY_MB=8192)
    for cell in range(1, 16):
        fleet.take(f"a-numa{cell}", {"MEMORY_MB": cell})
    gpus(fleet, "a", tuple(f"a-numa{cell}" for cell in (11, 12, 13, 14, 15)))
    for cell in (12, 13, 14, 15):
        fleet.provider(
            f"a-nic{cell}", {"SRIOV_NET_VF": 1}, parent=f"a-numa{cell}", traits=("CUSTOM_PHYSNET_A",)
        )
    near = {"pci_passthrough:alias": "close:4,vf:4", "hw:pci_numa_affinity_policy": "required"}
    chosen = held(place(fleet, request({**near, "hw:numa_nodes": "4"})).placements[0].chosen)
    assert {f"a-numa{cell}" for cell in (12, 13, 14, 15)} < chosen.keys()


def test_capacity_tells_hosts_apart_by_their_sockets() -> None:
    fleet = Fleet()
    for name, sockets in (("a", (0, 1)), ("b", (1, 1)), ("c", (1, 0)), ("d", (0, 0))):
        machine(fleet, name, 2, sockets, VCPU=8, MEMORY_MB=8192)
        gpus(fleet, name, (f"{name}-numa1",))
        fleet.take(f"{name}-numa1", {"VCPU": 6})
    capacity = count_capacity(fleet.view, request(ON_SOCKET), OPTIONS)
    assert (capacity.count, capacity.hosts) == (2, 2)  # type: ignore[union-attr]
    found = place(fleet, request(ON_SOCKET, members=2))
    assert {placement.chosen.host_name for placement in found.placements} == {"b", "d"}


def test_a_refusal_says_that_a_device_is_on_another_socket() -> None:
    fleet = Fleet()
    machine(fleet, "a", 2, (0, 1), VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a-numa1",))
    fleet.take("a-numa1", {"VCPU": 6})
    assert refusal(fleet, request(ON_SOCKET)) == (
        "a: guest cell 0 needs 4 VCPU near the device close, and a-numa1, which has it, has 2 left."
    )
    fleet = Fleet()
    machine(fleet, "a", 2, (0, 1), VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a",))
    assert refusal(fleet, request(ON_SOCKET)) == (
        "a: the device close must be on a socket with a NUMA cell of the guest, and a-gpu0, which has room, "
        "is not: 1 PGPU is needed there, and a-numa0 has 0."
    )


def test_a_device_that_is_preferred_near_is_near_on_another_host_before_it_is_far() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=64, MEMORY_MB=65536)
    machine(fleet, "b", VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a",))
    gpus(fleet, "b", ("b-numa0",))
    wanted = request({"pci_passthrough:alias": "rather:1", "hw:numa_nodes": "1"}, alternates=1)
    (placement,) = place(fleet, wanted).placements
    assert (placement.chosen.host_name, placement.alternates[0].host_name) == ("b", "a")
    # Where a device of unknown place will do, both are as good.
    legacy = {
        "pci_passthrough:alias": "rather:1",
        "hw:pci_numa_affinity_policy": "legacy",
        "hw:numa_nodes": "1",
    }
    assert place(fleet, request(legacy, alternates=1)).placements[0].alternates


def test_joint_plans_ask_otherwise_too() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=6, MEMORY_MB=16384)
    first, second = request({}, members=2), request({}, name="other")
    found = plan_jointly(fleet.view, (first, second), OPTIONS, random.Random(1), 0)
    assert isinstance(found, tuple), found
    assert [len(planned.placements) for planned in found] == [2, 1]


def test_an_explanation_of_a_guest_that_is_split_says_what_cells_have_together() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=6, MEMORY_MB=16384)
    found = explain(fleet.view, request({}, vcpus=9), OPTIONS, str, hosts=["a"])
    assert isinstance(found, Explanation)
    assert (found.fitting, found.hosts[0].fits) == (1, True)
    (cpus,) = [check for check in found.hosts[0].checks if check.constraint == "resources:VCPU"]
    assert (cpus.ok, cpus.found) == (True, "12 free on 2 providers together")
    found = explain(fleet.view, request({}, vcpus=15), OPTIONS, str, hosts=["a"])
    assert isinstance(found, Explanation)
    assert found.change is not None
    assert "with 3 VCPU less (12 instead of 15)" in found.change.text


def test_an_explanation_counts_what_is_split() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=6, MEMORY_MB=16384)
    found = explain(fleet.view, request({}, members=4), OPTIONS, str)
    assert (found.fitting, found.needed) == (3, 4)  # type: ignore[union-attr]


# -- what falls short ---------------------------------------------------------------------------


def refusal(fleet: Fleet, wanted: ScheduleRequest) -> str:
    """What the refusal says of the provider that falls short; an explanation names it, too."""
    found = plan(fleet.view, wanted, OPTIONS, random.Random(1), 0)
    assert isinstance(found, NoFit), found
    (words,) = [step.nearest for step in found.steps if step.nearest]
    explained = explain(fleet.view, wanted, OPTIONS, str)
    assert isinstance(explained, Explanation)
    assert words in explained.text or words.split()[0] in explained.text
    return words


def test_a_refusal_names_the_class_and_the_cell_that_fall_short() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    fleet.take("a-numa0", {"VCPU": 7})
    two, one = request({"hw:numa_nodes": "2"}), request({"hw:numa_nodes": "1"}, vcpus=9)
    assert refusal(fleet, two) == "a: guest cell 1 needs 2 VCPU, and a-numa0 has 1 left."
    assert refusal(fleet, one) == "a-numa1 comes closest: 8 of 9 VCPU."
    gpus(fleet, "a", ("a-numa0",))
    assert refusal(fleet, request({"pci_passthrough:alias": "close:1"})) == (
        "a: guest cell 0 needs 4 VCPU near the device close, and a-numa0, which has it, has 1 left."
    )


def test_a_refusal_names_the_cell_that_has_too_few_devices() -> None:
    fleet = Fleet()
    machine(fleet, "a", 2, (0, 1), VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a-numa0", "a-numa1", "a-numa1"))
    assert refusal(fleet, request({"pci_passthrough:alias": "close:3"})) == (
        "a: the device close must be below a NUMA cell of the guest, and a-gpu0, which has room, is not: "
        "3 PGPU are needed there, and a-numa1 has 2."
    )
    on_socket = {**ON_SOCKET, "pci_passthrough:alias": "close:3", "hw:numa_nodes": "1"}
    assert refusal(fleet, request(on_socket)) == (
        "a: the device close must be on a socket with a NUMA cell of the guest, and a-gpu0, which has room, "
        "is not: 3 PGPU are needed there, and a-numa1 has 2."
    )
    numbered = {
        "resources1:VCPU": "1",
        "resources2:PGPU": "1",
        "resources3:PGPU": "1",
        "resources4:PGPU": "1",
    }
    together = {**numbered, "group_policy": "none", "same_subtree": "1,2,3,4"}
    assert refusal(fleet, request(together)).endswith(": 3 PGPU are needed there, and a-numa1 has 2.")


def test_a_refusal_says_that_there_are_too_few_cells() -> None:
    fleet = Fleet()
    machine(fleet, "a", cells=1, VCPU=8, MEMORY_MB=8192)
    assert refusal(fleet, request({"hw:numa_nodes": "2"})) == (
        "a: guest cell 1 needs a provider of its own, and there is none but a-numa0."
    )


def test_a_host_that_is_explained_names_them_too() -> None:
    fleet = Fleet()
    machine(fleet, "a", PCPU=8, MEMORY_MB=8192)
    fleet.take("a-numa1", {"MEMORY_MB": 7000})
    wanted = request({"hw:numa_nodes": "2", "hw:cpu_policy": "dedicated"})
    found = explain(fleet.view, wanted, OPTIONS, str, hosts=["a"])
    assert isinstance(found, Explanation)
    (together,) = [check for check in found.hosts[0].checks if check.constraint == "together"]
    assert together.found == "guest cell 1 needs 2048 MEMORY_MB, and a-numa1 has 1192 left"
    assert found.change is not None
    assert found.change.best is not None


def test_the_smallest_change_may_be_to_put_a_device_elsewhere() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    fleet.take("a-numa0", {"VCPU": 8})
    gpus(fleet, "a", ("a-numa0",))
    found = explain(fleet.view, request({"pci_passthrough:alias": "close:1"}), OPTIONS, str)
    assert isinstance(found, Explanation)
    assert found.change is not None
    assert "with the device close away from guest cell 0" in found.change.text


def explained(fleet: Fleet, wanted: ScheduleRequest) -> str:
    found = explain(fleet.view, wanted, OPTIONS, str)
    assert isinstance(found, Explanation), found
    return found.text


def test_a_refusal_names_the_step_or_the_least_amount_where_that_is_the_reason() -> None:
    fleet = Fleet()
    machine(fleet, "a", cells=1, PCPU=Inventory(9, step_size=3), MEMORY_MB=8192)
    wanted = request({"hw:numa_nodes": "1", "hw:cpu_policy": "dedicated"}, vcpus=2)
    assert refusal(fleet, wanted) == "a-numa0 comes closest: it gives PCPU in steps of 3 to one server."
    fleet = Fleet()
    machine(fleet, "a", cells=1, PCPU=Inventory(12, min_unit=10), MEMORY_MB=8192)
    assert refusal(fleet, wanted) == "a-numa0 comes closest: it gives no less than 10 PCPU to one server."


def test_parts_that_are_alike_are_counted_and_named_as_people_know_them() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a-numa0", "a-numa1"))
    wanted = request({"hw:numa_nodes": "2", "pci_passthrough:alias": "close:3"})
    text = explained(fleet, wanted)
    assert "3 x 1 PGPU from one provider and 2 x 2 VCPU, 2048 MEMORY_MB from one provider" in text
    assert "with 3 x the device close and guest cell 0 and guest cell 1" in text
    assert "without 1 PGPU for the device close" in text
    assert "_pci" not in text


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (8, "h: CUSTOM_X is on h-gpu0 alone, and the guest cannot be there."),
        (
            1,
            "h: CUSTOM_X is on h-numa1 and h-gpu0 alone, and the guest cannot be there: "
            "guest cell 0 needs 4 VCPU, and there is 1 left.",
        ),
    ],
)
def test_a_trait_that_is_where_no_guest_can_be_is_named(cell: int, words: str) -> None:
    fleet = Fleet()
    fleet.provider("h", {"DISK_GB": 100})
    for number, (cpus, traits) in enumerate(((8, ()), (cell, ("CUSTOM_X",) if cell == 1 else ()))):
        amounts: dict[str, Inventory | int] = {"VCPU": cpus, "MEMORY_MB": 8192}
        fleet.provider(f"h-numa{number}", amounts, parent="h", traits=(NUMA_ROOT, *traits))
    fleet.provider("h-gpu0", {"PGPU": 1}, parent="h-numa0", traits=("CUSTOM_X",))
    assert refusal(fleet, request({"hw:numa_nodes": "1", "trait:CUSTOM_X": "required"})) == words


def test_a_device_that_is_below_no_cell_is_named() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a",))
    assert refusal(fleet, request({"pci_passthrough:alias": "close:1"})) == (
        "a: the device close must be below a NUMA cell of the guest, and a-gpu0, which has room, is not: "
        "1 PGPU is needed there, and a-numa0 has 0."
    )


def test_a_host_that_is_overfull_comes_closest_where_all_are() -> None:
    """Once a row that is not in use did, and there is no host in it."""
    fleet = Fleet()
    fleet.provider("gone")
    machine(fleet, "a", PCPU=8, MEMORY_MB=8192)
    fleet.must(DeleteProvider(fleet.id_of("gone")))
    for cell in ("a-numa0", "a-numa1"):
        fleet.take(cell, {"PCPU": 8})
        left = {"PCPU": Inventory(4), "MEMORY_MB": Inventory(8192)}
        fleet.must(SetInventories(fleet.id_of(cell), None, left))
    wanted = request({"hw:cpu_policy": "dedicated"}, vcpus=17)
    assert refusal(fleet, wanted) == "a comes closest: 0 of 17 PCPU."


def test_a_guest_that_could_be_split_is_told_what_cells_have_together() -> None:
    fleet = Fleet()
    machine(fleet, "a", PCPU=8, MEMORY_MB=8192)
    text = explained(fleet, request({"hw:cpu_policy": "dedicated"}, vcpus=17))
    assert "It would fit with 1 PCPU less (16 instead of 17)." in text
    refused = refusal(fleet, request({"hw:cpu_policy": "dedicated"}, vcpus=17))
    assert refused == "a comes closest: 16 of 17 PCPU."
    siblings = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"}
    text = explained(fleet, request(siblings))
    assert "It would fit without the trait HW_CPU_HYPERTHREADING for the guest." in text


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (
            {"hw:mem_page_size": "large"},
            "No host has CUSTOM_MEMORY_PAGES_1G or CUSTOM_MEMORY_PAGES_2M.",
        ),
        ({"pci_passthrough:alias": "nic:1"}, "No host has CUSTOM_PCI_15B3_1017."),
        ({"pci_passthrough:alias": "nic:1", "hw:numa_nodes": "1"}, "No host has CUSTOM_PCI_15B3_1017."),
    ],
)
def test_what_no_host_has_ever_had_does_not_fit(specs: dict[str, str], words: str) -> None:
    """Who asked for pages or a device by name did not name a resource class."""
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    found = plan(fleet.view, request(specs), OPTIONS, random.Random(1), 0)
    assert isinstance(found, NoFit), found
    assert [(step.nearest, step.removed) for step in found.steps] == [(words, 1)]


def test_a_refusal_names_the_trait_that_cells_must_not_have() -> None:
    fleet = Fleet()
    fleet.provider("h", {"DISK_GB": 100})
    cell: dict[str, Inventory | int] = {"PCPU": 8, "MEMORY_MB": 8192}
    fleet.provider("h-numa0", cell, parent="h", traits=(NUMA_ROOT, HYPERTHREADING))
    isolated = request({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"})
    found = plan(fleet.view, isolated, OPTIONS, random.Random(1), 0)
    assert isinstance(found, NoFit)
    (removing,) = [step.asked for step in found.steps if step.removed]
    assert "without HW_CPU_HYPERTHREADING" in removing or "not HW_CPU_HYPERTHREADING" in removing


def test_groups_that_must_be_in_one_subtree_are_named() -> None:
    fleet = Fleet()
    machine(fleet, "a", VCPU=8, MEMORY_MB=8192)
    gpus(fleet, "a", ("a-numa0",))
    fleet.provider("a-pf", {"SRIOV_NET_VF": 4}, parent="a-numa1")
    specs = {
        "resources1:PGPU": "1",
        "resources2:SRIOV_NET_VF": "1",
        "group_policy": "none",
        "same_subtree": "1,2",
    }
    assert refusal(fleet, request(specs)) == (
        "a: the group 2 has room on a-pf, and that is not in one subtree with the group 1."
    )

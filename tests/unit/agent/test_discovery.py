"""What is found on machines of every kind, and what the settings change.

What each machine comes out as is in tests/golden/discovery. After a change that is meant:

    UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/agent/test_discovery.py && git diff tests/golden
"""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from berth.agent.discovery import DiscoveredHost, DiscoveryError, DiscoverySettings, discover
from berth.agent.discovery.memory import name_pages
from berth.agent.discovery.sysroot import ID_MAX, format_ids, read_ids
from berth.cell.protocol import Register, ReportedProvider
from berth.cli.inspect import format_host
from berth.model.placement import (
    SOCKET_TRAITS,
    SOCKETS_MAX,
    STANDARD_CLASSES,
    STANDARD_TRAITS,
    is_custom_name,
)
from tests.sysroots import (
    TREES,
    Machine,
    eight_gpus,
    no_numa,
    snc,
    sriov_gpus,
    two_mdev_types,
    two_pfs,
    whole_pf,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "discovery"


def named(host: DiscoveredHost) -> dict[str, ReportedProvider]:
    """Providers by what comes after the host's name."""
    return {provider.name.removeprefix(f"{host.name}-"): provider for provider in host.providers}


def totals(provider: ReportedProvider) -> dict[str, int]:
    return {kind: inventory.total for kind, inventory in provider.inventories.items()}


def reasons(host: DiscoveredHost) -> dict[str, str]:
    return {left.path: left.reason for left in host.left_out}


@pytest.mark.parametrize("name", TREES)
def test_a_machine_comes_out_as_reviewed(name: str, tmp_path: Path) -> None:
    TREES[name](tmp_path)
    found = msgspec.json.encode(format_host(discover(tmp_path, DiscoverySettings())))
    text = msgspec.json.format(found).decode() + "\n"
    file = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", TREES)
def test_what_is_found_can_be_registered(name: str, tmp_path: Path) -> None:
    """In the words that Placement knows, with all units named."""
    TREES[name](tmp_path)
    dedicated = DiscoverySettings(dedicated_cpus="1-3", disk_gb=100)
    host = discover(tmp_path, dedicated)
    root = host.providers[0]
    register = Register(host=root.id, name=root.name, driver="sim", providers=host.providers)
    assert msgspec.json.decode(msgspec.json.encode(register), type=Register) == register
    for provider in host.providers:
        assert all(kind in STANDARD_CLASSES or is_custom_name(kind) for kind in provider.inventories)
        assert all(trait in STANDARD_TRAITS or is_custom_name(trait) for trait in provider.traits)
        by_piece = {
            kind
            for kind in provider.inventories
            if kind in ("PCPU", "SRIOV_NET_VF", "PGPU", "VGPU") or kind.startswith("CUSTOM_PCI_")
        }
        assert provider.units.keys() == by_piece
    assert totals(root)["DISK_GB"] == 100


# -- cpus and memory -----------------------------------------------------------------------------


def test_dedicated_cpus_are_units_and_reserved_ones_are_nobodys(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    host = discover(tmp_path, DiscoverySettings(dedicated_cpus="2-7,10-13", reserved_cpus="0,8"))
    cells = named(host)
    assert totals(cells["numa0"])["PCPU"] == 4
    assert totals(cells["numa0"])["VCPU"] == 2
    assert cells["numa0"].units == {"PCPU": ("2", "3", "10", "11")}
    assert cells["numa0"].siblings == (("2", "10"), ("3", "11"))
    assert cells["numa1"].units == {"PCPU": ("4", "5", "6", "7", "12", "13")}
    # The other threads of 6 and 7 are shared: they are no units.
    assert cells["numa1"].siblings == (("4", "12"), ("5", "13"))
    assert totals(cells["numa1"])["VCPU"] == 2


def test_dedicated_cpus_that_are_not_online_are_said(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    host = discover(tmp_path, DiscoverySettings(dedicated_cpus="14-17", reserved_cpus="99"))
    assert named(host)["numa1"].units == {"PCPU": ("14", "15")}
    assert reasons(host)["dedicated_cpus"] == "cpus 16-17 are not online"
    assert reasons(host)["reserved_cpus"] == "cpus 99 are not online"


def test_reserved_memory_is_per_cell(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    host = discover(tmp_path, DiscoverySettings(reserved_memory_mb=("0=4096", "1=9999999")))
    cells = named(host)
    assert cells["numa0"].inventories["MEMORY_MB"].reserved == 4096
    assert cells["numa1"].inventories["MEMORY_MB"].reserved == cells["numa1"].inventories["MEMORY_MB"].total


@pytest.mark.parametrize(
    ("tree", "given", "problem"),
    [
        (two_pfs, "2=1", "reserved_memory_mb names the cell 2, and the host has the cells 0, 1"),
        (two_pfs, "1024", "reserved_memory_mb names no cell, and the host has the cells 0, 1"),
        (no_numa, "0=1", "reserved_memory_mb names the cell 0, and the host has no NUMA cells"),
    ],
)
def test_memory_cannot_be_reserved_in_a_cell_that_is_not_there(
    tree: object, given: str, problem: str, tmp_path: Path
) -> None:
    assert callable(tree)
    tree(tmp_path)
    with pytest.raises(DiscoveryError, match=problem):
        discover(tmp_path, DiscoverySettings(reserved_memory_mb=(given,)))


def test_memory_is_reserved_without_numa(tmp_path: Path) -> None:
    no_numa(tmp_path)
    host = discover(tmp_path, DiscoverySettings(reserved_memory_mb=("2048",), dedicated_cpus="2-3"))
    root = host.providers[0]
    assert root.inventories["MEMORY_MB"].reserved == 2048
    assert totals(root)["PCPU"] == 2


def test_surplus_pages_are_ordinary_memory(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    Machine(tmp_path).write(
        "sys/devices/system/node/node0/hugepages/hugepages-2048kB/surplus_hugepages", 1000
    )
    amounts = totals(named(discover(tmp_path, DiscoverySettings()))["numa0"])
    assert amounts["CUSTOM_MEMORY_PAGES_2M"] == 24
    assert amounts["MEMORY_MB"] == 64 * 1024 - 4 * 1024 - 48


def test_memory_whose_pages_cannot_be_counted_is_not_promised(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    path = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
    Machine(tmp_path).write(path, "many")
    host = discover(tmp_path, DiscoverySettings())
    assert totals(named(host)["numa0"]) == {"VCPU": 8}
    assert "MEMORY_MB" in totals(named(host)["numa1"])
    assert path in reasons(host)


def test_a_cpu_in_two_cells_is_in_neither(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    machine = Machine(tmp_path)
    machine.write("sys/devices/system/node/node1/cpulist", "3-7,12-14")
    host = discover(tmp_path, DiscoverySettings())
    assert totals(named(host)["numa0"])["VCPU"] == 7
    assert totals(named(host)["numa1"])["VCPU"] == 7
    assert reasons(host)["sys/devices/system/node"] in (
        "cpus 3 are in more than one cell",
        "cpus 15 are in no cell",
    )
    assert len([left for left in host.left_out if left.path == "sys/devices/system/node"]) == 2


def test_threads_that_do_not_agree_are_in_no_core(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    Machine(tmp_path).write("sys/devices/system/cpu/cpu8/topology/thread_siblings_list", "8-9")
    host = discover(tmp_path, DiscoverySettings(dedicated_cpus="0-15"))
    assert named(host)["numa0"].siblings == (("1", "9"), ("2", "10"), ("3", "11"))
    assert "sys/devices/system/cpu/cpu0/topology" in reasons(host)


@pytest.mark.parametrize("garbage", ["8-9", "", "\\0", "9" * 10_000])
def test_a_cpu_whose_core_is_not_known_is_dedicated_to_nobody(garbage: str, tmp_path: Path) -> None:
    """Its other thread may be anybody's, and whole cores are promised of the others."""
    two_pfs(tmp_path)
    Machine(tmp_path).write("sys/devices/system/cpu/cpu8/topology/thread_siblings_list", garbage)
    host = discover(tmp_path, DiscoverySettings(dedicated_cpus="0-15"))
    assert named(host)["numa0"].units["PCPU"] == ("1", "2", "3", "9", "10", "11")
    assert "VCPU" not in totals(named(host)["numa0"])
    assert totals(named(host)["numa1"])["PCPU"] == 8
    assert reasons(host)["dedicated_cpus"] == (
        "of cpus 0,8 it is not known which are threads of one core: they are not offered"
    )


def test_no_cpu_is_dedicated_where_none_says_its_core(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    for cpu in range(16):
        shutil.rmtree(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology")
    host = discover(tmp_path, DiscoverySettings(dedicated_cpus="0-3,8-9"))
    assert "PCPU" not in totals(named(host)["numa0"])
    assert totals(named(host)["numa0"])["VCPU"] == 2
    assert reasons(host)["dedicated_cpus"].startswith("of cpus 0-3,8-9 it is not known")


def test_the_folders_of_cpus_count_where_nothing_else_says(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.memory(4)
    machine.cores([[0], [1], [2]], 0)
    machine.write("sys/devices/system/cpu/cpu1/online", 0)
    machine.write("sys/devices/system/cpu/cpu2/online", 1)
    host = discover(tmp_path, DiscoverySettings())
    assert totals(host.providers[0])["VCPU"] == 2


@pytest.mark.parametrize(
    "size", [(2048, "2M"), (1048576, "1G"), (16777216, "16G"), (64, "64K"), (1536, "1536K")]
)
def test_classes_of_pages(size: tuple[int, str]) -> None:
    assert name_pages(size[0]) == f"CUSTOM_MEMORY_PAGES_{size[1]}"


@pytest.mark.parametrize("text", ["", "0", "0-3", "0-3,8", "1,3,5", "0-1,64-65", f"{ID_MAX}"])
def test_lists_of_cpus(text: str) -> None:
    found = read_ids(text)
    assert found is not None
    assert format_ids(found) == text


@pytest.mark.parametrize(
    "text", ["x", "1-", "-1", "3-1", "0-3,2", f"0-{ID_MAX + 1}", "9" * 10_000, "1,,2", "1;2"]
)
def test_what_is_not_a_list_of_cpus(text: str) -> None:
    assert read_ids(text) is None


# -- devices -------------------------------------------------------------------------------------


def test_deny_wins(tmp_path: Path) -> None:
    eight_gpus(tmp_path)
    settings = DiscoverySettings(
        devices_allowed=("10de:20b2", "0000:40:00.0"),
        devices_denied=("0x0302", "0000:40:00.0", "0000:41:01.0"),
    )
    host = discover(tmp_path, settings)
    providers = named(host)
    assert not any("PGPU" in provider.inventories for provider in host.providers)
    assert "pci-0000:40:00.0" not in providers
    assert totals(providers["pci-0000:41:00.0"]).keys() == {
        "NET_BW_EGR_KILOBIT_PER_SEC",
        "NET_BW_IGR_KILOBIT_PER_SEC",
    }
    assert reasons(host)["sys/bus/pci/devices/0000:10:00.0"] == "devices_denied names it"
    assert reasons(host)["sys/bus/pci/devices/0000:41:01.0"] == "devices_denied names it"


@pytest.mark.parametrize("entry", ["8086:0a54", "8086:*", "10000:e1:00.0", "0x01", "0x0108", "0x010802"])
def test_other_devices_are_allowed_by_product_address_or_class(entry: str, tmp_path: Path) -> None:
    snc(tmp_path)
    assert "pci-10000:e1:00.0" not in named(discover(tmp_path, DiscoverySettings()))
    disk = named(discover(tmp_path, DiscoverySettings(devices_allowed=(entry,))))["pci-10000:e1:00.0"]
    assert totals(disk) == {"CUSTOM_PCI_8086_0A54": 1}
    assert disk.units == {"CUSTOM_PCI_8086_0A54": ("10000:e1:00.0",)}


def test_a_bridge_is_never_given_and_a_console_only_if_allowed(tmp_path: Path) -> None:
    snc(tmp_path)
    host = discover(tmp_path, DiscoverySettings(devices_allowed=("0x06", "0x03")))
    assert reasons(host) == {"sys/bus/pci/devices/0000:00:1f.0": "a bridge cannot be given to a server"}
    assert totals(named(host)["pci-0000:02:00.0"]) == {"PGPU": 1}


def test_a_nic_that_the_host_uses_is_given_whole_only_if_allowed(tmp_path: Path) -> None:
    whole_pf(tmp_path)
    Machine(tmp_path).write("sys/class/net/ens2f0/flags", "0x1003")
    host = discover(tmp_path, DiscoverySettings())
    assert "pci-0000:af:00.0" not in named(host)
    assert "the host uses it (ens2f0 is up)" in reasons(host)["sys/bus/pci/devices/0000:af:00.0"]
    allowed = discover(tmp_path, DiscoverySettings(devices_allowed=("15b3:1017",)))
    assert totals(named(allowed)["pci-0000:af:00.0"]) == {"CUSTOM_PCI_15B3_1017": 1}
    assert "SRIOV_NET_VF" in named(allowed)["pci-0000:3b:00.0"].inventories


def test_a_nic_that_is_given_whole_has_no_bandwidth_for_others(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.memory(4)
    machine.pf("0000:af:00.0", "ens2f0", -1, 0, speed=25000)
    whole = named(discover(tmp_path, DiscoverySettings()))["pci-0000:af:00.0"]
    assert totals(whole) == {"CUSTOM_PCI_15B3_1017": 1}
    machine.split("0000:af:00.0", -1, 2)
    split = named(discover(tmp_path, DiscoverySettings()))["pci-0000:af:00.0"]
    assert totals(split) == {
        "NET_BW_EGR_KILOBIT_PER_SEC": 25_000_000,
        "NET_BW_IGR_KILOBIT_PER_SEC": 25_000_000,
        "SRIOV_NET_VF": 2,
    }


def test_physical_networks_of_nics(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    settings = DiscoverySettings(physnets=("ens1f0=data-1", "0000:af:00.0=physnet2", "ens9=x"))
    host = discover(tmp_path, settings)
    assert "CUSTOM_PHYSNET_DATA_1" in named(host)["pci-0000:3b:00.0"].traits
    assert "CUSTOM_PHYSNET_PHYSNET2" in named(host)["pci-0000:af:00.0"].traits
    assert reasons(host) == {"physnets": "ens9 is not a NIC of this host"}


def test_the_type_that_is_chosen_is_the_only_one(tmp_path: Path) -> None:
    two_mdev_types(tmp_path)
    settings = DiscoverySettings(
        mdev_types=("0000:c1:00.0=i915-GVTg_V5_8", "0000:41:00.0=nvidia-9", "0000:99:00.0=nvidia-9")
    )
    host = discover(tmp_path, settings)
    chosen = named(host)["pci-0000:c1:00.0"]
    assert totals(chosen) == {"VGPU": 2}
    assert chosen.traits == ("CUSTOM_I915_GVTG_V5_8",)
    assert "pci-0000:41:00.0" not in named(host)
    told = [left.reason for left in host.left_out if left.path == "mdev_types"]
    assert told == [
        f"{address} is not a device with the type nvidia-9" for address in ("0000:41:00.0", "0000:99:00.0")
    ]


def test_a_gpu_of_several_types_offers_one_of_them(tmp_path: Path) -> None:
    """Types exclude each other: together they would promise more than there is."""
    machine = Machine(tmp_path)
    machine.memory(4)
    gpu = machine.pci("0000:41:00.0", "10de:1eb8", "030200")
    machine.mdev_type(gpu, "nvidia-1", 0)
    machine.mdev_type(gpu, "nvidia-2", 4)
    machine.mdev_type(gpu, "nvidia-3", 8)
    host = discover(tmp_path, DiscoverySettings())
    first = named(host)["pci-0000:41:00.0"]
    assert (totals(first), first.traits) == ({"VGPU": 4}, ("CUSTOM_NVIDIA_2",))
    assert sum("VGPU" in provider.inventories for provider in host.providers) == 1
    assert reasons(host)["sys/bus/pci/devices/0000:41:00.0"] == (
        "of its types nvidia-1, nvidia-2, nvidia-3 only nvidia-2 is offered; mdev_types can choose another"
    )
    # There is one of another type now: no other type can be made.
    machine.mdev_type(gpu, "nvidia-3", 7, ["83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"])
    machine.mdev_type(gpu, "nvidia-2", 0)
    used = named(discover(tmp_path, DiscoverySettings()))["pci-0000:41:00.0"]
    assert (totals(used), used.traits) == ({"VGPU": 8}, ("CUSTOM_NVIDIA_3",))
    assert used.id == first.id


def test_units_of_mediated_devices_stay_when_one_is_made(tmp_path: Path) -> None:
    two_mdev_types(tmp_path)
    before = named(discover(tmp_path, DiscoverySettings()))["pci-0000:41:00.0"].units["VGPU"]
    assert len(set(before)) == 15
    machine = Machine(tmp_path)
    types = "sys/devices/pci0000:41/0000:41:00.0/mdev_supported_types/nvidia-222"
    machine.link(f"{types}/devices/{before[3]}", "sys/devices/pci0000:41/0000:41:00.0")
    machine.write(f"{types}/available_instances", 13)
    after = named(discover(tmp_path, DiscoverySettings()))["pci-0000:41:00.0"].units["VGPU"]
    assert set(after) == set(before)


def test_vfs_of_a_device_that_is_not_given_by_itself(tmp_path: Path) -> None:
    """By the product of the VFs alone, the PF being the host's."""
    machine = Machine(tmp_path)
    machine.memory(4)
    pf = machine.pci("0000:6b:00.0", "8086:4940", "0b4000", driver="4xxx")
    for number in range(3):
        vf = machine.pci(f"0000:6b:00.{number + 1}", "8086:4941", "0b4000")
        machine.link(f"{vf}/physfn", pf)
    settings = DiscoverySettings(devices_allowed=("8086:4941",), devices_denied=("0000:6b:00.2",))
    found = named(discover(tmp_path, settings))["pci-0000:6b:00.0"]
    assert found.units == {"CUSTOM_PCI_8086_4941": ("0000:6b:00.1", "0000:6b:00.3")}
    whole = named(discover(tmp_path, DiscoverySettings(devices_allowed=("8086:4940",))))["pci-0000:6b:00.0"]
    assert totals(whole) == {"CUSTOM_PCI_8086_4941": 3}


def test_a_gpu_that_is_cut_has_no_more_parts_than_it_says(tmp_path: Path) -> None:
    sriov_gpus(tmp_path)
    assert totals(named(discover(tmp_path, DiscoverySettings()))["pci-0000:41:00.0"]) == {"VGPU": 3}


def test_a_device_of_a_cell_that_is_not_there_is_below_the_host(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.cell(0, "", 4)
    machine.pci("0000:01:00.0", "10de:20b2", "030200", 5)
    host = discover(tmp_path, DiscoverySettings())
    assert named(host)["pci-0000:01:00.0"].parent == host.providers[0].id
    assert "the cell 5 is not there" in reasons(host)["sys/bus/pci/devices/0000:01:00.0"]


def sockets(host: DiscoveredHost) -> dict[str, list[str]]:
    """The traits of sockets of each cell."""
    return {
        name: [trait for trait in provider.traits if trait in SOCKET_TRAITS]
        for name, provider in named(host).items()
        if "HW_NUMA_ROOT" in provider.traits
    }


def test_a_cell_says_which_socket_it_is_on(tmp_path: Path) -> None:
    """The kernel's numbers have holes; the trait is of the first, the second, and so on."""
    for name, socket in (
        ("power9", {"numa0": 0, "numa8": 1, "numa255": None}),
        ("snc", dict.fromkeys(range(4), 0)),
    ):
        TREES[name](tmp_path / name)
        assert sockets(discover(tmp_path / name, DiscoverySettings())) == {
            cell if isinstance(cell, str) else f"numa{cell}": []
            if number is None
            else [SOCKET_TRAITS[number]]
            for cell, number in socket.items()
        }


def test_a_cell_of_several_sockets_or_of_an_unknown_one_says_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.online("0-5")
    machine.cores([[0], [1]], 0)
    machine.cores([[2], [3]], 1)
    machine.cores([[4]], -1)
    machine.cell(0, "0,2", 4)
    machine.cell(1, "1,3", 4)
    machine.cell(2, "4", 4)
    machine.cell(3, "5", 4)
    assert set(map(tuple, sockets(discover(tmp_path, DiscoverySettings())).values())) == {()}


def test_sockets_beyond_the_last_trait_are_not_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.online(f"0-{SOCKETS_MAX}")
    for number in range(SOCKETS_MAX + 1):
        machine.cores([[number]], 1000 + number)
        machine.cell(number, str(number), 1)
    found = sockets(discover(tmp_path, DiscoverySettings()))
    assert [found[f"numa{number}"] for number in range(SOCKETS_MAX)] == [[trait] for trait in SOCKET_TRAITS]
    assert found[f"numa{SOCKETS_MAX}"] == []


def test_the_disk_of_a_copy_is_that_of_the_disks_that_stay_in_the_machine(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.cell(0, "0", 4)
    machine.online("0")

    def disk_gb() -> int | None:
        return totals(discover(tmp_path, DiscoverySettings(), data=tmp_path).providers[0]).get("DISK_GB")

    machine.disk("sr0", 1, removable=True)
    assert disk_gb() is None
    machine.disk("nvme0n1", 960)
    machine.disk("sda", 4000, wwid="t10.ATA     ST4000  1")
    assert disk_gb() == 4960
    # Another path to the same disk; and what is no disk of its own.
    machine.disk("sdb", 4000, wwid="t10.ATA     ST4000  1")
    machine.write("sys/block/dm-0/size", 4000 << 21)
    assert disk_gb() == 4960
    machine.disk("sdc", 10)
    machine.write("sys/block/sdc/size", "many")
    assert disk_gb() == 4960


def test_the_disk_is_what_the_setting_says_or_the_file_system_of_the_agent(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    assert totals(discover(tmp_path, DiscoverySettings(disk_gb=7)).providers[0])["DISK_GB"] == 7
    live = discover(Path("/"), DiscoverySettings(), data=tmp_path)
    about = os.statvfs(tmp_path)
    assert totals(live.providers[0]).get("DISK_GB", 0) == (about.f_blocks * about.f_frsize) >> 30
    assert (
        totals(discover(Path("/"), DiscoverySettings(disk_gb=7), data=tmp_path).providers[0])["DISK_GB"] == 7
    )


def test_the_name_of_the_host(tmp_path: Path) -> None:
    assert discover(tmp_path, DiscoverySettings()).name == "host"
    Machine(tmp_path, "compute-7.example")
    assert discover(tmp_path, DiscoverySettings()).name == "compute-7.example"
    assert discover(tmp_path, DiscoverySettings(host_name="mine")).name == "mine"


def test_folders_that_are_laid_out_otherwise(tmp_path: Path) -> None:
    """Devices in the bus itself, interfaces and mediated devices by their class: each is a way to say it."""
    machine = Machine(tmp_path)
    bus = "sys/bus/pci/devices"
    for address, id, klass in (
        ("0000:01:00.0", "8086:1572", "020000"),
        ("0000:02:00.0", "10de:1eb8", "030200"),
    ):
        for name, text in (("vendor", f"0x{id[:4]}"), ("device", f"0x{id[5:]}"), ("class", f"0x{klass}")):
            machine.write(f"{bus}/{address}/{name}", text)
    (tmp_path / bus / "0000:01:00.0/net/eth5").mkdir(parents=True)
    machine.write("sys/class/net/eth5/speed", 40000)
    machine.write("sys/class/mdev_bus/0000:02:00.0/mdev_supported_types/nvidia-35/available_instances", 4)
    providers = named(discover(tmp_path, DiscoverySettings()))
    assert totals(providers["pci-0000:01:00.0"])["NET_BW_EGR_KILOBIT_PER_SEC"] == 40_000_000
    assert totals(providers["pci-0000:02:00.0"]) == {"VGPU": 4}

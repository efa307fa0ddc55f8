"""Folders that are broken, or made to break their reader: reading ends, and soon, with what can be used.

The whole is bounded by its own limits; a process that reads all of it at once is measured from outside.
"""

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from berth.agent.discovery import DiscoveredHost, DiscoverySettings, discover
from berth.agent.discovery.pci import PciDevice
from berth.agent.discovery.sysroot import (
    ENTRIES_MAX,
    LEFT_OUT_MAX,
    LIKE_THIS_MAX,
    Budget,
    BudgetSpent,
    Sysroot,
)
from berth.cell.protocol import PROVIDERS_MAX, UNITS_MAX
from tests.clocks import FakeClock
from tests.sysroots import Machine, two_mdev_types, two_pfs, whole_pf

CHILD = """
import re, sys
from berth.cli import main
status = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(status)
"""
SECONDS_MAX = 5
MEMORY_KB_MAX = 200 << 10


def find(root: Path) -> tuple[DiscoveredHost, dict[str, str]]:
    host = discover(root, DiscoverySettings())
    return host, {left.path: left.reason for left in host.left_out}


def classes(host: DiscoveredHost, suffix: str) -> set[str]:
    found = (provider for provider in host.providers if provider.name == f"{host.name}{suffix}")
    return {kind for provider in found for kind in provider.inventories}


NODE0 = "sys/devices/system/node/node0"
PF = "sys/devices/pci0000:3b/0000:3b:00.0"
PF_SHOWN = "sys/bus/pci/devices/0000:3b:00.0"

GARBAGE = {
    "digits": "9" * 10_000,
    "minus": "-5",
    "words": "no, never",
    "nothing": "",
    "nul": "\0\0\0",
    "escape": "\x1b[2J\x1b]0;owned\x07",
    "long": "1" * (1 << 20),
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    ("path", "shown", "lost"),
    [
        (f"{NODE0}/meminfo", f"{NODE0}/meminfo", ("-numa0", "MEMORY_MB")),
        (f"{NODE0}/hugepages/hugepages-2048kB/nr_hugepages", None, ("-numa0", "MEMORY_MB")),
        (f"{PF}/vendor", f"{PF_SHOWN}/vendor", ("-pci-0000:3b:00.0", "SRIOV_NET_VF")),
        (f"{PF}/class", f"{PF_SHOWN}/class", ("-pci-0000:3b:00.0", "SRIOV_NET_VF")),
        (f"{PF}/sriov_totalvfs", f"{PF_SHOWN}/sriov_totalvfs", ("-pci-0000:3b:00.0", "SRIOV_NET_VF")),
        (
            f"{PF}/net/ens1f0/speed",
            "sys/class/net/ens1f0/speed",
            ("-pci-0000:3b:00.0", "NET_BW_EGR_KILOBIT_PER_SEC"),
        ),
    ],
)
def test_garbage_is_left_out_by_name_and_nothing_else_is(
    path: str, shown: str | None, lost: tuple[str, str], garbage: str, tmp_path: Path
) -> None:
    two_pfs(tmp_path)
    (tmp_path / path).write_text(GARBAGE[garbage])
    host, reasons = find(tmp_path)
    assert (shown or path) in reasons
    assert lost[1] not in classes(host, lost[0])
    assert {"VCPU"} <= classes(host, "-numa0")
    assert {"MEMORY_MB", "VCPU"} <= classes(host, "-numa1")
    assert {"SRIOV_NET_VF"} <= classes(host, "-pci-0000:af:00.0")
    assert all(text.isprintable() and len(text) <= 300 for pair in reasons.items() for text in pair)


def test_a_list_of_cpus_that_is_garbage_is_not_replaced_by_a_guess(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    machine = Machine(tmp_path)
    machine.write("sys/devices/system/cpu/online", "0-99999999999999999999")
    host, reasons = find(tmp_path)
    # proc/cpuinfo lists those that are online, too.
    assert "VCPU" in classes(host, "-numa0")
    assert "sys/devices/system/cpu/online" in reasons
    (tmp_path / "proc/cpuinfo").unlink()
    host, reasons = find(tmp_path)
    assert "VCPU" not in classes(host, "-numa0")
    assert "MEMORY_MB" in classes(host, "-numa0")


def _make_fifo(path: Path) -> None:
    os.mkfifo(path)


def _make_socket(path: Path) -> None:
    # Names of sockets are short.
    bound = path.parent / "s"
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(bound.name)
    finally:
        os.chdir(here)
    bound.rename(path)


def _make_folder(path: Path) -> None:
    path.mkdir()


def _make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def _make_link_out(path: Path) -> None:
    outside = path.parents[len(path.parts) - 2] / "etc" / "hostname"
    path.symlink_to(outside)


def _make_link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _make_unreadable(path: Path) -> None:
    path.write_text("1\n")
    path.chmod(0)
    if os.geteuid() == 0:
        # Nothing is unreadable to root: a folder is.
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize(
    "make",
    [
        _make_fifo,
        _make_socket,
        _make_folder,
        _make_loop,
        _make_link_out,
        _make_link_to_device,
        _make_unreadable,
    ],
)
@pytest.mark.parametrize("path", [f"{NODE0}/meminfo", f"{PF}/vendor", "proc/cpuinfo", f"{NODE0}/cpulist"])
def test_what_is_not_a_file_is_not_opened(make: Callable[[Path], None], path: str, tmp_path: Path) -> None:
    two_pfs(tmp_path)
    (tmp_path / path).unlink()
    make(tmp_path / path)
    host, reasons = find(tmp_path)
    assert path.replace(PF, PF_SHOWN) in reasons
    assert {"MEMORY_MB", "VCPU"} <= classes(host, "-numa1")


@pytest.mark.parametrize(
    "target", ["/", "/sys/devices", "../../../../../../../../../../sys", "../devices", "."]
)
def test_links_are_not_followed_out_of_the_tree(target: str, tmp_path: Path) -> None:
    """Out of it there is another machine's tree, with a GPU."""
    outside = tmp_path / "outside"
    Machine(outside).pci("0000:05:00.0", "10de:20b2", "030200")
    inside = tmp_path / "inside"
    two_pfs(inside)
    bus = inside / "sys/bus/pci/devices"
    (bus / "0000:05:00.0").symlink_to(outside / "sys/bus/pci/devices/0000:05:00.0")
    (bus / "0000:06:00.0").symlink_to(target)
    (bus / "0000:07:00.0").symlink_to("../../../../../outside/sys/devices/pci0000:05/0000:05:00.0")
    host, reasons = find(inside)
    assert not any("PGPU" in provider.inventories for provider in host.providers)
    assert reasons["sys/bus/pci/devices/0000:05:00.0"] == "the link leads out of the tree"
    assert reasons["sys/bus/pci/devices/0000:07:00.0"] == "the link leads out of the tree"
    assert any(path.startswith("sys/bus/pci/devices/0000:06:00.0") for path in reasons)
    assert "SRIOV_NET_VF" in classes(host, "-pci-0000:3b:00.0")


def test_links_in_a_circle_and_links_without_end(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    bus = tmp_path / "sys/bus/pci/devices"
    for number in range(45):
        (bus / f"0001:{number // 32:02x}:{number % 32:02x}.0").symlink_to(
            f"0001:{(number + 1) // 32:02x}:{(number + 1) % 32:02x}.0"
        )
    (bus / "0002:00:00.0").symlink_to("0002:00:01.0")
    (bus / "0002:00:01.0").symlink_to("0002:00:00.0")
    (tmp_path / "sys/class/net/loop").symlink_to("loop/loop")
    host, reasons = find(tmp_path)
    assert reasons["sys/bus/pci/devices/0001:00:00.0"] == "more than 40 links follow each other"
    assert reasons["sys/bus/pci/devices/0002:00:00.0"] == "more than 40 links follow each other"
    assert "sys/class/net/loop" in reasons
    assert "SRIOV_NET_VF" in classes(host, "-pci-0000:3b:00.0")


def test_the_folders_themselves_may_be_anything(tmp_path: Path) -> None:
    for number, target in enumerate(("/", ".", "sys", "../..", "/dev/zero", "nowhere")):
        root = tmp_path / str(number)
        root.mkdir()
        (root / "sys").symlink_to(target)
        (root / "proc").symlink_to(target)
        host, _ = find(root)
        assert [provider.inventories for provider in host.providers] == [{}]
    assert find(tmp_path / "not there")[0].name == "host"
    file = tmp_path / "file"
    file.touch()
    assert find(file)[0].name == "host"


def test_pfs_that_lie_about_their_vfs(tmp_path: Path) -> None:
    """A VF of two PFs, one that is its own PF, one that is not there, and links to anything."""
    two_pfs(tmp_path)
    machine = Machine(tmp_path)
    machine.link(f"{PF}/virtfn8", "sys/devices/pci0000:af/0000:af:01.0")
    machine.link(f"{PF}/virtfn9", "sys/devices/pci0000:3b/0000:3b:1f.7")
    own = machine.pci("0000:05:00.0", "8086:1572", "020000")
    machine.link(f"{own}/physfn", own)
    other = machine.pci("0000:06:00.0", "8086:1572", "020000")
    machine.link(f"{other}/virtfn0", "proc")
    host, reasons = find(tmp_path)
    units = [unit for provider in host.providers for names in provider.units.values() for unit in names]
    assert len(units) == len(set(units)) == 15
    assert reasons["sys/bus/pci/devices/0000:af:01.0"] == "it is a VF of 0000:3b:00.0 and of 0000:af:00.0"
    assert "0000:05:00.0" not in units
    assert reasons[PF_SHOWN] == "it says that it has 10 VFs, and 8 were found"
    assert reasons["sys/bus/pci/devices/0000:06:00.0/virtfn0"] == "the link does not lead to a PCI device"


def test_names_that_are_no_names(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    bus = tmp_path / "sys/bus/pci/devices"
    for name in (b"\xff\xfe", b"\x1b[2J", b"0000:3b:00.0 ", b"0000:3B:00.0", b"a" * 255):
        (Path(os.fsdecode(os.fsencode(bus) + b"/" + name))).touch()
    host, reasons = find(tmp_path)
    assert sum(reason == "this is not a PCI address" for reason in reasons.values()) == 5
    json.dumps(reasons).encode()
    assert all(path.isprintable() for path in reasons)
    assert "SRIOV_NET_VF" in classes(host, "-pci-0000:3b:00.0")


def test_a_host_has_no_more_than_can_be_registered(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number in range(PROVIDERS_MAX + 20):
        machine.pci(f"{number:04x}:00:00.0", "10de:20b2", "030200")
    gpu = machine.pci("ffff:00:00.0", "10de:20b2", "030200")
    machine.mdev_type(gpu, "nvidia-1", 4096)
    host, _ = find(tmp_path)
    assert len(host.providers) == PROVIDERS_MAX
    assert sum(len(names) for provider in host.providers for names in provider.units.values()) <= UNITS_MAX
    assert sum(left.reason.endswith("providers") for left in host.left_out) == 22


def test_what_was_left_out_is_listed_up_to_a_limit(tmp_path: Path) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for number in range(1000):
        (bus / str(number)).touch()
    host, reasons = find(tmp_path)
    assert len(host.left_out) < 2 * LIKE_THIS_MAX
    assert reasons["sys/bus/pci/devices/*"] == f"left out besides: {1000 - LIKE_THIS_MAX} like this"
    for number in range(1000):
        (bus / f"{number}{chr(ord('g') + number % 20) * (number // 20)}").touch()
    host, reasons = find(tmp_path)
    assert len(host.left_out) <= 2 * LEFT_OUT_MAX + 1


@pytest.mark.parametrize(
    "budget", [Budget(entries=40), Budget(bytes=200), Budget(ids=20), Budget(seconds=0.0)]
)
def test_the_whole_reading_has_limits(budget: Budget, tmp_path: Path) -> None:
    two_pfs(tmp_path)
    host = discover(tmp_path, DiscoverySettings(), budget=budget)
    assert not host.is_complete
    assert sum("all that was not read yet is left out" in left.reason for left in host.left_out) == 1
    assert discover(tmp_path, DiscoverySettings()).is_complete


def test_a_device_that_was_read_in_part_is_not_reported(tmp_path: Path) -> None:
    """Wherever the reading is cut off, what is reported is there: never a PF as whole that has VFs, or that
    the host uses."""
    whole_pf(tmp_path)
    Machine(tmp_path).write("sys/class/net/ens2f0/flags", "0x1003")
    settings = DiscoverySettings(host_name="node-1")
    whole = {provider.name: provider for provider in discover(tmp_path, settings).providers}
    for entries in range(0, 1000, 3):
        host = discover(tmp_path, settings, budget=Budget(entries=entries))
        for provider in host.providers:
            for kind, inventory in provider.inventories.items():
                units = provider.units.get(kind, ())
                assert set(units) <= set(whole[provider.name].units.get(kind, ())), entries
                assert units or whole[provider.name].inventories[kind] == inventory, entries
        if host.is_complete:
            return
    raise AssertionError("the reading was never complete")


def inspect_within_limits(root: Path) -> dict[str, Any]:
    """What a process finds, which must not take more time or memory than it may."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", CHILD, "inspect", "--json", "--sysroot", str(root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0, result.stderr
    assert int(result.stderr) < MEMORY_KB_MAX
    # Of the machine's time: how long it took by the clock depends on who else is at work.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECONDS_MAX
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_process_ends_in_time_and_memory_on_a_tree_of_all_of_it(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    machine = Machine(tmp_path)
    bus = tmp_path / "sys/bus/pci/devices"
    source = machine.write("proc/nothing", "")
    # More entries would not be read: the folder is left as soon as there are too many.
    for number in range(ENTRIES_MAX + 100):
        os.link(source, bus / f"x{number}")
    (tmp_path / "proc/cpuinfo").write_text("flags\t: " + " ".join(map(str, range(2_000_000))))
    (tmp_path / f"{NODE0}/cpulist").unlink()
    os.mkfifo(tmp_path / f"{NODE0}/cpulist")
    (tmp_path / f"{NODE0}/meminfo").write_text("x" * (5 << 20))
    for number in range(500):
        machine.write(f"sys/devices/system/node/node{number + 10}/cpulist", "9" * 10_000)
    found = inspect_within_limits(tmp_path)
    names = {provider["name"]: provider for provider in found["providers"]}
    assert "MEMORY_MB" in names["node-1-numa1"]["inventories"]
    left_out = {left["path"]: left["reason"] for left in found["left_out"]}
    assert left_out["sys/bus/pci/devices"] == f"the folder has more than {ENTRIES_MAX} entries"


def test_many_cells_of_one_cpu_take_no_more_time_than_their_number(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.online("0-3999")
    for number in range(4_000):
        machine.write(f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", number)
        machine.write(f"sys/devices/system/node/node{number}/cpulist", number)
    found = inspect_within_limits(tmp_path)
    assert len(found["providers"]) <= PROVIDERS_MAX


ALL_CPUS = "0-4095"
ALL_BUT_ONE = ",".join(map(str, range(4095)))
ALL_IN_A_MASK = ",".join(["ffffffff"] * 2048)


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("thread_siblings_list", (ALL_CPUS,)),
        ("thread_siblings_list", (ALL_CPUS, ALL_BUT_ONE)),
        ("thread_siblings", (ALL_IN_A_MASK,)),
        ("physical_package_id", ("0",)),
    ],
    ids=["agreed", "disagreed", "masks", "numbers"],
)
def test_cpus_that_are_all_threads_of_one_core_take_no_more_time_than_their_number(
    name: str, lists: tuple[str, ...], tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.online(ALL_CPUS)
    for cpu in range(4096):
        topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
        machine.write(f"{topology}/core_id", 0)
        machine.write(f"{topology}/{name}", lists[cpu % len(lists)])
    found = inspect_within_limits(tmp_path)
    (host,) = found["providers"]
    assert "HW_CPU_HYPERTHREADING" not in host["traits"]
    if not any("not read yet" in left["reason"] for left in found["left_out"]):
        assert host["inventories"]["VCPU"]["total"] == 4096
        assert any("more than 64" in left["reason"] for left in found["left_out"])


@pytest.mark.parametrize(
    ("name", "cpus"),
    [("cpulist", "0-65535"), ("cpulist", ",".join(map(str, range(8192)))), ("cpumap", ALL_IN_A_MASK)],
    ids=["range", "list", "mask"],
)
def test_cells_that_all_have_all_cpus_end_in_time_and_memory(name: str, cpus: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.online("0-65535")
    for number in range(4096):
        machine.write(f"sys/devices/system/node/node{number}/{name}", cpus)
    found = inspect_within_limits(tmp_path)
    assert not any("VCPU" in provider["inventories"] for provider in found["providers"])
    reasons = {left["reason"] for left in found["left_out"]}
    assert any("all that was not read yet is left out" in reason for reason in reasons)


def test_many_gpus_with_many_mediated_devices_take_no_more_time_than_is_reported(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number in range(400):
        gpu = machine.pci(f"{number:04x}:00:00.0", "10de:20b2", "030200")
        machine.mdev_type(gpu, "nvidia-1", 4096)
    found = inspect_within_limits(tmp_path)
    # The third would be one too many, and so would all after it.
    assert len(found["providers"]) == 3


def test_a_slow_reading_ends_in_time(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    clock = FakeClock()
    sysroot = Sysroot(tmp_path, Budget(seconds=2), clock)
    folder = sysroot.folder("proc/sys/kernel")
    assert folder is not None
    clock.advance(1.9)
    assert folder.word("hostname") == "node-1"
    clock.advance(0.2)
    with pytest.raises(BudgetSpent):
        folder.word("hostname")
    assert sysroot.left_out[0].reason.startswith("2 s have passed")


def test_numa_information_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    Machine(tmp_path).memory(128)
    node = tmp_path / "sys/devices/system/node"
    node.rename(tmp_path / "elsewhere")
    assert "VCPU" in classes(find(tmp_path)[0], "")
    node.symlink_to("node")
    host, reasons = find(tmp_path)
    assert classes(host, "") == {"DISK_GB"}
    assert "sys/devices/system/node" in reasons


def test_a_pf_whose_interfaces_cannot_be_read_is_not_given_whole(tmp_path: Path) -> None:
    whole_pf(tmp_path)
    Machine(tmp_path).write("sys/class/net/ens2f0/flags", "up, I think")
    host, reasons = find(tmp_path)
    assert classes(host, "-pci-0000:af:00.0") == set()
    assert "the host may use it" in reasons["sys/bus/pci/devices/0000:af:00.0"]


def _remove_flags(root: Path) -> None:
    (root / "sys/class/net/ens2f0/flags").unlink()


def _hide_interface(root: Path) -> None:
    """The interface is in another network namespace: the device's folder for interfaces is empty."""
    (root / "sys/class/net/ens2f0").unlink()
    shutil.rmtree(root / "sys/devices/pci0000:af/0000:af:00.0/net/ens2f0")


def _break_link(root: Path) -> None:
    _hide_interface(root)
    (root / "sys/devices/pci0000:af/0000:af:00.0/net/ens2f0").symlink_to("nowhere")


def _bind(root: Path, driver: str | None) -> None:
    """Another driver has the device, or none has: there is no folder for interfaces."""
    device = root / "sys/devices/pci0000:af/0000:af:00.0"
    _hide_interface(root)
    (device / "net").rmdir()
    (device / "driver").unlink()
    if driver is not None:
        (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")


def _bind_for_user_space(root: Path) -> None:
    """DPDK on the host may use it."""
    _bind(root, "vfio-pci")


@pytest.mark.parametrize("change", [_remove_flags, _hide_interface, _break_link, _bind_for_user_space])
def test_a_pf_whose_use_is_not_known_is_not_given_whole(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    whole_pf(tmp_path)
    assert classes(find(tmp_path)[0], "-pci-0000:af:00.0") == {"CUSTOM_PCI_15B3_1017"}
    change(tmp_path)
    host, reasons = find(tmp_path)
    assert classes(host, "-pci-0000:af:00.0") == set()
    assert "the host may use it" in reasons["sys/bus/pci/devices/0000:af:00.0"]
    allowed = discover(tmp_path, DiscoverySettings(devices_allowed=("15b3:1017",)))
    assert classes(allowed, "-pci-0000:af:00.0") == {"CUSTOM_PCI_15B3_1017"}


@pytest.mark.parametrize("driver", [None, "pci-stub"])
def test_a_pf_that_no_driver_uses_is_given_whole(driver: str | None, tmp_path: Path) -> None:
    whole_pf(tmp_path)
    _bind(tmp_path, driver)
    assert classes(find(tmp_path)[0], "-pci-0000:af:00.0") == {"CUSTOM_PCI_15B3_1017"}


def test_a_pf_whose_driver_cannot_be_read_is_not_given(tmp_path: Path) -> None:
    whole_pf(tmp_path)
    _bind(tmp_path, None)
    (tmp_path / "sys/devices/pci0000:af/0000:af:00.0/driver").write_text("none")
    host, reasons = find(tmp_path)
    assert classes(host, "-pci-0000:af:00.0") == set()
    assert reasons["sys/bus/pci/devices/0000:af:00.0/driver"] == "this is not a link"


def test_a_pf_whose_vfs_are_not_found_is_not_given_whole(tmp_path: Path) -> None:
    whole_pf(tmp_path)
    Machine(tmp_path).write("sys/devices/pci0000:af/0000:af:00.0/sriov_numvfs", 4)
    host, reasons = find(tmp_path)
    assert classes(host, "-pci-0000:af:00.0") == set()
    assert reasons["sys/bus/pci/devices/0000:af:00.0"] == "it says that it has 4 VFs, and 0 were found"


def test_a_gpu_whose_types_cannot_be_read_is_not_given_whole(tmp_path: Path) -> None:
    two_mdev_types(tmp_path)
    types = "sys/devices/pci0000:c1/0000:c1:00.0/mdev_supported_types"
    Machine(tmp_path).write(f"{types}/i915-GVTg_V5_8/available_instances", "some")
    host, reasons = find(tmp_path)
    assert not any(provider.name.startswith("node-1-pci-0000:c1:00.0") for provider in host.providers)
    assert any("i915-GVTg_V5_8/available_instances" in path for path in reasons)
    assert any("VGPU" in provider.inventories for provider in host.providers)


def test_a_vf_whose_pf_is_not_there_is_listed_and_not_given(tmp_path: Path) -> None:
    two_pfs(tmp_path)
    (tmp_path / PF_SHOWN).unlink()
    host, reasons = find(tmp_path)
    listed = [
        device for devices in host.devices.values() for device in devices if isinstance(device, PciDevice)
    ]
    assert sum(device.pf == "0000:3b:00.0" for device in listed) == 8
    assert len({device.address for device in listed}) == len(listed) == 17
    assert not any("0000:3b" in provider.name for provider in host.providers)
    path = "sys/bus/pci/devices/0000:3b:01.0"
    assert reasons[path] == "it is a VF of 0000:3b:00.0, which is not among the devices"

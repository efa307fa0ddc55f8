"""Folders with the ``sys`` and ``proc`` of machines, written by code: laid out as Linux lays them out.

``TREES`` are machines by name; each is a function that writes one into an empty folder.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

GB_KB: Final = 1 << 20
X86_FLAGS: Final = "fpu lm sse sse2 pni ssse3 sse4_1 sse4_2 avx avx2 aes fma vmx"


class Machine:
    """Writes the folders of a machine, part by part."""

    def __init__(self, root: Path, name: str = "node-1") -> None:
        self.root = root
        self.write("proc/sys/kernel/hostname", name)

    def write(self, path: str, text: object) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return file

    def link(self, path: str, target: str) -> None:
        """A link, relative as those of sysfs, to something in the tree."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / target, link.parent))

    # -- cpus and memory --

    def cpuinfo(self, cpus: Iterable[int], flags: str = X86_FLAGS) -> None:
        stanzas = (f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n" for cpu in cpus)
        self.write("proc/cpuinfo", "\n".join(stanzas))

    def cores(self, cores: Iterable[Iterable[int]], socket: int, *, masks: bool = False) -> None:
        """Cores with their threads, of one socket."""
        for number, threads in enumerate(cores):
            cpus = list(threads)
            for cpu in cpus:
                topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
                self.write(f"{topology}/physical_package_id", socket)
                self.write(f"{topology}/core_id", number)
                if masks:
                    bits = sum(1 << cpu for cpu in cpus)
                    self.write(f"{topology}/thread_siblings", f"{bits >> 32:08x},{bits & 0xFFFFFFFF:08x}")
                else:
                    self.write(f"{topology}/thread_siblings_list", ",".join(map(str, cpus)))

    def online(self, cpus: str) -> None:
        self.write("sys/devices/system/cpu/online", cpus)

    def memory(self, gb: int, extra: str = "") -> None:
        self.write("proc/meminfo", f"MemTotal:       {gb * GB_KB} kB\nMemFree:        1024 kB\n{extra}")

    def cell(self, number: int, cpus: str, gb: int, pages: dict[int, int] | None = None) -> None:
        """A NUMA cell; ``pages`` by size in kB."""
        node = f"sys/devices/system/node/node{number}"
        self.write(f"{node}/cpulist", cpus)
        total_kb = gb * GB_KB
        self.write(f"{node}/meminfo", f"Node {number} MemTotal:       {total_kb} kB\n")
        for size_kb, count in (pages or {2048: 0, 1048576: 0}).items():
            pool = f"{node}/hugepages/hugepages-{size_kb}kB"
            self.write(f"{pool}/nr_hugepages", count)
            self.write(f"{pool}/surplus_hugepages", 0)

    # -- devices --

    def pci(
        self,
        address: str,
        id: str,
        klass: str,
        node: int = -1,
        driver: str | None = None,
    ) -> str:
        """A PCI device: its folder, which the bus has a link to."""
        folder = f"sys/devices/pci{address[:-5]}/{address}"
        vendor, _, product = id.partition(":")
        self.write(f"{folder}/vendor", f"0x{vendor}")
        self.write(f"{folder}/device", f"0x{product}")
        self.write(f"{folder}/class", f"0x{klass}")
        self.write(f"{folder}/numa_node", node)
        if driver is not None:
            self.link(f"{folder}/driver", f"sys/bus/pci/drivers/{driver}")
        self.link(f"sys/bus/pci/devices/{address}", folder)
        return folder

    def interface(self, device: str, name: str, speed: int | None = None, *, up: bool = False) -> None:
        """A network interface of the device with this folder."""
        folder = f"{device}/net/{name}"
        self.write(f"{folder}/flags", "0x1003" if up else "0x1002")
        self.write(f"{folder}/operstate", "up" if up else "down")
        if speed is not None:
            self.write(f"{folder}/speed", speed)
        for queue in range(2):
            self.write(f"{folder}/queues/rx-{queue}/rps_cpus", 0)
        self.link(f"{folder}/device", device)
        self.link(f"sys/class/net/{name}", folder)

    def pf(
        self, address: str, name: str, node: int, vfs: int, *, vfs_max: int = 8, speed: int | None = 25000
    ) -> None:
        """A NIC that can have VFs, and those that it has, on the next bus."""
        folder = self.pci(address, "15b3:1017", "020000", node, driver="mlx5_core")
        self.interface(folder, name, speed, up=vfs > 0)
        self.write(f"{folder}/sriov_totalvfs", vfs_max)
        self.split(address, node, vfs)

    def split(self, address: str, node: int, vfs: int) -> None:
        """Give a NIC that has none these VFs."""
        folder = f"sys/devices/pci{address[:-5]}/{address}"
        self.write(f"{folder}/sriov_numvfs", vfs)
        for number in range(vfs):
            vf = f"{address[:-4]}{1 + number // 8 + 2 * int(address[-1]):02x}.{number % 8}"
            own = self.pci(vf, "15b3:1018", "020000", node, driver="mlx5_core")
            self.link(f"{own}/physfn", folder)
            self.link(f"{folder}/virtfn{number}", own)

    def mdev_type(
        self, device: str, type: str, available: int, instances: Iterable[str] = (), about: str = ""
    ) -> None:
        folder = f"{device}/mdev_supported_types/{type}"
        self.write(f"{folder}/available_instances", available)
        self.write(f"{folder}/name", f"GRID {type}")
        self.write(f"{folder}/description", about)
        (self.root / folder / "devices").mkdir(parents=True, exist_ok=True)
        for instance in instances:
            self.link(f"{folder}/devices/{instance}", device)

    def disk(
        self,
        name: str,
        gb: int,
        *,
        rotational: bool = False,
        removable: bool = False,
        wwid: str | None = None,
    ) -> None:
        self.write(f"sys/block/{name}/size", gb << 21)
        self.write(f"sys/block/{name}/queue/rotational", int(rotational))
        self.write(f"sys/block/{name}/removable", int(removable))
        (self.root / f"sys/block/{name}/device").mkdir()
        if wwid is not None:
            self.write(f"sys/block/{name}/device/wwid", wwid)


def _two_sockets(root: Path) -> Machine:
    """8 cores of 2 threads in 2 cells of 64 GB, with huge pages."""
    machine = Machine(root)
    machine.cpuinfo(range(16))
    machine.online("0-15")
    for socket in range(2):
        machine.cores(([core, core + 8] for core in range(socket * 4, socket * 4 + 4)), socket)
    machine.cell(0, "0-3,8-11", 64, {2048: 1024, 1048576: 4})
    machine.cell(1, "4-7,12-15", 64, {2048: 512, 1048576: 0})
    machine.disk("nvme0n1", 960)
    return machine


def two_pfs(root: Path) -> None:
    """Two sockets with two PFs of 8 VFs."""
    machine = _two_sockets(root)
    machine.pf("0000:3b:00.0", "ens1f0", 0, 8)
    machine.pf("0000:af:00.0", "ens2f0", 1, 8)


def whole_pf(root: Path) -> None:
    """The same with one PF whole."""
    machine = _two_sockets(root)
    machine.pf("0000:3b:00.0", "ens1f0", 0, 8)
    machine.pf("0000:af:00.0", "ens2f0", 1, 0, speed=-1)


def eight_gpus(root: Path) -> None:
    """8 GPUs and 8 NICs in 2 cells."""
    machine = _two_sockets(root)
    for number in range(8):
        node = number // 4
        machine.pci(f"0000:{0x10 + number:02x}:00.0", "10de:20b2", "030200", node, driver="vfio-pci")
        machine.pf(f"0000:{0x40 + number:02x}:00.0", f"ib{number}", node, 1, speed=200000)


def two_mdev_types(root: Path) -> None:
    """A GPU of two types of mediated devices, one that is down to one type, and one that cannot be cut."""
    machine = _two_sockets(root)
    about = "num_heads=4, frl_config=60, framebuffer=1024M, max_resolution=7680x4320, max_instance=16"
    gpu = machine.pci("0000:41:00.0", "10de:1eb8", "030200", 0, driver="nvidia")
    machine.mdev_type(gpu, "nvidia-222", 14, ["83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"], about)
    machine.mdev_type(gpu, "nvidia-223", 0, (), "num_heads=4, frl_config=60")
    other = machine.pci("0000:c1:00.0", "8086:5912", "030000", 1, driver="i915")
    machine.mdev_type(other, "i915-GVTg_V5_4", 1)
    machine.mdev_type(other, "i915-GVTg_V5_8", 2)
    machine.pci("0000:c2:00.0", "10de:1eb8", "030200", 1, driver="nvidia")


def no_numa(root: Path) -> None:
    """No NUMA information, and devices that say they are in a cell or in none."""
    machine = Machine(root)
    machine.cpuinfo(range(4))
    machine.online("0-3")
    machine.cores([[0], [1], [2], [3]], 0)
    machine.memory(16)
    machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", 512)
    machine.pf("0000:03:00.0", "enp3s0f0", -1, 4, vfs_max=4, speed=10000)
    machine.pci("0000:04:00.0", "10de:1db4", "030200", 0)
    machine.disk("sda", 4000, rotational=True)


def cell_without_memory(root: Path) -> None:
    """A cell with cpus only, one with memory only, one with neither and a device; sparse numbers."""
    machine = Machine(root)
    machine.cpuinfo(range(8))
    machine.online("0-7")
    machine.cores([[0], [1], [2], [3]], 0)
    machine.cores([[4], [5], [6], [7]], 1)
    machine.cell(0, "0-3", 32)
    machine.cell(1, "4-7", 0)
    machine.cell(8, "", 256)
    machine.cell(252, "", 0)
    machine.pci("0000:81:00.0", "10de:2342", "030200", 252)


def hole_in_cpus(root: Path) -> None:
    """Cpus that are offline, and numbers that are not there: 16 present, 11 online."""
    machine = Machine(root)
    online = [0, 1, 2, 3, 5, 8, 9, 10, 11, 12, 13]
    machine.cpuinfo(online)
    machine.online("0-3,5,8-13")
    machine.write("sys/devices/system/cpu/offline", "4,6-7,14-15")
    machine.write("sys/devices/system/cpu/possible", "0-31")
    machine.cores([[0, 8], [1, 9], [2, 10], [3, 11]], 0)
    machine.cores([[12], [5, 13]], 1)
    machine.cell(0, "0-3,8-11", 16)
    machine.cell(1, "5,12-13", 16)


def snc(root: Path) -> None:
    """One socket that is cut into four cells (sub-NUMA clusters), and a device behind a 32-bit domain."""
    machine = Machine(root)
    machine.cpuinfo(range(16))
    machine.online("0-15")
    machine.cores(([core, core + 8] for core in range(8)), 0)
    for number in range(4):
        machine.cell(number, f"{2 * number}-{2 * number + 1},{2 * number + 8}-{2 * number + 9}", 32)
    machine.pci("10000:e1:00.0", "8086:0a54", "010802", 2, driver="nvme")
    machine.pci("0000:00:1f.0", "8086:a1c1", "060100")
    machine.pci("0000:02:00.0", "1a03:2000", "030000", 0, driver="ast")


def power9(root: Path) -> None:
    """ppc64le: four threads a core, one of them off in one, cells 0 and 8, GPU memory as a cell."""
    machine = Machine(root)
    machine.write("proc/sys/kernel/arch", "ppc64le")
    cpus = [cpu for cpu in range(32) if cpu != 7]
    stanza = "processor\t: {}\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n"
    machine.write("proc/cpuinfo", "\n".join(stanza.format(cpu) for cpu in cpus) + "\nplatform\t: PowerNV")
    machine.online("0-6,8-31")
    machine.cores([[0, 1, 2, 3], [4, 5, 6], [8, 9, 10, 11], [12, 13, 14, 15]], 0)
    machine.cores([range(core, core + 4) for core in range(16, 32, 4)], 8)
    machine.cell(0, "0-6,8-15", 128, {2048: 0, 1048576: 2})
    machine.cell(8, "16-31", 128, {2048: 100, 1048576: 0})
    machine.cell(255, "", 16)
    machine.pci("0004:04:00.0", "10de:1db1", "030200", 255, driver="nvidia")


def arm64(root: Path) -> None:
    """arm64: features that not all cpus have, 512 MB pages, no kernel/arch file."""
    machine = Machine(root)
    features = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid"
    stanzas = [f"processor\t: {cpu}\nBogoMIPS\t: 200.00\nFeatures\t: {features}\n" for cpu in range(3)]
    stanzas.append(f"processor\t: 3\nBogoMIPS\t: 200.00\nFeatures\t: {features} sve\n")
    machine.write("proc/cpuinfo", "\n".join(stanzas))
    machine.online("0-3")
    machine.cores([[0], [1], [2], [3]], -1)
    machine.cell(0, "0-3", 64, {524288: 8, 2048: 0, 64: 160})


def s390x(root: Path) -> None:
    """s390x: no PCI, no NUMA folder, 1 MB pages, one line for each processor."""
    machine = Machine(root)
    cpuinfo = [
        "vendor_id       : IBM/S390",
        "# processors    : 2",
        "features\t: esan3 zarch stfle msa ldisp eimm dfp edat etf3eh highgprs te vx",
        "processor 0: version = FF,  identification = 2733E8,  machine = 3906",
        "processor 1: version = FF,  identification = 2733E8,  machine = 3906",
    ]
    machine.write("proc/cpuinfo", "\n".join(cpuinfo))
    machine.memory(8, "HugePages_Total:      16\nHugepagesize:       1024 kB\n")


def linux_2_6(root: Path) -> None:
    """An old kernel: no lists, masks of siblings and cells, huge pages in meminfo, NICs by class alone."""
    machine = Machine(root)
    flags = "fpu mmx sse sse2 lm pni"
    machine.cpuinfo(range(4), flags)
    machine.write("sys/devices/system/cpu/cpu1/online", 1)
    machine.cores([[0, 2]], 0, masks=True)
    machine.cores([[1, 3]], 1, masks=True)
    machine.memory(8, "HugePages_Total:   256\nHugepagesize:     2048 kB\n")
    for number, mask in ((0, "00000005"), (1, "0000000a")):
        node = f"sys/devices/system/node/node{number}"
        machine.write(f"{node}/cpumap", mask)
        text = f"Node {number} MemTotal:   4194304 kB\nNode {number} HugePages_Total:   128\n"
        machine.write(f"{node}/meminfo", text)
    folder = machine.pci("0000:02:00.0", "8086:10fb", "020000", driver="ixgbe")
    (machine.root / folder / "numa_node").unlink()
    machine.write("sys/class/net/eth2/flags", "0x1003")
    machine.write("sys/class/net/eth2/speed", 10000)
    machine.link("sys/class/net/eth2/device", folder)


def every_kind(root: Path) -> None:
    """Two sockets with a PF of 8 VFs, a whole one, a GPU of two types of mediated devices and a whole one."""
    machine = _two_sockets(root)
    machine.pf("0000:3b:00.0", "ens1f0", 0, 8)
    machine.pf("0000:af:00.0", "ens2f0", 1, 0, speed=-1)
    gpu = machine.pci("0000:41:00.0", "10de:1eb8", "030200", 0, driver="nvidia")
    machine.mdev_type(gpu, "nvidia-222", 3, ["83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"])
    machine.mdev_type(gpu, "nvidia-223", 2)
    machine.pci("0000:c1:00.0", "10de:20b2", "030200", 1, driver="vfio-pci")


def sriov_gpus(root: Path) -> None:
    """GPUs that are cut by SR-IOV: VFs with mediated devices, of which the GPU has fewer, and VFs as they
    are."""
    machine = _two_sockets(root)
    gpu = machine.pci("0000:41:00.0", "10de:2235", "030200", 0, driver="nvidia")
    machine.write(f"{gpu}/sriov_totalvfs", 32)
    machine.write(f"{gpu}/sriov_numvfs", 4)
    flex = machine.pci("0000:c1:00.0", "8086:56c0", "038000", 1, driver="i915")
    machine.write(f"{flex}/sriov_totalvfs", 31)
    machine.write(f"{flex}/sriov_numvfs", 2)
    for number in range(4):
        vf = machine.pci(f"0000:41:00.{number + 4}", "10de:2235", "030200", 0, driver="nvidia")
        machine.link(f"{vf}/physfn", gpu)
        machine.mdev_type(vf, "nvidia-557", 1, (), "num_heads=1, max_instance=3")
    for number in range(2):
        vf = machine.pci(f"0000:c1:00.{number + 1}", "8086:56c0", "038000", 1, driver="vfio-pci")
        machine.link(f"{vf}/physfn", flex)


TREES: Final[dict[str, Callable[[Path], None]]] = {
    tree.__name__: tree
    for tree in (
        two_pfs,
        whole_pf,
        eight_gpus,
        two_mdev_types,
        no_numa,
        cell_without_memory,
        hole_in_cpus,
        snc,
        power9,
        arm64,
        s390x,
        linux_2_6,
        sriov_gpus,
    )
}

"""PCI devices: class, vendor and product, driver, cell, and which functions are VFs of which.

A VF belongs to its PF if either of them says so (``physfn``, ``virtfnN``), and to none if two claim it; the
number of VFs alone (``sriov_numvfs``) names none, but says that the device is not whole. Domains have four
digits or more (10000: behind some Intel controllers).
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from berth.agent.discovery.mdevs import MdevType, read_mdev_types
from berth.agent.discovery.sysroot import ID_MAX, SysFolder, Sysroot, Unusable, is_word, shorten

FOLDER: Final = "sys/bus/pci/devices"
ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VIRTFN: Final = re.compile(r"virtfn[0-9]{1,5}")
_VFS_MAX: Final = 65_535

NETWORK: Final = "02"
DISPLAY: Final = "03"
BRIDGE: Final = "06"
ACCELERATOR: Final = "12"


class PciDevice(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="pci",
    rename={"class_code": "class"},
    omit_defaults=True,
):
    """``class_code``, ``vendor`` and ``product`` in hexadecimal, of 6, 4 and 4 digits. ``node``: None if it
    is not known. ``vfs_max`` is 0 for what cannot have VFs."""

    address: str
    class_code: str
    vendor: str
    product: str
    driver: str | None = None
    node: int | None = None
    pf: str | None = None
    """Of a VF: the address of its PF."""
    vfs_max: int = 0
    vfs: tuple[str, ...] = ()
    """Of a PF: the addresses of its VFs."""
    vfs_claimed: int = 0
    """How many VFs it says that it has. If they are not found, it is neither whole nor can they be used."""
    is_boot_display: bool = False
    has_rdma: bool = False
    mdev_types: tuple[MdevType, ...] = ()

    @property
    def kind_of_class(self) -> str:
        return self.class_code[:2]

    @property
    def id(self) -> str:
        return f"{self.vendor}:{self.product}"


def read_pci_devices(sysroot: Sysroot) -> dict[str, PciDevice]:
    """All PCI devices, by address."""
    found = {device.address: device for device in sysroot.collect(_read_devices(sysroot))}
    claims: dict[str, set[str]] = {}
    """The PFs of each VF."""
    for device in found.values():
        if device.pf is not None:
            claims.setdefault(device.address, set()).add(device.pf)
        for vf in device.vfs:
            claims.setdefault(vf, set()).add(device.address)
    vfs: dict[str, list[str]] = {}
    for vf in sorted(claims.keys() & found.keys()):
        pf = min(claims[vf])
        if len(claims[vf]) == 1 and pf in found:
            vfs.setdefault(pf, []).append(vf)
        elif len(claims[vf]) == 1:
            sysroot.leave_out(f"{FOLDER}/{vf}", f"it is a VF of {pf}, which is not among the devices")
        else:
            sysroot.leave_out(f"{FOLDER}/{vf}", f"it is a VF of {' and of '.join(sorted(claims[vf]))}")
    linked = {}
    for address, device in found.items():
        own = tuple(vfs.get(address, ()))
        own_pf = min(claims[address]) if address in claims else None
        linked[address] = msgspec.structs.replace(device, pf=own_pf, vfs=own)
        if device.vfs_claimed > len(own):
            said = f"it says that it has {device.vfs_claimed} VFs, and {len(own)} were found"
            sysroot.leave_out(f"{FOLDER}/{address}", said)
    return linked


def _read_devices(sysroot: Sysroot) -> Iterator[PciDevice]:
    for folder, name in sysroot.entries(FOLDER):
        try:
            if ADDRESS.fullmatch(name) is None:
                raise Unusable(folder.join(name), "this is not a PCI address")
            device = folder.folder(name)
            if device is None:
                raise Unusable(folder.join(name), "the link leads nowhere")
            yield _read_device(sysroot, device, name)
        except Unusable as error:
            sysroot.leave_out(error.path, error.reason)


def _read_device(sysroot: Sysroot, folder: SysFolder, address: str) -> PciDevice:
    names = frozenset(folder.names())
    links = tuple(_read_address(folder, name) for name in sorted(names) if _VIRTFN.fullmatch(name))
    claimed = folder.number("sriov_numvfs", 0, _VFS_MAX) if "sriov_numvfs" in names else None
    node = sysroot.attempt(lambda: folder.number("numa_node", -1, ID_MAX))
    return PciDevice(
        address=address,
        class_code=_read_digits(folder, "class", 6),
        vendor=_read_digits(folder, "vendor", 4),
        product=_read_digits(folder, "device", 4),
        driver=_read_driver(folder) if "driver" in names else None,
        node=None if node == -1 else node,
        pf=_read_address(folder, "physfn") if "physfn" in names else None,
        vfs_max=folder.number("sriov_totalvfs", 0, _VFS_MAX) or 0 if "sriov_totalvfs" in names else 0,
        vfs=links,
        vfs_claimed=max(claimed or 0, len(links)),
        is_boot_display="boot_vga" in names and folder.number("boot_vga", 0, 1) == 1,
        has_rdma="infiniband" in names,
        mdev_types=read_mdev_types(sysroot, folder, address),
    )


def _read_driver(folder: SysFolder) -> str | None:
    """The driver says whether the host may use the device: one that cannot be read spoils all of it."""
    driver = folder.link("driver")
    if driver is not None and not is_word(driver):
        raise Unusable(folder.join("driver"), f"{shorten(driver)} is not a name")
    return driver


def _read_digits(folder: SysFolder, name: str, digits: int) -> str:
    number = folder.hex(name, 16**digits - 1)
    if number is None:
        raise Unusable(folder.join(name), "it is missing: the device is not known")
    return f"{number:0{digits}x}"


def _read_address(folder: SysFolder, name: str) -> str:
    address = folder.link(name)
    if address is None or ADDRESS.fullmatch(address) is None:
        raise Unusable(folder.join(name), "the link does not lead to a PCI device")
    return address

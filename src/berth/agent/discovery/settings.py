"""Settings of discovery. They are read like those of a region: from a TOML file and from options."""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Final

import msgspec

from berth.agent.discovery.pci import ADDRESS, PciDevice
from berth.agent.discovery.sysroot import is_word, read_ids
from berth.model.placement import AMOUNT_MAX
from berth.runtime.settings import About, read_table

LIST_MAX: Final = 1_000
"""Entries of a list."""
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ID: Final = re.compile(r"[0-9a-f]{4}:([0-9a-f]{4}|\*)")
_CLASS: Final = re.compile(r"0x([0-9a-f]{2}){1,3}")
_MEMORY: Final = re.compile(r"([0-9]{1,5}=)?[0-9]{1,10}")
_DEVICES_ARE: Final = (
    "a device is vendor:product (8086:1572, 10de:*), an address (0000:3b:00.0) or the beginning of a class "
    "(0x0302), in small letters"
)


def is_host_name(text: str) -> bool:
    return _HOST_NAME.fullmatch(text) is not None


def _check_host_name(value: str) -> str | None:
    return None if is_host_name(value) else "a name has 1 to 100 letters, digits, '.', '_' and '-'"


def _check_cpus(value: str) -> str | None:
    return None if read_ids(value) else "expected numbers of cpus, each once, such as 2-7,34-39"


def _each(check: Callable[[str], bool], expected: str) -> Callable[[tuple[str, ...]], str | None]:
    def check_list(value: tuple[str, ...]) -> str | None:
        if len(value) > LIST_MAX:
            return f"{len(value)} entries are more than {LIST_MAX}"
        wrong = next((entry for entry in value if not check(entry)), None)
        if wrong is not None:
            return f"{wrong!r} is not understood: {expected}"
        keys = [entry.partition("=")[0] for entry in value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        return None if twice is None else f"{twice!r} is there twice"

    return check_list


def _is_device(entry: str) -> bool:
    return any(pattern.fullmatch(entry) for pattern in (_ID, ADDRESS, _CLASS))


def _is_memory(entry: str) -> bool:
    return _MEMORY.fullmatch(entry) is not None and int(entry.rpartition("=")[2]) <= AMOUNT_MAX


def _is_physnet(entry: str) -> bool:
    nic, _, name = entry.partition("=")
    return is_word(nic) and is_word(name)


def _is_mdev_type(entry: str) -> bool:
    address, _, type = entry.partition("=")
    return ADDRESS.fullmatch(address) is not None and is_word(type)


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    sysroot: Annotated[
        str, About("folder with the machine's sys and proc, or a copy of them", metavar="DIR")
    ] = "/"
    host_name: Annotated[
        str | None, About("name of the host; if unset, the machine's own", check=_check_host_name)
    ] = None
    dedicated_cpus: Annotated[
        str | None,
        About(
            "cpus that servers get for themselves, as PCPU; all others are VCPU",
            check=_check_cpus,
            metavar="LIST",
        ),
    ] = None
    reserved_cpus: Annotated[
        str | None,
        About("cpus of the host's own, which are neither PCPU nor VCPU", check=_check_cpus, metavar="LIST"),
    ] = None
    reserved_memory_mb: Annotated[
        tuple[str, ...],
        About(
            "MiB of memory of the host's own, as CELL=MIB for NUMA cells; MIB alone on a host without NUMA "
            "information",
            check=_each(_is_memory, "expected CELL=MIB, such as 0=4096"),
        ),
    ] = ()
    disk_gb: Annotated[
        int | None,
        About(
            "GiB of disk for servers; if unset, the size of the file system of the agent's folder, and with "
            "another sysroot that of all disks that are not removable",
            1,
            AMOUNT_MAX,
        ),
    ] = None
    devices_allowed: Annotated[
        tuple[str, ...],
        About(
            "PCI devices to report besides SR-IOV NICs and GPUs, by vendor:product, address or class",
            check=_each(_is_device, _DEVICES_ARE),
        ),
    ] = ()
    devices_denied: Annotated[
        tuple[str, ...],
        About(
            "PCI devices never to report, named in the same way, even if they are allowed",
            check=_each(_is_device, _DEVICES_ARE),
        ),
    ] = ()
    physnets: Annotated[
        tuple[str, ...],
        About(
            "physical networks of NICs, as NIC=NETWORK; a NIC is an interface or an address",
            check=_each(_is_physnet, "expected NIC=NETWORK, such as ens1f0=physnet1"),
        ),
    ] = ()
    mdev_types: Annotated[
        tuple[str, ...],
        About(
            "types of mediated devices to make, as ADDRESS=TYPE; a device without an entry offers the type "
            "that is in use, or the first by name",
            check=_each(_is_mdev_type, "expected ADDRESS=TYPE, such as 0000:41:00.0=nvidia-35"),
        ),
    ] = ()
    provider_config: Annotated[
        str | None,
        About("folder of provider.yaml files with custom resource classes and traits", metavar="DIR"),
    ] = None


TABLE: Final = read_table(DiscoverySettings)


def conflicts(settings: DiscoverySettings) -> str | None:
    """Why these settings do not go together; None if they do."""
    both = sorted(read_cpus_set(settings.dedicated_cpus) & read_cpus_set(settings.reserved_cpus))
    if both:
        return f"dedicated_cpus, reserved_cpus: cpu {both[0]} cannot be both"
    return None


def read_cpus_set(text: str | None) -> frozenset[int]:
    return read_ids(text or "") or frozenset()


def matches(device: PciDevice, entries: Iterable[str]) -> bool:
    """Whether a list of devices names this one."""
    return any(
        entry in (device.id, device.address, f"{device.vendor}:*")
        or (entry.startswith("0x") and device.class_code.startswith(entry[2:]))
        for entry in entries
    )


def read_pairs(entries: tuple[str, ...]) -> dict[str, str]:
    """KEY=VALUE entries; of one without a key, the key is empty."""
    pairs = (entry.rpartition("=") for entry in entries)
    return {key: value for key, _, value in pairs}

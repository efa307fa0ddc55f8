"""Every extra spec of a flavor and every property of an image that Nova knows: used, passed on or refused.

Nothing that is asked for is ignored. A key is one of three things:

* *used*: it decides where a server may be;
* *passed to the driver*: it changes nothing about where, and reaches the driver with flavor and image;
* *refused* by its name, because Berth does not implement it.

Unknown keys of Nova's namespaces are refused as well. Other names are free: an extra spec of another
namespace (``site:rack``) goes to the driver with the flavor, another property of an image stays with the
image. An extra spec without a namespace is refused because it is ambiguous: one of Nova's filters looks for
it in aggregates and another one at the host.

A test compares this table with the list of Nova 34 (tests/unit/names), and docs/guides/extra-specs.md is
generated from it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, NamedTuple

from berth.model.placement import AMOUNT_MAX, STANDARD_CLASSES, STANDARD_TRAITS, is_custom_name
from berth.model.rejections import SpecInvalid
from berth.scheduler.devices import ALIASES_WORDS, read_aliases
from berth.scheduler.hosts import wrong_comparison
from berth.scheduler.topology import (
    CELLS_MAX,
    CPU_LIST_WORDS,
    CPUS_MAX,
    PAGE_SIZES_WORDS,
    read_cpu_list,
    read_page_sizes,
)

VALUE_LENGTH_MAX: Final = 255
METADATA_SCOPE: Final = "aggregate_instance_extra_specs:"
DISK_KEY: Final = "berth:disk"
DISK_PLACES: Final = ("local", "pool")
_INTEGER_MAX: Final = 2**63 - 1
_SHOWN_MAX: Final = 100


class Fate(StrEnum):
    USED = "used"
    PASSED = "passed to the driver"
    REFUSED = "refused"


class SpecValues(NamedTuple):
    """Which values a key may have, in words and as a test."""

    accepted: str
    are: Callable[[str], bool]


class SpecRow(NamedTuple):
    """Keys that are treated alike. ``{N}`` and the like stand for the variable part of a key. ``words`` say
    what it is used for, or why it is refused; a refused key has no valid ``values``."""

    keys: tuple[str, ...]
    fate: Fate
    words: str
    values: SpecValues


# -- values -------------------------------------------------------------------------------------

_TRUE: Final = ("1", "t", "true", "on", "y", "yes")
_FALSE: Final = ("0", "f", "false", "off", "n", "no")
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def _number(least: int, most: int = _INTEGER_MAX) -> SpecValues:
    words = f"a whole number from {least} to {most}"
    return SpecValues(words, lambda text: _WHOLE.fullmatch(text) is not None and least <= int(text) <= most)


def _one_of(*names: str) -> SpecValues:
    return SpecValues(names[0] if len(names) == 1 else f"one of {', '.join(names)}", names.__contains__)


_FLAG: Final = SpecValues("true or false", lambda text: text.strip().lower() in _TRUE + _FALSE)
_TEXT: Final = SpecValues(
    f"a text of 1 to {VALUE_LENGTH_MAX} characters", lambda text: 1 <= len(text) <= VALUE_LENGTH_MAX
)
_ANY: Final = SpecValues("anything", lambda text: True)

# -- architectures and hypervisors --------------------------------------------------------------

_ARCHITECTURE_NAMES: Final = {"amd64": "x86_64", "i386": "i686", "i486": "i686", "i586": "i686"}
"""Other names of architectures."""

ARCHITECTURES: Final = {
    {"armv7": "armv7l"}.get(name, name): f"HW_ARCH_{name.upper()}"
    for trait in sorted(STANDARD_TRAITS)
    if trait.startswith("HW_ARCH_")
    for name in [trait.removeprefix("HW_ARCH_").lower()]
}
"""Architectures as libvirt and Nova call them, and the trait of a host that has it."""

HYPERVISORS: Final = (
    "baremetal",
    "bhyve",
    "docker",
    "fake",
    "hyperv",
    "ironic",
    "kqemu",
    "kvm",
    "lxc",
    "lxd",
    "openvz",
    "parallels",
    "phyp",
    "prsm",
    "qemu",
    "test",
    "uml",
    "vbox",
    "vmware",
    "vz",
    "xen",
    "zvm",
)

_ARCHITECTURE: Final = SpecValues(
    f"one of {', '.join(sorted(ARCHITECTURES))}", lambda text: _architecture(text) in ARCHITECTURES
)
_HYPERVISOR: Final = SpecValues(f"one of {', '.join(HYPERVISORS)}", lambda text: text.lower() in HYPERVISORS)


def _architecture(text: str) -> str:
    return _ARCHITECTURE_NAMES.get(text.lower(), text.lower())


# -- extra specs --------------------------------------------------------------------------------


def _used(key: str, words: str, values: SpecValues) -> SpecRow:
    return SpecRow((key,), Fate.USED, words, values)


def _passed(values: SpecValues, words: str, *keys: str) -> SpecRow:
    return SpecRow(keys, Fate.PASSED, words, values)


def _refused(words: str, *keys: str) -> SpecRow:
    return SpecRow(keys, Fate.REFUSED, words, _ANY)


_REQUIRED: Final = _one_of("required", "forbidden")
_CPU_POLICY: Final = _one_of("shared", "dedicated", "mixed")
_CPU_POLICY_WORDS: Final = "whether cpus are shared (VCPU), dedicated (PCPU), or mixed"
_THREAD_POLICY: Final = _one_of("prefer", "isolate", "require")
_THREAD_POLICY_WORDS: Final = (
    "whether dedicated cpus are threads of cores (require), of hosts without threads (isolate), or either"
)
_EMULATOR_POLICY: Final = _one_of("isolate", "share")
_NUMA_NODES: Final = _number(1, CELLS_MAX)
_NUMA_NODES_WORDS: Final = "the number of the guest's NUMA cells, each on another NUMA cell of the host"
_PAGE_SIZE: Final = SpecValues(PAGE_SIZES_WORDS, lambda text: bool(read_page_sizes(text)))
_PAGE_SIZE_WORDS: Final = "the pages that the guest's memory is made of"
_PCI_POLICY: Final = _one_of("required", "preferred", "legacy", "socket")
_PCI_POLICY_WORDS: Final = (
    "whether devices are below the NUMA cells of the guest, or on a socket with them (socket)"
)
_CPU_LIST: Final = SpecValues(CPU_LIST_WORDS, lambda text: bool(read_cpu_list(text, frozenset((CPUS_MAX,)))))

EXTRA_SPECS: Final = (
    _used("resources{group}:{CLASS}", "amount of a resource class; 0 for none", _number(0, AMOUNT_MAX)),
    _used(
        "trait{group}:{TRAIT}", "a trait that a provider of the group must have, or must not have", _REQUIRED
    ),
    _used(
        "group_policy",
        "whether numbered groups may share a provider; needed where there is more than one",
        _one_of("none", "isolate"),
    ),
    _used(
        "same_subtree{suffix}",
        "comma-separated numbered groups whose providers must be in one subtree",
        SpecValues("comma-separated names of numbered groups", lambda text: bool(suffixes_in(text))),
    ),
    _used(
        METADATA_SCOPE + "{key}",
        "what the metadata of the host's aggregates must have: a value, or a comparison such as `>= 5`",
        SpecValues(
            "a text, or a comparison such as >= 5 or <or> a <or> b", lambda text: not wrong_comparison(text)
        ),
    ),
    _used(
        DISK_KEY,
        "where the disk is: on the host itself (`local`), or in a pool that the host can use (`pool`)",
        _one_of(*DISK_PLACES),
    ),
    _passed(_number(0), "share of CPU time", "quota:cpu_shares", "quota:cpu_period"),
    _passed(_number(-_INTEGER_MAX), "limit of CPU time; negative for none", "quota:cpu_quota"),
    _passed(
        _number(0),
        "limits of disks",
        *(
            f"quota:disk_{what}_{unit}_sec"
            for what in ("read", "write", "total")
            for unit in ("bytes", "iops")
        ),
    ),
    _passed(
        _number(0),
        "limits of network interfaces",
        *(
            f"quota:vif_{way}_{what}"
            for way in ("inbound", "outbound")
            for what in ("average", "peak", "burst")
        ),
    ),
    _passed(_FLAG, "whether there may be a random number device", "hw_rng:allowed"),
    _passed(_number(0), "limits of the random number device", "hw_rng:rate_bytes", "hw_rng:rate_period"),
    _passed(_number(0), "how much video memory an image may ask for, in MB", "hw_video:ram_max_mb"),
    _used("hw:cpu_policy", _CPU_POLICY_WORDS, _CPU_POLICY),
    _used("hw:cpu_dedicated_mask", "which cpus of a mixed guest are dedicated", _CPU_LIST),
    _used("hw:cpu_thread_policy", _THREAD_POLICY_WORDS, _THREAD_POLICY),
    _used(
        "hw:emulator_threads_policy",
        "isolate: one more PCPU, for the emulator; share: none, and the driver runs it on shared cpus",
        _EMULATOR_POLICY,
    ),
    _used("hw:numa_nodes", _NUMA_NODES_WORDS, _NUMA_NODES),
    _used("hw:numa_cpus.{N}", "the cpus of a guest cell", _CPU_LIST),
    _used("hw:numa_mem.{N}", "the memory of a guest cell in MB", _number(1, AMOUNT_MAX)),
    _used("hw:mem_page_size", _PAGE_SIZE_WORDS, _PAGE_SIZE),
    _used("hw:pci_numa_affinity_policy", _PCI_POLICY_WORDS, _PCI_POLICY),
    _used(
        "pci_passthrough:alias",
        "devices by the names of the setting `pci_aliases`, each with a number",
        SpecValues(ALIASES_WORDS, lambda text: bool(read_aliases(text))),
    ),
    _used("accel:device_profile", "devices by a name of the setting `device_profiles`", _TEXT),
    _refused("realtime cpus are not implemented", "hw:cpu_realtime", "hw:cpu_realtime_mask"),
    _refused("locked memory is not implemented", "hw:locked_memory"),
    _refused(
        "guest CPU topology is not implemented",
        *(f"hw:cpu_{limit}{part}" for limit in ("", "max_") for part in ("sockets", "cores", "threads")),
    ),
    _refused("memory encryption is not implemented", "hw:mem_encryption", "hw:mem_encryption_model"),
    _refused("persistent memory is not implemented", "hw:pmem"),
    _refused("virtual TPM is not implemented", "hw:tpm_model", "hw:tpm_version", "hw:tpm_secret_security"),
    _refused(
        "encryption of ephemeral disks is not implemented",
        "hw:ephemeral_encryption",
        "hw:ephemeral_encryption_format",
    ),
    _refused(
        "configuration of guest devices is not implemented",
        "hw:boot_menu",
        "hw:hide_hypervisor_id",
        "hw:pmu",
        "hw:redirected_usb_ports",
        "hw:serial_port_count",
        "hw:sound_model",
        "hw:usb_model",
        "hw:vif_multiqueue_enabled",
        "hw:viommu_model",
        "hw:virtio_packed_ring",
        "hw:watchdog_action",
        "hide_hypervisor_id",
    ),
    _refused("secure boot is not implemented", "os:secure_boot"),
    _refused(
        f"capabilities of compute services are not used; use trait: or {METADATA_SCOPE}",
        "capabilities:{name}",
    ),
    _refused("there is no VMware driver", "vmware:hw_version", "vmware:storage_policy"),
    _refused(
        "there is no VMware driver",
        *(
            f"quota:{what}_{how}"
            for what in ("cpu", "memory", "disk_io", "vif")
            for how in ("limit", "reservation", "shares_level", "shares_share")
        ),
    ),
)

# -- image properties ---------------------------------------------------------------------------

OLD_NAMES: Final = {
    "architecture": "hw_architecture",
    "auto_disk_config": "hw_auto_disk_config",
    "bdm_v2": "img_bdm_v2",
    "bittorrent": "img_bittorrent",
    "block_device_mapping": "img_block_device_mapping",
    "cache_in_nova": "img_cache_in_nova",
    "hypervisor_type": "img_hv_type",
    "hypervisor_version_requires": "img_hv_requested_version",
    "ipxe_boot": "hw_ipxe_boot",
    "mappings": "img_mappings",
    "owner_id": "img_owner_id",
    "root_device_name": "img_root_device_name",
    "vm_mode": "hw_vm_mode",
    "vmware_disktype": "hw_disk_type",
    "vmware_image_version": "img_version",
    "vmware_linked_clone": "img_linked_clone",
    "vmware_ostype": "os_distro",
    "xenapi_device_id": "hw_device_id",
    "xenapi_image_compression_level": "img_compression_level",
    "xenapi_skip_agent_inject_files_at_boot": "os_skip_agent_inject_files_at_boot",
    "xenapi_skip_agent_inject_ssh": "os_skip_agent_inject_ssh",
    "xenapi_use_agent": "img_use_agent",
}
"""Old names of properties, which are still accepted."""

_BUS: Final = _one_of("fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml")

IMAGE_PROPERTIES: Final = (
    _used("trait:{TRAIT}", "a trait that the host must have", _one_of("required")),
    _used("hw_architecture", "the host's trait HW_ARCH_... must be of this architecture", _ARCHITECTURE),
    _used("img_hv_type", "the driver of the host must run guests of this hypervisor", _HYPERVISOR),
    _passed(_BUS, "the bus of a disk", "hw_disk_bus", "hw_cdrom_bus", "hw_floppy_bus", "hw_rescue_bus"),
    _passed(_one_of("cdrom", "disk", "floppy", "fs", "lun"), "the kind of a rescue disk", "hw_rescue_device"),
    _passed(
        _one_of("buslogic", "ibmvscsi", "lsilogic", "lsisas1068", "lsisas1078", "virtio-scsi", "vmpvscsi"),
        "the model of the SCSI controller",
        "hw_scsi_model",
    ),
    _passed(
        _one_of(
            "virtio",
            "ne2k_pci",
            "pcnet",
            "rtl8139",
            "e1000",
            "e1000e",
            "igb",
            "lan9118",
            "netfront",
            "spapr-vlan",
            "vmxnet",
            "vmxnet3",
        ),
        "the model of network interfaces",
        "hw_vif_model",
    ),
    _passed(
        _one_of("bochs", "cirrus", "gop", "none", "qxl", "vga", "virtio", "vmvga", "xen"),
        "the model of the video device",
        "hw_video_model",
    ),
    _passed(_number(0), "video memory in MB", "hw_video_ram"),
    _passed(_one_of("usb", "virtio"), "the bus of the pointer", "hw_input_bus"),
    _passed(_one_of("usbtablet"), "the model of the pointer", "hw_pointer_model"),
    _passed(_one_of("virtio"), "the model of the random number device", "hw_rng_model"),
    _passed(_TEXT, "the machine type", "hw_machine_type"),
    _passed(_one_of("bios", "uefi"), "the firmware", "hw_firmware_type"),
    _passed(_one_of("hvm"), "the mode of the guest", "hw_vm_mode"),
    _passed(_FLAG, "whether the guest has an agent", "hw_qemu_guest_agent", "os_require_quiesce"),
    _passed(_FLAG, "whether the guest has a HPET", "hw_time_hpet"),
    _passed(_one_of("optional"), "whether a config drive is required; none is created", "img_config_drive"),
    _passed(_one_of("linux", "windows"), "the family of the operating system", "os_type"),
    _passed(
        _TEXT,
        "facts about the image",
        "os_distro",
        "os_version",
        "os_admin_user",
        "os_command_line",
        "img_owner_id",
        "img_root_device_name",
    ),
    _refused("write trait:NAME = required", "traits_required"),
    _used("hw_cpu_policy", _CPU_POLICY_WORDS, _CPU_POLICY),
    _used("hw_cpu_thread_policy", _THREAD_POLICY_WORDS, _THREAD_POLICY),
    _used("hw_numa_nodes", _NUMA_NODES_WORDS, _NUMA_NODES),
    _used("hw_numa_cpus.{N}", "the cpus of a guest cell", _CPU_LIST),
    _used("hw_numa_mem.{N}", "the memory of a guest cell in MB", _number(1, AMOUNT_MAX)),
    _used("hw_mem_page_size", f"{_PAGE_SIZE_WORDS}, where the flavor says large or any", _PAGE_SIZE),
    _used("hw_pci_numa_affinity_policy", _PCI_POLICY_WORDS, _PCI_POLICY),
    _refused("write one for each cell, with .N", "hw_numa_cpus", "hw_numa_mem"),
    _refused("realtime cpus are not implemented", "hw_cpu_realtime_mask"),
    _refused("locked memory is not implemented", "hw_locked_memory"),
    _refused(
        "guest CPU topology is not implemented",
        *(f"hw_cpu_{limit}{part}" for limit in ("", "max_") for part in ("sockets", "cores", "threads")),
    ),
    _refused(
        "the guest's physical address size is not implemented", "hw_maxphysaddr_mode", "hw_maxphysaddr_bits"
    ),
    _refused("memory encryption is not implemented", "hw_mem_encryption", "hw_mem_encryption_model"),
    _refused("virtual TPM is not implemented", "hw_tpm_model", "hw_tpm_version"),
    _refused(
        "encryption of ephemeral disks is not implemented",
        "hw_ephemeral_encryption",
        "hw_ephemeral_encryption_format",
        "hw_ephemeral_encryption_secret_uuid",
    ),
    _refused(
        "configuration of guest devices is not implemented",
        "hw_boot_menu",
        "hw_firmware_stateless",
        "hw_pmu",
        "hw_redirected_usb_ports",
        "hw_serial_port_count",
        "hw_sound_model",
        "hw_usb_model",
        "hw_vif_multiqueue_enabled",
        "hw_viommu_model",
        "hw_virtio_packed_ring",
        "hw_watchdog_action",
        "img_hide_hypervisor_id",
    ),
    _refused("emulation of another architecture is not implemented", "hw_emulation_architecture"),
    _refused("secure boot is not implemented", "os_secure_boot"),
    _refused("the hypervisor version of hosts is not known", "img_hv_requested_version"),
    _refused("volumes are not implemented", "img_block_device_mapping", "img_mappings", "img_bdm_v2"),
    _refused("a kernel or ramdisk apart from the image is not implemented", "kernel_id", "ramdisk_id"),
    _refused(
        "signatures of images are not verified",
        "img_signature",
        "img_signature_certificate_uuid",
        "img_signature_hash_method",
        "img_signature_key_type",
    ),
    _refused(
        "there is no VMware driver",
        "hw_disk_type",
        "img_linked_clone",
        "img_version",
        "vmware_adaptertype",
    ),
    _refused(
        "there is no Xen driver",
        "hw_auto_disk_config",
        "hw_device_id",
        "hw_ipxe_boot",
        "img_bittorrent",
        "img_cache_in_nova",
        "img_compression_level",
        "img_use_agent",
        "os_skip_agent_inject_files_at_boot",
        "os_skip_agent_inject_ssh",
    ),
)

# -- looking up ---------------------------------------------------------------------------------

_SUFFIX: Final = "[a-zA-Z0-9_-]{0,64}"
_PARTS: Final = {
    "{group}": _SUFFIX,
    "{CLASS}": "[A-Z][A-Z0-9_]{0,254}",
    "{TRAIT}": "[A-Z][A-Z0-9_]{0,254}",
    "{suffix}": "[0-9]{0,9}",
    "{N}": "(0|[1-9][0-9]{0,8})",
    "{key}": ".+",
    "{name}": ".+",
}
"""The variable parts of keys."""

_OWN_NAMESPACES: Final = re.compile(
    "(berth|hw|hw_rng|hw_video|os|quota|accel|pci_passthrough|capabilities|vmware"
    "|aggregate_instance_extra_specs|resources.*|trait.*|same_subtree.*):.*",
    re.DOTALL,
)
_OWN_PREFIXES: Final = ("hw_", "img_", "os_", "trait:", "traits_")


class _Index:
    """The rows of a table by key."""

    def __init__(self, rows: Iterable[SpecRow]) -> None:
        self._rows = {key: row for row in rows for key in row.keys}
        self._patterns = [(_pattern(key), row) for key, row in self._rows.items() if "{" in key]

    def row(self, key: str) -> SpecRow | None:
        found = self._rows.get(key) if "{" not in key else None
        return found or next((row for pattern, row in self._patterns if pattern.fullmatch(key)), None)

    def find_similar(self, key: str) -> str:
        """The key that is used and most like this one, as the end of a sentence."""
        usable = [name for name, row in self._rows.items() if row.fate is not Fate.REFUSED]
        found = get_close_matches(key[:_SHOWN_MAX], usable, 1, 0.8)
        return f"; the most similar one is {found[0]}" if found else ""


def _pattern(key: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", key)
    return re.compile("".join(_PARTS.get(part, re.escape(part)) for part in parts), re.DOTALL)


_SPEC_INDEX: Final = _Index(EXTRA_SPECS)
_PROPERTY_INDEX: Final = _Index(IMAGE_PROPERTIES)


def extra_spec(key: str) -> SpecRow | None:
    """The row of an extra spec; None if the key belongs to no namespace of Nova or Berth."""
    return _SPEC_INDEX.row(key)


def image_property(key: str) -> SpecRow | None:
    return _PROPERTY_INDEX.row(OLD_NAMES.get(key, key))


# -- judging ------------------------------------------------------------------------------------


def wrong_extra_spec(specs: Mapping[str, str]) -> SpecInvalid | None:
    """The first extra spec that is refused, or whose value is not valid."""
    for key, value in specs.items():
        row = extra_spec(key)
        if row is None:
            if _OWN_NAMESPACES.fullmatch(key):
                accepted = f"left out: there is no such extra spec{_SPEC_INDEX.find_similar(key)}"
                return _invalid(key, value, accepted)
            if ":" not in key:
                return _invalid(
                    key, value, f"left out, or written as {METADATA_SCOPE}{key} to match aggregates"
                )
            continue
        wrong = _wrong(row, key, value)
        if wrong is not None:
            return wrong
    return _wrong_groups(specs)


def wrong_image_property(properties: Mapping[str, str]) -> SpecInvalid | None:
    """The first property of an image that is refused, or whose value is not valid."""
    for key, value in properties.items():
        row = image_property(key)
        if row is None:
            if key.startswith(_OWN_PREFIXES):
                accepted = (
                    f"left out: there is no such property of an image{_PROPERTY_INDEX.find_similar(key)}"
                )
                return _invalid(key, value, accepted)
            continue
        wrong = _wrong(row, key, value)
        if wrong is not None:
            return wrong
        name = OLD_NAMES.get(key, key)
        if properties.get(name, value) != value:
            return _invalid(key, value, f"the same as {name}, or left out")
    return None


def _invalid(key: str, value: str, accepted: str) -> SpecInvalid:
    """A rejection with the value cut to a readable length."""
    return SpecInvalid(key, value[:_SHOWN_MAX], accepted)


def _wrong(row: SpecRow, key: str, value: str) -> SpecInvalid | None:
    if row.fate is Fate.REFUSED:
        return _invalid(key, value, f"left out: {row.words}")
    if not row.values.are(value):
        return _invalid(key, value, row.values.accepted)
    scope, _, name = key.partition(":")
    known = STANDARD_CLASSES if scope.startswith("resources") else STANDARD_TRAITS
    if scope.startswith(("resources", "trait")) and name not in known and not is_custom_name(name):
        what = "resource class" if scope.startswith("resources") else "trait"
        return _invalid(key, value, f"of a {what} that is standard or begins with CUSTOM_")
    return None


def _wrong_groups(specs: Mapping[str, str]) -> SpecInvalid | None:
    """What Placement would refuse about the groups as a whole."""
    groups = {suffix for key, value in specs.items() if (suffix := suffix_of(key)) and int(value)}
    for key, value in specs.items():
        unknown = suffixes_in(value) - groups if key.startswith("same_subtree") else ()
        if unknown:
            there = f"of {', '.join(sorted(groups))}" if groups else "and there are none"
            return _invalid(key, value, f"names of groups that ask for resources, {there}")
    if len(groups) > 1 and "group_policy" not in specs:
        return _invalid(
            "group_policy", "not given", f"none or isolate, because there are {len(groups)} numbered groups"
        )
    return None


# -- reading ------------------------------------------------------------------------------------

_RESOURCES_KEY: Final = re.compile(f"resources({_SUFFIX}):.*", re.DOTALL)
_SUFFIX_LIST: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}(\s*,\s*[a-zA-Z0-9_-]{1,64}){0,63}")


def suffix_of(key: str) -> str | None:
    """The suffix of the group that a key asks for resources of; None for other keys."""
    match = _RESOURCES_KEY.fullmatch(key)
    return None if match is None else match.group(1)


def suffixes_in(value: str) -> frozenset[str]:
    """The groups that a value names; none if it cannot be read."""
    if _SUFFIX_LIST.fullmatch(value.strip()) is None:
        return frozenset()
    return frozenset(name.strip() for name in value.split(","))


def read_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of an image that are used or passed on, each under its current name and with one
    spelling of its value. Refused ones are left out: images from before this table may have them."""
    found = {}
    for key, value in sorted(properties.items(), key=lambda item: item[0] not in OLD_NAMES):
        row = image_property(key)
        if row is not None and row.fate is not Fate.REFUSED and row.values.are(value):
            found[OLD_NAMES.get(key, key)] = _spell(row, value)
    return dict(sorted(found.items()))


def _spell(row: SpecRow, value: str) -> str:
    if row.values is _FLAG:
        return "true" if value.strip().lower() in _TRUE else "false"
    if row.values is _ARCHITECTURE:
        return _architecture(value)
    return value.lower() if row.values is _HYPERVISOR else value


# -- aggregates ---------------------------------------------------------------------------------

PROJECTS_KEY: Final = "filter_tenant_id"
_UNREAD_KEYS: Final = {
    "instance_type": "flavors select aggregates with aggregate_instance_extra_specs:",
    "max_instances_per_host": "the number of servers of a host is not limited",
    "max_io_ops_per_host": "the number of operations of a host is not limited",
}
_MULTIPLIER: Final = "_weight_multiplier"

AGGREGATE_KEYS: Final = (
    _used("availability_zone", "availability zone of its hosts", _TEXT),
    _used(
        PROJECTS_KEY + "{suffix}",
        "comma-separated project ids: its hosts accept only servers of these projects",
        _TEXT,
    ),
    _used("trait:{TRAIT}", "its hosts accept only servers that require this trait", _one_of("required")),
    _used(
        "the name of an image property",
        "comma-separated values: its hosts accept no image with another value",
        _ANY,
    ),
    *(_refused(words, key) for key, words in _UNREAD_KEYS.items()),
    _refused("multipliers of weighers cannot be set per aggregate", "{weigher}" + _MULTIPLIER),
    _used("any other key", "read by flavors with aggregate_instance_extra_specs:", _ANY),
)
"""What the metadata of an aggregate may contain."""


def wrong_metadata(metadata: Mapping[str, str]) -> SpecInvalid | None:
    """The first key of an aggregate's metadata that is refused, or whose value is not valid."""
    for key, value in metadata.items():
        if key in _UNREAD_KEYS:
            return _invalid(key, value, f"left out: {_UNREAD_KEYS[key]}")
        if key.endswith(_MULTIPLIER):
            return _invalid(key, value, "left out: multipliers of weighers cannot be set per aggregate")
        if key.startswith(PROJECTS_KEY) and not any(part.strip() for part in value.split(",")):
            return _invalid(key, value, "comma-separated project ids")
        if key.startswith("trait:"):
            wrong = wrong_image_property({key: value})
            if wrong is not None:
                return wrong
    return None


KEPT_BYTES_MAX: Final = 16 << 10
"""A server's record is written whole with every change, before and after: it keeps of its image only the
properties that the scheduler or a driver reads, and not free text, which may be long."""


def keep_properties(properties: Mapping[str, str]) -> dict[str, str] | SpecInvalid:
    """The properties that are read, or why there are too many of them."""
    kept = read_properties(properties)
    size = count_bytes(kept)
    if size > KEPT_BYTES_MAX:
        accepted = f"{KEPT_BYTES_MAX} bytes at most, names and values together"
        return SpecInvalid("trait:, hw_, os_ and img_ properties", f"{size} bytes", accepted)
    return kept


def count_bytes(texts: Mapping[str, str]) -> int:
    """How many bytes names and values have together."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in texts.items())

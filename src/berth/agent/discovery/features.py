"""What cpus and devices can do, in the words of os-traits. A feature without a standard trait is left out."""

from collections.abc import Iterable
from typing import Final

from berth.agent.discovery.mdevs import MdevType
from berth.agent.discovery.nics import NetworkInterface
from berth.model.placement import NAME_LENGTH_MAX, STANDARD_TRAITS

_X86: Final = {
    "3dnow": "3DNOW",
    "abm": "ABM",
    "aes": "AESNI",
    "amx_bf16": "AMXBF16",
    "amx_int8": "AMXINT8",
    "amx_tile": "AMXTILE",
    "avx": "AVX",
    "avx2": "AVX2",
    "avx512_bitalg": "AVX512BITALG",
    "avx512_vbmi2": "AVX512VBMI2",
    "avx512_vnni": "AVX512VNNI",
    "avx512_vpopcntdq": "AVX512VPOPCNTDQ",
    "avx512bw": "AVX512BW",
    "avx512cd": "AVX512CD",
    "avx512dq": "AVX512DQ",
    "avx512er": "AVX512ER",
    "avx512f": "AVX512F",
    "avx512ifma": "AVX512IFMA",
    "avx512pf": "AVX512PF",
    "avx512vbmi": "AVX512VBMI",
    "avx512vl": "AVX512VL",
    "bmi1": "BMI",
    "bmi2": "BMI2",
    "f16c": "F16C",
    "fma": "FMA3",
    "fma4": "FMA4",
    "md_clear": "INTEL_MD_CLEAR",
    "mmx": "MMX",
    "mpx": "MPX",
    "pcid": "INTEL_PCID",
    "pclmulqdq": "CLMUL",
    "pdpe1gb": "PDPE1GB",
    "pni": "SSE3",
    "rtm": "TSX",
    "sev": "AMD_SEV",
    "sev_es": "AMD_SEV_ES",
    "sev_snp": "AMD_SEV_SNP",
    "sgx": "SGX",
    "sha_ni": "SHA",
    "sse": "SSE",
    "sse2": "SSE2",
    "sse4_1": "SSE41",
    "sse4_2": "SSE42",
    "sse4a": "SSE4A",
    "ssse3": "SSSE3",
    "stibp": "STIBP",
    "svm": "AMD_SVM",
    "tbm": "TBM",
    "tdx_host_platform": "INTEL_TDX",
    "virt_ssbd": "AMD_VIRT_SSBD",
    "vmx": "INTEL_VMX",
    "xop": "XOP",
}
"""Flags of cpuinfo that are named otherwise in os-traits, or the same."""
_X86_WITH_AVX512: Final = {"gfni": "AVX512GFNI", "vaes": "AVX512VAES", "vpclmulqdq": "AVX512VPCLMULQDQ"}
"""These have AVX2 forms too: the trait is for those of AVX-512."""

_FORMER: Final = {
    "HW_CPU_X86_AMD_SVM": "HW_CPU_X86_SVM",
    "HW_CPU_X86_INTEL_VMX": "HW_CPU_X86_VMX",
    "HW_CPU_X86_AMD_SEV": "HW_CPU_AMD_SEV",
}
"""Traits that were renamed; flavors may ask for either name."""

_AARCH64: Final = {
    name: name.upper()
    for name in (
        *("aes", "asimd", "asimddp", "asimdhp", "asimdrdm", "atomics", "cpuid", "crc32", "dcpop", "evtstrm"),
        *("fcma", "fp", "fphp", "jscvt", "lrcpc", "pmull", "sha1", "sha2", "sha3", "sha512", "sm3", "sm4"),
        "sve",
    )
}
_PPC64LE: Final = {"power8": "POWER8", "power8e": "POWER8", "power8nvl": "POWER8", "power9": "POWER9"}
_BY_ARCHITECTURE: Final = {"x86_64": _X86, "aarch64": _AARCH64, "ppc64le": _PPC64LE}


def list_cpu_traits(architecture: str | None, features: frozenset[str]) -> tuple[str, ...]:
    if architecture is None:
        return ()
    table = _BY_ARCHITECTURE.get(architecture, {})
    if architecture == "x86_64" and "avx512f" in features:
        table = {**table, **_X86_WITH_AVX512}
    prefix = f"HW_CPU_{architecture.removesuffix('_64').upper()}_"
    names = {prefix + table[feature] for feature in features & table.keys()}
    names |= {former for name, former in _FORMER.items() if name in names}
    return _keep_standard({*names, f"HW_ARCH_{architecture.upper()}"})


def list_nic_traits(interfaces: tuple[NetworkInterface, ...], *, sriov: bool, rdma: bool) -> tuple[str, ...]:
    return _keep_standard(
        name
        for name, is_there in (
            ("HW_NIC_SRIOV", sriov),
            ("HW_NIC_OFFLOAD_RDMA", rdma),
            ("HW_NIC_MULTIQUEUE", any(interface.queues > 1 for interface in interfaces)),
        )
        if is_there
    )


def list_mdev_traits(type: MdevType) -> tuple[str, ...]:
    """The type itself, as a custom trait, and what it can show."""
    width, _, height = (type.resolution or "").partition("x")
    standard = _keep_standard(
        (f"HW_GPU_MAX_DISPLAY_HEADS_{type.display_heads}", f"HW_GPU_RESOLUTION_W{width}H{height}")
    )
    return (normalize(type.type), *standard)


def normalize(name: str) -> str:
    """A name as a custom trait: physnet-1 is CUSTOM_PHYSNET_1."""
    letters = (letter if letter.isascii() and letter.isalnum() else "_" for letter in name.upper())
    return f"CUSTOM_{''.join(letters)}"[:NAME_LENGTH_MAX]


def _keep_standard(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(STANDARD_TRAITS.intersection(names)))

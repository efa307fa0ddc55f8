"""Cpus: which are online, which are threads of one core, their sockets, and what they can do.

Sources, the first that is there wins, because kernels of twenty years differ: of the online cpus
``sys/devices/system/cpu/online``, then ``proc/cpuinfo``, which lists no others, then the folders of cpus; of
the threads of a core the lists, then the masks, then equal numbers of socket and core. A cpu that does not
say is in no core: its siblings are not known. What differs between cpus (big and little cores) is no feature
of the host.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from berth.agent.discovery.sysroot import ID_MAX, SysFolder, Sysroot, Unusable, format_ids, is_word

_CPUINFO_BYTES_MAX: Final = 16 << 20
_LINE_LENGTH_MAX: Final = 16 << 10
_FOLDER: Final = "sys/devices/system/cpu"
_THREADS_MAX: Final = 64
"""Of a core. No machine has more than 8; a list of thousands would be a thousand times as much to compare."""
_SIBLINGS: Final = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")

_PROCESSOR: Final = re.compile(r"^processor[ \t]*:?[ \t]*([0-9]{1,6})[ \t]*(?::.*)?(?![^\n])", re.MULTILINE)
_FEATURES: Final = re.compile(r"^(?:flags|features)[ \t]*:(.*)", re.MULTILINE | re.IGNORECASE)
_CPU_NAME: Final = re.compile(r"^cpu[ \t]*:(.*)", re.MULTILINE)
"""On POWER, whose features follow from it: POWER9 (raw), altivec supported."""
_VENDOR: Final = re.compile(r"^vendor_id[ \t]*:[ \t]*(.*)", re.MULTILINE)


class CpuCore(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="core"):
    """The threads of one core that are online. ``core`` and ``socket``: None if the machine does not say."""

    cpus: tuple[int, ...]
    core: int | None
    socket: int | None


class Cpus(NamedTuple):
    """``online``: None if it is not known. Every online cpu is in one core, or its siblings are not known."""

    online: frozenset[int] | None
    cores: tuple[CpuCore, ...]
    architecture: str | None
    """As ``uname -m`` has it."""
    features: frozenset[str]
    """Of every cpu, in the words of ``proc/cpuinfo``."""


def read_cpus(sysroot: Sysroot) -> Cpus:
    cpuinfo = sysroot.attempt(lambda: _read_cpuinfo(sysroot)) or ""
    folder = sysroot.attempt(lambda: sysroot.folder(_FOLDER))
    online = _read_online(sysroot, folder, cpuinfo)
    cores = [] if folder is None or not online else sysroot.collect(_read_cores(sysroot, folder, online))
    if online and not cores:
        sysroot.leave_out(_FOLDER, "no cpu says which core it is in: threads of one core are not known")
    features = _read_features(sysroot, cpuinfo)
    return Cpus(online, tuple(cores), _read_architecture(sysroot, cpuinfo, features), features)


def _read_cpuinfo(sysroot: Sysroot) -> str | None:
    folder = sysroot.folder("proc")
    return None if folder is None else folder.read("cpuinfo", _CPUINFO_BYTES_MAX)


# -- which ---------------------------------------------------------------------------------------


def _read_online(sysroot: Sysroot, folder: SysFolder | None, cpuinfo: str) -> frozenset[int] | None:
    if folder is not None:
        listed = sysroot.attempt(lambda: folder.ids("online"))
        if listed:
            return listed
    running = frozenset(id for id in map(int, _PROCESSOR.findall(cpuinfo)) if id <= ID_MAX)
    if running:
        return running
    found = None if folder is None else sysroot.attempt(lambda: _read_folders(folder))
    if not found:
        sysroot.leave_out(f"{_FOLDER}/online", "it is not known which cpus are online: no cpu is reported")
        return None
    return found


def _read_folders(folder: SysFolder) -> frozenset[int]:
    """The cpus that have a folder and are not switched off in it. One without a switch is always on, unless
    the list of those that are online is there and cannot be used."""
    names = folder.names()
    if "online" in names:
        return frozenset()
    found = set()
    for name in names:
        if re.fullmatch(r"cpu[0-9]{1,5}", name) and int(name[3:]) <= ID_MAX:
            cpu = folder.folder(name)
            if cpu is not None and cpu.number("online", 0, 1) != 0:
                found.add(int(name[3:]))
    return frozenset(found)


# -- cores ---------------------------------------------------------------------------------------


class _Thread(NamedTuple):
    cpu: int
    siblings: frozenset[int] | None
    core: int | None
    socket: int | None


def _read_cores(sysroot: Sysroot, folder: SysFolder, online: frozenset[int]) -> Iterator[CpuCore]:
    threads = sysroot.collect(_read_threads(sysroot, folder, online))
    by_cpu = {thread.cpu: thread for thread in threads}
    by_place: dict[tuple[int, int], list[int]] = {}
    for thread in threads:
        if thread.siblings is None and thread.core is not None and thread.socket is not None:
            by_place.setdefault((thread.socket, thread.core), []).append(thread.cpu)
    done: set[int] = set()
    for thread in threads:
        if thread.cpu in done:
            continue
        if thread.siblings is None:
            if thread.core is None or thread.socket is None:
                continue
            cpus = frozenset(by_place[thread.socket, thread.core])
        else:
            cpus = thread.siblings
        if len(cpus) > _THREADS_MAX:
            done |= cpus
            said = f"{len(cpus)} cpus say that they are in core {thread.core} of socket {thread.socket}"
            sysroot.leave_out(f"{_FOLDER}/cpu{thread.cpu}/topology", f"{said}, more than {_THREADS_MAX}")
            continue
        if not all(cpu in by_cpu and by_cpu[cpu].siblings == thread.siblings for cpu in cpus):
            sysroot.leave_out(
                f"{_FOLDER}/cpu{thread.cpu}/topology",
                f"cpus {format_ids(cpus)} do not agree on which of them are threads of one core",
            )
            continue
        done |= cpus
        yield CpuCore(cpus=tuple(sorted(cpus)), core=thread.core, socket=thread.socket)


def _read_threads(sysroot: Sysroot, folder: SysFolder, online: frozenset[int]) -> Iterator[_Thread]:
    for cpu in sorted(online):
        try:
            topology = folder.folder(f"cpu{cpu}/topology")
            if topology is not None:
                yield _read_thread(topology, cpu, online)
        except Unusable as error:
            sysroot.leave_out(error.path, error.reason)


def _read_thread(topology: SysFolder, cpu: int, online: frozenset[int]) -> _Thread:
    siblings = None
    for name in _SIBLINGS:
        read = topology.ids if name.endswith("_list") else topology.mask
        siblings = read(name, _THREADS_MAX)
        if siblings is not None:
            break
    if siblings is not None and cpu not in siblings:
        raise Unusable(topology.path, f"cpu {cpu} is not among its own siblings")
    core = topology.number("core_id", -1, 2**31 - 1)
    socket = topology.number("physical_package_id", -1, 2**31 - 1)
    return _Thread(
        cpu,
        None if siblings is None else siblings & online,
        None if core == -1 else core,
        None if socket == -1 else socket,
    )


# -- what they can do ----------------------------------------------------------------------------


def _read_features(sysroot: Sysroot, cpuinfo: str) -> frozenset[str]:
    lines = set(_FEATURES.findall(cpuinfo) or _CPU_NAME.findall(cpuinfo))
    if any(len(line) > _LINE_LENGTH_MAX for line in lines):
        sysroot.leave_out(
            "proc/cpuinfo", f"a line of cpu features has more than {_LINE_LENGTH_MAX} characters"
        )
        return frozenset()
    return _intersect(frozenset(line.lower().replace(",", " ").split()) for line in lines)


def _intersect(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    found: frozenset[str] | None = None
    for one in sets:
        found = one if found is None else found & one
    return found or frozenset()


def _read_architecture(sysroot: Sysroot, cpuinfo: str, features: frozenset[str]) -> str | None:
    folder = sysroot.attempt(lambda: sysroot.folder("proc/sys/kernel"))
    said = None if folder is None else sysroot.attempt(lambda: folder.word("arch"))
    if said is None and sysroot.is_live:
        said = os.uname().machine
    if said is not None and is_word(said):
        return said
    if "lm" in features:
        return "x86_64"
    if any("S390" in vendor for vendor in _VENDOR.findall(cpuinfo[:_LINE_LENGTH_MAX])):
        return "s390x"
    # Both are there on every 64-bit Arm, and "asimd" on no 32-bit one.
    return "aarch64" if {"fp", "asimd"} <= features else None

"""Random folders in the place of a machine's: discovery ends, and what it reports can be registered."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.agent.discovery import DiscoverySettings, discover
from berth.cell.protocol import Register
from berth.cli.inspect import format_host
from berth.model.placement import STANDARD_CLASSES, STANDARD_TRAITS, is_custom_name
from tests.sysroots import TREES

SMALL = sorted(set(TREES) - {"eight_gpus"})
"""Machines that are written quickly."""
NUMBERS = st.sampled_from(
    ["0", "1", "2", "8", "-1", "4294967296", "9" * 40, "0x020000", "0x030200", "0x8086"]
)
TEXTS = st.one_of(
    NUMBERS,
    st.sampled_from(
        ["0-3", "0-1,8", "3-1", "0-65535", "ff", "00000000,0000000f", "MemTotal: 1024 kB", "up", ""]
    ),
    st.text(max_size=20),
)
CONTENTS = st.one_of(TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=40))
TARGETS = st.sampled_from(
    ["..", "../..", ".", "/", "/proc", "../0000:3b:00.0", "../../../devices", "loop", "../node0", "x" * 200]
)

CHANGES = st.one_of(
    st.tuples(st.just("write"), CONTENTS),
    st.tuples(st.just("link"), TARGETS),
    st.tuples(st.just("remove"), st.just("")),
    st.tuples(st.just("folder"), st.just("")),
    st.tuples(st.just("fifo"), st.just("")),
    st.tuples(st.just("copy"), st.integers(0, 10_000)),
)


@contextlib.contextmanager
def a_copy_of(name: str) -> Iterator[tuple[Path, list[Path]]]:
    """A machine, and all that is in its folders, in order."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        TREES[name](root)
        yield root, sorted(Path(at) / one for at, dirs, files in os.walk(root) for one in (*dirs, *files))


def change(path: Path, how: str, what: object, there: list[Path]) -> None:
    """Put something else in the place of a file or a folder, as far as that is possible."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        if how == "write" and isinstance(what, bytes):
            path.write_bytes(what)
        elif how == "link":
            path.symlink_to(str(what))
        elif how == "folder":
            path.mkdir()
        elif how == "fifo":
            os.mkfifo(path)
        elif how == "copy" and isinstance(what, int):
            path.symlink_to(os.path.relpath(there[what % len(there)], path.parent))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(SMALL),
    changes=st.lists(st.tuples(st.integers(0, 10_000), CHANGES), max_size=12),
    allow=st.booleans(),
)
def test_a_machine_that_was_tampered_with_can_be_read(
    name: str, changes: list[tuple[int, tuple[str, object]]], allow: bool
) -> None:
    with a_copy_of(name) as (root, there):
        for number, (how, what) in changes:
            change(there[number % len(there)], how, what, there)
        everything = tuple(f"0x{number:02x}" for number in range(0x13)) if allow else ()
        host = discover(root, DiscoverySettings(devices_allowed=everything, dedicated_cpus="1-4"))
        assert host.is_complete
        first = host.providers[0]
        register = Register(host=first.id, name=first.name, driver="sim", providers=host.providers)
        assert msgspec.json.decode(msgspec.json.encode(register), type=Register) == register
        assert all(text.isprintable() for left in host.left_out for text in left)
        msgspec.json.encode(format_host(host))
        for provider in host.providers:
            assert all(kind in STANDARD_CLASSES or is_custom_name(kind) for kind in provider.inventories)
            assert all(trait in STANDARD_TRAITS or is_custom_name(trait) for trait in provider.traits)
        assert host == discover(root, DiscoverySettings(devices_allowed=everything, dedicated_cpus="1-4"))


NAMES = st.sampled_from(
    [
        *("sys", "proc", "devices", "system", "node", "node0", "node7", "cpu", "cpu0", "online", "cpulist"),
        *("meminfo", "cpuinfo", "bus", "pci", "0000:3b:00.0", "0000:3b:00.1", "vendor", "device", "class"),
        *("physfn", "virtfn0", "net", "eth0", "speed", "flags", "mdev_supported_types", "t", "hugepages"),
        *("hugepages-2048kB", "nr_hugepages", "available_instances", "block", "size", "kernel", "hostname"),
    ]
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(entries=st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=6), CHANGES), max_size=25))
def test_any_folder_can_be_read(entries: list[tuple[list[str], tuple[str, object]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for names, (how, what) in entries:
            path = root.joinpath(*names)
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            change(path, how, what, [root])
        host = discover(root, DiscoverySettings())
        first = host.providers[0]
        Register(host=first.id, name=first.name, driver="sim", providers=host.providers)
        msgspec.json.encode(format_host(host))

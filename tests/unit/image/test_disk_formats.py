"""What the beginning of a content says: sizes of disks, and what is refused for what it names."""

import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.image.disk_formats import find_fault, read_virtual_size
from tests.packages import PackageMissing, require
from tests.unit.image.test_contents import files, send, show
from tests.unit.image.test_images import new, patch
from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast

GIB = 1 << 30


def qcow2(
    *,
    version: int = 3,
    backing: tuple[int, int] = (0, 0),
    cluster_bits: int = 16,
    size: int = GIB,
    features: int = 0,
    length: int = 104,
    extensions: bytes = bytes(8),
) -> bytes:
    head = struct.pack(">4sIQIIQ", b"QFI\xfb", version, *backing, cluster_bits, size)
    head = head.ljust(72, b"\0")
    if version == 3:
        head += struct.pack(">QQQII", features, 0, 0, 4, length)
    return head + extensions


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack(">II", kind, len(content)) + content.ljust(-(-len(content) // 8) * 8, b"\0")


@pytest.mark.parametrize(
    "content",
    [qcow2(), qcow2(version=2), qcow2(features=0b11001), qcow2(extensions=extension(0x6803F857, b"names"))],
)
def test_a_qcow2_says_how_large_its_disk_is(content: bytes) -> None:
    assert find_fault("qcow2", content) is None
    assert read_virtual_size("qcow2", content, len(content)) == GIB


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the content is not qcow2"),
        (b"\x7fELF", "the content is not qcow2"),
        (b"QFI\xfb", "the qcow2 header is cut short"),
        (qcow2()[:90], "the qcow2 header is cut short"),
        (qcow2(version=1), "the qcow2 version is 1; it must be 2 or 3"),
        (qcow2(backing=(200, 11)), "the qcow2 has a backing file"),
        (qcow2(version=2, backing=(200, 11)), "the qcow2 has a backing file"),
        (qcow2(backing=(0, 11)), "the qcow2 has a backing file"),
        (qcow2(features=0b100), "the qcow2 has an external data file"),
        (qcow2(extensions=extension(0x44415441, b"/etc/shadow")), "the qcow2 has an external data file"),
        (
            qcow2(extensions=extension(1, b"x") + extension(0x44415441, b"/etc/shadow")),
            "the qcow2 has an external data file",
        ),
        (qcow2(features=0b10), "the qcow2 is marked corrupt"),
        (qcow2(features=1 << 40), "the qcow2 needs features that are not known: 0x10000000000"),
        (qcow2(cluster_bits=63), "the qcow2 has 2^63 bytes in a cluster"),
        (qcow2(size=1 << 63), "the qcow2 is a disk of 9223372036854775808 bytes"),
        (qcow2(length=0), "the qcow2 header has a length of 0"),
        (qcow2(extensions=extension(1, b"") * 65), "the qcow2 header has more than 64 extensions"),
    ],
)
def test_a_qcow2_that_is_refused(content: bytes, why: str) -> None:
    fault = find_fault("qcow2", content)
    assert fault is not None
    assert fault.startswith(why)


def test_a_qcow2_by_another_name_is_refused() -> None:
    for name in ("raw", "vmdk", "iso"):
        assert find_fault(name, qcow2()) == f"the content is qcow2, and disk_format is {name}"
        assert find_fault(name, b"anything") is None
    assert read_virtual_size("raw", b"anything", 8) == 8
    assert read_virtual_size("vmdk", b"anything", 8) is None


@given(st.binary(max_size=400), st.integers(0, 120))
def test_whatever_it_says_it_is_judged(noise: bytes, at: int) -> None:
    """Numbers that lie neither fail nor keep anybody busy."""
    content = qcow2()
    content = content[:at] + noise + content[at + len(noise) :]
    fault = find_fault("qcow2", content)
    assert fault is None or fault
    if fault is None:
        size = read_virtual_size("qcow2", content, len(content))
        assert size is not None
        assert 0 <= size <= 1 << 60


def test_what_qemu_writes(tmp_path: Path) -> None:
    try:
        require("qemu-utils")
    except PackageMissing as missing:
        pytest.skip(str(missing))
    plain, child = tmp_path / "plain.qcow2", tmp_path / "child.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", plain, "3G"], check=True)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", plain, "-F", "qcow2", child], check=True)
    head = plain.read_bytes()[: 64 << 10]
    assert find_fault("qcow2", head) is None
    assert read_virtual_size("qcow2", head, 0) == 3 * GIB
    assert find_fault("qcow2", child.read_bytes()[: 64 << 10]) == "the qcow2 has a backing file"


async def test_a_refused_content_is_not_kept(region: RegionWorld) -> None:
    id = (await new(region, disk_format="qcow2"))["id"]
    refused = await send(region, id, qcow2(backing=(200, 11)), b"x" * (2 << 20))
    assert (refused.status, refused.json["message"]) == (
        415,
        "The content is refused: the qcow2 has a backing file.",
    )
    assert ((await show(region, id))["status"], files(region)) == ("queued", [])
    # The header may come byte by byte.
    content = qcow2(size=5 * GIB)
    assert (await send(region, id, *(content[at : at + 1] for at in range(len(content))))).status == 204
    shown = await show(region, id)
    assert (shown["virtual_size"], shown["size"]) == (5 * GIB, len(content))
    # What it was judged by stays as it is.
    fixed = await patch(region, id, ("replace", "/disk_format", "raw"))
    assert (fixed.status, fixed.json["message"]) == (
        403,
        "disk_format can only be changed while the image is queued; it is active.",
    )

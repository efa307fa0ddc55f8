"""What the beginning of a content says of its disk format, and which contents are not taken.

Whoever uploads an image may have written it against its reader. A qcow2 can name other files (a backing file,
an external data file) which a host would then open and show to the guest; one that does is refused. So is one
that needs features that QEMU does not document here, and one that is called raw: a reader that guesses
formats would believe the content. Of raw and qcow2 the size of the disk is known; other formats are kept as
they are.

Only the first bytes are read, HEAD_BYTES at most, and every number in them is taken for a lie until it is
checked: nothing is allocated, and nothing repeated, by what they say.
"""

import struct
from typing import Final

from berth.api.kernel.image_store import HEAD_BYTES

QCOW2: Final = "qcow2"
RAW: Final = "raw"

_MAGIC: Final = b"QFI\xfb"
_HEADER: Final = struct.Struct(">4sIQIIQIIQQIIQ")
"""Magic, version, backing file: offset and size, cluster bits, size of the disk, and what follows to byte
72."""
_FEATURES: Final = struct.Struct(">Q")
_FEATURES_AT: Final = 72
_LENGTH_AT: Final = 100
_EXTENSION: Final = struct.Struct(">II")
_VERSIONS: Final = (2, 3)
_KNOWN_FEATURES: Final = 0b11111
"""Dirty, corrupt, external data file, compression type, extended L2 entries."""
_EXTERNAL_DATA: Final = 0b100
_CORRUPT: Final = 0b10
_EXTENSIONS_END: Final = 0
_EXTENSION_DATA_FILE: Final = 0x44415441
_EXTENSIONS_MAX: Final = 64
_CLUSTER_BITS: Final = range(9, 22)
_HEADER_BYTES: Final = {2: 72, 3: 104}
_DISK_BYTES_MAX: Final = 1 << 60


def find_fault(disk_format: str, head: bytes) -> str | None:
    """Why a content that begins so is not taken as of this format; None if it is."""
    is_qcow2 = head.startswith(_MAGIC)
    if disk_format == QCOW2:
        return _find_qcow2_fault(head) if is_qcow2 else "the content is not qcow2"
    return f"the content is qcow2, and disk_format is {disk_format}" if is_qcow2 else None


def read_virtual_size(disk_format: str, head: bytes, size: int) -> int | None:
    """The size of the disk that a guest sees, of a content that has no fault; None if it is not known."""
    if disk_format == QCOW2:
        disk_bytes: int = _HEADER.unpack_from(head)[5]
        return disk_bytes
    return size if disk_format == RAW else None


def _find_qcow2_fault(head: bytes) -> str | None:
    head = head[:HEAD_BYTES]
    if len(head) < _HEADER.size:
        return "the qcow2 header is cut short"
    _, version, backing_at, backing_bytes, cluster_bits, disk_bytes, *_ = _HEADER.unpack_from(head)
    if version not in _VERSIONS:
        return f"the qcow2 version is {version}; it must be 2 or 3"
    if backing_at or backing_bytes:
        return "the qcow2 has a backing file"
    if cluster_bits not in _CLUSTER_BITS:
        return f"the qcow2 has 2^{cluster_bits} bytes in a cluster"
    if disk_bytes > _DISK_BYTES_MAX:
        return f"the qcow2 is a disk of {disk_bytes} bytes; the maximum is {_DISK_BYTES_MAX}"
    length = _HEADER_BYTES[2]
    if version == 3:
        if len(head) < _HEADER_BYTES[3]:
            return "the qcow2 header is cut short"
        wrong = _find_feature_fault(*_FEATURES.unpack_from(head, _FEATURES_AT))
        if wrong is not None:
            return wrong
        length = int.from_bytes(head[_LENGTH_AT : _LENGTH_AT + 4], "big")
        if length < _HEADER_BYTES[3] or length % 8:
            return f"the qcow2 header has a length of {length}"
    return _find_extension_fault(head, length, min(1 << cluster_bits, len(head)))


def _find_feature_fault(features: int) -> str | None:
    if features & _EXTERNAL_DATA:
        return "the qcow2 has an external data file"
    if features & _CORRUPT:
        return "the qcow2 is marked corrupt"
    if features & ~_KNOWN_FEATURES:
        return f"the qcow2 needs features that are not known: {features & ~_KNOWN_FEATURES:#x}"
    return None


def _find_extension_fault(head: bytes, at: int, end: int) -> str | None:
    """Extensions of the header follow it, each with its kind and its length, in the first cluster."""
    for _ in range(_EXTENSIONS_MAX):
        if at + _EXTENSION.size > end:
            return None
        kind, size = _EXTENSION.unpack_from(head, at)
        if kind == _EXTENSIONS_END:
            return None
        if kind == _EXTENSION_DATA_FILE:
            return "the qcow2 has an external data file"
        at += _EXTENSION.size + -(-size // 8) * 8
    return f"the qcow2 header has more than {_EXTENSIONS_MAX} extensions"

"""What a server keeps of its image's properties: those that the scheduler or a driver reads, and no others.

A server's record is written with every change of the server, twice (before and after). So it does not carry
the notes of people about an image, which may be long.
"""

from collections.abc import Mapping
from typing import Final

from berth.model.scheduling import SpecInvalid
from berth.scheduler.spec_table import read_properties

KEPT_BYTES_MAX: Final = 16 << 10


def properties_kept(properties: Mapping[str, str]) -> dict[str, str] | SpecInvalid:
    """The properties that are read, or why there are too many of them."""
    kept = read_properties(properties)
    size = bytes_in(kept)
    if size > KEPT_BYTES_MAX:
        accepted = f"{KEPT_BYTES_MAX} bytes at most, names and values together"
        return SpecInvalid("trait:, hw_, os_ and img_ properties", f"{size} bytes", accepted)
    return kept


def bytes_in(texts: Mapping[str, str]) -> int:
    """How many bytes names and values have together."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in texts.items())

"""How this process deals with memory it has freed.

An answer with a thousand candidates is built from a few strings of half a megabyte each. By default the C
library asks the kernel for pages for every one of them and gives them back right after: the faults cost more
than the search. Here a bounded amount of freed memory is kept for the next answer.
"""

import ctypes
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES_MAX: Final = 64 << 20
"""How much freed memory at the top of the heap is kept."""

HEAP_BLOCK_BYTES_MAX: Final = 32 << 20
"""Larger blocks come from the kernel and go back to it. The C library accepts no higher limit."""


def keep_freed_memory() -> None:
    """Keep freed memory for reuse, where the C library can be told to: glibc can, others have no need."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)

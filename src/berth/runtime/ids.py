"""Randomness: new ids, and the generator that they come from.

Ids are unique, not secret: they are drawn from a generator that is seeded once, which is several times
cheaper than asking the kernel each time. Nothing that must not be guessed may be made here.
"""

import os
import random
import socket

_VERSION_4 = 0x4 << 76
_VARIANT_RFC = 0x2 << 62
_NOT_VERSION_OR_VARIANT = ((1 << 128) - 1) & ~(0xF << 76) & ~(0x3 << 62)


def describe_process() -> str:
    """Where this process runs, for operators."""
    return f"{socket.gethostname()} pid {os.getpid()}"


class Ids:
    """Draws ids. With a ``seed``, the same ones in the same order every time.

    It must be made in the process that uses it: a copy made by fork would repeat its ids, unless it begins
    anew with a ``seed_for_copy`` of the original.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.rng = random.Random(int.from_bytes(os.urandom(32), "big") if seed is None else seed)

    def seed_for_copy(self) -> int:
        """A number for a copy of this object in another process to ``begin_anew`` with."""
        return self.rng.getrandbits(256)

    def begin_anew(self, seed: int) -> None:
        self.rng.seed(seed)

    def uuid(self) -> str:
        """A random uuid (version 4) in canonical form."""
        bits = self.rng.getrandbits(128) & _NOT_VERSION_OR_VARIANT | _VERSION_4 | _VARIANT_RFC
        digits = f"{bits:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def request_id(self) -> str:
        """A name for one request, as OpenStack services write it."""
        return "req-" + self.uuid()

    def batch_id(self) -> str:
        """A name for one batch of the journal."""
        return self.uuid()

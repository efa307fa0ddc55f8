"""How much of one resource class one provider has."""

from typing import Final

import msgspec

AMOUNT_MAX: Final = 2**31 - 1
"""The largest amount on the wire: the integer column of every Placement database."""

RATIO_MAX: Final = 3.40282e38
"""The largest allocation ratio: single precision, as on the wire."""


class Inventory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An inventory record. ``capacity`` bounds the sum of allocations, the units bound each one."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = AMOUNT_MAX
    step_size: int = 1
    allocation_ratio: float = 1.0
    written_at_s: int = 0

    @property
    def capacity(self) -> int:
        return int((self.total - self.reserved) * self.allocation_ratio)

"""What Placement keeps: inventories, consumers with their holdings, labels of aggregates, status of hosts."""

from typing import Final

import msgspec

from berth.model.ids import ClassId, ProviderId

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


class Consumer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A consumer's record. ``type`` is None for one last written before consumers had types. ``made_by`` says
    which part of Berth made it, where it is not the consumer's owner: see ``Claim``."""

    generation: int
    project: str
    user: str
    type: str | None
    created_at_s: int
    updated_at_s: int
    made_by: str = ""


Amounts = tuple[tuple[ClassId, int], ...]
"""How much of which classes; each class at most once."""

Holding = tuple[ProviderId, Amounts]
"""What is held on one provider: amounts by resource class."""

Holdings = tuple[Holding, ...]
"""All that one consumer holds; each provider at most once, each class at most once within it."""

Wanted = tuple[ProviderId, tuple[tuple[str, int], ...]]
"""What is wanted, or held, on one provider: amounts by the name of the resource class."""


CELL: Final = "cell"
ZONE: Final = "zone"
"""Kinds of aggregates with a meaning of their own: the hosts of a conductor, and an availability zone."""


class Label(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``kind`` makes the aggregate a domain, such as a rack, a zone or a cell; ``name`` is what people call
    it, once among those of its kind. ``metadata`` is what flavors may ask for, in the order of its keys."""

    kind: str | None
    name: str | None
    metadata: tuple[tuple[str, str], ...] = ()


class HostStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``disabled``: by an operator, with a reason. ``down``: no heartbeat in time. ``build_failures``:
    how often in a row something could not be built there."""

    disabled: bool = False
    down: bool = False
    build_failures: int = 0
    reason: str | None = None


HEALTHY: Final = HostStatus()
"""The status of a host for which none is stored."""

"""What Placement keeps: inventories, consumers and their holdings, labels of aggregates, status of hosts, and
the names of resource classes and traits.

Standard names are known to every view from its first moment and never appear in the journal; custom ones
(``CUSTOM_...``) are created and removed by events.
"""

import re
from typing import Final

import msgspec
import os_resource_classes
import os_traits

from berth.model.ids import ClassId, ProviderId

AMOUNT_MAX: Final = 2**31 - 1
"""The largest amount on the wire: the integer column of every Placement database."""

RATIO_MAX: Final = 3.40282e38
"""The largest allocation ratio: single precision, as on the wire."""

CELL: Final = "cell"
ZONE: Final = "zone"
"""Kinds of aggregates with a meaning of their own: the hosts of a conductor, and an availability zone."""

NAME_LENGTH_MAX: Final = 255

STANDARD_CLASSES: Final[tuple[str, ...]] = tuple(os_resource_classes.STANDARDS)
"""Standard resource classes; a class's number is its place in this list."""

STANDARD_TRAITS: Final[frozenset[str]] = frozenset(os_traits.get_traits())

INSTANCE: Final = "INSTANCE"
MIGRATION: Final = "MIGRATION"
"""What consumers are that are servers, and those that hold the other half of a move: Nova's own words."""

SHARES_VIA_AGGREGATE: Final = "MISC_SHARES_VIA_AGGREGATE"
NUMA_ROOT: Final = "HW_NUMA_ROOT"
HYPERTHREADING: Final = "HW_CPU_HYPERTHREADING"
"""Traits: of a provider whose resources the trees of its aggregates may use, of a NUMA cell, of cores with
several threads."""
SOCKETS_MAX: Final = 64
SOCKET_TRAITS: Final = tuple(f"CUSTOM_NUMA_SOCKET_{number}" for number in range(SOCKETS_MAX))
"""Traits of NUMA cells: cells of one host that have the same one of these are on one socket."""
DEDICATED: Final = "PCPU"
"""The resource class of dedicated cpus."""

CLASSES_OF_HOSTS: Final = ("VCPU", "PCPU")
"""What makes a root that shares something a host all the same, and not a pool."""

AGENT_CELL_HEADER: Final = "x-berth-agent-cell"
"""Names the cell whose conductor asks Placement, for the agents of its hosts: what an agent may not do is
refused to it."""

STATUS_DISABLED: Final = "COMPUTE_STATUS_DISABLED"
"""The trait of a host that takes no new servers: Nova sets it for its own, Berth with a host's status."""

FIRST_CUSTOM_CLASS: Final = ClassId(10000)
"""Custom classes are numbered from here, so that the standard list can grow below."""


def is_pci_class(name: str) -> bool:
    """Whether the units of a resource class are PCI devices."""
    return name in ("SRIOV_NET_VF", "PGPU") or name.startswith("CUSTOM_PCI_")


_CUSTOM_NAME = re.compile(r"CUSTOM_[A-Z0-9_]+\Z")


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


def is_custom_name(name: str) -> bool:
    """Whether this may name a custom resource class or trait."""
    return len(name) <= NAME_LENGTH_MAX and _CUSTOM_NAME.match(name) is not None

"""The field's own lists of resource classes and traits, and the rule for names outside them.

Standard names are known to every view from its first moment and never appear in the journal;
custom ones (``CUSTOM_...``) live and die by events.
"""

import re
from typing import Final

import os_resource_classes
import os_traits

from berth.model.ids import ClassId

NAME_LENGTH_MAX: Final = 255

STANDARD_CLASSES: Final[tuple[str, ...]] = tuple(os_resource_classes.STANDARDS)
"""Standard resource classes; a class's number is its place in this list."""

STANDARD_TRAITS: Final[frozenset[str]] = frozenset(os_traits.get_traits())

INSTANCE: Final = "INSTANCE"
MIGRATION: Final = "MIGRATION"
"""What consumers are that are servers, and those that hold the other half of a move: Nova's own words."""

SHARES_VIA_AGGREGATE: Final = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of a provider whose resources the trees of its aggregates may use."""

AGENT_CELL_HEADER: Final = "x-berth-agent-cell"
"""Names the cell whose conductor asks Placement, for the agents of its hosts: what an agent may not do is
refused to it."""

STATUS_DISABLED: Final = "COMPUTE_STATUS_DISABLED"
"""The trait of a host that takes no new servers: Nova sets it for its own, Berth with a host's status."""

FIRST_CUSTOM_CLASS: Final = ClassId(10000)
"""Custom classes are numbered from here, so that the standard list can grow below."""

_CUSTOM_NAME = re.compile(r"CUSTOM_[A-Z0-9_]+\Z")


def is_custom_name(name: str) -> bool:
    """Whether this may name a custom resource class or trait."""
    return len(name) <= NAME_LENGTH_MAX and _CUSTOM_NAME.match(name) is not None

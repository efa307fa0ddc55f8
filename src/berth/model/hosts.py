"""What is known of a host beside its resources: whether it may be scheduled to, and how it has done."""

from typing import Final

import msgspec


class HostStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``disabled``: by an operator, with a reason. ``down``: it has not been heard of. ``build_failures``:
    how often in a row something could not be built there."""

    disabled: bool = False
    down: bool = False
    build_failures: int = 0
    reason: str | None = None


HEALTHY: Final = HostStatus()
"""The status of every host of which nothing else has been said."""

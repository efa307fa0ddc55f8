"""Refusals that mean: there is no place for it now. Clients know them as "No valid host was found"."""

from typing import Final

from berth.api.native.rejected import problem
from berth.model.rejections import (
    CapacityExceeded,
    GroupFull,
    GroupPolicyBroken,
    NoInventory,
    Rejection,
    UnitsViolated,
)
from berth.model.scheduling import NoFit

_NO_PLACE: Final = (NoFit, GroupPolicyBroken, GroupFull, CapacityExceeded, NoInventory, UnitsViolated)
_WORDS_MAX: Final = 2000
"""A group's members may be many, and a refusal may name them all."""


def is_no_place(rejection: Rejection) -> bool:
    return isinstance(rejection, _NO_PLACE)


def why_no_place(rejection: Rejection) -> str:
    words = f"No valid host was found. {problem(rejection).detail}"
    return words if len(words) <= _WORDS_MAX else f"{words[: _WORDS_MAX - 3]}..."

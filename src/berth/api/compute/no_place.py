"""Refusals that mean: there is no place for it now. Clients know them as "No valid host was found"."""

from typing import Final

from berth.api.kernel.disclosure import NO_PLACE
from berth.api.native.rejected import problem
from berth.model.rejections import Rejection

_WORDS_MAX: Final = 2000
"""A group's members may be many, and a refusal may name them all."""


def why_no_place(rejection: Rejection) -> str:
    words = f"{NO_PLACE} {problem(rejection).detail}"
    return words if len(words) <= _WORDS_MAX else f"{words[: _WORDS_MAX - 3]}..."

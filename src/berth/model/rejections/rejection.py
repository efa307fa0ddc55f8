"""Rejections: values that say what was asked, what there was, and what the caller can do.

A rejection is an answer, not a failure: it is returned, never raised. An API words it; ``advice`` is the
consequence for the caller.
"""

from enum import Enum
from typing import ClassVar

import msgspec


class Advice(Enum):
    RETRY = "read again and repeat the request: it was based on an old version"
    REPLAN = "the same request cannot succeed here now: ask for less, or somewhere else"
    GIVE_UP = "the request is wrong in itself: correct it"


class Rejection(msgspec.Struct, frozen=True):
    advice: ClassVar[Advice] = Advice.GIVE_UP


class Forbidden(Rejection, frozen=True):
    """A rule of the policy does not allow the caller to do this to the object."""

    rule: str

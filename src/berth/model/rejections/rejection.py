"""The root of all rejections, and the one that belongs to no domain.

A rejection says what was asked and what there was. It is an answer, not a failure: it is returned, never
raised. An API maps it to a status and words.
"""

import msgspec


class Rejection(msgspec.Struct, frozen=True):
    pass


class Forbidden(Rejection, frozen=True):
    """A rule of the policy does not allow the caller to do this to the object."""

    rule: str

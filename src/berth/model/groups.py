"""Groups: consumers that must, or should, share or avoid a domain.

A *domain* is what members share or avoid: a host (the root of a tree), or an aggregate of a kind, such as a
rack or a zone. A *member* is a consumer; what a migration holds is held for the server that it moves, so
the migration is in the group for that server, and the two count once.
"""

from typing import Final, Literal

import msgspec

from berth.model.ids import ConsumerId, GroupId

HOST: Final = "host"
"""The domain that every provider tree is."""

Policy = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]

MEMBERS_MAX: Final = 10_000
"""How many members a group may have."""


class Group(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``max_per_domain``: of a policy that keeps members apart, how many may share a domain; None for any
    number. ``max_skew``: how many more may be in one domain than in the emptiest of its kind."""

    name: str
    policy: Policy
    domain: str
    max_per_domain: int | None
    max_skew: int | None
    project: str
    user: str
    created_at_s: int

    @property
    def is_hard(self) -> bool:
        return not self.policy.startswith("soft-")

    @property
    def is_apart(self) -> bool:
        return self.policy.endswith("anti-affinity")


class Membership(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """That a consumer is in a group: for itself, or for the server that it moves."""

    group: GroupId
    stands_for: ConsumerId

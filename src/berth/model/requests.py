"""What a search asks for. Names are as the caller gave them; whether they exist is the search's business."""

from typing import Final

import msgspec

from berth.model.ids import AggregateId, ProviderId

UNSUFFIXED: Final = ""
"""The group whose resources may come from several providers of one tree and those it shares."""

AnyOf = tuple[str, ...]
"""At least one of these traits."""


class Constraints(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider must be, beyond what it must have. Lists of alternatives are all to be met."""

    required: tuple[AnyOf, ...] = ()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[tuple[AggregateId, ...], ...] = ()
    not_member_of: frozenset[AggregateId] = frozenset()
    in_tree: ProviderId | None = None


class ProviderQuery(Constraints, frozen=True, kw_only=True):
    """Which providers to list."""

    name: str | None = None
    id: ProviderId | None = None
    resources: tuple[tuple[str, int], ...] = ()


class RequestGroup(Constraints, frozen=True, kw_only=True):
    """Resources to be found together. A suffixed group comes from one provider."""

    suffix: str = UNSUFFIXED
    resources: tuple[tuple[str, int], ...] = ()


class CandidatesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ways to satisfy all groups at once, at one root.

    ``isolate``: no two suffixed groups on one provider. ``same_subtrees``: for each set of suffixes, one
    of the providers chosen for them is an ancestor of (or is) all the others. ``nested`` False leaves out
    what a caller older than nested providers could not understand.
    """

    groups: tuple[RequestGroup, ...]
    isolate: bool = False
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtrees: tuple[frozenset[str], ...] = ()
    nested: bool = True
    limit: int | None = None

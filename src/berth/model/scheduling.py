"""Requests to the scheduler, and its plans. Why there is no plan: rejections/scheduling.py."""

from typing import Final, Literal

import msgspec

from berth.model.commands import Claim, Unchecked
from berth.model.ids import ConsumerId, GroupId, Index, ProviderId
from berth.model.placement import Wanted
from berth.model.requests import CandidatesRequest

Generation = int | Literal[Unchecked.UNCHECKED] | None


ANY_CELL: Final = "*"
"""Any cell: a host with a conductor."""


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's constraints on the host. Hosts are given by name or uuid.

    ``same_host`` and ``different_host`` name consumers; ``host_names`` are patterns (``*`` and ``?``) of
    which one must match. ``forced_host`` is the only one considered, and no filter is asked about it: the
    claim is judged by the ledger all the same.
    """

    same_host: tuple[ConsumerId, ...] = ()
    different_host: tuple[ConsumerId, ...] = ()
    host_names: tuple[str, ...] = ()
    ignore_hosts: frozenset[str] = frozenset()
    forced_host: str | None = None


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Place members, each with the same resources: all of them if they fit, ``at_least`` that many, or none.

    ``ask`` is what each of them needs, at one host. ``zone`` and ``cell`` name an aggregate of that kind
    (ANY_CELL: any of them); ``metadata`` is what an aggregate of the host must say; ``image`` are the
    properties of the image that are known to filters, by name.

    Members are new, unless ``generation`` names the one that the caller last saw. ``uses`` are sharing
    providers on which a member holds something: they are preferred.
    """

    ask: CandidatesRequest
    members: tuple[ConsumerId, ...]
    at_least: int
    project: str
    user: str
    consumer_type: str | None = None
    group: GroupId | None = None
    zone: str | None = None
    cell: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    image: tuple[tuple[str, str], ...] = ()
    hints: Hints = Hints()
    alternates: int = 0
    generation: Generation = None
    uses: frozenset[ProviderId] = frozenset()
    made_by: str = ""

    def claim(self, member: ConsumerId, wanted: tuple[Wanted, ...], generation: Generation) -> Claim:
        """The claim of a member for ``wanted``."""
        return Claim(
            member,
            wanted,
            self.project,
            self.user,
            generation,
            self.consumer_type,
            self.group,
            self.made_by,
        )


class HostCandidate(msgspec.Struct, frozen=True, gc=False):
    """A host, and what to take of which of its providers; ``mappings`` says which group gets which."""

    host: ProviderId
    host_name: str
    wanted: tuple[Wanted, ...]
    mappings: tuple[tuple[str, tuple[ProviderId, ...]], ...]


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where one member goes, and where else it could have gone: hosts of the same cell, best first."""

    member: ConsumerId
    chosen: HostCandidate
    alternates: tuple[HostCandidate, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """Placements of as many members as fit, made from the view at ``index``."""

    request: ScheduleRequest
    placements: tuple[Placement, ...]
    index: Index

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of the plan."""
        request = self.request
        return tuple(
            request.claim(placement.member, placement.chosen.wanted, request.generation)
            for placement in self.placements
        )

"""Requests to a search and to the scheduler, and the scheduler's answers: plans, explanations, capacity.

Names in a request are as the caller gave them; whether they exist is for the search to find out. Answers have
numbers for programs, and beside them sentences for people. Why there is no plan: rejections/scheduling.py.
"""

from typing import Final, Literal

import msgspec

from berth.model.commands import Claim, Unchecked
from berth.model.ids import AggregateId, ConsumerId, GroupId, Index, ProviderId
from berth.model.placement import Wanted
from berth.model.rejections import ConstraintStep, Rejection

UNSUFFIXED: Final = ""
"""The group whose resources may come from several providers of one tree and those it shares."""

AnyOf = tuple[str, ...]
"""At least one of these traits."""

ANY_CELL: Final = "*"
"""Any cell: a host with a conductor."""

Generation = int | Literal[Unchecked.UNCHECKED] | None


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
    """Resources to be found together. A suffixed group comes from one provider, and from none of those in
    ``ruled_out``. ``label`` says what it is for, where people know that by another name than its suffix."""

    suffix: str = UNSUFFIXED
    label: str = ""
    resources: tuple[tuple[str, int], ...] = ()
    ruled_out: frozenset[ProviderId] = frozenset()


class Affinity(msgspec.Struct, frozen=True):
    """The provider of the group ``suffix`` is, or stands below, one of the providers chosen for the groups in
    ``near``. With ``or_outside`` one that stands below no NUMA cell is accepted, too: nobody knows where it
    is. With ``by_socket`` one in another NUMA cell of the same socket is accepted, too."""

    suffix: str
    near: frozenset[str]
    or_outside: bool = False
    by_socket: bool = False


class CandidatesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ways to satisfy all groups at once, at one root.

    ``isolate``: no two suffixed groups on one provider. ``same_subtrees``: for each set of suffixes, one
    of the providers chosen for them is an ancestor of (or is) all the others. ``nested`` False leaves out
    what a caller older than nested providers could not understand.

    The others are the scheduler's own (docs/decisions/024). ``distinct``: of each set of suffixes, no two
    groups are on one provider. ``affinities``: which devices are near which groups. ``split``: resource
    classes of the unsuffixed group that may come in parts from several providers of the tree; each of those
    has the traits in ``split_required``. ``guest_required``: each alternative is met by the root, or by a
    provider of one of the ``guest_groups``. ``root_member_of``, ``root_not_member_of``: in which aggregates
    the root itself is; a pool that serves it need not be in them.
    """

    groups: tuple[RequestGroup, ...]
    isolate: bool = False
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtrees: tuple[frozenset[str], ...] = ()
    nested: bool = True
    limit: int | None = None
    distinct: tuple[frozenset[str], ...] = ()
    affinities: tuple[Affinity, ...] = ()
    split: frozenset[str] = frozenset()
    split_required: frozenset[str] = frozenset()
    guest_required: tuple[AnyOf, ...] = ()
    guest_groups: frozenset[str] = frozenset()
    root_member_of: tuple[tuple[AggregateId, ...], ...] = ()
    root_not_member_of: frozenset[AggregateId] = frozenset()

    @property
    def apart(self) -> tuple[frozenset[str], ...]:
        """Sets of suffixes of which no two may be on one provider."""
        if not self.isolate:
            return self.distinct
        return (frozenset(group.suffix for group in self.groups) - {UNSUFFIXED}, *self.distinct)


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

    ``ask`` is what each of them needs, at one host; ``otherwise`` is what will do, in order, for a member
    that no host has that for. ``zone`` and ``cell`` name an aggregate of that kind (ANY_CELL: any of them);
    ``metadata`` is what an aggregate of the host must say; ``image`` are the properties of the image that are
    known to filters, by name.

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
    otherwise: tuple[CandidatesRequest, ...] = ()

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


# -- one host -----------------------------------------------------------------------------------


class Stock(msgspec.Struct, frozen=True):
    """What one provider of a host has of one resource class. ``capacity`` is what remains of ``total`` less
    ``reserved``, times the ratio; ``free`` is below nothing where more is used than that."""

    provider: str
    resource_class: str
    total: int
    reserved: int
    allocation_ratio: float
    capacity: int
    used: int
    free: int
    min_unit: int
    max_unit: int
    step_size: int


class Check(msgspec.Struct, frozen=True):
    """One constraint at one host: what was asked, and what there was. Of a resource ``free`` is how much one
    consumer could have, and ``limit`` what the host has in all; of a group's policy ``free`` is how many more
    members may come, and ``limit`` how many may be there. ``stock`` is the provider that comes closest."""

    constraint: str
    asked: str
    found: str
    ok: bool
    free: int | None = None
    limit: int | None = None
    stock: Stock | None = None


class HostChecks(msgspec.Struct, frozen=True):
    """Every constraint at one host, for one member. ``refused`` is what the ledger said of a claim there,
    where it came to that."""

    host: str
    id: ProviderId | None
    fits: bool
    checks: tuple[Check, ...]
    refused: Rejection | None = None


# -- what would help ----------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True):
    """One thing to change. ``kind`` says what; ``subject`` is a name; ``before`` and ``after`` are numbers,
    where it is about a number."""

    kind: str
    subject: str
    text: str
    before: int | None = None
    after: int | None = None


class Remedy(msgspec.Struct, frozen=True):
    """Changes that, made together, let ``fitting`` members fit. ``hosts`` then have room for one, policies
    aside; ``host`` is the first of them."""

    changes: tuple[Change, ...]
    fitting: int
    hosts: int
    host: str | None

    @property
    def text(self) -> str:
        return " and ".join(change.text for change in self.changes)


class SmallestChange(msgspec.Struct, frozen=True):
    """The smallest remedy that was found, and others, smallest first. ``text`` is a sentence; where nothing
    small helps it says what removes the most. ``gave_up``: not every change was tried, because there are too
    many; there may be a smaller one."""

    text: str
    best: Remedy | None = None
    others: tuple[Remedy, ...] = ()
    gave_up: bool = False


class Explanation(msgspec.Struct, frozen=True):
    """What became of a request in the view at ``index``: how many members it needs, how many fit, and what
    each constraint removed, in order. ``fitting`` counts no further than the members asked for. ``closest``
    is a host on which it would fit after the smallest change. ``removed``: the names of the first hosts that
    each of the steps removed."""

    index: Index
    needed: int
    fitting: int
    hosts_total: int
    steps: tuple[ConstraintStep, ...]
    text: str
    hosts: tuple[HostChecks, ...] = ()
    closest: HostChecks | None = None
    change: SmallestChange | None = None
    refused: Rejection | None = None
    removed: tuple[tuple[str, ...], ...] = ()


# -- how many -----------------------------------------------------------------------------------


class PlaceCapacity(msgspec.Struct, frozen=True):
    """How many more would fit if all of them went to this aggregate. Places compete for what they share, so
    these need not add up. ``kind`` None: the aggregate has a name but is no domain."""

    kind: str | None
    name: str
    aggregate: AggregateId
    count: int
    exact: bool
    hosts: int


class Capacity(msgspec.Struct, frozen=True):
    """How many more members of a request fit now, one after the other, policies included. ``exact`` False: at
    least so many do; to know more would take too long. ``hosts`` have room for one, policies aside."""

    index: Index
    count: int
    exact: bool
    hosts: int
    places: tuple[PlaceCapacity, ...] = ()

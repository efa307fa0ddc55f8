"""Why a request fits where it fits, what would have to change for it to fit at all, and how many more fit.

Everything here is an answer: numbers for programs, and beside them sentences for people.
"""

import msgspec

from berth.model.ids import AggregateId, Index, ProviderId
from berth.model.rejections import ConstraintStep, Rejection

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
    is a host on which it would fit after the smallest change."""

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

"""Variants: a request with something changed about it, and how many members would then fit."""

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from berth.model.explanations import Change
from berth.model.groups import Group
from berth.model.ids import Row
from berth.model.rejections import Rejection
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.capacity_fits import Asked, Fits, Fitting, asked_of, filters_asked, one_each
from berth.scheduler.capacity_rooms import HostRows
from berth.scheduler.capacity_trees import TreeEffort
from berth.scheduler.narrowing import forced_host
from berth.scheduler.options import SchedulerOptions
from berth.scheduler.plugins import name_of
from berth.view import View
from berth.view.rowset import Mask

_TREES_TRIED_MAX: Final = 200
"""In how many trees, at most, a variant tries whether parts that get in each other's way fit."""

STEPS_MAX: Final = 2_000_000
"""How much all variants of one request may cost: a second or two. After that the search is given up."""

_TREES_ENOUGH: Final = 50
_HOSTS_LOOKED_AT: Final = 50


class Variant(NamedTuple):
    """A request, and what is not to be held against it: filters that are not asked, hosts that are let in
    whatever state they are in, another rule for its group. ``cost`` is how much of a change this is."""

    request: ScheduleRequest
    changes: tuple[Change, ...] = ()
    cost: float = 0.0
    unasked: frozenset[str] = frozenset()
    let_in: frozenset[Row] = frozenset()
    rule: Group | None = None

    def but(self, change: Change, cost: float, **fields: Any) -> "Variant":
        """The same with one more change."""
        return self._replace(changes=(*self.changes, change), cost=self.cost + cost, **fields)


class Variants:
    """Tries requests in one view. What filters say is asked once."""

    def __init__(
        self, view: View, request: ScheduleRequest, options: SchedulerOptions, all_hosts: Mask
    ) -> None:
        self.view = view
        self.wanted = max(1, len(request.members))
        self.needed = max(1, min(request.at_least, self.wanted))
        self._all_hosts = all_hosts
        self._end = view.steps.left - STEPS_MAX
        forced = request.hints.forced_host
        self._forced = forced_host(view, forced) if forced is not None else None
        free = (
            msgspec.structs.replace(request.hints, forced_host=None) if forced is not None else request.hints
        )
        asked = filters_asked(view, msgspec.structs.replace(request, hints=free), options)
        self._filters = [] if isinstance(asked, Rejection) else asked
        self.masks = {name_of(filter): filter.passing(view, request) for filter, _ in self._filters}
        self.words = {name_of(filter): words for filter, words in self._filters}
        self._asked: dict[object, Asked | Rejection] = {}

    @property
    def is_spent(self) -> bool:
        """Whether variants have cost as much as they may."""
        return self.view.steps.left < self._end

    @property
    def is_forced(self) -> bool:
        return self._forced is not None

    def hosts(self, variant: Variant) -> Mask:
        """The rows that filters, or who forces a host, leave."""
        if self._forced is not None and FORCED not in variant.unasked:
            return self._forced.copy()
        hosts = self._all_hosts.copy()
        for name, mask in self.masks.items():
            if name not in variant.unasked:
                hosts &= mask
                if name in STATES and variant.let_in:
                    hosts[list(variant.let_in)] = True
        return hosts

    def fits(self, variant: Variant) -> tuple[Fits, HostRows]:
        """Who answers how many fit, and the hosts that have room for any."""
        asked = self._asked.get(variant.request.ask)
        if asked is None:
            asked = self._asked[variant.request.ask] = asked_of(self.view, variant.request.ask)
        assert not isinstance(asked, Rejection), "names that were known still are"
        effort = TreeEffort(_TREES_TRIED_MAX, self.wanted, max(self.wanted, _TREES_ENOUGH))
        rooms = one_each(asked.rooms(self.view, self.hosts(variant), effort), self._filters)
        fits = Fits(self.view, variant.request, rooms, variant.rule)
        return fits, np.flatnonzero(rooms.each)

    def first_host(self, variant: Variant, fits: Fits, rows: HostRows) -> str | None:
        """A host that one of the members could be on: of those let in by a change, if there are any."""
        ordered = sorted(variant.let_in.intersection(rows.tolist())) or rows[:_HOSTS_LOOKED_AT].tolist()
        alone = (row for row in ordered if fits.among(np.array([row])).members)
        row = next(alone, None)
        return None if row is None else self.view.record(Row(row)).name

    def with_rule(self, variant: Variant, fits: Fits, rule: Group) -> Fits:
        """The same with another rule for the group."""
        return Fits(self.view, variant.request, fits.rooms, rule)

    def fitting(self, variant: Variant) -> Fitting:
        fits, rows = self.fits(variant)
        return fits.among(rows)


FORCED: Final = "forced_host"
"""The hint that takes the place of all filters."""

STATES: Final = ("enabled", "host_state")
"""The filters that ask for what an operator could change about a host."""

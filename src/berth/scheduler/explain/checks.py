"""Every constraint of a request at one host: what was asked, what there is.

Each is judged by itself, whatever the others say: a host that lacks a trait may lack memory too, and the
reader wants to know both.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from berth.ledger import decide
from berth.model.commands import UNCHECKED, Claim, ReplaceAllocations
from berth.model.ids import AggregateId, ConsumerId
from berth.model.placement import SHARES_VIA_AGGREGATE
from berth.model.rejections import Rejection
from berth.model.scheduling import CandidatesRequest, Check, HostChecks, RequestGroup, ScheduleRequest, Stock
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.explain.amounts import AmountPart, split_parts
from berth.scheduler.explain.variants import aggregate_name
from berth.scheduler.filters import group_policy
from berth.scheduler.groups import group_of
from berth.scheduler.hosts import find_host
from berth.scheduler.plugins import SchedulerOptions, name_of
from berth.scheduler.shortages import describe_shortage
from berth.view import ProviderRecord, View

_CANDIDATES_TRIED_MAX: Final = 20
_MEMBERS_NAMED_MAX: Final = 3
NOBODY: Final = ConsumerId("a new member")


class HostChecker:
    """Answers for any host of one view and one request. What concerns all hosts is computed once."""

    def __init__(
        self, view: View, request: ScheduleRequest, options: SchedulerOptions, candidates: HostCandidates
    ) -> None:
        self._view = view
        self._request = request
        self._candidates = candidates
        self._parts: list[AmountPart] = [
            part for group in request.ask.groups for part in split_parts(view, group, request.ask)
        ]
        asked = ((filter, filter.describe_request(view, request)) for filter in options.filters)
        self._filters = [
            (filter, words, filter.passing_hosts(view, request))
            for filter, words in asked
            if words is not None
        ]

    def at(self, name: str) -> HostChecks:
        host = find_host(self._view, name)
        if host is None:
            check = Check("host", f"a host called {name}", "there is none", ok=False)
            return HostChecks(name, None, fits=False, checks=(check,))
        checks = [
            *self._of_filters(host),
            *self._of_root(host),
            *self._of_groups(host),
        ]
        checks.append(self._of_candidates(host, has_parts=all(check.ok for check in checks)))
        refused = self.refusal_at(host) if all(check.ok for check in checks) else None
        fits = refused is None and all(check.ok for check in checks)
        return HostChecks(host.name, host.id, fits, tuple(checks), refused)

    def refusal_at(self, host: ProviderRecord) -> Rejection | None:
        """The ledger's rejection of a member on this host, if it rejects every candidate that was tried."""
        request, refused = self._request, None
        member = request.members[0] if request.members else NOBODY
        for candidate in islice(self._candidates.at(host), _CANDIDATES_TRIED_MAX):
            kind = request.consumer_type
            claim = Claim(
                member, candidate.wanted, request.project, request.user, UNCHECKED, kind, request.group
            )
            verdict = decide(self._view, ReplaceAllocations((claim,)), 0)
            if not isinstance(verdict, Rejection):
                return None
            refused = verdict
        return refused

    # -- filters --------------------------------------------------------------------------------

    def _of_filters(self, host: ProviderRecord) -> Iterator[Check]:
        view, request = self._view, self._request
        forced = request.hints.forced_host
        if forced is not None:
            is_it = find_host(view, forced) is host
            yield Check("forced_host", f"the host {forced}", f"it is {host.name}", is_it)
            return
        for filter, words, passing in self._filters:
            found = filter.describe_host(view, request, host)
            check = Check(name_of(filter), words, found, bool(passing[host.row]))
            yield self._with_members(check, host) if filter is group_policy else check

    def _with_members(self, check: Check, host: ProviderRecord) -> Check:
        """The members of the group in the host's domain, and how many more may come."""
        record = group_of(self._view, self._request)
        assert record is not None, "there is a group if its policy is asked for"
        groups, kind = self._view.groups, record.group.domain
        standing = groups.standing(record)
        there = [standing.get(domain, {}) for domain in groups.domains_of(host, kind)]
        names = sorted(set().union(*there))
        found = check.found
        if names:
            more = ", ..." if len(names) > _MEMBERS_NAMED_MAX else ""
            found += f" ({', '.join(names[:_MEMBERS_NAMED_MAX])}{more})"
        limit = record.group.max_per_domain
        free = None if limit is None or not there else max(0, limit - max(map(len, there)))
        return msgspec.structs.replace(check, found=found, free=free, limit=limit)

    # -- what is asked of the host itself -------------------------------------------------------

    def _of_root(self, host: ProviderRecord) -> Iterator[Check]:
        ask: CandidatesRequest = self._request.ask
        have = [name for name in sorted(ask.root_required) if name in host.traits]
        lacks = [name for name in sorted(ask.root_required) if name not in host.traits]
        if ask.root_required:
            asked = f"the host itself has {' and '.join(sorted(ask.root_required))}"
            yield Check("root_required", asked, _has_and_lacks(have, lacks), not lacks)
        if ask.root_forbidden:
            bad = sorted(ask.root_forbidden.intersection(host.traits))
            asked = f"the host itself has not {' or '.join(sorted(ask.root_forbidden))}"
            yield Check(
                "root_forbidden", asked, f"it has {' and '.join(bad)}" if bad else "it has not", not bad
            )
        places = RequestGroup(member_of=ask.root_member_of, not_member_of=ask.root_not_member_of)
        yield from self._of_places(places, host, [host])

    # -- groups ---------------------------------------------------------------------------------

    def _of_groups(self, host: ProviderRecord) -> Iterator[Check]:
        providers = self._providers(host)
        ask = self._request.ask
        yield from self._of_traits(RequestGroup(required=ask.guest_required), host, providers)
        for group in ask.groups:
            yield from self._of_traits(group, host, providers)
            yield from self._of_places(group, host, providers)
            yield from (
                self._of_part(part, host, providers) for part in self._parts if part.suffix == group.suffix
            )

    def _providers(self, host: ProviderRecord) -> list[ProviderRecord]:
        """The providers of the host, and the sharing providers that serve it."""
        view = self._view
        aggregates = {id for record in host.tree() for id in record.aggregates}
        sharing = [view.record(row) for row in sorted(view.rows_with_trait(SHARES_VIA_AGGREGATE))]
        serving = [record for record in sharing if not aggregates.isdisjoint(record.aggregates)]
        return [*host.tree(), *(record for record in serving if record.root is not host)]

    def _of_traits(
        self, group: RequestGroup, host: ProviderRecord, providers: list[ProviderRecord]
    ) -> Iterator[Check]:
        for any_of in group.required:
            having = [record for record in providers if not set(any_of).isdisjoint(record.traits)]
            asked = any_of[0] if len(any_of) == 1 else f"one of {', '.join(any_of)}"
            found = _who(having[0], host, "has it") if having else "no provider of the host has it"
            yield Check(f"required{group.suffix}", asked, found, bool(having))
        if group.forbidden:
            bad = [record for record in providers if not group.forbidden.isdisjoint(record.traits)]
            asked = f"not {' or '.join(sorted(group.forbidden))}"
            names = sorted(group.forbidden.intersection(bad[0].traits)) if bad else []
            found = _who(bad[0], host, f"has {' and '.join(names)}") if bad else "it has none of them"
            yield Check(f"forbidden{group.suffix}", asked, found, len(bad) < len(providers))

    def _of_places(
        self, group: RequestGroup, host: ProviderRecord, providers: list[ProviderRecord]
    ) -> Iterator[Check]:
        view = self._view
        inside = {id for record in providers if record.root is host for id in record.aggregates}
        names = sorted(aggregate_name(view, id) for id in inside)
        found = f"in {', '.join(names)}" if names else "in no aggregate"
        for ids in group.member_of:
            yield Check(
                f"member_of{group.suffix}", f"in {_named(view, ids)}", found, not inside.isdisjoint(ids)
            )
        if group.not_member_of:
            asked = f"not in {_named(view, tuple(sorted(group.not_member_of)))}"
            yield Check(f"not_member_of{group.suffix}", asked, found, group.not_member_of.isdisjoint(inside))
        if group.in_tree is not None:
            wanted = view.providers.get(group.in_tree)
            is_it = wanted is not None and wanted.root is host
            yield Check(
                f"in_tree{group.suffix}", f"in the tree of {group.in_tree}", f"it is {host.name}", is_it
            )

    def _of_part(self, part: AmountPart, host: ProviderRecord, providers: list[ProviderRecord]) -> Check:
        """A class, on the provider that comes closest of those that could serve; of all, if none could."""
        name = f"resources{part.suffix}:{part.name}"
        asked = f"{part.asked} {part.name}"
        having = [record for record in providers if part.class_id in record.inventories]
        usable = [record for record in having if part.usable[record.row]] or having
        if not usable:
            return Check(name, asked, "it has none", ok=False, free=0)
        stocks = [_stock(record, part) for record in usable]
        stock = max(stocks, key=lambda stock: (_fits(stock, part.asked), most_for_one(stock), stock.free))
        where = "" if stock.provider == host.name else f" on {stock.provider}"
        ok = _fits(stock, part.asked)
        found = _describe_stock(stock, part.asked, where)
        in_all = sum(max(0, stock.free) for stock in stocks)
        if part.splits and not ok and sum(map(most_for_one, stocks)) >= part.asked:
            found = f"{in_all} free on {len(stocks)} providers together"
            return Check(name, asked, found, True, in_all, sum(stock.capacity for stock in stocks), stock)
        if not ok and in_all > max(0, stock.free):
            found += f"; {in_all} on {len(stocks)} providers together"
        return Check(name, asked, found, ok, most_for_one(stock), stock.capacity, stock)

    def _of_candidates(self, host: ProviderRecord, has_parts: bool) -> Check:
        """Whether there is a candidate; if not, though the host has each part, what falls short."""
        found = next(self._candidates.at(host), None) is not None
        words = "there is a candidate"
        if not found:
            ask, slots = self._request.ask, self._candidates.slots
            short = describe_shortage(self._view, ask, slots, host) if has_parts else None
            words = short or "there is no candidate for all of it"
        return Check("together", "all of it at once on one host", words, found)


# -- resources ----------------------------------------------------------------------------------


def _stock(record: ProviderRecord, part: AmountPart) -> Stock:
    inventory, used = record.inventories[part.class_id], record.used.get(part.class_id, 0)
    return Stock(
        provider=record.name,
        resource_class=part.name,
        total=inventory.total,
        reserved=inventory.reserved,
        allocation_ratio=inventory.allocation_ratio,
        capacity=inventory.capacity,
        used=used,
        free=inventory.capacity - used,
        min_unit=inventory.min_unit,
        max_unit=inventory.max_unit,
        step_size=inventory.step_size,
    )


def most_for_one(stock: Stock) -> int:
    """The largest amount that one consumer could have."""
    most = min(stock.free, stock.max_unit) // stock.step_size * stock.step_size
    return most if most >= max(stock.min_unit, 1) else 0


def _fits(stock: Stock, asked: int) -> bool:
    in_units = stock.min_unit <= asked <= stock.max_unit and asked % stock.step_size == 0
    return in_units and asked <= stock.free


def _describe_stock(stock: Stock, asked: int, where: str) -> str:
    """What a provider has, and what is in the way."""
    said = f"{max(stock.free, 0)} free of {stock.capacity}{where}"
    if stock.free < 0:
        said += f", {-stock.free} more used than there is"
    if stock.reserved:
        said += f", {stock.reserved} of {stock.total} reserved"
    if asked < stock.min_unit:
        said += f"; no less than {stock.min_unit} at a time (min_unit)"
    if asked > stock.max_unit:
        said += f"; no more than {stock.max_unit} at a time (max_unit)"
    if asked % stock.step_size:
        said += f"; only multiples of {stock.step_size} (step_size)"
    return said


# -- words --------------------------------------------------------------------------------------


def _who(record: ProviderRecord, host: ProviderRecord, does: str) -> str:
    return f"it {does}" if record is host else f"{record.name} {does}"


def _named(view: View, ids: tuple[AggregateId, ...]) -> str:
    return "the aggregate " + " or ".join(aggregate_name(view, id) for id in ids)


def _has_and_lacks(have: list[str], lacks: list[str]) -> str:
    said = [f"has {' and '.join(have)}"] if have else []
    said += [f"lacks {' and '.join(lacks)}"] if lacks else []
    return f"it {' and '.join(said)}"

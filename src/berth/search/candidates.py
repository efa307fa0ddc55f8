"""Allocation candidates: allocation requests that satisfy a whole request; bounded, fair across roots,
deterministic.

The usual request, one group from one provider, is answered from masks alone. Everything else is searched
anchor by anchor, and only as far as the limit asks: breadth first takes one candidate of each root before
the second of any, so that a limit still shows the whole fleet.
"""

import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from berth.model.placement import Amounts
from berth.model.rejections import Rejection, ResourceClassNotFound
from berth.model.scheduling import CandidatesRequest
from berth.search.anchors import anchors_of, walk_anchors
from berth.search.assignments import (
    STEPS_PER_RESULT,
    Assignment,
    Effort,
    assignments_at,
    assignments_of_sharing,
)
from berth.search.patterns import AlikeTrees, BarrenTrees, Candidate, Pattern, Patterns, TreeCandidates
from berth.search.providers import (
    find_unknown_host_traits,
    find_unknown_traits,
    in_all_aggregates,
    narrow_to_roots,
)
from berth.search.slots import Slot, slots_of
from berth.view import ProviderRecord, View

T = TypeVar("T")


class Sampler(Protocol):
    """The part of ``random.Random`` that a search uses."""

    def sample(self, population: Sequence[T], k: int) -> list[T]: ...


class SearchOptions(msgspec.Struct, frozen=True):
    """``max_candidates`` bounds what is generated (-1: no bound); with an ``rng`` results are a random
    sample of that, in random order."""

    max_candidates: int = -1
    breadth_first: bool = True
    rng: Sampler | None = None


class OneProviderCandidates(Sequence[Candidate]):
    """Candidates that differ in nothing but their one provider, kept as just that list."""

    def __init__(self, suffix: str, amounts: Amounts, records: list[ProviderRecord]) -> None:
        self.suffix = suffix
        self.amounts = amounts
        self.records = records
        self._pattern = Pattern(((0, amounts),) if amounts else (), ((suffix, (0,)),))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Candidate:  # type: ignore[override]
        return Candidate(self._pattern, (self.records[index],))


class Candidates(msgspec.Struct, frozen=True):
    """The answer: the candidates found, and what they touch: the roots of trees that are shown as a whole;
    or, for callers before nested providers, the providers that the candidates take from."""

    requests: Sequence[Candidate]
    touched: Sequence[ProviderRecord]
    effort: Effort


def find_candidates(view: View, request: CandidatesRequest, options: SearchOptions) -> Candidates | Rejection:
    unknown = find_unknown_host_traits(view, request)
    if unknown is not None:
        return unknown
    slots = slots_of(view, request)
    effort = Effort(_results_max(request, options))
    if isinstance(slots, Rejection):
        refused = _find_refusal(view, request, options)
        return Candidates((), (), effort) if refused is None else refused
    anchors = anchors_of(view, request, slots)
    found: Sequence[Candidate]
    if len(slots) == 1 and not slots[0].spans and not request.guest_required:
        found = _one_provider(view, slots[0], anchors, request, options)
    else:
        found = _search(view, request, slots, anchors, options, effort)
    return Candidates(found, _find_touched(request, found), effort)


def _results_max(request: CandidatesRequest, options: SearchOptions) -> int:
    """How many candidates may be generated; with no bound at all, as many as numbers go."""
    ends = [options.max_candidates] if options.max_candidates >= 0 else []
    if request.limit is not None and options.rng is None:
        ends.append(request.limit)
    return min(ends, default=sys.maxsize // STEPS_PER_RESULT)


def _find_refusal(view: View, request: CandidatesRequest, options: SearchOptions) -> Rejection | None:
    """What a request that names something unknown is refused for; None if nothing could be found anyhow.

    Upstream goes from group to group, and in each from classes to aggregates, traits, tree and amounts. It
    ends with nothing at the first that nothing meets, and does not see the unknown name behind it.
    """
    roots = view.roots()
    narrow_to_roots(view, roots, request)
    if _asks_roots(request) and not roots.any():
        return None
    for group in request.groups:
        for name, _ in group.resources:
            if view.classes.id_of(name) is None:
                return ResourceClassNotFound(name)
        inside = in_all_aggregates(view, group.member_of)
        if inside is not None and not inside.any():
            return None
        unknown = find_unknown_traits(view, group)
        if unknown is not None:
            return unknown
        alone = msgspec.structs.replace(request, groups=(group,), same_subtrees=(), limit=1)
        found = find_candidates(view, alone, options)
        if isinstance(found, Rejection) or not found.requests:
            return None
    raise AssertionError("a request that names something unknown was refused by none of its groups")


def _asks_roots(request: CandidatesRequest) -> bool:
    return bool(
        request.root_required
        or request.root_forbidden
        or request.root_member_of
        or request.root_not_member_of
    )


def _one_provider(
    view: View,
    slot: Slot,
    anchors: np.ndarray[tuple[int], np.dtype[np.bool_]],
    request: CandidatesRequest,
    options: SearchOptions,
) -> OneProviderCandidates:
    """Every provider that fits is a candidate, once, if there is any root to anchor it."""
    usable = slot.own
    if _asks_roots(request):
        usable = usable & anchors[view.root_rows]
        for row, served in slot.sharing.items():
            usable[row] = usable[row] or (anchors & served).any()
    rows = np.flatnonzero(usable)[: _results_max(request, options)]
    numbers = _limit(rows.tolist(), request, options)
    records = [view.record(row) for row in numbers]
    return OneProviderCandidates(slot.group.suffix, slot.amounts, records)


def _search(
    view: View,
    request: CandidatesRequest,
    slots: list[Slot],
    anchors: np.ndarray[tuple[int], np.dtype[np.bool_]],
    options: SearchOptions,
    effort: Effort,
) -> Sequence[Candidate]:
    if not anchors.any():
        return []
    roots = walk_anchors(view, request, slots, anchors)
    patterns = Patterns(slots)
    count_max = _results_max(request, options)
    if not any(slot.sharing for slot in slots):
        trees = AlikeTrees(view, request, slots, effort, patterns)
        search = trees.breadth_first if options.breadth_first else trees.depth_first
        found = search(roots, count_max)
        return found.pick(_limit(range(len(found)), request, options)) if options.rng else found
    searches: Iterator[Iterator[Candidate]]
    searches = map(patterns.candidates, _search_trees(view, request, slots, roots, effort))
    if all(slot.sharing for slot in slots):
        shared = assignments_of_sharing(view, request, slots, anchors, effort)
        searches = itertools.chain(searches, [patterns.candidates(shared)])
    candidates = _round_robin(searches) if options.breadth_first else itertools.chain.from_iterable(searches)
    if all(slot.sharing for slot in slots):
        candidates = _unique(candidates)
    kept = list(itertools.islice(candidates, count_max))
    return _limit(kept, request, options)


def _search_trees(
    view: View,
    request: CandidatesRequest,
    slots: list[Slot],
    roots: Iterable[ProviderRecord],
    effort: Effort,
) -> Iterator[Iterator[Assignment]]:
    """A search for each root, but those whose trees are like one in which nothing was found."""
    barren = BarrenTrees(view, request, slots)

    def search(root: ProviderRecord) -> Iterator[Assignment]:
        given_up = effort.gave_up
        assignments = assignments_at(view, request, slots, root, effort)
        for assignment in assignments:
            yield assignment
            yield from assignments
            return
        if effort.gave_up == given_up:
            barren.note(root)

    return (search(root) for root in roots if not barren.has_alike(root))


def _limit(found: Sequence[T], request: CandidatesRequest, options: SearchOptions) -> Sequence[T]:
    """No more than the request's limit, chosen at random where that is asked for."""
    if options.max_candidates >= 0:
        found = found[: options.max_candidates]
    count = len(found) if request.limit is None else min(request.limit, len(found))
    return found[:count] if options.rng is None else options.rng.sample(found, count)


def _round_robin(searches: Iterator[Iterator[T]]) -> Iterator[T]:
    """One result of each search, then the second of each, and so on; a search starts when its turn comes."""
    waiting: deque[Iterator[T]] = deque()
    for search in searches:
        for result in search:
            waiting.append(search)
            yield result
            break
    while waiting:
        search = waiting.popleft()
        for result in search:
            waiting.append(search)
            yield result
            break


def _unique(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """A candidate of sharing providers alone is also found at the root of one of them: it is kept once."""
    seen: set[tuple[object, ...]] = set()
    for candidate in candidates:
        key = (candidate.pattern, *(record.row for record in candidate.records))
        if key not in seen:
            seen.add(key)
            yield candidate


def _find_touched(request: CandidatesRequest, found: Sequence[Candidate]) -> Sequence[ProviderRecord]:
    if request.nested and isinstance(found, TreeCandidates):
        return [tree.records[0] for tree in dict.fromkeys(found.trees)]
    used: Iterable[ProviderRecord]
    if isinstance(found, OneProviderCandidates):
        used = found.records if found.amounts else ()
    else:
        used = dict.fromkeys(record for candidate in found for record, _ in candidate.allocations)
    return list(dict.fromkeys([record.root for record in used])) if request.nested else list(used)

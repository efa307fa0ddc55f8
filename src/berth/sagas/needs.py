"""Needs: what other services need for a server (a port's bandwidth, an accelerator), as part of what it
holds.

A need is part of every claim and every move of its server from then on: ``requests`` puts it into the
request, and notes where it is met. Here it is set and removed, for a server that is not busy:

* a server that holds resources gets the need on its host, in the same change as its record, or is refused;
* a server that holds nothing (it is shelved and offloaded, or never had a place) gets it when it is placed;
* units of a server that may be running are not taken away: it is stopped first.

So at every moment all of a server's needs are held, or none.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from berth.ledger import decide, replace_record
from berth.model.commands import UNCHECKED, Claim, Enact, ReplaceAllocations
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import INSTANCE, NUMA_ROOT, SHARES_VIA_AGGREGATE
from berth.model.rejections import (
    NeedDoesNotFit,
    NeedInUse,
    NeedNotFound,
    Rejection,
    ResourceClassNotFound,
    ServerBusy,
    ServerNotFound,
    ServerUnsettled,
    SpecInvalid,
    TooManyNeeds,
)
from berth.model.saga_runs import Assignment, assignment_id
from berth.model.scheduling import Affinity, HostCandidate
from berth.model.servers import (
    NEED_GROUPS_TOTAL_MAX,
    NEEDS_MAX,
    NOT_RUNNING,
    Held,
    Host,
    Need,
    Place,
    Server,
)
from berth.sagas.conflicts import ConflictRules, ServerHoldings, find_holdings, minus, plus
from berth.sagas.proposals import request_units
from berth.sagas.requests import ask_needs, flavor_sizes, groups_of, list_pci_groups, locate_needs
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.flavors import read_flavor
from berth.scheduler.plugins import CANDIDATES_TRIED_MAX
from berth.search.cells import find_cell, find_sockets
from berth.search.providers import find_unknown_traits
from berth.view import ProviderRecord, Trial, View

_ASKED: Final = "change the needs"


def set_need(view: View, now_s: int, rules: ConflictRules, id: str, need: Need) -> Enact | Rejection:
    """Give a server a need, in place of what it had under that name."""
    server = _find_changeable(view, id)
    if isinstance(server, Rejection):
        return server
    others, before = _split_needs(server, need.name)
    wrong = find_wrong(view, (*others, need))
    if wrong is not None:
        return wrong
    holdings = find_holdings(view, server, rules, _ASKED, now_s)
    if not isinstance(holdings, ServerHoldings):
        return holdings
    rest = _find_rest(holdings, before)
    if server.place is None or not holdings.held:
        return Enact((replace_record(view, _replace_needs(server, (*others, need), now_s)),))
    had = () if before is None else before.held
    met = _meet(view, server, server.place, need, rest, had, now_s)
    if isinstance(met, Rejection):
        return met
    return _claim_needs(view, server, (*others, met), plus((rest, met.held)), holdings, now_s)


def remove_need(view: View, now_s: int, rules: ConflictRules, id: str, name: str) -> Enact | Rejection:
    """Remove a need, and release what is held for it."""
    server = _find_changeable(view, id)
    if isinstance(server, Rejection):
        return server
    others, before = _split_needs(server, name)
    if before is None:
        return NeedNotFound(id, name)
    if not before.held:
        return Enact((replace_record(view, _replace_needs(server, others, now_s)),))
    in_use = _find_in_use(view, server, name, before.held, ())
    if in_use is not None:
        return in_use
    holdings = find_holdings(view, server, rules, _ASKED, now_s)
    if not isinstance(holdings, ServerHoldings):
        return holdings
    return _claim_needs(view, server, others, _find_rest(holdings, before), holdings, now_s)


def _find_changeable(view: View, id: str) -> Server | Rejection:
    """The server, if its needs may be changed now. While a run is under way the run says what is held;
    while a move waits for its confirmation the migration has the other half, without the need."""
    server = view.records.get(Server, id)
    if server is None:
        return ServerNotFound(id)
    if server.run is not None:
        return ServerBusy(id, _ASKED, server.task or "busy")
    if server.migration is not None:
        return ServerUnsettled(id, _ASKED, server.migration)
    return server


def find_wrong(view: View, needs: tuple[Need, ...]) -> Rejection | None:
    """What is wrong with the needs of a server: there are too many, or one names what does not exist."""
    if len(needs) > NEEDS_MAX:
        return TooManyNeeds("needs", len(needs), NEEDS_MAX)
    groups = [group for need in needs for group in groups_of(need)]
    if len(groups) > NEED_GROUPS_TOTAL_MAX:
        return TooManyNeeds("groups in its needs", len(groups), NEED_GROUPS_TOTAL_MAX)
    for group in groups:
        for name, _ in group.resources:
            if view.classes.id_of(name) is None:
                return ResourceClassNotFound(name)
        unknown = find_unknown_traits(view, group)
        if unknown is not None:
            return unknown
    return None


def _split_needs(server: Server, name: str) -> tuple[tuple[Need, ...], Need | None]:
    """The server's other needs, and the one of this name."""
    others = tuple(need for need in server.needs if need.name != name)
    before = next((need for need in server.needs if need.name == name), None)
    return others, before


def _find_rest(holdings: ServerHoldings, before: Need | None) -> Held:
    """What is held beside a need."""
    return holdings.held if before is None else minus(holdings.held, before.held)


def _find_in_use(view: View, server: Server, name: str, before: Held, after: Held) -> NeedInUse | None:
    """Why a need cannot become smaller: its units would be given to others while the server uses them."""
    if server.state in NOT_RUNNING or server.place is None:
        return None
    host = view.records.get(Host, server.place.id)
    assigned = view.records.get(Assignment, assignment_id(server.id, server.place.id))
    named = {} if host is None else dict(host.unit_classes)
    given = {} if assigned is None else assigned.units
    for id, amounts in minus(before, after):
        for kind, _ in amounts:
            # The host may have got another shape since the units were given, or before it was told here.
            if kind in named.get(id, ()) or kind in given.get(id, ()):
                return NeedInUse(server.id, name, kind, server.state)
    return None


def _replace_needs(server: Server, needs: tuple[Need, ...], now_s: int) -> Server:
    return msgspec.structs.replace(server, needs=needs, updated_at_s=now_s)


def _claim_needs(
    view: View, server: Server, needs: tuple[Need, ...], held: Held, holdings: ServerHoldings, now_s: int
) -> Enact:
    """The command by which the server holds this from now on, and its record says so."""
    after = msgspec.structs.replace(
        _replace_needs(server, needs, now_s),
        held=held,
        kept=holdings.kept,
        conflict=None,
        generation=(holdings.generation or 0) + 1 if held else None,
    )
    claim = _make_claim(server, held, holdings.generation)
    units = request_units(view, after)
    changes = (replace_record(view, after), *(() if units is None else (units,)))
    return Enact(changes, (ReplaceAllocations((claim,)),))


def _make_claim(server: Server, held: Held, generation: int | None) -> Claim:
    return Claim(ConsumerId(server.id), held, server.project, server.user, generation, INSTANCE)


# -- where it is met ----------------------------------------------------------------------------


def _meet(
    view: View, server: Server, place: Place, need: Need, rest: Held, had: Held, now_s: int
) -> Need | Rejection:
    """The need with where it is met: each of its groups by one provider of the server's host, or one that
    shares with it; where it was met before, if it can be.

    What the need ``had`` before is released first, in a trial: a server that has 4 of 5 and wants 5 is not
    refused. Nothing else may read the view meanwhile.
    """
    if not need.parts:
        return _find_in_use(view, server, need.name, had, ()) or need
    freed = msgspec.structs.replace(_make_claim(server, rest, None), generation=UNCHECKED)
    verdict = decide(view, ReplaceAllocations((freed,)), now_s)
    refused: Rejection | None = None
    kept_from: NeedInUse | None = None
    with Trial(view) as trial:
        if not isinstance(verdict, Rejection):
            trial.apply(verdict)
        near = list(islice(_find_near(view, server, place, need, rest, had), CANDIDATES_TRIED_MAX))
        for candidate in near:
            whole = msgspec.structs.replace(freed, wanted=plus((rest, candidate.wanted)))
            verdict = decide(view, ReplaceAllocations((whole,)), now_s)
            if isinstance(verdict, Rejection):
                refused = verdict
                continue
            (met,) = locate_needs((need,), candidate)
            in_use = _find_in_use(view, server, need.name, had, met.held)
            if in_use is None:
                return met
            kept_from = kept_from or in_use
        is_far = not near and next(_find_candidates(view, place, need), None) is not None
        short = None if near or is_far else _find_short_group(view, place, need)
    return kept_from or NeedDoesNotFit(server.id, need.name, place.name, refused, short, is_far)


def _find_candidates(
    view: View,
    place: Place,
    need: Need,
    had: Held = (),
    far: Mapping[str, frozenset[ProviderId]] = {},
) -> Iterator[HostCandidate]:
    """The ways to meet a need at a host, those first that use the providers which it ``had``. ``far``: what
    is too far away for each group, by its suffix."""
    ask = ask_needs((need,))
    groups = tuple(
        msgspec.structs.replace(group, ruled_out=far.get(group.suffix, frozenset())) for group in ask.groups
    )
    host = view.providers.get(ProviderId(place.id))
    first = frozenset(id for id, _ in had)
    candidates = HostCandidates.of(view, msgspec.structs.replace(ask, groups=groups), first, is_there=True)
    assert not isinstance(candidates, Rejection), "the names have been looked at"
    return iter(()) if host is None else candidates.at(host)


def _find_near(
    view: View, server: Server, place: Place, need: Need, rest: Held, had: Held
) -> Iterator[HostCandidate]:
    """The ways to meet a need in which PCI devices are as near to the server's NUMA cells as they must be,
    and those first in which they are as near as they should be. ``rest``: what the server holds beside the
    need."""
    pci_groups = list_pci_groups((need,))
    asked = read_flavor(flavor_sizes(server.flavor), server.image_properties, pci_groups=pci_groups)
    if not pci_groups or isinstance(asked, SpecInvalid):
        yield from _find_candidates(view, place, need, had)
        return
    host = view.providers.get(ProviderId(place.id))
    suffixes = {suffix for suffix, _ in pci_groups}
    seen: set[HostCandidate] = set()
    for ask in (asked.ask, *asked.otherwise[-1:]):
        affinities = [affinity for affinity in ask.affinities if affinity.suffix in suffixes]
        far = {one.suffix: _find_far(view, host, one, rest) for one in affinities}
        for candidate in _find_candidates(view, place, need, had, far):
            if candidate not in seen:
                seen.add(candidate)
                yield candidate


def _find_far(
    view: View, host: ProviderRecord | None, affinity: Affinity, rest: Held
) -> frozenset[ProviderId]:
    """The providers that a host could use and that are not near a NUMA cell which the server holds something
    of: in it or, where that will do, on its socket, or in no cell at all."""
    cells = [view.providers[id] for id, _ in rest if NUMA_ROOT in view.providers[id].traits]
    sockets = {name for cell in cells if affinity.by_socket for name in find_sockets(cell)}
    pools = map(view.record, view.rows_with_trait(SHARES_VIA_AGGREGATE))

    def is_near(record: ProviderRecord) -> bool:
        at = find_cell(record)
        if at is None:
            return affinity.or_outside
        return at in cells or not sockets.isdisjoint(find_sockets(at))

    usable = (*(() if host is None else host.tree()), *pools)
    return frozenset(record.id for record in usable if not is_near(record))


def _find_short_group(view: View, place: Place, need: Need) -> str | None:
    """The first group of a need of several that the host has no room for by itself; None: each of them has
    room, and not all together."""
    for group in need.groups:
        alone = Need(need.name, {}, groups=(group,))
        if next(_find_candidates(view, place, alone), None) is None:
            return group.name
    return None

"""What is done to a server where it is: rebuild, shelve, offload, start, stop."""

from collections.abc import Callable
from typing import Final

import msgspec

from berth.model.commands import Enact
from berth.model.ids import ProviderId
from berth.model.rejections import HostIsDown, HostLacksTraits, HostUnfitForImage, Rejection, SpecInvalid
from berth.model.saga_runs import ClaimSnapshot
from berth.model.servers import Image, Server
from berth.sagas.conflicts import ServerHoldings, adopt_holdings, find_holdings
from berth.sagas.hosts import is_down
from berth.sagas.proposals import Context, find_startable, make_run, record_run, reject_unsettled
from berth.sagas.requests import flavor_sizes, make_request
from berth.sagas.saga import BY_NAME, find_released
from berth.scheduler.flavors import FlavorAsk, ask_of
from berth.scheduler.plugins import name_of
from berth.scheduler.spec_table import keep_properties
from berth.view import View

_READ_IMAGES: Final = ("architecture", "hypervisor_type", "image_isolation")
"""Filters that are asked when a server gets another image where it is."""


def propose(
    view: View, now_s: int, context: Context, id: str, name: str, after: Server | None = None
) -> Enact | Rejection:
    """``name`` is one of start, stop, shelve, shelve_away, shelve_offload, unshelve_here, rebuild."""
    saga = BY_NAME[name]
    server = find_startable(view, id, saga)
    if isinstance(server, Rejection):
        return server
    place = server.place
    if place is None or server.migration is not None:
        return reject_unsettled(server, saga)
    is_spared = all(step.unless_down or step.at == "books" for step in saga.steps)
    if is_down(view, place) and not is_spared:
        return HostIsDown(place.name, saga.action)
    if any(step.at == "books" for step in saga.steps):
        released = find_released(saga)
        holdings = find_holdings(view, server, context.rules, saga.action, now_s, released=released)
        if not isinstance(holdings, ServerHoldings):
            return holdings
        server = adopt_holdings(server, holdings)
    run = make_run(
        context,
        after or server,
        name,
        ClaimSnapshot(server.held, server.generation),
        dest=place,
        runs=server.state != "stopped",
    )
    shown = msgspec.structs.replace(after or server, state_before=server.state, fault=None)
    return record_run(view, context, shown, run, place.cell, now_s)


def propose_rebuild(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    image: Image,
    renewed: Callable[[Server], Server] = lambda server: server,
) -> Enact | Rejection:
    """Rebuild from an image. What the image requires of its host must be there: the server stays on it.
    ``renewed`` gives it what else it shall be called from now on."""
    server = find_startable(view, id, BY_NAME["rebuild"])
    if isinstance(server, Rejection):
        return server
    needed = ask_of(flavor_sizes(server.flavor), image.properties)
    if isinstance(needed, SpecInvalid):
        return needed
    properties = keep_properties(image.properties)
    if isinstance(properties, SpecInvalid):
        return properties
    lacking = _lacking(view, server, image)
    if lacking and server.place is not None:
        return HostLacksTraits(server.place.name, lacking)
    after = msgspec.structs.replace(renewed(server), image=image.id, image_properties=properties)
    unfit = _unfit(view, context, after, needed)
    if unfit is not None:
        return unfit
    return propose(view, now_s, context, id, "rebuild", after)


def _unfit(view: View, context: Context, server: Server, needed: FlavorAsk) -> HostUnfitForImage | None:
    """What the filters that read images say of the server's host."""
    host = None if server.place is None else view.providers.get(ProviderId(server.place.id))
    request = make_request(server, needed)
    for filter in context.scheduler.filters if host is not None else ():
        if name_of(filter) in _READ_IMAGES and (words := filter.asked(view, request)) is not None:
            assert host is not None, "without a host no filter is asked"
            if not filter.passing(view, request)[host.row]:
                return HostUnfitForImage(host.name, words, filter.found(view, request, host))
    return None


def _lacking(view: View, server: Server, image: Image) -> tuple[str, ...]:
    """The traits that the image requires and no provider of the server's host has."""
    if server.place is None:
        return ()
    host = view.providers.get(ProviderId(server.place.id))
    there = {trait for record in host.tree() for trait in record.traits} if host is not None else set()
    required = {
        key.removeprefix("trait:")
        for key, value in image.properties.items()
        if key.startswith("trait:") and value == "required"
    }
    return tuple(sorted(required - there))

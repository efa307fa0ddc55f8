"""What is done to a server where it is: rebuild, shelve, offload, start, stop."""

from collections.abc import Callable
from typing import Final

import msgspec

from berth.model.commands import Enact
from berth.model.ids import ProviderId
from berth.model.rejections import HostIsDown, HostLacksTraits, HostUnfitForImage, Rejection, SpecInvalid
from berth.model.saga_runs import ClaimSnapshot
from berth.model.servers import Image, Server
from berth.sagas.conflicts import ServerHoldings, standing, taken_over
from berth.sagas.hosts import is_down
from berth.sagas.proposals import Context, begun, order, startable, unsettled
from berth.sagas.requests import schedule_request, sizes
from berth.sagas.saga import BY_NAME, released_by
from berth.scheduler.flavors import FlavorAsk, ask_of
from berth.scheduler.plugins import name_of
from berth.scheduler.spec_table import keep_properties
from berth.view import View

_READ_IMAGES: Final = ("architecture", "hypervisor_type", "image_isolation")
"""Filters that are asked when a server gets another image where it is."""


def begin(
    view: View, now_s: int, asked: Context, id: str, name: str, after: Server | None = None
) -> Enact | Rejection:
    """``name`` is one of start, stop, shelve, shelve_away, shelve_offload, unshelve_here, rebuild."""
    operation = BY_NAME[name]
    server = startable(view, id, operation)
    if isinstance(server, Rejection):
        return server
    place = server.place
    if place is None or server.migration is not None:
        return unsettled(server, operation)
    is_spared = all(step.unless_down or step.at == "books" for step in operation.steps)
    if is_down(view, place) and not is_spared:
        return HostIsDown(place.name, operation.action)
    if any(step.at == "books" for step in operation.steps):
        released = released_by(operation)
        stands = standing(view, server, asked.rules, operation.action, now_s, released=released)
        if not isinstance(stands, ServerHoldings):
            return stands
        server = taken_over(server, stands)
    work = order(
        asked,
        after or server,
        name,
        ClaimSnapshot(server.held, server.generation),
        dest=place,
        runs=server.state != "stopped",
    )
    shown = msgspec.structs.replace(after or server, state_before=server.state, fault=None)
    return begun(view, asked, shown, work, place.cell, now_s)


def begin_rebuild(
    view: View,
    now_s: int,
    asked: Context,
    id: str,
    image: Image,
    renewed: Callable[[Server], Server] = lambda server: server,
) -> Enact | Rejection:
    """Rebuild from an image. What the image requires of its host must be there: the server stays on it.
    ``renewed`` gives it what else it shall be called from now on."""
    server = startable(view, id, BY_NAME["rebuild"])
    if isinstance(server, Rejection):
        return server
    needed = ask_of(sizes(server.flavor), image.properties)
    if isinstance(needed, SpecInvalid):
        return needed
    properties = keep_properties(image.properties)
    if isinstance(properties, SpecInvalid):
        return properties
    lacking = _lacking(view, server, image)
    if lacking and server.place is not None:
        return HostLacksTraits(server.place.name, lacking)
    after = msgspec.structs.replace(renewed(server), image=image.id, image_properties=properties)
    unfit = _unfit(view, asked, after, needed)
    if unfit is not None:
        return unfit
    return begin(view, now_s, asked, id, "rebuild", after)


def _unfit(view: View, asked: Context, server: Server, needed: FlavorAsk) -> HostUnfitForImage | None:
    """What the filters that read images say of the server's host."""
    host = None if server.place is None else view.providers.get(ProviderId(server.place.id))
    request = schedule_request(server, needed)
    for filter in asked.scheduler.filters if host is not None else ():
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

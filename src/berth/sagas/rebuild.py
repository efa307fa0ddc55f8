"""Rebuild: make a server anew from an image, on the host where it is.

ACTIVE, SHUTOFF or ERROR --(rebuild)--> as before, or ACTIVE
a failing host: ERROR
"""

from collections.abc import Callable
from typing import Final

import msgspec

from berth.model.commands import Enact
from berth.model.ids import ProviderId
from berth.model.rejections import HostLacksTraits, HostUnfitForImage, Rejection, SpecInvalid
from berth.model.servers import Image, Server
from berth.sagas.proposals import Context, find_startable, propose_in_place
from berth.sagas.requests import flavor_sizes, make_request
from berth.sagas.saga import AS_BEFORE, Outcome, Saga, Step, states
from berth.scheduler.flavors import FlavorAsk, read_flavor
from berth.scheduler.plugins import name_of
from berth.scheduler.spec_table import Fate, image_property, keep_properties
from berth.view import View

SAGA = Saga(
    name="rebuild",
    action="rebuild",
    task="rebuilding",
    starts_in=states("active", "stopped", "error"),
    steps=(Step("rebuild", at="dest", do="rebuild"),),
    done=Outcome(state=AS_BEFORE, holds="dest"),
    failed=Outcome(state="error", holds="dest"),
    requested_by="`rebuild`",
)

_READ_IMAGES: Final = ("architecture", "hypervisor_type", "image_isolation")
"""Filters that are asked when a server gets another image where it is."""


_READ_BY_FILTERS: Final = ("hw_architecture",)
"""Properties of hosts, and not of guests."""


def propose(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    image: Image,
    renewed: Callable[[Server], Server] = lambda server: server,
) -> Enact | Rejection:
    """Rebuild from an image. What the image requires of its host must be there: the server stays on it.
    ``renewed`` gives it its new name and metadata."""
    server = find_startable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    devices = context.scheduler.devices
    needed = read_flavor(flavor_sizes(server.flavor), image.properties, devices=devices)
    if isinstance(needed, SpecInvalid):
        return needed
    other = _find_other_guest(server, image)
    if other is not None:
        return other
    properties = keep_properties(image.properties)
    if isinstance(properties, SpecInvalid):
        return properties
    lacking = _find_missing_traits(view, server, image)
    if lacking and server.place is not None:
        return HostLacksTraits(server.place.name, lacking)
    after = msgspec.structs.replace(renewed(server), image=image.id, image_properties=properties)
    unfit = _find_unfit(view, context, after, needed)
    if unfit is not None:
        return unfit
    return propose_in_place(view, now_s, context, id, SAGA, after)


def _find_other_guest(server: Server, image: Image) -> SpecInvalid | None:
    """What the image says of its guest that the server, which stays where it is, has not got. An image may
    repeat what the flavor says."""
    specs = server.flavor.extra_specs
    for name in sorted({*server.image_properties, *image.properties}):
        row = image_property(name)
        if row is None or row.fate is not Fate.USED or not name.startswith("hw_") or name in _READ_BY_FILTERS:
            continue
        of_flavor = specs.get(name.replace("hw_", "hw:", 1))
        had, has = (texts.get(name, of_flavor) for texts in (server.image_properties, image.properties))
        if had != has:
            kept = "left out" if had is None else had
            accepted = f"{kept}: the server keeps what it was created with, and a resize can change that"
            return SpecInvalid(name, has or "not given", accepted)
    return None


def _find_unfit(view: View, context: Context, server: Server, needed: FlavorAsk) -> HostUnfitForImage | None:
    """What the filters that read images say of the server's host."""
    host = None if server.place is None else view.providers.get(ProviderId(server.place.id))
    request = make_request(server, needed)
    for filter in context.scheduler.filters if host is not None else ():
        if name_of(filter) in _READ_IMAGES and (words := filter.describe_request(view, request)) is not None:
            assert host is not None, "without a host no filter is asked"
            if not filter.passing_hosts(view, request)[host.row]:
                return HostUnfitForImage(host.name, words, filter.describe_host(view, request, host))
    return None


def _find_missing_traits(view: View, server: Server, image: Image) -> tuple[str, ...]:
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

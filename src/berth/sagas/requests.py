"""What a server asks of the scheduler: its flavor, its image, the needs of other services, and where it
may go."""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.model.ids import ConsumerId, GroupId, ProviderId
from berth.model.placement import INSTANCE, SHARES_VIA_AGGREGATE, is_pci_class
from berth.model.rejections import SpecInvalid
from berth.model.saga_runs import Destination
from berth.model.scheduling import (
    ANY_CELL,
    CandidatesRequest,
    Generation,
    Hints,
    HostCandidate,
    RequestGroup,
    ScheduleRequest,
)
from berth.model.servers import Flavor, Held, Need, NeedGroup, Server, ServerHints
from berth.sagas.conflicts import overlap, plus
from berth.sagas.hosts import place_of
from berth.scheduler.devices import ALIAS_KEY, PROFILE_KEY, DeviceCatalog
from berth.scheduler.flavors import FlavorAsk, FlavorSize, PciGroups, read_flavor
from berth.view import View

_KEPT: Final = "kept."
"""The names of needs that stand for what others have added begin so. Those of services have no dot."""


def flavor_sizes(flavor: Flavor) -> FlavorSize:
    return FlavorSize(
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.disk_gb,
        ephemeral_gb=flavor.ephemeral_gb,
        swap_mb=flavor.swap_mb,
        extra_specs=flavor.extra_specs,
        aliases=flavor.aliases,
        profile=flavor.profile,
    )


def copy_flavor(flavor: Flavor, devices: DeviceCatalog) -> Flavor:
    """The copy of a flavor that a server keeps: without the projects that may use it, and with what its names
    of devices mean now."""
    aliases, profile = devices.select(flavor.extra_specs)
    return msgspec.structs.replace(flavor, projects=(), aliases=aliases, profile=profile)


def suffix_of(need: Need, group: NeedGroup) -> str:
    """What a group of a need is called in a request. Names of needs and groups have no colon."""
    return f"_need_{need.name}:{group.name}" if group.name else f"_need_{need.name}"


def groups_of(need: Need) -> tuple[RequestGroup, ...]:
    return tuple(
        RequestGroup(
            suffix=suffix_of(need, group),
            label=_describe_group(need, group),
            resources=tuple(group.resources.items()),
            required=tuple((name,) for name in group.required),
            forbidden=frozenset(group.forbidden),
        )
        for group in need.parts
    )


def _describe_group(need: Need, group: NeedGroup) -> str:
    """What people know it by. What other clients have added has no name."""
    if need.name.startswith(_KEPT):
        return ""
    return f"the group {group.name} of the need {need.name}" if group.name else f"the need {need.name}"


def ask_needs(needs: tuple[Need, ...], ask: CandidatesRequest | None = None) -> CandidatesRequest:
    """A request for these needs, beside what is asked for already."""
    ask = ask or CandidatesRequest(groups=())
    subtrees = tuple(
        frozenset(suffix_of(need, group) for group in need.groups if group.name in need.same_subtree)
        for need in needs
        if need.same_subtree
    )
    apart = tuple(
        frozenset(suffix_of(need, group) for group in need.groups) for need in needs if need.isolates
    )
    return msgspec.structs.replace(
        ask,
        groups=ask.groups + tuple(group for need in needs for group in groups_of(need)),
        same_subtrees=ask.same_subtrees + subtrees,
        distinct=ask.distinct + apart,
    )


def list_pci_groups(needs: Iterable[Need]) -> PciGroups:
    """The groups of needs that ask for PCI devices."""
    return tuple(
        (suffix_of(need, group), need.numa_policy)
        for need in needs
        for group in need.parts
        if any(map(is_pci_class, group.resources))
    )


def ask_resources(
    server: Server, devices: DeviceCatalog, kept: tuple[Need, ...] = ()
) -> FlavorAsk | SpecInvalid:
    """What a server needs, all together; ``kept``: what others have added."""
    flavor_ask = read_flavor(
        flavor_sizes(server.flavor),
        server.image_properties,
        devices=devices,
        pci_groups=list_pci_groups(server.needs),
    )
    if isinstance(flavor_ask, SpecInvalid) or not (server.needs or kept):
        return flavor_ask
    needs = (*server.needs, *kept)
    return flavor_ask.map_asks(lambda ask: ask_needs(needs, ask))


def ask_place(
    view: View,
    server: Server,
    devices: DeviceCatalog,
    others: tuple[Need, ...] = (),
    *,
    host: str | None = None,
    cell: str = ANY_CELL,
    ignore_hosts: frozenset[str] = frozenset(),
    alternates: int,
    generation: Generation,
    uses: frozenset[ProviderId] = frozenset(),
) -> ScheduleRequest | SpecInvalid:
    """The request for another place of a server that is there. ``host``: the only one considered, and then
    there are no alternates. ``others``: what other clients have added."""
    changed = _find_changed_device(view, server, devices)
    if changed is not None:
        return changed
    needed = ask_resources(server, devices, others)
    if isinstance(needed, SpecInvalid):
        return needed
    return make_request(
        drop_stale_hints(view, server),
        needed,
        host=host,
        cell=cell,
        ignore_hosts=ignore_hosts,
        alternates=alternates if host is None else 0,
        generation=generation,
        uses=uses,
    )


def _find_changed_device(view: View, server: Server, devices: DeviceCatalog) -> SpecInvalid | None:
    """The name of a device that means something else now than what the server holds. Only servers from before
    such meanings were kept with them can have one; one that holds nothing gets what the name means now."""
    flavor, specs = server.flavor, server.flavor.extra_specs
    asked: list[tuple[str, RequestGroup]] = []
    if ALIAS_KEY in specs and not flavor.aliases and server.held:
        found = devices.find_devices(specs)
        if isinstance(found, SpecInvalid):
            return found
        asked += ((ALIAS_KEY, group) for _, group in found)
    if PROFILE_KEY in specs and flavor.profile is None and server.held:
        groups = devices.find_profile(specs)
        if isinstance(groups, SpecInvalid):
            return groups
        asked += ((PROFILE_KEY, group) for group in groups)
    sums: dict[tuple[str, str, str, tuple[tuple[str, ...], ...]], int] = {}
    for key, group in asked:
        for name, amount in group.resources:
            kind = (key, group.label, name, group.required)
            sums[kind] = sums.get(kind, 0) + amount
    for (key, label, name, required), amount in sums.items():
        held = sum(
            dict(amounts).get(name, 0)
            for id, amounts in server.held
            if id in view.providers
            and all(set(view.providers[id].traits).intersection(any_of) for any_of in required)
        )
        if held < amount:
            traits = "".join(f" with {any_of[0]}" for any_of in required)
            return SpecInvalid(
                key,
                specs[key],
                f"what the server holds: {label} means {name}{traits} now, of which the server holds {held} "
                f"and not {amount}. The server is older than the meanings that are kept with servers: give "
                "the name its earlier meaning back, or resize the server",
            )
    return None


def make_request(
    server: Server,
    needed: FlavorAsk,
    *,
    members: tuple[str, ...] | None = None,
    at_least: int = 1,
    host: str | None = None,
    cell: str = ANY_CELL,
    ignore_hosts: frozenset[str] = frozenset(),
    alternates: int = 0,
    generation: Generation = None,
    uses: frozenset[ProviderId] = frozenset(),
) -> ScheduleRequest:
    """``host``: the only one considered."""
    hints = server.hints
    return ScheduleRequest(
        ask=needed.ask,
        members=tuple(ConsumerId(id) for id in members or (server.id,)),
        at_least=at_least,
        project=server.project,
        user=server.user,
        consumer_type=INSTANCE,
        group=None if server.group is None else GroupId(server.group),
        zone=server.zone,
        cell=cell,
        metadata=needed.metadata,
        image=needed.image,
        hints=Hints(
            same_host=tuple(ConsumerId(id) for id in hints.same_host),
            different_host=tuple(ConsumerId(id) for id in hints.different_host),
            host_names=() if host is None else (host,),
            ignore_hosts=ignore_hosts,
        ),
        alternates=alternates,
        generation=generation,
        uses=uses,
        otherwise=needed.otherwise,
    )


def drop_stale_hints(view: View, server: Server) -> Server:
    """The server without hints that name consumers which are gone."""

    def there(ids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(id for id in ids if ConsumerId(id) in view.consumers)

    hints = ServerHints(there(server.hints.same_host), there(server.hints.different_host))
    return server if hints == server.hints else msgspec.structs.replace(server, hints=hints)


def make_destination(
    view: View, server: Server, planned: HostCandidate, kept: tuple[Need, ...] = (), shared: Held = ()
) -> Destination:
    """A destination for a server, as a run has it. ``shared`` is what the server held on sharing providers
    before."""
    return Destination(
        place_of(view, planned.host),
        planned.wanted,
        locate_needs(server.needs, planned),
        plus(need.held for need in locate_needs(kept, planned)),
        overlap(shared, planned.wanted),
    )


def kept_needs(view: View, kept: Held) -> tuple[Need, ...]:
    """What others have added, as needs to be asked for again: what was held on one provider is asked of
    one provider. A provider below its host is a device, and its substitute must have the same traits; of a
    host itself, or a pool, only the amounts count: the flavor says which hosts suit."""
    return tuple(
        Need(f"{_KEPT}{number}", dict(amounts), _device_traits(view, provider))
        for number, (provider, amounts) in enumerate(kept, 1)
    )


def _device_traits(view: View, provider: ProviderId) -> tuple[str, ...]:
    record = view.providers[provider]
    if record.parent is None:
        return ()
    return tuple(sorted(name for name in record.traits if name != SHARES_VIA_AGGREGATE))


def locate_needs(needs: tuple[Need, ...], planned: HostCandidate) -> tuple[Need, ...]:
    """Needs, each with where it is met by a candidate."""
    providers = dict(planned.mappings)

    def locate(need: Need, group: NeedGroup) -> Held:
        amounts = tuple(group.resources.items())
        return tuple((id, amounts) for id in providers.get(suffix_of(need, group), ())[:1])

    return tuple(meet_need(need, tuple(locate(need, group) for group in need.parts)) for need in needs)


def meet_need(need: Need, held: tuple[Held, ...]) -> Need:
    """The need with what is held for each of its groups, in their order."""
    groups = tuple(
        msgspec.structs.replace(group, held=part) for group, part in zip(need.groups, held, strict=False)
    )
    return msgspec.structs.replace(need, held=plus(held), groups=groups)


def release_need(need: Need) -> Need:
    """The need while nothing is held for it."""
    return meet_need(need, ((),) * len(need.parts))

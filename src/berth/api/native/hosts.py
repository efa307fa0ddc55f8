"""/berth/v1/hosts: the hosts, how they are doing, what they have and who holds it.

A host is named by its uuid or by its name. Lists are in the order of uuids. What filters leave is found with
masks over all rows and one look at each host that is left; the sums of a page are made from whole columns
(``view.capacity_sums``). So a page costs some milliseconds at 10,000 hosts, whatever it asks for.
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from heapq import merge
from itertools import groupby
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from berth.api.kernel.codes import BAD_PARAMETER
from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, render_keys, take_first
from berth.api.kernel.problem import Problem
from berth.api.kernel.times import show_time
from berth.api.native.allocations import find_provider, name_of_consumer
from berth.api.native.calls import NativeCall, NativeRoute, answer_from, respond
from berth.api.native.cells import configured_cells
from berth.api.native.fields import (
    LIMIT_DEFAULT,
    UNKNOWN_TYPE,
    Amounts,
    JournalIndex,
    KeyMarker,
    Limit,
    NativeBody,
    Next,
    Text,
    Time,
    Uuid,
)
from berth.model.commands import SetHostStatus
from berth.model.ids import AggregateId, ConsumerId, ProviderId, Row
from berth.model.placement import CELL, HEALTHY, SHARES_VIA_AGGREGATE, HostStatus
from berth.model.rejections import ComputeHostNotFound, NotAHost, PoolIsNoHost, Rejection
from berth.model.servers import CellStatus, Host, Server
from berth.sagas.hosts import status_of
from berth.scheduler.hosts import aggregate_names
from berth.view import Mask, ProviderRecord, View
from berth.view.capacity_sums import CapacitySum, sum_by_group

# -- answers ------------------------------------------------------------------------------------

HostStateName = Literal["up", "down", "disabled"]


class Domain(msgspec.Struct):
    """An aggregate with a kind that a host is in."""

    uuid: str
    kind: str
    name: str | None


class ClassUse(msgspec.Struct):
    """Of one resource class, summed: what can be used in all, and what is used."""

    capacity: int
    used: int


Use = Annotated[dict[str, ClassUse], Meta(description="Capacity and use by the name of the resource class.")]


class HostDetail(msgspec.Struct, kw_only=True):
    """``state`` is in one word what ``down`` and ``disabled`` say: a host that is both is ``down``. ``usage``
    sums over all providers of its tree; ``servers`` is how many there are. ``last_heartbeat``: of a host that
    is down, when its last heartbeat came; of any other, when its conductor last said that heartbeats come
    within the timeout, as far as the region knows: a minute or two ago."""

    uuid: Uuid
    name: str
    state: HostStateName
    disabled: bool
    down: bool
    build_failures: int
    reason: str | None
    cell: str | None
    driver: Annotated[str | None, Meta(description="Of its agent; null for a host without one.")]
    last_heartbeat: Time | None
    domains: list[Domain]
    complaints: list[str]
    """What its agent reported and could not be written, and why. The host is up all the same."""
    usage: Use
    servers: int


class OneHost(msgspec.Struct):
    host: HostDetail


class Hosts(msgspec.Struct):
    """A page of hosts, in the order of their uuids. All changes up to the ``index`` are in it, and none of
    those behind it: whoever follows the events knows which of them to add."""

    index: JournalIndex
    hosts: list[HostDetail]
    next: Next = None


class InventoryUse(msgspec.Struct):
    total: int
    reserved: int
    allocation_ratio: float
    min_unit: int
    max_unit: int
    step_size: int
    used: int


class TreePart(msgspec.Struct):
    """One provider of a host's tree: the host itself, a NUMA cell, a device."""

    uuid: Uuid
    name: str
    parent: Uuid | None
    generation: int
    inventories: dict[str, InventoryUse]
    traits: list[str]
    aggregates: list[str]


class HostConsumer(msgspec.Struct):
    """Who holds something on a host. ``name`` is the server's, of a migration that of the server it moves;
    null for one that is no server here. ``allocations``: what it holds on this host, by provider."""

    uuid: Uuid
    type: str
    project_id: str
    name: str | None
    allocations: dict[str, Amounts]


class HostTreeDetail(HostDetail, kw_only=True):
    """A host with all that it has. ``providers`` come parents first, ``consumers`` in the order of their
    uuids; where there are more than are shown, the totals say so."""

    providers: list[TreePart]
    providers_total: int
    consumers: list[HostConsumer]
    consumers_total: int


class OneHostTree(msgspec.Struct):
    """The host as it is at the ``index``."""

    index: JournalIndex
    host: HostTreeDetail


# -- bodies and queries -------------------------------------------------------------------------

_FAILURES_MAX: Final = 1_000_000
PROVIDERS_MAX: Final = 1_000
CONSUMERS_MAX: Final = 1_000
"""How many of each one host is shown with."""

_Failures = Annotated[int, Meta(ge=0, le=_FAILURES_MAX, description="Builds that failed there in a row.")]
_Reason = Annotated[Text, Meta(description="Why it is disabled, for those who meet it.")]
_Disabled = Annotated[bool, Meta(description="An operator does not want anything new there.")]


class NewStatus(NativeBody, frozen=True, kw_only=True):
    """The status of a host. What is left out is as for a healthy host."""

    disabled: _Disabled = False
    down: Annotated[bool, Meta(description="No heartbeat comes from it.")] = False
    build_failures: _Failures = 0
    reason: _Reason | None = None


class SetStatus(NativeBody, frozen=True, kw_only=True):
    host: NewStatus


class StatusChange(NativeBody, frozen=True, kw_only=True):
    """What is to change of the status of a host. What is left out stays, but a host that is enabled loses
    the reason for which it was disabled."""

    disabled: _Disabled | UnsetType = UNSET
    build_failures: _Failures | UnsetType = UNSET
    reason: _Reason | UnsetType | None = UNSET


class ChangeStatus(NativeBody, frozen=True, kw_only=True):
    host: StatusChange


NamePattern = Annotated[
    str,
    Meta(
        min_length=1, max_length=255, description="Only hosts of this name; `*` and `?` stand for any text."
    ),
]
DomainName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=320,
        description="Only hosts in this domain: the uuid of an aggregate, or KIND:NAME, such as `rack:r1`.",
    ),
]


CellName = Annotated[str, Meta(min_length=1, max_length=255, description="Only hosts of this cell.")]
DriverName = Annotated[
    str, Meta(min_length=1, max_length=255, description="Only hosts whose agent has this driver.")
]


class HostsQuery(msgspec.Struct, frozen=True, kw_only=True):
    name: NamePattern | None = None
    state: Annotated[HostStateName, Meta(description="Only hosts in this state.")] | None = None
    cell: CellName | None = None
    driver: DriverName | None = None
    domain: DomainName | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


# -- which host ---------------------------------------------------------------------------------


def find_host_id(view: View, named: str) -> ProviderId | Rejection:
    """The host of this uuid, or else of this name."""
    record = find_provider(view, named)
    if record is None:
        agent = view.records.get(Host, named.lower())
        agents = view.records.find(Host, "name", named) if agent is None else [agent]
        return ProviderId(agents[0].id) if agents else ComputeHostNotFound(named)
    if record.parent is not None:
        return NotAHost(record.id, record.root.id)
    return PoolIsNoHost(record.id, record.name) if view.is_pool(record) else record.id


def state_of(status: HostStatus) -> HostStateName:
    return "down" if status.down else "disabled" if status.disabled else "up"


def _status_of(view: View, id: ProviderId) -> HostStatus:
    agent = view.records.get(Host, id)
    return view.hosts.get(id, HEALTHY) if agent is None else status_of(view, agent)


def _cell_of(view: View, id: ProviderId) -> str | None:
    agent = view.records.get(Host, id)
    if agent is not None:
        return agent.cell
    names = aggregate_names(view, CELL, view.providers[id])
    return names[0] if names else None


# -- filters ------------------------------------------------------------------------------------


def _walk_hosts(view: View, marker: str | None) -> Iterable[ProviderId]:
    """All hosts behind the marker, in order."""
    with_provider = (id for id in view.provider_order.behind(marker) if _is_host(view, id))
    known = map(ProviderId, view.records.hosts_behind(marker))
    with_agent = (id for id in known if id not in view.providers or _is_host(view, id))
    # Most are in both, one after the other.
    return (id for id, _ in groupby(merge(with_provider, with_agent)))


def _is_host(view: View, id: ProviderId) -> bool:
    record = view.providers[id]
    return record.parent is None and not view.is_pool(record)


def _hosts_without_provider(view: View) -> list[ProviderId]:
    view.steps.take(view.records.count(Host) // 4)
    known = (ProviderId(host.id) for host in view.records.all(Host))
    return [id for id in known if id not in view.providers]


def _find_hosts(view: View, query: HostsQuery) -> list[ProviderId]:
    """The hosts that the filters leave, behind the marker, in order."""
    rows = (_in_state(view, query.state) & _in_domain(view, query.domain)).nonzero()[0].tolist()
    view.steps.take(len(rows))
    records = map(view.record, map(Row, rows))
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    found = [record.id for record in records if record.row not in sharing or not view.is_pool(record)]
    if query.domain is None:
        is_in_state = _is_in_state(view, query.state)
        found += filter(is_in_state, _hosts_without_provider(view))
    for is_meant in _conditions(view, query):
        found = list(filter(is_meant, found))
    return behind(found, query.marker)


def _in_state(view: View, state: HostStateName | None) -> Mask:
    mask = view.roots()
    down, disabled = view.down.mask(view.row_end), view.disabled.mask(view.row_end)
    match state:
        case "down":
            return mask & down
        case "disabled":
            return mask & disabled & ~down
        case "up":
            return mask & ~(down | disabled)
    return mask


def _is_in_state(view: View, state: HostStateName | None) -> Callable[[ProviderId], bool]:
    return lambda id: state is None or state_of(_status_of(view, id)) == state


def _in_domain(view: View, domain: str | None) -> Mask:
    if domain is None:
        return np.ones(view.row_end, np.bool_)
    return view.rows_in_aggregate(_find_domain(view, domain)).mask(view.row_end)


def _find_domain(view: View, named: str) -> AggregateId:
    """A domain that a filter names. One that does not exist is a mistake, not an empty list."""
    kind, _, name = named.partition(":")
    labels = view.groups.labels
    for id in view.groups.of_kind(kind) if name else ():
        if labels[id].name == name:
            return id
    for id in (AggregateId(named), AggregateId(named.lower())):
        if id in labels:
            return id
    raise Problem(
        400,
        f"domain: there is no domain {named!r}; give the uuid of an aggregate with a kind, or KIND:NAME.",
        BAD_PARAMETER,
    )


def _refuse_unknown(view: View, call: NativeCall) -> None:
    """A cell or a driver that a filter names. One that does not exist is a mistake, too. Not on later pages:
    its last host may have left since the first. Before any agent has joined, no driver is known."""
    query: HostsQuery = call.query
    if query.marker is not None:
        return
    if query.cell is not None:
        labelled = [view.groups.labels[id].name for id in view.groups.of_kind(CELL)]
        known = {*configured_cells(call), *view.records.keys(Host, "cell"), *filter(None, labelled)}
        _require_known("cell", query.cell, known)
    if query.driver is not None:
        view.steps.take(view.records.count(Host))
        drivers = {host.driver for host in view.records.all(Host)}
        _require_known("driver", query.driver, drivers or {query.driver})


def _require_known(name: str, asked: str, known: set[str]) -> None:
    if asked not in known:
        listed = ", ".join(sorted(known)[:_KNOWN_SHOWN]) or "none"
        raise Problem(400, f"{name}: no host has the {name} {asked!r}; known are: {listed}.", BAD_PARAMETER)


def _conditions(view: View, query: HostsQuery) -> list[Callable[[ProviderId], bool]]:
    """What is asked of hosts one by one."""
    asked: list[Callable[[ProviderId], bool]] = []
    if query.name is not None:
        # What stands in brackets is no wildcard here, but part of a name.
        matches = re.compile(translate(query.name.replace("[", "[[]"))).match
        asked.append(lambda id: matches(_name_of(view, id)) is not None)
    if query.driver is not None:
        asked.append(
            lambda id: (agent := view.records.get(Host, id)) is not None and agent.driver == query.driver
        )
    if query.cell is not None:
        asked.append(lambda id: _cell_of(view, id) == query.cell)
    return asked


def _name_of(view: View, id: ProviderId) -> str:
    record = view.providers.get(id)
    if record is not None:
        return record.name
    agent = view.records.get(Host, id)
    return id if agent is None else agent.name


# -- handlers -----------------------------------------------------------------------------------

_KNOWN_SHOWN: Final = 20
_STEPS_PER_HOST: Final = 6
"""To describe one and to render it."""


def list_hosts(view: View, call: NativeCall) -> Hosts:
    query: HostsQuery = call.query
    _refuse_unknown(view, call)
    is_filtered = any((query.name, query.state, query.cell, query.driver, query.domain))
    hosts = _find_hosts(view, query) if is_filtered else _walk_hosts(view, query.marker)
    found, more = take_first(hosts, query.limit)
    view.steps.take(_STEPS_PER_HOST * len(found))
    use = sum_use(view, found)
    page = render_keys(call.request, query, found, more, lambda id: _describe(view, id, use[id]))
    return Hosts(view.index, *page)


def show_host(view: View, call: NativeCall) -> OneHostTree:
    id = call.accept(find_host_id(view, call.params[0]))
    record = view.providers.get(id)
    tree = () if record is None else record.tree()
    here = {part.id for part in tree}
    holders = sorted({consumer for part in tree for consumer in part.consumers})
    view.steps.take(_STEPS_PER_HOST * (len(tree) + min(len(holders), CONSUMERS_MAX)))
    shown = msgspec.structs.asdict(_describe(view, id, sum_use(view, [id])[id]))
    return OneHostTree(
        view.index,
        HostTreeDetail(
            **shown,
            providers=[_describe_part(view, part) for part in tree[:PROVIDERS_MAX]],
            providers_total=len(tree),
            consumers=[_describe_holder(view, holder, here) for holder in holders[:CONSUMERS_MAX]],
            consumers_total=len(holders),
        ),
    )


async def set_host_status(call: NativeCall) -> Response:
    asked: NewStatus = call.body.host
    status = HostStatus(asked.disabled, asked.down, asked.build_failures, asked.reason)
    return await _submit_status(call, lambda before: status)


async def change_host_status(call: NativeCall) -> Response:
    asked: StatusChange = call.body.host
    given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not UNSET}
    if given.get("disabled") is False:
        given.setdefault("reason", None)
    return await _submit_status(call, lambda before: msgspec.structs.replace(before, **given))


async def _submit_status(call: NativeCall, change: Callable[[HostStatus], HostStatus]) -> Response:
    named = call.params[0]

    def propose(view: View, _: int) -> SetHostStatus | Rejection:
        id = find_host_id(view, named)
        if isinstance(id, Rejection):
            return id
        return SetHostStatus(id, change(view.hosts.get(id, HEALTHY)))

    def answer(view: View) -> Response:
        id = call.accept(find_host_id(view, named))
        return respond(OneHost(_describe(view, id, sum_use(view, [id])[id])))

    return await call.submit(propose, answer)


# -- what is shown ------------------------------------------------------------------------------


def sum_use(view: View, hosts: list[ProviderId]) -> dict[ProviderId, Use]:
    """Capacity and use of each host, over its tree."""
    groups = np.full(view.row_end, -1, np.int64)
    known = [id for id in hosts if id in view.providers]
    groups[[view.providers[id].row for id in known]] = range(len(known))
    sums = sum_by_group(view, groups[view.root_rows], len(known))
    return {id: {} for id in hosts} | {id: show_use(use) for id, use in zip(known, sums, strict=True)}


def show_use(sums: dict[str, CapacitySum]) -> Use:
    return {name: ClassUse(*amounts) for name, amounts in sums.items()}


def _describe(view: View, id: ProviderId, use: Use) -> HostDetail:
    """A host by its provider, by its agent, or by both."""
    record, agent = view.providers.get(id), view.records.get(Host, id)
    status = _status_of(view, id)
    labels = view.groups.labels
    domains = [
        Domain(aggregate, label.kind, label.name)
        for aggregate in (() if record is None else record.aggregates)
        if (label := labels.get(aggregate)) is not None and label.kind is not None
    ]
    return HostDetail(
        uuid=id,
        name=_name_of(view, id),
        state=state_of(status),
        disabled=status.disabled,
        down=status.down,
        build_failures=status.build_failures,
        reason=status.reason,
        cell=_cell_of(view, id),
        driver=None if agent is None else agent.driver,
        last_heartbeat=_show_heartbeat(view, agent),
        domains=domains,
        complaints=[] if agent is None else list(agent.complaints),
        usage=use,
        servers=view.records.count_found(Server, "host", id),
    )


def _show_heartbeat(view: View, agent: Host | None) -> str | None:
    if agent is None:
        return None
    cell = view.records.get(CellStatus, agent.cell)
    heard_at_s = agent.heard_at_s
    if not agent.is_silent and cell is not None:
        heard_at_s = max(heard_at_s, cell.heard_at_s)
    return show_time(heard_at_s) if heard_at_s else None


def _describe_part(view: View, part: ProviderRecord) -> TreePart:
    inventories = {
        view.classes.name_of(class_id): InventoryUse(
            inventory.total,
            inventory.reserved,
            inventory.allocation_ratio,
            inventory.min_unit,
            inventory.max_unit,
            inventory.step_size,
            part.used.get(class_id, 0),
        )
        for class_id, inventory in sorted(part.inventories.items())
    }
    return TreePart(
        part.id,
        part.name,
        None if part.parent is None else part.parent.id,
        part.generation,
        inventories,
        sorted(part.traits),
        sorted(part.aggregates),
    )


def _describe_holder(view: View, id: ConsumerId, here: set[ProviderId]) -> HostConsumer:
    holder = view.consumers[id]
    held: dict[str, Amounts] = {
        provider: {view.classes.name_of(class_id): amount for class_id, amount in amounts}
        for provider, amounts in holder.held
        if provider in here
    }
    name = name_of_consumer(view, id)
    return HostConsumer(id, holder.consumer.type or UNKNOWN_TYPE, holder.consumer.project, name, held)


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/hosts",
        answer_from(list_hosts),
        policy="berth:hosts:list",
        name="list_hosts",
        query=HostsQuery,
        answer=Hosts,
        summary="List hosts",
        description="Root providers with their status, their domains and their use, in the order of their "
        "uuids. Pools are not hosts: they are below `/pools`.",
    ),
    NativeRoute(
        "GET",
        "/hosts/{host}",
        answer_from(show_host),
        policy="berth:hosts:list",
        name="show_host",
        answer=OneHostTree,
        summary="Show a host",
        description="By its uuid or its name: its status, its domains, the providers of its tree with their "
        "inventories, who holds what of them, and the complaints of its agent: what the host has or had, and "
        "could not be written, and why.",
    ),
    NativeRoute(
        "PUT",
        "/hosts/{host}",
        set_host_status,
        policy="berth:hosts:update",
        name="set_host_status",
        body=SetStatus,
        example={"host": {"disabled": True, "reason": "new disks"}},
        answer=OneHost,
        summary="Disable or enable a host, or set its status",
        description="A host that is disabled or down keeps what it has, and nothing new is scheduled to it. "
        "What is left out is as for a healthy host: PATCH changes only what is named.",
    ),
    NativeRoute(
        "PATCH",
        "/hosts/{host}",
        change_host_status,
        policy="berth:hosts:update",
        name="change_host_status",
        body=ChangeStatus,
        example={"host": {"disabled": False}},
        answer=OneHost,
        summary="Change what is named of the status of a host",
        description="Disable a host with a reason, enable it, or set its build failures; all else stays.",
    ),
)

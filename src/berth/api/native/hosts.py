"""/berth/v1/hosts: the status of hosts, and the domains they are in."""

from heapq import merge
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, render_keys, take_first
from berth.api.native.calls import NativeCall, NativeRoute, answer_from, respond
from berth.api.native.fields import LIMIT_DEFAULT, KeyMarker, Limit, NativeBody, Next, Text, Uuid
from berth.model.commands import SetHostStatus
from berth.model.ids import ProviderId
from berth.model.placement import HEALTHY, HostStatus
from berth.model.rejections import NotAHost, PoolIsNoHost, ProviderNotFound
from berth.model.servers import Host
from berth.sagas.hosts import status_of
from berth.view import View

# -- answers ------------------------------------------------------------------------------------


class Domain(msgspec.Struct):
    """An aggregate with a kind that a host is in."""

    uuid: str
    kind: str
    name: str | None


class HostDetail(msgspec.Struct):
    uuid: Uuid
    name: str
    disabled: bool
    down: bool
    build_failures: int
    reason: str | None
    domains: list[Domain]
    complaints: list[str]
    """What its agent reported and could not be written, and why. The host is up all the same."""


class OneHost(msgspec.Struct):
    host: HostDetail


class Hosts(msgspec.Struct):
    """A page of hosts, in the order of their uuids."""

    hosts: list[HostDetail]
    next: Next = None


# -- bodies and queries -------------------------------------------------------------------------

_FAILURES_MAX: Final = 1_000_000


class NewStatus(NativeBody, frozen=True, kw_only=True):
    """The status of a host. What is left out is as for a healthy host."""

    disabled: Annotated[bool, Meta(description="An operator does not want anything new there.")] = False
    down: Annotated[bool, Meta(description="No heartbeat comes from it.")] = False
    build_failures: Annotated[
        int, Meta(ge=0, le=_FAILURES_MAX, description="Builds that failed there in a row.")
    ] = 0
    reason: Text | None = None


class SetStatus(NativeBody, frozen=True, kw_only=True):
    host: NewStatus


class HostsQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


# -- handlers -----------------------------------------------------------------------------------


def list_hosts(view: View, call: NativeCall) -> Hosts:
    query: HostsQuery = call.query
    providers = view.providers
    in_order = view.provider_order.behind(query.marker)
    hosts = (id for id in in_order if providers[id].parent is None and not view.is_pool(providers[id]))
    view.steps.take(view.records.count(Host))
    known = (ProviderId(host.id) for host in view.records.all(Host))
    bare = behind((id for id in known if id not in providers), query.marker)
    found, more = take_first(merge(hosts, bare), query.limit)
    return Hosts(*render_keys(call.request, query, found, more, lambda id: _describe(view, id)))


def show_host(view: View, call: NativeCall) -> OneHost:
    id = ProviderId(call.params[0].lower())
    record = view.providers.get(id)
    if record is None and view.records.get(Host, id) is None:
        raise call.problem_of(ProviderNotFound(id))
    if record is not None and record.parent is not None:
        raise call.problem_of(NotAHost(id, record.root.id))
    call.accept(_refuse_pool(view, id))
    return OneHost(_describe(view, id))


async def set_host_status(call: NativeCall) -> Response:
    asked: NewStatus = call.body.host
    id = ProviderId(call.params[0].lower())
    status = HostStatus(asked.disabled, asked.down, asked.build_failures, asked.reason)
    return await call.submit(
        lambda view, _: _refuse_pool(view, id) or SetHostStatus(id, status),
        lambda view: respond(OneHost(_describe(view, id))),
    )


def _refuse_pool(view: View, id: ProviderId) -> PoolIsNoHost | None:
    record = view.providers.get(id)
    return PoolIsNoHost(id, record.name) if record is not None and view.is_pool(record) else None


def _describe(view: View, id: ProviderId) -> HostDetail:
    """A host by its provider, by its agent, or by both."""
    record, agent = view.providers.get(id), view.records.get(Host, id)
    status = view.hosts.get(id, HEALTHY) if agent is None else status_of(view, agent)
    name = record.name if record is not None else agent.name if agent is not None else id
    labels = view.groups.labels
    domains = [
        Domain(aggregate, label.kind, label.name)
        for aggregate in (() if record is None else record.aggregates)
        if (label := labels.get(aggregate)) is not None and label.kind is not None
    ]
    return HostDetail(
        id,
        name,
        status.disabled,
        status.down,
        status.build_failures,
        status.reason,
        domains,
        [] if agent is None else list(agent.complaints),
    )


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
        description="Root providers with their status and their domains, in the order of their uuids. Pools "
        "are not hosts: they are below `/pools`.",
    ),
    NativeRoute(
        "GET",
        "/hosts/{host}",
        answer_from(show_host),
        policy="berth:hosts:list",
        name="show_host",
        answer=OneHost,
        summary="Show a host",
        description="Its status, its domains, and the complaints of its agent: what the host has or had, "
        "and could not be written, and why.",
    ),
    NativeRoute(
        "PUT",
        "/hosts/{host}",
        set_host_status,
        policy="berth:hosts:update",
        name="set_host_status",
        body=SetStatus,
        answer=OneHost,
        summary="Disable or enable a host, or set its status",
        description="A host that is disabled or down keeps what it has, and nothing new is scheduled to it.",
    ),
)

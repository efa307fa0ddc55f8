"""/berth/v1/hosts: how hosts are doing, and which domains they are in."""

from heapq import merge
from typing import Final

from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, cut, shown_page
from berth.api.kernel.rejections import berth_problem
from berth.api.native import bodies, wire_groups
from berth.api.native.calls import NativeCall, NativeRoute, encoded, listing
from berth.api.native.parameters import HostsQuery
from berth.model.commands import SetHostStatus
from berth.model.ids import ProviderId
from berth.model.placement import HEALTHY, HostStatus
from berth.model.rejections import NotAHost, ProviderNotFound
from berth.model.servers import Host
from berth.sagas.hosts import status_of
from berth.scheduler.hosts import is_pool
from berth.view import View


def page(view: View, call: NativeCall) -> wire_groups.Hosts:
    query: HostsQuery = call.query
    providers = view.providers
    in_order = view.provider_order.behind(query.marker)
    hosts = (id for id in in_order if providers[id].parent is None and not is_pool(view, providers[id]))
    view.steps.take(view.records.count(Host))
    known = (ProviderId(host.id) for host in view.records.all(Host))
    bare = behind((id for id in known if id not in providers), query.marker)
    found, more = cut(merge(hosts, bare), query.limit)
    return wire_groups.Hosts(*shown_page(call.request, query, found, more, lambda id: _host(view, id)))


def show(view: View, call: NativeCall) -> wire_groups.OneHost:
    id = ProviderId(call.params[0].lower())
    record = view.providers.get(id)
    if record is None and view.records.get(Host, id) is None:
        raise berth_problem(ProviderNotFound(id))
    if record is not None and record.parent is not None:
        raise berth_problem(NotAHost(id, record.root.id))
    return wire_groups.OneHost(_host(view, id))


async def put(call: NativeCall) -> Response:
    asked: bodies.NewStatus = call.body.host
    id = ProviderId(call.params[0].lower())
    status = HostStatus(asked.disabled, asked.down, asked.build_failures, asked.reason)
    return await call.submit(
        SetHostStatus(id, status),
        lambda view: encoded(wire_groups.OneHost(_host(view, id))),
    )


def _host(view: View, id: ProviderId) -> wire_groups.Host:
    """A host by its provider, by its agent, or by both."""
    record, agent = view.providers.get(id), view.records.get(Host, id)
    status = view.hosts.get(id, HEALTHY) if agent is None else status_of(view, agent)
    name = record.name if record is not None else agent.name if agent is not None else id
    labels = view.groups.labels
    domains = [
        wire_groups.Domain(aggregate, label.kind, label.name)
        for aggregate in (() if record is None else record.aggregates)
        if (label := labels.get(aggregate)) is not None and label.kind is not None
    ]
    return wire_groups.Host(
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
        listing(page),
        policy="berth:hosts:list",
        name="list_hosts",
        query=HostsQuery,
        answer=wire_groups.Hosts,
        summary="List hosts",
        description="Root providers with their status and their domains, in the order of their uuids.",
    ),
    NativeRoute(
        "GET",
        "/hosts/{host}",
        listing(show),
        policy="berth:hosts:list",
        name="show_host",
        answer=wire_groups.OneHost,
        summary="Show a host",
        description="Its status, its domains, and the complaints of its agent: what the host has or had, "
        "and could not be written, and why.",
    ),
    NativeRoute(
        "PUT",
        "/hosts/{host}",
        put,
        policy="berth:hosts:update",
        name="set_host_status",
        body=bodies.SetStatus,
        answer=wire_groups.OneHost,
        summary="Say how a host is doing",
        description="A host that is disabled or down keeps what it has, and nothing new is scheduled to it.",
    ),
)

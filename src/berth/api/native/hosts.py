"""/berth/v1/hosts: how hosts are doing, and which domains they are in."""

from berth.api.kernel.http import Response
from berth.api.native import bodies, wire_groups
from berth.api.native.calls import Call, encoded
from berth.api.native.pages import cut, shown_page
from berth.api.native.parameters import HostsQuery
from berth.api.native.rejected import problem
from berth.model.commands import SetHostStatus
from berth.model.hosts import HEALTHY, HostStatus
from berth.model.ids import ProviderId
from berth.model.rejections import NotAHost, ProviderNotFound
from berth.model.servers import Host
from berth.scheduler.pools import is_pool
from berth.view import ProviderRecord, View


def page(view: View, call: Call) -> wire_groups.Hosts:
    query: HostsQuery = call.query
    providers = view.providers
    behind = view.provider_order.behind(query.marker)
    hosts = (id for id in behind if providers[id].parent is None and not is_pool(view, providers[id]))
    found, more = cut(hosts, query.limit)
    return wire_groups.Hosts(
        *shown_page(call.request, query, found, more, lambda id: _host(view, providers[id]))
    )


def show(view: View, call: Call) -> wire_groups.OneHost:
    id = ProviderId(call.params[0].lower())
    record = view.providers.get(id)
    if record is None:
        raise problem(ProviderNotFound(id))
    if record.parent is not None:
        raise problem(NotAHost(id, record.root.id))
    return wire_groups.OneHost(_host(view, record))


async def put(call: Call) -> Response:
    asked: bodies.NewStatus = call.body.host
    id = ProviderId(call.params[0].lower())
    status = HostStatus(asked.disabled, asked.down, asked.build_failures, asked.reason)
    return await call.submit(
        SetHostStatus(id, status),
        lambda view: encoded(wire_groups.OneHost(_host(view, view.providers[id]))),
    )


def _host(view: View, record: ProviderRecord) -> wire_groups.Host:
    status = view.hosts.get(record.id, HEALTHY)
    agent = view.records.get(Host, record.id)
    labels = view.groups.labels
    domains = [
        wire_groups.Domain(id, label.kind, label.name)
        for id in record.aggregates
        if (label := labels.get(id)) is not None and label.kind is not None
    ]
    return wire_groups.Host(
        record.id,
        record.name,
        status.disabled,
        status.down,
        status.build_failures,
        status.reason,
        domains,
        [] if agent is None else list(agent.complaints),
    )

"""Hosts as a region knows them: how they are doing, and which cell they are in."""

import uuid
from typing import Final

import msgspec

from berth.ledger.records import next_number, replace_record
from berth.model.commands import Enact, LabelAggregate, LedgerCommand, SetAggregates, SetHostStatus
from berth.model.events import AnyRecord
from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import HEALTHY, HostStatus, Label
from berth.model.saga_runs import Agent
from berth.model.servers import Host, Place
from berth.scheduler.hosts import CELL_KIND
from berth.view import ProviderRecord, View

_NAMESPACE: Final = uuid.UUID("5b3f1c1e-8d57-4f0e-9e0b-2f5f2f9c7a11")


def cell_aggregate(cell: str) -> AggregateId:
    """The aggregate that all hosts of a cell are in."""
    return AggregateId(str(uuid.uuid5(_NAMESPACE, cell)))


def is_down(view: View, place: Place) -> bool:
    status = view.hosts.get(ProviderId(place.id))
    return status is not None and status.down


def status_of(view: View, host: Host) -> HostStatus:
    """How a host is doing, also where it has no provider to which the ledger could note it."""
    id = ProviderId(host.id)
    if id not in view.providers:
        return HostStatus(down=host.is_silent or host.is_forced_down)
    return view.hosts.get(id, HEALTHY)


def apply_host(view: View, agent: Agent, cell: str, now_s: int) -> Enact | None:
    """The command that brings what is known of a host up to what its cell says; None where it is.

    A host joins before its provider is written: without a provider it is known when it has complaints."""
    id = ProviderId(agent.id)
    provider = view.providers.get(id)
    known = view.records.get(Host, agent.id)
    if provider is None and known is None and not agent.complaints:
        return None
    name = _name(view, agent, provider)
    counter = next_number(view, "host")
    host = known or Host(
        id=agent.id,
        number=counter.value,
        name=name,
        cell=cell,
        registered_at_s=now_s,
    )
    after = msgspec.structs.replace(
        host,
        name=name,
        cell=cell,
        driver=agent.driver,
        is_silent=agent.is_down,
        complaints=agent.complaints,
    )
    commands: list[LedgerCommand] = []
    status = view.hosts.get(id, HEALTHY)
    down = after.is_silent or after.is_forced_down
    if provider is not None and status.down != down:
        commands.append(SetHostStatus(id, msgspec.structs.replace(status, down=down)))
    label = Label(CELL_KIND, cell)
    aggregate = cell_aggregate(cell)
    if view.groups.labels.get(aggregate) != label:
        commands.append(LabelAggregate(aggregate, label))
        commands += _without_hosts_of_others(view, aggregate, cell)
    if after == known and not commands:
        return None
    changed: list[AnyRecord] = []
    if after != known:
        changed.append(msgspec.structs.replace(after, updated_at_s=now_s))
    if known is None:
        changed.append(counter)
    return Enact(tuple(replace_record(view, record) for record in changed), tuple(commands))


def _name(view: View, agent: Agent, provider: ProviderRecord | None) -> str:
    """Another's name is not taken over: Placement has refused it, and the host goes on under its own."""
    if view.names.get(agent.name, provider) is not provider:
        return agent.id if provider is None else provider.name
    is_taken = provider is None and any(
        other.id != agent.id for other in view.records.find(Host, "name", agent.name)
    )
    return agent.id if is_taken else agent.name


def _without_hosts_of_others(view: View, aggregate: AggregateId, cell: str) -> list[SetAggregates]:
    """A cell that is new has no hosts of other cells: its uuid follows from its name, and can be known."""
    found = map(view.record, view.rows_in_aggregate(aggregate))
    others = [record for record in found if (host := view.records.get(Host, record.id)) and host.cell != cell]
    return [
        SetAggregates(record.id, record.generation, tuple(id for id in record.aggregates if id != aggregate))
        for record in others
    ]

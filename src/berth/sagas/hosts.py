"""What sagas know of hosts: which cell they are in, and whether they are up."""

import uuid
from typing import Final

from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import CELL, HEALTHY, HostStatus
from berth.model.servers import Host, Place
from berth.scheduler.hosts import aggregate_names
from berth.view import View

_NAMESPACE: Final = uuid.UUID("5b3f1c1e-8d57-4f0e-9e0b-2f5f2f9c7a11")


def cell_aggregate(cell: str) -> AggregateId:
    """The aggregate that all hosts of a cell are in."""
    return AggregateId(str(uuid.uuid5(_NAMESPACE, cell)))


def place_of(view: View, host: ProviderId) -> Place:
    record = view.providers[host]
    cells = aggregate_names(view, CELL, record)
    return Place(record.id, record.name, cells[0] if cells else "")


def is_down(view: View, place: Place) -> bool:
    status = view.hosts.get(ProviderId(place.id))
    return status is not None and status.down


def status_of(view: View, host: Host) -> HostStatus:
    """How a host is doing, also where it has no provider to which the ledger could note it."""
    id = ProviderId(host.id)
    if id not in view.providers:
        return HostStatus(down=host.is_silent or host.is_forced_down)
    return view.hosts.get(id, HEALTHY)

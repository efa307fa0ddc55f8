"""Hints name hosts and consumers; here they are looked up."""

from collections.abc import Iterable

from berth.model.ids import ConsumerId, ProviderId
from berth.model.scheduling import Hints, UnknownConsumer, UnknownHost
from berth.view import ProviderRecord, View


def host_called(view: View, name: str) -> ProviderRecord | None:
    """The host of this name, or uuid."""
    record = view.names.get(name) or view.providers.get(ProviderId(name))
    return record if record is not None and record.parent is None else None


def unknown_in(view: View, hints: Hints) -> UnknownHost | UnknownConsumer | None:
    """The first thing that the hints name and nobody knows: whoever named it meant something else, and would
    be surprised by any answer."""
    if hints.forced_host is not None and host_called(view, hints.forced_host) is None:
        return UnknownHost("forced_host", hints.forced_host)
    for name in sorted(hints.ignore_hosts):
        if host_called(view, name) is None:
            return UnknownHost("ignore_hosts", name)
    for hint, consumers in (("same_host", hints.same_host), ("different_host", hints.different_host)):
        for consumer in consumers:
            if consumer not in view.consumers:
                return UnknownConsumer(hint, consumer)
    return None


def hosts_of_consumers(view: View, consumers: Iterable[ConsumerId]) -> list[ProviderRecord]:
    """The hosts that any of them stands on."""
    records = [view.consumers.get(consumer) for consumer in consumers]
    return [host for record in records if record is not None for host in view.hosts_held(record.held)]

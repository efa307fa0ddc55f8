"""Changes of records as a reader sees them: what is shown of every kind of record, if anything.

The naive design shows a record as it is and takes out what is secret. Then whoever adds a field must remember
that it may be one. Here only what is named is shown, and a kind of record that is not named stops the program
when it is loaded.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, get_args

import msgspec

from berth.api.kernel.times import show_time
from berth.api.native import event_kinds as wire
from berth.model.clusters import Cluster
from berth.model.events import AnyRecord, RecordChanged
from berth.model.saga_runs import Agent, HostTree, Instance, Outbox, SagaRun, Term
from berth.model.servers import (
    Action,
    Aggregate,
    Counter,
    Flavor,
    Host,
    Image,
    Migration,
    QuotaSet,
    RevokedToken,
    Server,
)

TEXT_MAX: Final = 255
MAP_TEXT_MAX: Final = 2048
"""How many characters of a map are shown, keys and values together."""
LIST_MAX: Final = 32

V = TypeVar("V")


def change_of_record(event: RecordChanged) -> wire.Change:
    record = event.before if event.after is None else event.after
    assert record is not None, "a change of a record has a record"
    shown = _SHOWN.get(type(record))
    if shown is None:
        return wire.InternalChange(str(type(record).__struct_config__.tag))
    kind, values = shown
    change: wire.Change = kind(record.id, _values(values, event.before), _values(values, event.after))
    return change


def _values(values: Callable[[Any, "_Cut"], wire.RecordValues], record: AnyRecord | None) -> Any:
    if record is None:
        return None
    cut = _Cut()
    shown = values(record, cut)
    return msgspec.structs.replace(shown, left_out=tuple(cut.fields)) if cut.fields else shown


class _Cut:
    """Cuts long values, and remembers of which fields."""

    def __init__(self) -> None:
        self.fields: list[str] = []

    def text(self, field: str, text: str | None) -> str | None:
        if text is None or len(text) <= TEXT_MAX:
            return text
        self.fields.append(field)
        return text[:TEXT_MAX]

    def map(self, field: str, content: dict[str, V]) -> dict[str, V]:
        shown: dict[str, V] = {}
        left = MAP_TEXT_MAX
        for key in sorted(content):
            left -= len(key) + len(str(content[key]))
            if left < 0:
                self.fields.append(field)
                break
            shown[key] = content[key]
        return shown

    def texts(self, field: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        if len(texts) > LIST_MAX:
            self.fields.append(field)
        return texts[:LIST_MAX]


# -- what is shown ------------------------------------------------------------------------------


def _server(server: Server, cut: _Cut) -> wire.ServerValues:
    place = server.place
    return wire.ServerValues(
        name=server.name,
        project_id=server.project,
        user_id=server.user,
        state=server.state,
        task=server.task,
        power_state=server.power,
        host=None if place is None else place.name,
        cell=None if place is None else place.cell,
        flavor=server.flavor.name,
        image=server.image,
        availability_zone=server.zone,
        group=server.group,
        migration=server.migration,
        action=server.run,
        is_locked=server.is_locked,
        fault=None if server.fault is None else cut.text("fault", server.fault.message),
        metadata=cut.map("metadata", server.metadata),
        updated_at=show_time(server.updated_at_s),
    )


def _migration(migration: Migration, cut: _Cut) -> wire.MigrationValues:
    return wire.MigrationValues(
        number=migration.number,
        server=migration.server,
        migration_type=migration.type,
        status=migration.status,
        source_host=migration.source.name,
        dest_host=migration.dest.name,
        flavor_before=migration.flavor_before.name,
        flavor_after=migration.flavor_after.name,
        project_id=migration.project,
        user_id=migration.user,
        updated_at=show_time(migration.updated_at_s),
    )


def _flavor(flavor: Flavor, cut: _Cut) -> wire.FlavorValues:
    return wire.FlavorValues(
        name=flavor.name,
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.disk_gb,
        ephemeral_gb=flavor.ephemeral_gb,
        swap_mb=flavor.swap_mb,
        extra_specs=cut.map("extra_specs", flavor.extra_specs),
        is_public=flavor.is_public,
        projects=cut.texts("projects", flavor.projects),
    )


def _image(image: Image, cut: _Cut) -> wire.ImageValues:
    return wire.ImageValues(
        name=image.name,
        status=image.status,
        visibility=image.visibility,
        owner=image.owner,
        size=image.size,
        properties=cut.map("properties", image.properties),
        is_protected=image.is_protected,
        is_hidden=image.is_hidden,
        updated_at=show_time(image.updated_at_s),
    )


def _action(action: Action, cut: _Cut) -> wire.ActionValues:
    last = action.events[-1] if action.events else None
    return wire.ActionValues(
        server=action.server,
        name=action.name,
        request_id=action.request_id,
        project_id=action.project,
        user_id=action.user,
        steps=len(action.events),
        last_step=None if last is None else last.name,
        last_result=None if last is None else last.result,
        message=cut.text("message", action.message),
        updated_at=show_time(action.updated_at_s),
    )


def _host(host: Host, cut: _Cut) -> wire.ComputeHostValues:
    return wire.ComputeHostValues(
        name=host.name,
        cell=host.cell,
        driver=host.driver,
        is_silent=host.is_silent,
        is_forced_down=host.is_forced_down,
        complaints=cut.texts("complaints", host.complaints),
        updated_at=show_time(host.updated_at_s),
    )


def _aggregate(aggregate: Aggregate, cut: _Cut) -> wire.ComputeAggregateValues:
    return wire.ComputeAggregateValues(
        number=aggregate.number,
        name=aggregate.name,
        availability_zone=aggregate.zone,
        metadata=cut.map("metadata", aggregate.metadata),
        updated_at=show_time(aggregate.updated_at_s),
    )


def _cluster(cluster: Cluster, cut: _Cut) -> wire.ClusterValues:
    return wire.ClusterValues(
        name=cluster.name,
        project_id=cluster.project,
        user_id=cluster.user,
        state=cluster.state,
        ratio=cluster.ratio,
        domain=cluster.domain,
        node_groups=cut.map("node_groups", {group.name: group.count for group in cluster.node_groups}),
        nodes=len(cluster.nodes),
        fault=cut.text("fault", cluster.fault),
        updated_at=show_time(cluster.updated_at_s),
    )


def _quotas(quotas: QuotaSet, cut: _Cut) -> wire.QuotasValues:
    return wire.QuotasValues(limits=cut.map("limits", quotas.limits))


_SHOWN: Final[dict[type, tuple[type[Any], Callable[[Any, _Cut], wire.RecordValues]]]] = {
    Server: (wire.ServerChange, _server),
    Migration: (wire.MigrationChange, _migration),
    Flavor: (wire.FlavorChange, _flavor),
    Image: (wire.ImageChange, _image),
    Action: (wire.ActionChange, _action),
    Host: (wire.ComputeHostChange, _host),
    Aggregate: (wire.ComputeAggregateChange, _aggregate),
    Cluster: (wire.ClusterChange, _cluster),
    QuotaSet: (wire.QuotasChange, _quotas),
}

_INTERNAL: Final = frozenset((Agent, Counter, HostTree, Instance, Outbox, RevokedToken, Term, SagaRun))
"""Of these it is told that one has changed, and no more: how a region and its cells get their work done."""


def require_all(kinds: Any, named: set[type], table: str) -> None:
    """TypeError unless every kind of a union is named in a table, and nothing else is."""
    wrong = sorted(kind.__name__ for kind in named.symmetric_difference(get_args(kinds)))
    if wrong:
        raise TypeError(
            f"{', '.join(wrong)}: {table} must name every kind, and no others. Show of a new kind only the "
            "fields that an operator may see: no secret, and nothing without a bound"
        )


require_all(AnyRecord, set(_SHOWN) | _INTERNAL, "_SHOWN or _INTERNAL in api/native/record_changes.py")

"""/os-aggregates: sets of hosts, with metadata that flavors may ask for, and zones.

An aggregate is a record and, under the same uuid, an aggregate of the ledger that its hosts are in and whose
label has the metadata. Which aggregates that makes of a host is worked out in ``zoning``; record, label and
hosts change together or not at all.

Numbers count up. The uuid follows from the number: of two who make an aggregate at once, one is asked again.
"""

import uuid
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.compute.errors import not_found
from berth.api.compute.zoning import Zoned, hosts_of, rezoned
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import query_of
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import nova_problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import show_plain_time
from berth.ledger.records import remove_record, replace_record
from berth.model.commands import Command, Enact, LabelAggregate, LedgerCommand
from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import Label
from berth.model.servers import Aggregate, Host
from berth.scheduler.filters.zone import NO_ZONE
from berth.scheduler.spec_table import wrong_metadata
from berth.view import ProviderRecord, View

_SHOWS_UUID: Final = 41
_ZONE_KEY: Final = "availability_zone"
_METADATA_MAX: Final = 100
_NAMESPACE: Final = uuid.UUID("0d7ae2ce-3b0a-4a53-8d3b-5d2f0e6f5a10")

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=255)]


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class NewAggregate(_Body, frozen=True, kw_only=True):
    name: Name
    availability_zone: Name | None = None


class CreateAggregate(_Body, frozen=True, kw_only=True):
    aggregate: NewAggregate


class ChangedAggregate(_Body, frozen=True, kw_only=True):
    name: Name | UnsetType = UNSET
    availability_zone: Name | UnsetType | None = UNSET


class UpdateAggregate(_Body, frozen=True, kw_only=True):
    aggregate: ChangedAggregate


class OneHost(_Body, frozen=True, kw_only=True):
    host: Name


class NewMetadata(_Body, frozen=True, kw_only=True):
    metadata: Annotated[dict[Name, Text | None], Meta(max_length=_METADATA_MAX)]


class Act(_Body, frozen=True, kw_only=True):
    add_host: OneHost | None = None
    remove_host: OneHost | None = None
    set_metadata: NewMetadata | None = None


# -- reading ------------------------------------------------------------------------------------


async def index(call: Call) -> Response:
    query_of(call, "aggregates", {})

    def answer(view: View) -> Response:
        aggregates = sorted(view.records.all(Aggregate), key=lambda aggregate: aggregate.number)
        return json({"aggregates": [_shown(call, view, aggregate) for aggregate in aggregates]})

    return await call.read(answer)


async def show(call: Call) -> Response:
    return await call.read(lambda view: _answer(call, view, _found(view, call)))


def _found(view: View, call: Call) -> Aggregate:
    for aggregate in view.records.all(Aggregate):
        if str(aggregate.number) == call.params[0]:
            return aggregate
    raise not_found("Aggregate", call.params[0])


# -- changing -----------------------------------------------------------------------------------


async def create(call: Call) -> Response:
    asked = call.decode(CreateAggregate).aggregate
    name, zone = _name(asked.name), _zone(asked.availability_zone)

    def make(view: View, now_s: int) -> Command:
        _refuse_taken(view, name, None)
        number = max((other.number for other in view.records.all(Aggregate)), default=0) + 1
        id = str(uuid.uuid5(_NAMESPACE, str(number)))
        aggregate = Aggregate(id=id, number=number, name=name, zone=zone, created_at_s=now_s)
        return _enacted(view, None, aggregate, ())

    def answer(view: View) -> Response:
        [made] = [aggregate for aggregate in view.records.all(Aggregate) if aggregate.name == name]
        return _answer(call, view, made)

    return await call.submit(make, answer)


async def update(call: Call) -> Response:
    asked = call.decode(UpdateAggregate).aggregate
    if asked.name is UNSET and asked.availability_zone is UNSET:
        raise Problem(400, "There is nothing to change: give name or availability_zone.")

    def make(view: View, now_s: int) -> Command:
        before = _found(view, call)
        name = before.name if isinstance(asked.name, UnsetType) else _name(asked.name)
        zone = asked.availability_zone
        zone = before.zone if isinstance(zone, UnsetType) else _zone(zone)
        _refuse_taken(view, name, before.id)
        after = msgspec.structs.replace(before, name=name, zone=zone, updated_at_s=now_s)
        return _enacted(view, before, after, hosts_of(view, before))

    return await call.submit(make, lambda view: _answer(call, view, _found(view, call)))


async def delete(call: Call) -> Response:
    def make(view: View, now_s: int) -> Command:
        aggregate = _found(view, call)
        hosts = hosts_of(view, aggregate)
        if hosts:
            raise Problem(
                409, f"Aggregate {aggregate.number} has {len(hosts)} hosts: remove them from it first."
            )
        return _enacted(view, aggregate, None, ())

    return await call.submit(make, lambda view: Response(200))


async def act(call: Call) -> Response:
    asked = call.decode(Act)
    if sum(part is not None for part in (asked.add_host, asked.remove_host, asked.set_metadata)) != 1:
        raise Problem(400, "The body must have one of add_host, remove_host and set_metadata.")

    def make(view: View, now_s: int) -> Command:
        before = _found(view, call)
        hosts = hosts_of(view, before)
        after = msgspec.structs.replace(before, updated_at_s=now_s)
        if asked.add_host is not None:
            hosts = _joined(view, before, hosts, asked.add_host.host)
        elif asked.remove_host is not None:
            hosts = _left(before, hosts, asked.remove_host.host)
        elif asked.set_metadata is not None:
            after = _with_metadata(after, asked.set_metadata.metadata)
        return _enacted(view, before, after, hosts)

    return await call.submit(make, lambda view: _answer(call, view, _found(view, call)))


def _enacted(
    view: View, before: Aggregate | None, after: Aggregate | None, hosts: tuple[ProviderRecord, ...]
) -> Enact:
    """The aggregate as it shall be, with these hosts."""
    commands: list[LedgerCommand] = rezoned(view, Zoned(before, after, hosts))
    if after is not None:
        label = Label(None, after.name, tuple(sorted(_metadata(after).items())))
        commands.append(LabelAggregate(AggregateId(after.id), label))
        return Enact((replace_record(view, after),), tuple(commands))
    assert before is not None, "there is an aggregate before or after"
    commands.append(LabelAggregate(AggregateId(before.id), None))
    return Enact((remove_record(view, before),), tuple(commands))


def _joined(
    view: View, aggregate: Aggregate, hosts: tuple[ProviderRecord, ...], name: str
) -> tuple[ProviderRecord, ...]:
    known = view.records.find(Host, "name", name)
    if not known:
        raise Problem(404, f"Compute host {name} could not be found.")
    joining = view.providers.get(ProviderId(known[0].id))
    if joining is None:
        raise Problem(404, f"Compute host {name} is not a provider: wait until its agent has registered.")
    if joining in hosts:
        raise Problem(409, f"Aggregate {aggregate.number} has the host {name} already.")
    return (*hosts, joining)


def _left(aggregate: Aggregate, hosts: tuple[ProviderRecord, ...], name: str) -> tuple[ProviderRecord, ...]:
    left = tuple(host for host in hosts if host.name != name)
    if left == hosts:
        raise Problem(404, f"Aggregate {aggregate.number} has no host {name}.")
    return left


def _with_metadata(aggregate: Aggregate, given: dict[str, str | None]) -> Aggregate:
    """Values replace what was there; None takes a key away. The zone is among them, as in Nova."""
    metadata = {key: value for key, value in (aggregate.metadata | given).items() if value is not None}
    zone = _zone(given[_ZONE_KEY]) if _ZONE_KEY in given else aggregate.zone
    metadata.pop(_ZONE_KEY, None)
    if len(metadata) > _METADATA_MAX:
        raise Problem(
            400, f"There would be {len(metadata)} keys; an aggregate may have {_METADATA_MAX} at most."
        )
    wrong = wrong_metadata({key: value for key, value in given.items() if value is not None})
    if wrong is not None:
        raise nova_problem(wrong)
    return msgspec.structs.replace(aggregate, metadata=metadata, zone=zone)


def _refuse_taken(view: View, name: str, own: str | None) -> None:
    if any(other.name == name and other.id != own for other in view.records.all(Aggregate)):
        raise Problem(409, f"Aggregate {name} already exists: choose another name.")


def _name(name: str) -> str:
    if name != name.strip() or not name.isprintable():
        raise Problem(400, f"name is {name!r}; it must be printable, without spaces at its ends.")
    return name


def _zone(zone: str | None) -> str | None:
    if zone is None or zone == "":
        return None
    if ":" in zone or zone != zone.strip() or not zone.isprintable():
        raise Problem(
            400,
            f"availability_zone is {zone!r}; it must be printable, without a colon or spaces at its ends.",
        )
    if zone == NO_ZONE:
        raise Problem(
            400, f"availability_zone {NO_ZONE!r} is that of hosts in no other: choose another name."
        )
    return zone


# -- showing ------------------------------------------------------------------------------------


def _metadata(aggregate: Aggregate) -> dict[str, str]:
    zone = {} if aggregate.zone is None else {_ZONE_KEY: aggregate.zone}
    return aggregate.metadata | zone


def _answer(call: Call, view: View, aggregate: Aggregate) -> Response:
    return json({"aggregate": _shown(call, view, aggregate)})


def _shown(call: Call, view: View, aggregate: Aggregate) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": aggregate.number,
        "name": aggregate.name,
        "availability_zone": aggregate.zone,
        "hosts": [host.name for host in hosts_of(view, aggregate)],
        "metadata": _metadata(aggregate),
        "created_at": show_plain_time(aggregate.created_at_s),
        "updated_at": show_plain_time(aggregate.updated_at_s),
        "deleted": False,
        "deleted_at": None,
    }
    if call.version >= _SHOWS_UUID:
        shown["uuid"] = aggregate.id
    return shown


ROUTES: Final = (
    Route("GET", "/os-aggregates", index, policy="os_compute_api:os-aggregates:index"),
    Route("POST", "/os-aggregates", create, policy="os_compute_api:os-aggregates:create"),
    Route("GET", "/os-aggregates/{id}", show, policy="os_compute_api:os-aggregates:show"),
    Route("PUT", "/os-aggregates/{id}", update, policy="os_compute_api:os-aggregates:update"),
    Route("DELETE", "/os-aggregates/{id}", delete, policy="os_compute_api:os-aggregates:delete"),
    Route(
        "POST",
        "/os-aggregates/{id}/action",
        act,
        policy="os_compute_api:os-aggregates:show",
        actions={
            name: f"os_compute_api:os-aggregates:{name}"
            for name in ("add_host", "remove_host", "set_metadata")
        },
    ),
)

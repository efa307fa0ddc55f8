"""/os-services: the agents of the hosts, which Nova calls nova-compute: disable, enable or force them down.

Whether a host is disabled or down stands in the ledger, and the scheduler goes by it. A host that is forced
down is down whatever its agent says, until that is taken back; then its state is the one that its cell last
reported. The reason of a service that is not disabled shows the host's complaints: what its agent reported
and could not be applied.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.compute.aggregates import BINARY, find_zone
from berth.api.compute.hypervisors import UUIDS, find_hypervisor, show_id
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_query
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import show_plain_time
from berth.ledger import replace_record
from berth.model.commands import Command, Enact, SetHostStatus
from berth.model.ids import ProviderId
from berth.model.placement import HEALTHY, HostStatus
from berth.model.rejections import Rejection, ServiceNotFound
from berth.model.servers import Host
from berth.sagas.hosts import status_of
from berth.view import View

_FORCED_DOWN: Final = 11
"""From this microversion on a service can be forced down."""

QUERY: Final = {"host": 1, "binary": 1}

_REASON_LENGTH_MAX: Final = 255
Reason = Annotated[str, Meta(min_length=1, max_length=_REASON_LENGTH_MAX)]


class ServiceChange(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The new state of a service; what is left out stays as it is."""

    status: str | UnsetType = UNSET
    disabled_reason: Reason | UnsetType = UNSET
    forced_down: bool | UnsetType = UNSET


class NamedServiceChange(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Before 2.53 the new state is in the path, and the body names the service."""

    host: Annotated[str, Meta(min_length=1, max_length=255)]
    binary: str
    disabled_reason: Reason | UnsetType = UNSET
    forced_down: bool | str | UnsetType = UNSET


_STEPS_PER_HOST: Final = 10


async def list_services(call: Call) -> Response:
    query = read_query(call, "services", QUERY)

    def answer(view: View) -> Response:
        view.steps.take(_STEPS_PER_HOST * view.records.count(Host))
        hosts = sorted(view.records.all(Host), key=lambda host: host.number)
        services = [
            _show_service(call, view, host)
            for host in hosts
            if query.get("host") in (None, host.name) and query.get("binary") in (None, BINARY)
        ]
        return json({"services": services})

    return await call.read(answer)


async def update_service(call: Call) -> Response:
    return await (_update_by_id(call) if call.version >= UUIDS else _update_by_name(call))


async def _update_by_id(call: Call) -> Response:
    wanted = call.decode(ServiceChange)
    if wanted == ServiceChange():
        raise Problem(400, "There is nothing to change: give status or forced_down.")
    if wanted.status not in (UNSET, "enabled", "disabled"):
        raise Problem(400, f"status is {wanted.status!r}; it must be enabled or disabled.")
    if wanted.disabled_reason is not UNSET and wanted.status != "disabled":
        raise Problem(400, "disabled_reason is for a service that is being disabled.")
    return await call.submit(
        lambda view, now_s: change_service(view, find_hypervisor(view, call), wanted, now_s),
        lambda view: json({"service": _show_service(call, view, call.accept(find_hypervisor(view, call)))}),
    )


async def _update_by_name(call: Call) -> Response:
    asked = call.decode(NamedServiceChange)
    answer: dict[str, Any] = {"host": asked.host, "binary": asked.binary}
    match call.params[0]:
        case "enable":
            wanted, said = ServiceChange(status="enabled"), {"status": "enabled"}
        case "disable":
            wanted, said = ServiceChange(status="disabled"), {"status": "disabled"}
        case "disable-log-reason":
            if asked.disabled_reason is UNSET:
                raise Problem(400, "disabled_reason is missing: say why the service is disabled.")
            wanted = ServiceChange(status="disabled", disabled_reason=asked.disabled_reason)
            said = {"status": "disabled", "disabled_reason": str(asked.disabled_reason)}
        case "force-down" if call.version >= _FORCED_DOWN:
            is_forced = _read_flag(asked.forced_down)
            wanted, said = ServiceChange(forced_down=is_forced), {}
            answer["forced_down"] = is_forced
        case other:
            raise Problem(404, f"Unknown action {other}.")
    return await call.submit(
        lambda view, now_s: change_service(view, _find_by_name(view, asked), wanted, now_s),
        lambda view: json({"service": answer | said}),
    )


def _read_flag(value: bool | str | UnsetType) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Problem(400, "forced_down must be true or false.")


def _find_by_name(view: View, asked: NamedServiceChange) -> Host | ServiceNotFound:
    hosts = view.records.find(Host, "name", asked.host)
    if not hosts or asked.binary != BINARY:
        return ServiceNotFound(asked.binary, asked.host)
    return hosts[0]


def change_service(
    view: View, host: Host | Rejection, wanted: ServiceChange, now_s: int
) -> Command | Rejection:
    if isinstance(host, Rejection):
        return host
    id = ProviderId(host.id)
    before = view.hosts.get(id, HEALTHY)
    is_forced = host.is_forced_down if isinstance(wanted.forced_down, UnsetType) else wanted.forced_down
    reason = None if isinstance(wanted.disabled_reason, UnsetType) else wanted.disabled_reason
    if wanted.status is UNSET:
        disabled, reason = before.disabled, before.reason
    else:
        disabled = wanted.status == "disabled"
    down = before.down if wanted.forced_down is UNSET else is_forced or host.is_silent
    status = HostStatus(disabled, down, before.build_failures, reason)
    after = msgspec.structs.replace(host, is_forced_down=is_forced, updated_at_s=now_s)
    return Enact((replace_record(view, after),), (SetHostStatus(id, status),))


async def delete_service(call: Call) -> Response:
    host = await call.read(lambda view: find_hypervisor(view, call))
    raise Problem(
        409,
        f"The service of host {host.name} is its agent and cannot be deleted: disable it, or force it down.",
    )


def _show_service(call: Call, view: View, host: Host) -> dict[str, Any]:
    status = status_of(view, host)
    shown = {
        "id": show_id(call, host),
        "binary": BINARY,
        "host": host.name,
        "zone": find_zone(view, host),
        "status": "disabled" if status.disabled else "enabled",
        "state": "down" if status.down else "up",
        "disabled_reason": status.reason or _show_complaints(host),
        "updated_at": show_plain_time(host.updated_at_s or host.registered_at_s),
    }
    return shown | ({"forced_down": host.is_forced_down} if call.version >= _FORCED_DOWN else {})


def _show_complaints(host: Host) -> str | None:
    """The host's complaints, where clients show the reason of a disabled service: it need not be disabled."""
    text = " ".join(host.complaints)
    return f"{text[:252]}..." if len(text) > _REASON_LENGTH_MAX else text or None


ROUTES: Final = (
    Route("GET", "/os-services", list_services, policy="os_compute_api:os-services:list"),
    Route("PUT", "/os-services/{id}", update_service, policy="os_compute_api:os-services:update"),
    Route("DELETE", "/os-services/{id}", delete_service, policy="os_compute_api:os-services:delete"),
)

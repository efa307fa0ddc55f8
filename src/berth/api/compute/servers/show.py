"""GET /servers, /servers/detail and /servers/{id}: servers as clients see them, at each microversion.

A server belongs to its project. To other callers it does not exist, except to administrators. Its public
``status`` follows from its state and from what is being done to it. Its host is named to administrators;
others get a hash by which they can tell whether two of their servers share a host.

Lists come newest first. A name is looked for as Nova's clients write it, but never as a regular expression of
the caller's, which could take for ever: ``^`` and ``$`` bind it to the ends and ``.*`` stands for anything;
everything else is literal.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, Final

from berth.api.compute.servers.fields import DISK_CONFIG
from berth.api.compute.versions import make_links
from berth.api.kernel.access import make_host_id, show_failure
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.needs import RULE_TO_SHOW, describe_need
from berth.api.kernel.paging import Key, page_newest, read_flag, read_query, refuse_marker
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import parse_time, show_plain_time, show_time
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import HEALTHY
from berth.model.rejections import Rejection, ServerLocked, ServerNotFound
from berth.model.servers import STATUSES, Action, Server, status_of
from berth.scheduler.filters.zone import KIND as ZONE
from berth.scheduler.filters.zone import NO_ZONE
from berth.scheduler.hosts import aggregate_names
from berth.view import View


async def show_server(call: Call) -> Response:
    # Some clients send these with an id, too. It names one server, of whichever project.
    read_query(call, "a server", {"all_projects": 1, "all_tenants": 1})
    id = call.params[0]
    return json(
        await call.read(lambda view: {"server": show_details(call, view, get_server(call, view, id))})
    )


def get_server(call: Call, view: View, id: str) -> Server:
    """The server, for a read. Problem if the caller cannot see it."""
    return call.accept(find_server(call, view, id))


def find_server(call: Call, view: View, id: str) -> Server | Rejection:
    """The server, if the caller can see it."""
    server = view.records.get(Server, id)
    if server is None or not call.access.sees(server.project):
        return ServerNotFound(id)
    return call.find_forbidden(server.project) or server


def find_unlocked(call: Call, view: View, id: str) -> Server | Rejection:
    """The server, if the caller may change it."""
    server = find_server(call, view, id)
    if isinstance(server, Server) and server.is_locked and not call.is_admin:
        return ServerLocked(id)
    return server


# -- one server ---------------------------------------------------------------------------------


_WITH_PROGRESS: Final = frozenset(("ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"))


def _find_reservation(view: View, server: Server) -> str:
    """The reservation id that the servers of one request share."""
    for action in view.records.find(Action, "server", server.id):
        if action.name == "create":
            return make_reservation_id(action.request_id)
    return ""


def make_reservation_id(request_id: str) -> str:
    return f"r-{request_id.removeprefix('req-')[:8]}"


def _find_zone(view: View, server: Server) -> str:
    """The zone of the host that a server is on; without a host, the zone that was asked for."""
    host = None if server.place is None else view.providers.get(ProviderId(server.place.id))
    if host is None:
        return server.zone or ""
    return next(iter(aggregate_names(view, ZONE, host)), NO_ZONE)


def _show_summary(call: Call, server: Server) -> dict[str, Any]:
    """A server in a list without details."""
    return {"id": server.id, "name": server.name, "links": make_links(call, "servers", server.id)}


def show_details(call: Call, view: View, server: Server, *, is_alone: bool = True) -> dict[str, Any]:
    """All fields of a server; ``is_alone``: it is not one of a list."""
    status = status_of(server)
    body: dict[str, Any] = {
        **_show_summary(call, server),
        "status": status,
        "tenant_id": server.project,
        "user_id": server.user,
        "created": show_time(server.created_at_s),
        "updated": show_time(server.updated_at_s or server.created_at_s),
        "image": _show_image(call, server),
        "flavor": _show_flavor(call, server),
        "metadata": server.metadata,
        "addresses": {},
        "accessIPv4": "",
        "accessIPv6": "",
        "key_name": server.key_name,
        "config_drive": "",
        "hostId": make_host_id(server.project, None if server.place is None else server.place.name),
        "security_groups": [],
        "OS-DCF:diskConfig": DISK_CONFIG,
        "OS-EXT-AZ:availability_zone": _find_zone(view, server),
        "OS-EXT-STS:vm_state": server.state,
        "OS-EXT-STS:task_state": server.task,
        "OS-EXT-STS:power_state": server.power,
        "OS-SRV-USG:launched_at": show_plain_time(server.launched_at_s),
        "OS-SRV-USG:terminated_at": None,
        "os-extended-volumes:volumes_attached": [],
    }
    if status in _WITH_PROGRESS:
        body["progress"] = 100 if server.task is None and status == "ACTIVE" else 0
    if server.fault is not None and status == "ERROR":
        body["fault"] = _show_fault(call, view, server)
    if call.allows("os_compute_api:os-extended-server-attributes", server.project):
        body |= _show_extended(call, view, server)
    if server.needs and call.allows(RULE_TO_SHOW, server.project):
        body["berth:needs"] = [describe_need(need) for need in server.needs]
    if call.version >= 16 and call.allows("os_compute_api:servers:show:host_status", server.project):
        body["host_status"] = _show_host_status(view, server)
    return body | _show_later_fields(call, view, server, is_alone)


def _show_later_fields(call: Call, view: View, server: Server, is_alone: bool) -> dict[str, Any]:
    """The fields that came with a later microversion."""
    added: list[tuple[int, dict[str, Any]]] = [
        (9, {"locked": server.is_locked}),
        (19, {"description": server.description}),
        (26, {"tags": []}),
        (63, {"trusted_image_certificates": None}),
        (73, {"locked_reason": server.locked_reason}),
    ]
    if is_alone:
        added.append((71, {"server_groups": _list_groups(view, server)}))
    return {name: value for minor, part in added if call.version >= minor for name, value in part.items()}


def _show_extended(call: Call, view: View, server: Server) -> dict[str, Any]:
    host = None if server.place is None else server.place.name
    body: dict[str, Any] = {
        "OS-EXT-SRV-ATTR:host": host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": host,
        "OS-EXT-SRV-ATTR:instance_name": f"instance-{server.id[:8]}",
    }
    if call.version >= 3:
        body |= {
            "OS-EXT-SRV-ATTR:hostname": _make_hostname(server.name),
            "OS-EXT-SRV-ATTR:kernel_id": "",
            "OS-EXT-SRV-ATTR:ramdisk_id": "",
            "OS-EXT-SRV-ATTR:launch_index": 0,
            "OS-EXT-SRV-ATTR:reservation_id": _find_reservation(view, server),
            "OS-EXT-SRV-ATTR:root_device_name": None,
            "OS-EXT-SRV-ATTR:user_data": None,
        }
    return body


def _show_host_status(view: View, server: Server) -> str:
    if server.place is None:
        return ""
    status = view.hosts.get(ProviderId(server.place.id), HEALTHY)
    if status.down:
        return "DOWN"
    return "MAINTENANCE" if status.disabled else "UP"


def _list_groups(view: View, server: Server) -> list[str]:
    membership = view.groups.memberships.get(ConsumerId(server.id))
    return [] if membership is None else [membership.group]


def _make_hostname(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63] or "server"


def _show_image(call: Call, server: Server) -> dict[str, Any] | str:
    if server.image is None:
        return ""
    href = f"{call.origin}/compute/images/{server.image}"
    return {"id": server.image, "links": [{"rel": "bookmark", "href": href}]}


def _show_flavor(call: Call, server: Server) -> dict[str, Any]:
    flavor = server.flavor
    if call.version < 47:
        href = f"{call.origin}/compute/flavors/{flavor.id}"
        return {"id": flavor.id, "links": [{"rel": "bookmark", "href": href}]}
    body: dict[str, Any] = {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mb,
        "disk": flavor.disk_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap_mb,
        "original_name": flavor.name,
    }
    if call.allows("os_compute_api:servers:show:flavor-extra-specs", server.project):
        body["extra_specs"] = flavor.extra_specs
    return body


def _show_fault(call: Call, view: View, server: Server) -> dict[str, Any]:
    fault = server.fault
    assert fault is not None, "asked for only where there is one"
    message = show_failure(call.access, view, server, fault.message)
    body = {"code": fault.code, "created": show_time(fault.at_s), "message": message}
    details = fault.details if call.is_admin else fault.explained or None
    if details is not None:
        body["details"] = details
    return body


# -- lists --------------------------------------------------------------------------------------


ServerFilter = Callable[[View, Server], bool]

_ALL_FILTERS: Final = "os_compute_api:servers:allow_all_filters"
_ORDER: Final = {"sort_key": "created_at", "sort_dir": "desc"}
"""The only order that is offered."""

_STEPS_PER_SERVER: Final = 40
"""What it costs to show a server with its details."""


async def list_servers(call: Call) -> Response:
    return await _list_page(call, lambda view, server: _show_summary(call, server))


async def list_servers_with_details(call: Call) -> Response:
    return await _list_page(call, lambda view, server: show_details(call, view, server, is_alone=False))


async def _list_page(call: Call, show: Callable[[View, Server], dict[str, Any]]) -> Response:
    query = read_query(call, "servers", QUERY)
    _refuse_other_orders(query)
    tests = _read_filters(call, query)
    project = _read_project(call, query)

    def answer(view: View) -> Response:
        records = view.records
        servers: Collection[Server] = (
            records.all(Server) if project is None else records.find(Server, "project", project)
        )
        view.steps.take(len(servers))
        behind = _find_marker(view, project, query.get("marker"))
        matching = (server for server in servers if all(test(view, server) for test in tests))

        def render(server: Server) -> dict[str, Any]:
            view.steps.take(_STEPS_PER_SERVER)
            return show(view, server)

        servers_shown, links = page_newest(
            call, query, matching, key=_make_key, behind=behind, render=render, id_of=lambda server: server.id
        )
        return json({"servers": servers_shown} | ({"servers_links": links} if links else {}))

    return await call.read(answer)


def _make_key(server: Server) -> Key:
    return server.created_at_s, server.id


def _find_marker(view: View, project: str | None, marker: str | None) -> Key | None:
    if marker is None:
        return None
    server = view.records.get(Server, marker)
    if server is None or project not in (None, server.project):
        raise refuse_marker(marker)
    return _make_key(server)


def _read_project(call: Call, query: dict[str, str]) -> str | None:
    """The project whose servers are listed; None for all. To name another project takes the same rule as to
    list all of them, as in Nova."""
    named = query.get("project_id", query.get("tenant_id"))
    is_all = read_flag(query, "all_tenants") if "all_tenants" in query else named is not None
    if not is_all and named not in (None, call.project):
        raise Problem(
            400, f"Invalid input: the project is {named!r} and all_tenants is false: leave one of them out."
        )
    if not is_all or named == call.project:
        return call.project
    for rule in call.rules:
        call.require(f"{rule}:get_all_tenants")
    return named


def _refuse_other_orders(query: dict[str, str]) -> None:
    for name, only in _ORDER.items():
        if query.get(name, only) != only:
            raise Problem(
                400,
                f"Invalid input: {name} is {query[name][:100]!r}; it must be {only}: servers come newest "
                "first.",
            )


# -- filters ------------------------------------------------------------------------------------


def _read_filters(call: Call, query: dict[str, str]) -> list[ServerFilter]:
    """The filters of a request."""
    if any(name in query for name in _FOR_ADMINISTRATORS):
        call.require(_ALL_FILTERS)
    status = query.get("status")
    if status is not None and call.version >= _STATUS_REFUSED_SINCE and status.upper() not in _STATUSES_KNOWN:
        known = ", ".join(sorted(STATUSES))
        raise Problem(400, f"Invalid status value: there is no status {status[:100]!r}; known are: {known}.")
    return [_FILTERS[name](value) for name, value in query.items() if name in _FILTERS]


def _match_name(value: str) -> ServerFilter:
    like = NamePattern(value)
    return lambda view, server: like.matches(server.name)


def _match_changed_since(value: str) -> ServerFilter:
    since_s = parse_time("changes-since", value)
    return lambda view, server: server.updated_at_s >= since_s


def _match_changed_before(value: str) -> ServerFilter:
    before_s = parse_time("changes-before", value)
    return lambda view, server: server.updated_at_s <= before_s


def _match_deleted(value: str) -> ServerFilter:
    """Deleted servers are not kept, so a list of them is empty."""
    is_wanted = read_flag({"deleted": value}, "deleted")
    return lambda view, server: not is_wanted


def _match_locked(value: str) -> ServerFilter:
    is_wanted = read_flag({"locked": value}, "locked")
    return lambda view, server: server.is_locked == is_wanted


def _match(read: Callable[[View, Server], str | None]) -> Callable[[str], ServerFilter]:
    """A filter by equality, ignoring case."""
    return lambda value: lambda view, server: (read(view, server) or "").lower() == value.lower()


_FILTERS: Final[dict[str, Callable[[str], ServerFilter]]] = {
    "name": _match_name,
    "changes-since": _match_changed_since,
    "changes-before": _match_changed_before,
    "locked": _match_locked,
    "status": _match(lambda view, server: status_of(server)),
    "flavor": _match(lambda view, server: server.flavor.id),
    "image": _match(lambda view, server: server.image),
    "uuid": _match(lambda view, server: server.id),
    "user_id": _match(lambda view, server: server.user),
    "key_name": _match(lambda view, server: server.key_name),
    "description": _match(lambda view, server: server.description),
    "availability_zone": _match(_find_zone),
    "reservation_id": _match(_find_reservation),
    "vm_state": _match(lambda view, server: server.state),
    "task_state": _match(lambda view, server: server.task),
    "power_state": _match(lambda view, server: str(server.power)),
    "deleted": _match_deleted,
    "host": _match(lambda view, server: None if server.place is None else server.place.name),
    "node": _match(lambda view, server: None if server.place is None else server.place.name),
}
_FOR_ADMINISTRATORS: Final = ("host", "node")
_STATUS_REFUSED_SINCE: Final = 38
"""Before, a status that does not exist is one that no server has, as in Nova."""
_STATUSES_OF_NOVA: Final = (
    *("REBOOT", "HARD_REBOOT", "PASSWORD", "PAUSED", "SUSPENDED", "RESCUE"),
    *("DELETED", "SOFT_DELETED", "UNKNOWN"),
)
"""Clients may ask for them. No server has them here."""
_STATUSES_KNOWN: Final = frozenset((*STATUSES, *_STATUSES_OF_NOVA))
QUERY: Final = dict.fromkeys(
    (*_FILTERS, *_ORDER, "limit", "marker", "all_tenants", "project_id", "tenant_id"), 1
) | {"changes-before": 66, "locked": 73}


class NamePattern:
    """Parts that must follow each other in a name. The first match of each part is enough to tell."""

    def __init__(self, text: str) -> None:
        self._is_from_start = text.startswith("^")
        self._is_to_end = text.endswith("$") and not text.endswith("\\$")
        text = text[self._is_from_start : len(text) - self._is_to_end]
        self._parts = [part.replace("\\", "") for part in text.split(".*")]

    def matches(self, name: str) -> bool:
        parts, start, end = list(self._parts), 0, len(name)
        if self._is_from_start:
            if not name.startswith(parts[0]):
                return False
            start = len(parts.pop(0))
        if self._is_to_end:
            if not parts:
                return start == end
            if not name.endswith(parts[-1]):
                return False
            end -= len(parts.pop())
        for part in parts:
            found = name.find(part, start, end)
            if found < 0:
                return False
            start = found + len(part)
        return start <= end


ROUTES: Final = (
    Route("GET", "/servers", list_servers, policy="os_compute_api:servers:index"),
    Route("GET", "/servers/detail", list_servers_with_details, policy="os_compute_api:servers:detail"),
    Route("GET", "/servers/{id}", show_server, policy="os_compute_api:servers:show"),
)

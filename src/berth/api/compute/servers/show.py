"""GET /servers, /servers/detail and /servers/{id}: servers as clients see them, at each microversion.

A server belongs to its project. To other callers it does not exist, except to administrators. Its public
``status`` follows from its state and from what is being done to it. Its host is named to administrators;
others get a hash by which they can tell whether two of their servers share a host.

Lists come newest first, or in the order that is asked for. A name, and an address, is looked for by a regular
expression, which is followed in bounded time (``kernel/regexes.py``).
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from berth.api.compute.versions import make_links
from berth.api.kernel.access import make_host_id, show_failure
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.needs import RULE_TO_SHOW, describe_need
from berth.api.kernel.paging import Key, page_newest, page_sorted, read_flag, read_query, refuse_marker
from berth.api.kernel.problem import Problem, not_found
from berth.api.kernel.regexes import Regex, RegexError
from berth.api.kernel.router import Route
from berth.api.kernel.times import parse_time, show_plain_time, show_time
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import HEALTHY
from berth.model.rejections import Rejection, ServerLocked, ServerNotFound
from berth.model.servers import NO_STATE, STATUSES, Action, DeletedServer, Guest, Server, status_of
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


_AFTER_A_CHANGE: Final = 75
"""From this microversion on the answer to a change has all fields."""
_NOT_AFTER_A_CHANGE: Final = (
    *("OS-EXT-AZ:availability_zone", "OS-SRV-USG:launched_at", "OS-SRV-USG:terminated_at", "key_name"),
    *("OS-EXT-STS:vm_state", "OS-EXT-STS:task_state", "OS-EXT-STS:power_state", "config_drive"),
    *("security_groups", "os-extended-volumes:volumes_attached", "host_status"),
)


def show_changed(call: Call, view: View, server: Server) -> dict[str, Any]:
    """A server in the answer to a change of it. Before 2.75 it had only some of the fields."""
    shown = show_details(call, view, server)
    if call.version >= _AFTER_A_CHANGE:
        return shown
    shown["addresses"] = show_addresses(server, is_whole=False)
    return {
        name: value
        for name, value in shown.items()
        if name not in _NOT_AFTER_A_CHANGE and not name.startswith("OS-EXT-SRV-ATTR:")
    }


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
        "addresses": show_addresses(server),
        "accessIPv4": server.access_ipv4,
        "accessIPv6": server.access_ipv6,
        "key_name": server.key_name,
        "config_drive": "True" if server.guest.has_config_drive else "",
        "hostId": make_host_id(server.project, None if server.place is None else server.place.name),
        "security_groups": [],
        "OS-DCF:diskConfig": show_disk_config(server.guest),
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
        (26, {"tags": server.tags}),
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
            "OS-EXT-SRV-ATTR:hostname": server.guest.hostname or make_hostname(server.name),
            "OS-EXT-SRV-ATTR:kernel_id": "",
            "OS-EXT-SRV-ATTR:ramdisk_id": "",
            "OS-EXT-SRV-ATTR:launch_index": 0,
            "OS-EXT-SRV-ATTR:reservation_id": _find_reservation(view, server),
            "OS-EXT-SRV-ATTR:root_device_name": None,
            "OS-EXT-SRV-ATTR:user_data": server.guest.user_data,
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


def show_addresses(server: Server, *, is_whole: bool = True) -> dict[str, list[dict[str, Any]]]:
    """The addresses of a server by network; ``is_whole``: with what Nova's extensions add."""
    networks: dict[str, list[dict[str, Any]]] = {}
    for one in server.addresses:
        shown: dict[str, Any] = {"addr": one.address, "version": 6 if ":" in one.address else 4}
        if is_whole:
            shown |= {"OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": one.mac}
        networks.setdefault(one.network, []).append(shown)
    return networks


def show_disk_config(guest: Guest) -> str:
    return "AUTO" if guest.partitions_disk else "MANUAL"


def make_hostname(name: str) -> str:
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
_ORDER: Final = ("sort_key", "sort_dir")
_SORT_DIRS: Final = ("asc", "desc")
_SORT_KEYS: Final[dict[str, Callable[[Server], str | int]]] = {
    "created_at": lambda server: server.created_at_s,
    "updated_at": lambda server: server.updated_at_s,
    "launched_at": lambda server: server.launched_at_s or 0,
    "display_name": lambda server: server.name,
    "display_description": lambda server: server.description or "",
    "uuid": lambda server: server.id,
    "project_id": lambda server: server.project,
    "user_id": lambda server: server.user,
    "vm_state": lambda server: server.state,
    "task_state": lambda server: server.task or "",
    "power_state": lambda server: server.power,
    "host": lambda server: "" if server.place is None else server.place.name,
    "node": lambda server: "" if server.place is None else server.place.name,
    "image_ref": lambda server: server.image or "",
    "instance_type_id": lambda server: server.flavor.id,
    "key_name": lambda server: server.key_name or "",
    "availability_zone": lambda server: server.zone or "",
    "config_drive": lambda server: server.guest.has_config_drive,
    "access_ip_v4": lambda server: server.access_ipv4,
    "access_ip_v6": lambda server: server.access_ipv6,
    "hostname": lambda server: server.guest.hostname or make_hostname(server.name),
    "locked": lambda server: server.is_locked,
    "locked_by": lambda server: server.locked_by or "",
}
_NEWEST_FIRST: Final = (("created_at", "desc"),)
_FOR_ADMINISTRATORS: Final = ("host", "node")

_STEPS_PER_SERVER: Final = 40
"""What it costs to show a server with its details."""
_STEPS_TO_SORT: Final = 2


async def list_servers(call: Call) -> Response:
    return await _list_page(call, lambda view, server: _show_summary(call, server))


async def list_servers_with_details(call: Call) -> Response:
    return await _list_page(call, lambda view, server: show_details(call, view, server, is_alone=False))


async def _list_page(call: Call, show: Callable[[View, Server], dict[str, Any]]) -> Response:
    query = read_query(call, "servers", QUERY, repeatable=_ORDER)
    order = _read_order(call)
    are_deleted = _read_deleted(call, query)
    tests = _read_filters(call, query)
    project = _read_project(call, query)

    def answer(view: View) -> Response:
        servers = _find_deleted(view, project) if are_deleted else _find_servers(view, project)
        view.steps.take(len(servers))
        behind = _find_marker(servers, query.get("marker"))
        matching = (server for server in servers if all(test(view, server) for test in tests))

        def render(server: Server) -> dict[str, Any]:
            view.steps.take(_STEPS_PER_SERVER)
            body = show(view, server)
            return _show_deleted(body, server) if are_deleted else body

        if order == _NEWEST_FIRST:
            servers_shown, links = page_newest(
                call, query, matching, key=_make_key, behind=behind, render=render, id_of=_get_id
            )
        else:
            # The marker has its place in the order, also where it does not match any more.
            found = {server.id: server for server in matching}
            marked = next((server for server in servers if server.id == query.get("marker")), None)
            if marked is not None:
                found[marked.id] = marked
            ordered = _sort(view, found.values(), order)
            servers_shown, links = page_sorted(call, query, ordered, render=render, id_of=_get_id)
        return json({"servers": servers_shown} | ({"servers_links": links} if links else {}))

    return await call.read(answer)


def _get_id(server: Server) -> str:
    return server.id


def _make_key(server: Server) -> Key:
    return server.created_at_s, server.id


def _find_servers(view: View, project: str | None) -> Collection[Server]:
    records = view.records
    return records.all(Server) if project is None else records.find(Server, "project", project)


def _find_marker(servers: Collection[Server], marker: str | None) -> Key | None:
    if marker is None:
        return None
    for server in servers:
        if server.id == marker:
            return _make_key(server)
    raise refuse_marker(marker)


# -- deleted servers ----------------------------------------------------------------------------


def _read_deleted(call: Call, query: dict[str, str]) -> bool:
    """Whether deleted servers are asked for, and no others: administrators may."""
    is_asked = "deleted" in query and read_flag(query, "deleted")
    if query.get("status", "").upper() == _DELETED:
        is_asked = True
        del query["status"]
    if is_asked:
        call.require(_ALL_FILTERS)
    return is_asked


def _find_deleted(view: View, project: str | None) -> list[Server]:
    records = view.records
    if project is None:
        return [one.server for one in records.all(DeletedServer)]
    return [one.server for one in records.find(DeletedServer, "project", project)]


def _show_deleted(body: dict[str, Any], server: Server) -> dict[str, Any]:
    """A server that is gone: what it was last changed by is its deletion."""
    if "status" not in body:
        return body
    return body | {
        "status": _DELETED,
        "OS-EXT-STS:vm_state": "deleted",
        "OS-EXT-STS:task_state": None,
        "OS-EXT-STS:power_state": NO_STATE,
        "OS-SRV-USG:terminated_at": show_plain_time(server.updated_at_s),
    }


_DELETED: Final = "DELETED"


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


def _read_order(call: Call) -> tuple[tuple[str, str], ...]:
    """The keys to sort by, and the direction of each: the one given for it, or else the first."""
    pairs = call.query_pairs()
    keys = [value for name, value in pairs if name == "sort_key"] or ["created_at"]
    directions = [value for name, value in pairs if name == "sort_dir"] or ["desc"]
    if len(keys) > len(_SORT_KEYS) or len(directions) > len(keys):
        raise Problem(400, "Invalid input: there are more of sort_dir than of sort_key, or too many of both.")
    for key in keys:
        if key not in _SORT_KEYS:
            known = ", ".join(_SORT_KEYS)
            raise Problem(400, f"Invalid input: sort_key is {key[:100]!r}; it must be one of {known}.")
        if key in _FOR_ADMINISTRATORS:
            call.require(_ALL_FILTERS)
    for direction in directions:
        if direction not in _SORT_DIRS:
            raise Problem(400, f"Invalid input: sort_dir is {direction[:100]!r}; it must be asc or desc.")
    directions += directions[:1] * (len(keys) - len(directions))
    return tuple(zip(keys, directions, strict=True))


def _sort(view: View, servers: Iterable[Server], order: tuple[tuple[str, str], ...]) -> list[Server]:
    """Servers in an order; those that are equal in it come newest first."""
    found = sorted(servers, key=_make_key, reverse=True)
    view.steps.take(_STEPS_TO_SORT * len(found) * len(order))
    for name, direction in reversed(order):
        found.sort(key=_SORT_KEYS[name], reverse=direction == "desc")
    return found


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
    like = _read_pattern("name", value)
    return lambda view, server: like.matches(server.name, view.steps.take)


def _match_address(name: str, version: int) -> Callable[[str], ServerFilter]:
    """Servers with an address of a version that matches."""

    def make(value: str) -> ServerFilter:
        like = _read_pattern(name, value)
        return lambda view, server: any(
            like.matches(one.address, view.steps.take)
            for one in server.addresses
            if (":" in one.address) == (version == 6)
        )

    return make


def _read_pattern(name: str, value: str) -> Regex:
    try:
        return Regex(value)
    except RegexError as error:
        raise Problem(
            400, f"Invalid input: {name} is {value[:100]!r}, which is not a regular expression: {error}."
        ) from None


def _match_tags(is_match: Callable[[frozenset[str], tuple[str, ...]], bool]) -> Callable[[str], ServerFilter]:
    def make(value: str) -> ServerFilter:
        wanted = frozenset(value.split(","))
        return lambda view, server: is_match(wanted, server.tags)

    return make


_TAG_FILTERS: Final[dict[str, Callable[[str], ServerFilter]]] = {
    "tags": _match_tags(lambda wanted, tags: wanted <= {*tags}),
    "tags-any": _match_tags(lambda wanted, tags: not wanted.isdisjoint(tags)),
    "not-tags": _match_tags(lambda wanted, tags: not wanted <= {*tags}),
    "not-tags-any": _match_tags(lambda wanted, tags: wanted.isdisjoint(tags)),
}
"""All of these tags, any, not all, none."""


def _match_changed_since(value: str) -> ServerFilter:
    since_s = parse_time("changes-since", value)
    return lambda view, server: server.updated_at_s >= since_s


def _match_changed_before(value: str) -> ServerFilter:
    before_s = parse_time("changes-before", value)
    return lambda view, server: server.updated_at_s <= before_s


def _match_deleted(value: str) -> ServerFilter:
    """Which servers are looked at follows from it, whether deleted or not."""
    read_flag({"deleted": value}, "deleted")
    return lambda view, server: True


def _match_config_drive(value: str) -> ServerFilter:
    is_wanted = read_flag({"config_drive": value}, "config_drive")
    return lambda view, server: server.guest.has_config_drive == is_wanted


def _match_locked(value: str) -> ServerFilter:
    is_wanted = read_flag({"locked": value}, "locked")
    return lambda view, server: server.is_locked == is_wanted


def _match(read: Callable[[View, Server], str | None]) -> Callable[[str], ServerFilter]:
    """A filter by equality, ignoring case."""
    return lambda value: lambda view, server: (read(view, server) or "").lower() == value.lower()


_FILTERS: Final[dict[str, Callable[[str], ServerFilter]]] = {
    "name": _match_name,
    "display_name": _match_name,
    "ip": _match_address("ip", 4),
    "ip6": _match_address("ip6", 6),
    **_TAG_FILTERS,
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
    "display_description": _match(lambda view, server: server.description),
    "hostname": _match(lambda view, server: server.guest.hostname or make_hostname(server.name)),
    "config_drive": _match_config_drive,
    "access_ip_v4": _match(lambda view, server: server.access_ipv4),
    "access_ip_v6": _match(lambda view, server: server.access_ipv6),
    "availability_zone": _match(_find_zone),
    "reservation_id": _match(_find_reservation),
    "vm_state": _match(lambda view, server: server.state),
    "task_state": _match(lambda view, server: server.task),
    "power_state": _match(lambda view, server: str(server.power)),
    "deleted": _match_deleted,
    "host": _match(lambda view, server: None if server.place is None else server.place.name),
    "node": _match(lambda view, server: None if server.place is None else server.place.name),
}
_STATUS_REFUSED_SINCE: Final = 38
"""Before, a status that does not exist is one that no server has, as in Nova."""
_STATUSES_OF_NOVA: Final = ("PASSWORD", "DELETED", "UNKNOWN")
"""Clients may ask for them. No server has them here."""
_STATUSES_KNOWN: Final = frozenset((*STATUSES, *_STATUSES_OF_NOVA))
QUERY: Final = dict.fromkeys(
    (*_FILTERS, *_ORDER, "limit", "marker", "all_tenants", "project_id", "tenant_id"), 1
) | {"changes-before": 66, "locked": 73, **dict.fromkeys(_TAG_FILTERS, 26)}


# -- addresses ----------------------------------------------------------------------------------


async def list_addresses(call: Call) -> Response:
    server = await call.read(lambda view: find_server(call, view, call.params[0]))
    return json({"addresses": show_addresses(server, is_whole=False)})


async def show_network(call: Call) -> Response:
    server = await call.read(lambda view: find_server(call, view, call.params[0]))
    addresses = show_addresses(server, is_whole=False)
    name = call.params[1]
    if name not in addresses:
        raise not_found("Network", name)
    return json({name: addresses[name]})


ROUTES: Final = (
    Route("GET", "/servers/{id}/ips", list_addresses, policy="os_compute_api:ips:index"),
    Route("GET", "/servers/{id}/ips/{network}", show_network, policy="os_compute_api:ips:show"),
    Route("GET", "/servers", list_servers, policy="os_compute_api:servers:index"),
    Route("GET", "/servers/detail", list_servers_with_details, policy="os_compute_api:servers:detail"),
    Route("GET", "/servers/{id}", show_server, policy="os_compute_api:servers:show"),
)

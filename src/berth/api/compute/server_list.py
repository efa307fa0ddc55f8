"""GET /servers and /servers/detail: which servers, in which order, a page at a time.

Servers come newest first. A name is looked for as Nova's clients write it, but never as a regular expression
of anybody's making, which could take for ever: ``^`` and ``$`` bind it to the ends and ``.*`` stands for
anything; all else is itself.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from berth.api.compute.server_wire import detail, reservation_of, summary, zone_of
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import (
    Key,
    count_of,
    flag_in,
    newest,
    next_links,
    no_marker,
    query_of,
    render_page,
)
from berth.api.kernel.problem import Problem
from berth.api.kernel.times import parse_time
from berth.model.servers import Server, status_of
from berth.view import View

Test = Callable[[View, Server], bool]

_ALL_FILTERS: Final = "os_compute_api:servers:allow_all_filters"
_ORDER: Final = {"sort_key": "created_at", "sort_dir": "desc"}
"""The only order that there is."""


_STEPS_PER_SERVER: Final = 40
"""To show one with its details."""


async def page(call: Call) -> Response:
    return await _page(call, lambda view, server: summary(call, server))


async def page_with_details(call: Call) -> Response:
    return await _page(call, lambda view, server: detail(call, view, server, is_alone=False))


async def _page(call: Call, shown: Callable[[View, Server], dict[str, Any]]) -> Response:
    query = query_of(call, "servers", QUERY)
    _refuse_other_orders(query)
    limit = count_of(query)
    tests = _tests(call, query)
    project = _project(call, query)

    def answer(view: View) -> Response:
        records = view.records
        servers: Collection[Server] = (
            records.all(Server) if project is None else records.find(Server, "project", project)
        )
        view.steps.take(len(servers))
        behind = _behind(view, project, query.get("marker"))
        matching = (server for server in servers if all(test(view, server) for test in tests))
        found, more = newest(matching, _key, limit, behind)
        view.steps.take(_STEPS_PER_SERVER * len(found))
        page = render_page(found, lambda server: shown(view, server))
        body: dict[str, Any] = {"servers": page}
        if more or len(page) < len(found):
            body["servers_links"] = next_links(call, query, found[len(page) - 1].id)
        return json(body)

    return await call.read(answer)


def _key(server: Server) -> Key:
    return server.created_at_s, server.id


def _behind(view: View, project: str | None, marker: str | None) -> Key | None:
    if marker is None:
        return None
    server = view.records.get(Server, marker)
    if server is None or project not in (None, server.project):
        raise no_marker(marker)
    return _key(server)


def _project(call: Call, query: dict[str, str]) -> str | None:
    """Whose servers; None for everybody's. To name a project is to ask beyond one's own, as in Nova."""
    named = query.get("project_id", query.get("tenant_id"))
    is_all = flag_in(query, "all_tenants") if "all_tenants" in query else named is not None
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


def _tests(call: Call, query: dict[str, str]) -> list[Test]:
    """What a server must be."""
    if any(name in query for name in _FOR_ADMINISTRATORS):
        call.require(_ALL_FILTERS)
    return [_MAKERS[name](value) for name, value in query.items() if name in _MAKERS]


def _named_like(value: str) -> Test:
    like = NamePattern(value)
    return lambda view, server: like.matches(server.name)


def _changed_since(value: str) -> Test:
    since_s = parse_time("changes-since", value)
    return lambda view, server: server.updated_at_s >= since_s


def _changed_before(value: str) -> Test:
    before_s = parse_time("changes-before", value)
    return lambda view, server: server.updated_at_s <= before_s


def _deleted(value: str) -> Test:
    """Of servers that are deleted nothing is kept."""
    is_wanted = flag_in({"deleted": value}, "deleted")
    return lambda view, server: not is_wanted


def _locked(value: str) -> Test:
    is_wanted = flag_in({"locked": value}, "locked")
    return lambda view, server: server.is_locked == is_wanted


def _is(read: Callable[[View, Server], str | None]) -> Callable[[str], Test]:
    """A filter for those of which it is said."""
    return lambda value: lambda view, server: (read(view, server) or "").lower() == value.lower()


_MAKERS: Final[dict[str, Callable[[str], Test]]] = {
    "name": _named_like,
    "changes-since": _changed_since,
    "changes-before": _changed_before,
    "locked": _locked,
    "status": _is(lambda view, server: status_of(server)),
    "flavor": _is(lambda view, server: server.flavor.id),
    "image": _is(lambda view, server: server.image),
    "uuid": _is(lambda view, server: server.id),
    "user_id": _is(lambda view, server: server.user),
    "key_name": _is(lambda view, server: server.key_name),
    "description": _is(lambda view, server: server.description),
    "availability_zone": _is(zone_of),
    "reservation_id": _is(reservation_of),
    "vm_state": _is(lambda view, server: server.state),
    "task_state": _is(lambda view, server: server.task),
    "power_state": _is(lambda view, server: str(server.power)),
    "deleted": _deleted,
    "host": _is(lambda view, server: None if server.place is None else server.place.name),
    "node": _is(lambda view, server: None if server.place is None else server.place.name),
}
_FOR_ADMINISTRATORS: Final = ("host", "node")
QUERY: Final = dict.fromkeys(
    (*_MAKERS, *_ORDER, "limit", "marker", "all_tenants", "project_id", "tenant_id"), 1
) | {"changes-before": 66, "locked": 73}


class NamePattern:
    """Parts that must come one after the other. To look for each as soon as it can be is enough."""

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

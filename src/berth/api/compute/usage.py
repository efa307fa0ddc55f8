"""/os-simple-tenant-usage and /os-instance_usage_audit_log: how long servers have run, and at which size.

Usage is what the records of servers say: a server counts from its first launch until now, or until it was
deleted for as long as its record is kept. There are no audits, as with Nova's defaults: the audit log says of
every host that it has not run one.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import LIMIT_MAX, make_next_links, read_limit, read_query
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import parse_time
from berth.model.servers import Host, Server
from berth.view import View

_PAGES: Final = 40
QUERY: Final = {"start": 1, "end": 1, "limit": _PAGES, "marker": _PAGES}
QUERY_ALL: Final = {**QUERY, "detailed": 1}
_SPAN_S: Final = 4 * 7 * 86_400
"""How far back usage is asked for, unless it is said."""
_HOUR_S: Final = 3_600
_STEPS_PER_SERVER: Final = 5


class _Period(NamedTuple):
    start_s: float
    stop_s: float


# -- usage --------------------------------------------------------------------------------------


async def list_usage(call: Call) -> Response:
    """The usage of all projects that have had servers."""
    query = read_query(call, "usage", QUERY_ALL)
    period = _read_period(call, query)
    is_detailed = query.get("detailed") == "1"

    def answer(view: View) -> Response:
        servers = _find_page(view, view.records.all(Server), period, query)
        by_project: dict[str, list[Server]] = {}
        for server in servers:
            by_project.setdefault(server.project, []).append(server)
        usages = [
            _show_usage(project, owned, period, is_detailed=is_detailed)
            for project, owned in by_project.items()
        ]
        return _respond(call, "tenant_usages", usages, servers, query)

    return await call.read(answer)


async def show_usage(call: Call) -> Response:
    query = read_query(call, "usage", QUERY)
    period, project = _read_period(call, query), call.params[0]
    call.require_of(project)

    def answer(view: View) -> Response:
        servers = _find_page(view, view.records.find(Server, "project", project), period, query)
        usage = _show_usage(project, servers, period, is_detailed=True) if servers else {}
        return _respond(call, "tenant_usage", usage, servers, query)

    return await call.read(answer)


def _read_period(call: Call, query: dict[str, str]) -> _Period:
    stop_s = parse_time("end", query["end"]) if query.get("end") else call.now_s
    start_s = parse_time("start", query["start"]) if query.get("start") else stop_s - _SPAN_S
    if start_s > stop_s:
        raise Problem(400, "Invalid start time. The start time cannot occur after the end time.")
    return _Period(start_s, stop_s)


def _find_page(view: View, servers: Iterable[Server], period: _Period, query: dict[str, str]) -> list[Server]:
    """The servers that have run in a period, in the order of their ids; with a marker, those behind it."""
    found = sorted((server for server in servers if _has_run(server, period)), key=lambda one: one.id)
    view.steps.take(_STEPS_PER_SERVER * len(found))
    marker = query.get("marker", "")
    limit = read_limit(query) if "limit" in query or marker else len(found)
    return [server for server in found if server.id > marker][:limit]


def _has_run(server: Server, period: _Period) -> bool:
    return server.launched_at_s is not None and server.launched_at_s < period.stop_s


def _count_hours(server: Server, period: _Period) -> float:
    begun_s = max(server.launched_at_s or 0, period.start_s)
    return max(0.0, period.stop_s - begun_s) / _HOUR_S


def _show_usage(project: str, servers: list[Server], period: _Period, *, is_detailed: bool) -> dict[str, Any]:
    hours = [_count_hours(server, period) for server in servers]

    def weigh(sizes: Iterable[int]) -> float:
        return sum(size * time for size, time in zip(sizes, hours, strict=True))

    shown: dict[str, Any] = {
        "tenant_id": project,
        "start": _show_moment(period.start_s),
        "stop": _show_moment(period.stop_s),
        "total_hours": sum(hours),
        "total_vcpus_usage": weigh(server.flavor.vcpus for server in servers),
        "total_memory_mb_usage": weigh(server.flavor.memory_mb for server in servers),
        "total_local_gb_usage": weigh(_count_gb(server) for server in servers),
    }
    if is_detailed:
        shown["server_usages"] = [
            _show_server(server, period, time) for server, time in zip(servers, hours, strict=True)
        ]
    return shown


def _show_server(server: Server, period: _Period, hours: float) -> dict[str, Any]:
    begun_s = server.launched_at_s or 0
    return {
        "instance_id": server.id,
        "name": server.name,
        "tenant_id": server.project,
        "flavor": server.flavor.name,
        "vcpus": server.flavor.vcpus,
        "memory_mb": server.flavor.memory_mb,
        "local_gb": _count_gb(server),
        "state": server.state,
        "hours": hours,
        "started_at": _show_moment(begun_s),
        "ended_at": None,
        "uptime": max(0, int(period.stop_s - begun_s)),
    }


def _count_gb(server: Server) -> int:
    return server.flavor.disk_gb + server.flavor.ephemeral_gb


def _show_moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


def _respond(call: Call, name: str, usage: object, servers: list[Server], query: dict[str, str]) -> Response:
    limit = min(read_limit(query), LIMIT_MAX) if "limit" in query else 0
    links = make_next_links(call, servers[-1].id) if limit and len(servers) == limit else []
    return json({name: usage} | ({f"{name}_links": links} if links else {}))


# -- the audit log ------------------------------------------------------------------------------


async def show_audit_log(call: Call) -> Response:
    """The audits of the last month that is over: there are none."""
    log = await call.read(lambda view: _show_log(view, call.now_s))
    return json({"instance_usage_audit_logs": log})


async def show_audit_log_before(call: Call) -> Response:
    """The same, of the last month that was over at a time."""
    text = call.params[0]
    before_s = parse_time("the time in the path", text)
    log = await call.read(lambda view: _show_log(view, before_s))
    return json({"instance_usage_audit_log": log})


def _show_log(view: View, before_s: float) -> dict[str, Any]:
    view.steps.take(view.records.count(Host))
    hosts = sorted(host.name for host in view.records.all(Host))
    end = datetime.fromtimestamp(before_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    begin = end.replace(year=end.year - (end.month == 1), month=12 if end.month == 1 else end.month - 1)
    return {
        "period_beginning": begin.strftime("%Y-%m-%d %H:%M:%S"),
        "period_ending": end.strftime("%Y-%m-%d %H:%M:%S"),
        "num_hosts": len(hosts),
        "num_hosts_done": 0,
        "num_hosts_running": 0,
        "num_hosts_not_run": len(hosts),
        "hosts_not_run": hosts,
        "total_instances": 0,
        "total_errors": 0,
        "overall_status": f"0 of {len(hosts)} hosts done. 0 errors.",
        "log": {},
    }


_USAGE: Final = "os_compute_api:os-simple-tenant-usage"
_AUDIT: Final = "os_compute_api:os-instance-usage-audit-log"
ROUTES: Final = (
    Route("GET", "/os-simple-tenant-usage", list_usage, policy=f"{_USAGE}:list"),
    Route("GET", "/os-simple-tenant-usage/{project}", show_usage, policy=f"{_USAGE}:show"),
    Route("GET", "/os-instance_usage_audit_log", show_audit_log, policy=f"{_AUDIT}:list"),
    Route("GET", "/os-instance_usage_audit_log/{before}", show_audit_log_before, policy=f"{_AUDIT}:show"),
)

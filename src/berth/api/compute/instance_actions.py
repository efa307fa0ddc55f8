"""/servers/{id}/os-instance-actions: what was asked of a server, and how it went, step by step."""

from typing import Any, Final

from berth.api.compute.servers.show import get_server
from berth.api.kernel.access import make_host_id, show_failure
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import Key, page_newest, read_query, refuse_marker
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import parse_time, show_plain_time
from berth.model.servers import Action, ActionEvent
from berth.view import View

_PAGES_SINCE: Final = 58
_EVENTS: Final = "os_compute_api:os-instance-actions:events"
QUERY: Final = {
    "limit": _PAGES_SINCE,
    "marker": _PAGES_SINCE,
    "changes-since": _PAGES_SINCE,
    "changes-before": 66,
}


async def list_actions(call: Call) -> Response:
    query = read_query(call, "instance actions", QUERY)
    since_s = parse_time("changes-since", query["changes-since"]) if "changes-since" in query else None
    before_s = parse_time("changes-before", query["changes-before"]) if "changes-before" in query else None

    def answer(view: View) -> dict[str, Any]:
        actions = _find_actions(call, view)
        behind = _find_marker(actions, query.get("marker"))
        matching = [
            action
            for action in actions
            if (since_s is None or action.updated_at_s >= since_s)
            and (before_s is None or action.updated_at_s <= before_s)
        ]
        # Several may have begun in the same second: their order tells which came first.
        order = {action.id: number for number, action in enumerate(actions)}
        shown, links = page_newest(
            call,
            query,
            matching,
            key=lambda action: (order[action.id], ""),
            behind=behind,
            render=lambda action: _show_summary(call, view, action),
            id_of=lambda action: action.request_id,
        )
        return {"instanceActions": shown} | ({"links": links} if links else {})

    return json(await call.read(answer))


async def show_action(call: Call) -> Response:
    def answer(view: View) -> dict[str, Any]:
        for action in _find_actions(call, view):
            if action.request_id == call.params[1]:
                return _show_whole(call, view, action)
        raise Problem(404, f"Action for request_id {call.params[1]} on instance {call.params[0]} not found.")

    return json({"instanceAction": await call.read(answer)})


def _find_actions(call: Call, view: View) -> list[Action]:
    """The actions of the server, in the order in which they were asked for."""
    server = get_server(call, view, call.params[0])
    return sorted(view.records.find(Action, "server", server.id), key=lambda action: action.started_at_s)


def _find_marker(actions: list[Action], marker: str | None) -> Key | None:
    if marker is None:
        return None
    for number, action in enumerate(actions):
        if action.request_id == marker:
            return number, ""
    raise refuse_marker(marker)


def _show_summary(call: Call, view: View, action: Action) -> dict[str, Any]:
    body = {
        "action": action.name,
        "instance_uuid": action.server,
        "request_id": action.request_id,
        "project_id": action.project,
        "user_id": action.user,
        "start_time": show_plain_time(action.started_at_s),
        "message": None if action.message is None else _show_message(call, view, action, action.message),
    }
    if call.version >= _PAGES_SINCE:
        body["updated_at"] = show_plain_time(action.updated_at_s)
    return body


def _show_message(call: Call, view: View, action: Action, text: str) -> str:
    return show_failure(call.access, view, get_server(call, view, action.server), text)


def _show_whole(call: Call, view: View, action: Action) -> dict[str, Any]:
    body = _show_summary(call, view, action)
    project = get_server(call, view, action.server).project
    if call.version >= 51 or call.allows(_EVENTS, project):
        body["events"] = [_show_event(call, project, event) for event in action.events]
    return body


def _show_event(call: Call, project: str, event: ActionEvent) -> dict[str, Any]:
    body = {
        "event": event.name,
        "start_time": show_plain_time(event.started_at_s),
        "finish_time": show_plain_time(event.finished_at_s),
        "result": event.result,
    }
    if call.allows(_EVENTS, project):
        body["traceback"] = None
    if call.version >= 62:
        body["hostId"] = make_host_id(project, event.host)
        if call.allows(_EVENTS, project):
            body["host"] = event.host
    if call.version >= 84 and call.allows(f"{_EVENTS}:details", project):
        body["details"] = event.details
    return body


ROUTES: Final = (
    Route(
        "GET",
        "/servers/{id}/os-instance-actions",
        list_actions,
        policy="os_compute_api:os-instance-actions:list",
    ),
    Route(
        "GET",
        "/servers/{id}/os-instance-actions/{request_id}",
        show_action,
        policy="os_compute_api:os-instance-actions:show",
    ),
)

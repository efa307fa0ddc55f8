"""/berth/v1/servers/{server}: what a server holds, and /needs: what other services need for it."""

import re
from typing import Final, cast

from berth.api.kernel.codes import BAD_PARAMETER
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import berth_problem
from berth.api.native import bodies_servers, wire_servers
from berth.api.native.calls import Call, encoded
from berth.api.native.wire import time_of
from berth.model.rejections import NeedNotFound, ServerNotFound
from berth.model.servers import ConflictPolicy, Need, Server
from berth.sagas import needs
from berth.sagas.conflicts import Rules, as_dict
from berth.view import View

POLICY_HEADER: Final = "x-berth-conflict-policy"
_POLICIES: Final = ("fail", "retry", "merge")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,32}\Z")


def show_server(view: View, call: Call) -> wire_servers.OneServer:
    server = _server(view, call)
    conflict = server.conflict
    return wire_servers.OneServer(
        wire_servers.Server(
            uuid=server.id,
            name=server.name,
            project_id=server.project,
            state=server.state,
            task=server.task,
            host=None if server.place is None else server.place.name,
            migration=server.migration,
            allocations=as_dict(server.held),
            added_by_others=as_dict(server.kept),
            conflict=None
            if conflict is None
            else wire_servers.Conflict(
                as_dict(conflict.held),
                as_dict(conflict.migration_held),
                conflict.asked,
                time_of(conflict.at_s),
            ),
        )
    )


def page(view: View, call: Call) -> wire_servers.Needs:
    return wire_servers.Needs([_shown(need) for need in _server(view, call).needs])


def show(view: View, call: Call) -> wire_servers.OneNeed:
    return _one(view, call)


async def put(call: Call) -> Response:
    asked: bodies_servers.PutNeed = call.body
    name = call.params[1]
    if _NAME.match(name) is None:
        text = f"need: its name must be 1 to 32 letters, digits, _ or -; it is {name!r}."
        raise Problem(400, text, BAD_PARAMETER)
    need = Need(name, asked.resources, asked.required, asked.forbidden)
    rules = _rules(call)
    return await call.submit(
        lambda view, now_s: needs.set_need(view, now_s, rules, _server(view, call).id, need),
        lambda view: encoded(_one(view, call)),
    )


async def delete(call: Call) -> Response:
    rules = _rules(call)
    return await call.submit(
        lambda view, now_s: needs.remove_need(view, now_s, rules, _server(view, call).id, call.params[1]),
        lambda _: Response(204),
    )


def _id(call: Call) -> str:
    return call.params[0].lower()


def _rules(call: Call) -> Rules:
    """The deployment's, unless the request has its own policy."""
    policy = call.request.headers.get(POLICY_HEADER, call.services.conflict_policy)
    if policy not in _POLICIES:
        text = f"{POLICY_HEADER} is {policy!r}; it must be one of {', '.join(_POLICIES)}."
        raise Problem(400, text, BAD_PARAMETER)
    return Rules(cast(ConflictPolicy, policy), call.services.conflict_repeat)


def _server(view: View, call: Call) -> Server:
    """The server, if there is one for the caller."""
    server = view.records.get(Server, _id(call))
    if server is None or not call.may_touch(server.project):
        raise berth_problem(ServerNotFound(_id(call)))
    return server


def _one(view: View, call: Call) -> wire_servers.OneNeed:
    name = call.params[1]
    for need in _server(view, call).needs:
        if need.name == name:
            return wire_servers.OneNeed(_shown(need))
    raise berth_problem(NeedNotFound(_id(call), name))


def _shown(need: Need) -> wire_servers.Need:
    return wire_servers.Need(
        need.name, need.resources, list(need.required), list(need.forbidden), as_dict(need.held)
    )

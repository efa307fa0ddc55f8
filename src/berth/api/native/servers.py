"""/berth/v1/servers/{server}: what a server holds, and /needs: what other services need for it."""

import re
from typing import Final

from berth.api.kernel.codes import BAD_PARAMETER
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import berth_problem
from berth.api.kernel.times import show_time
from berth.api.native import bodies_servers, wire_servers
from berth.api.native.calls import NativeCall, NativeRoute, encoded, listing
from berth.model.rejections import NeedNotFound, ServerNotFound
from berth.model.servers import Need, Server
from berth.sagas import needs
from berth.sagas.conflicts import ConflictRules, as_dict
from berth.view import View

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,32}\Z")


def show_server(view: View, call: NativeCall) -> wire_servers.OneServer:
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
                show_time(conflict.at_s),
            ),
        )
    )


def page(view: View, call: NativeCall) -> wire_servers.Needs:
    return wire_servers.Needs([_shown(need) for need in _server(view, call).needs])


def show(view: View, call: NativeCall) -> wire_servers.OneNeed:
    return _one(view, call)


async def put(call: NativeCall) -> Response:
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


async def delete(call: NativeCall) -> Response:
    rules = _rules(call)
    return await call.submit(
        lambda view, now_s: needs.remove_need(view, now_s, rules, _server(view, call).id, call.params[1]),
        lambda _: Response(204),
    )


def _id(call: NativeCall) -> str:
    return call.params[0].lower()


def _rules(call: NativeCall) -> ConflictRules:
    return ConflictRules(call.conflict_policy(), call.services.settings.conflict_repeat)


def _server(view: View, call: NativeCall) -> Server:
    """The server, if there is one for the caller."""
    server = view.records.get(Server, _id(call))
    if server is None or not call.may_touch(server.project):
        raise berth_problem(ServerNotFound(_id(call)))
    return server


def _one(view: View, call: NativeCall) -> wire_servers.OneNeed:
    name = call.params[1]
    for need in _server(view, call).needs:
        if need.name == name:
            return wire_servers.OneNeed(_shown(need))
    raise berth_problem(NeedNotFound(_id(call), name))


def _shown(need: Need) -> wire_servers.Need:
    return wire_servers.Need(
        need.name, need.resources, list(need.required), list(need.forbidden), as_dict(need.held)
    )


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/servers/{server}",
        listing(show_server),
        policy="berth:servers:show",
        name="show_server",
        answer=wire_servers.OneServer,
        summary="Show what a server holds",
        description="With what other clients have added, and the conflict that an operation was refused for.",
    ),
    NativeRoute(
        "GET",
        "/servers/{server}/needs",
        listing(page),
        policy="berth:needs:list",
        name="list_needs",
        answer=wire_servers.Needs,
        summary="List what other services need for a server",
        description="Each with where it is met, as long as the server holds anything.",
    ),
    NativeRoute(
        "GET",
        "/servers/{server}/needs/{need}",
        listing(show),
        policy="berth:needs:show",
        name="show_need",
        answer=wire_servers.OneNeed,
        summary="Show a need of a server",
        description="With where it is met, as long as the server holds anything.",
    ),
    NativeRoute(
        "PUT",
        "/servers/{server}/needs/{need}",
        put,
        policy="berth:needs:update",
        name="put_need",
        body=bodies_servers.PutNeed,
        answer=wire_servers.OneNeed,
        summary="Have a server need something",
        description="Part of every claim and move of the server from now on. It is claimed at once, on the "
        "host where the server is; without room there the answer is 409, `berth.no_fit`. What stood under "
        "the name is replaced. Refused with 409 while something is being done to the server.",
    ),
    NativeRoute(
        "DELETE",
        "/servers/{server}/needs/{need}",
        delete,
        policy="berth:needs:delete",
        name="delete_need",
        status=204,
        summary="Take a need away",
        description="What is held for it is given back in the same change.",
    ),
)

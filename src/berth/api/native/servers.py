"""/berth/v1/servers/{server}: what a server holds, and /needs: what other services need for it."""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_PARAMETER
from berth.api.kernel.http import Response
from berth.api.kernel.needs import (
    NeedBody,
    NeedDetail,
    describe_need,
    is_need_name,
    make_need,
    object_to_need,
)
from berth.api.kernel.problem import Problem
from berth.api.kernel.times import show_time
from berth.api.native.calls import NativeCall, NativeRoute, answer_from, bad_body, change_found, respond
from berth.api.native.fields import Amounts, Time, Uuid
from berth.model.ids import ProviderId
from berth.model.rejections import NeedNotFound, Rejection, ServerNotFound
from berth.model.saga_runs import Assignment
from berth.model.servers import Host, Server
from berth.sagas import needs
from berth.sagas.conflicts import ConflictRules, as_dict, held_now
from berth.view import View

# -- answers ------------------------------------------------------------------------------------

Held = Annotated[
    dict[str, Amounts], Meta(description="Amounts by the uuid of the provider that they are held on.")
]


class OneNeed(msgspec.Struct):
    need: NeedDetail


class Needs(msgspec.Struct):
    needs: list[NeedDetail]


class ConflictDetail(msgspec.Struct):
    """What another client had written when an operation was refused because of it. The next operation
    accepts it."""

    allocations: Held
    migration_allocations: Held
    asked: Annotated[str, Meta(description="What was refused.")]
    at: Time


class ServerDetail(msgspec.Struct):
    """A server as its record has it. ``allocations`` is what was last written for it: what it should hold.
    ``added_by_others`` is the part of that which other clients added. ``holds`` is what it holds now."""

    uuid: Uuid
    name: str
    project_id: str
    state: str
    task: str | None
    host: str | None
    migration: Uuid | None
    allocations: Held
    added_by_others: Held
    holds: Held
    conflict: ConflictDetail | None


class OneServer(msgspec.Struct):
    server: ServerDetail


class DeviceDetail(msgspec.Struct):
    """Units of one class. ``of`` is ``server``, or ``migration`` for what its migration holds at the source.
    Where they are, and which, is for administrators."""

    resource_class: str
    count: int
    of: str
    host: str | None = None
    provider: Uuid | None = None
    provider_name: str | None = None
    units: list[str] | None = None


class Devices(msgspec.Struct):
    devices: list[DeviceDetail]


# -- handlers -----------------------------------------------------------------------------------


def show_server(view: View, call: NativeCall) -> OneServer:
    server = call.accept(_find_server(view, call))
    conflict = server.conflict
    return OneServer(
        ServerDetail(
            uuid=server.id,
            name=server.name,
            project_id=server.project,
            state=server.state,
            task=server.task,
            host=None if server.place is None else server.place.name,
            migration=server.migration,
            allocations=as_dict(server.held),
            added_by_others=as_dict(server.kept),
            holds=as_dict(held_now(view, server.id)),
            conflict=None
            if conflict is None
            else ConflictDetail(
                as_dict(conflict.held),
                as_dict(conflict.migration_held),
                conflict.asked,
                show_time(conflict.at_s),
            ),
        )
    )


def list_needs(view: View, call: NativeCall) -> Needs:
    return Needs([describe_need(need) for need in call.accept(_find_server(view, call)).needs])


def show_need(view: View, call: NativeCall) -> OneNeed:
    name = call.params[1]
    for need in call.accept(_find_server(view, call)).needs:
        if need.name == name:
            return OneNeed(describe_need(need))
    raise call.problem_of(NeedNotFound(_read_id(call), name))


async def put_need(call: NativeCall) -> Response:
    asked: NeedBody = call.body
    name = call.params[1]
    if not is_need_name(name):
        text = f"need: its name must be 1 to 64 letters, digits, _ or -; it is {name!r}."
        raise Problem(400, text, BAD_PARAMETER)
    wrong = object_to_need(asked)
    if wrong is not None:
        raise bad_body(wrong)
    need = make_need(name, asked)
    rules = _read_rules(call)
    return await call.submit(
        change_found(
            call,
            _find_server,
            lambda view, now_s, server: needs.set_need(view, now_s, rules, server.id, need),
        ),
        lambda view: respond(show_need(view, call)),
    )


async def delete_need(call: NativeCall) -> Response:
    rules = _read_rules(call)
    name = call.params[1]
    return await call.submit(
        change_found(
            call,
            _find_server,
            lambda view, now_s, server: needs.remove_need(view, now_s, rules, server.id, name),
        ),
        lambda _: Response(204),
    )


def show_devices(view: View, call: NativeCall) -> Devices:
    server = call.accept(_find_server(view, call))
    is_shown = call.allows("berth:devices:show:units", server.project)
    return Devices(
        [
            device
            for one in view.records.find(Assignment, "server", server.id)
            if is_shown or one.holder == server.id
            for device in _list_devices(view, one, is_shown)
        ]
    )


def _list_devices(view: View, assignment: Assignment, is_shown: bool) -> Iterator[DeviceDetail]:
    of = "server" if assignment.holder == assignment.server else "migration"
    host = view.records.get(Host, assignment.host)
    for id, kinds in assignment.units.items():
        provider = view.providers.get(ProviderId(id))
        for kind, names in kinds.items():
            device = DeviceDetail(kind, len(names), of)
            if is_shown:
                device.host = None if host is None else host.name
                device.provider, device.units = id, list(names)
                device.provider_name = None if provider is None else provider.name
            yield device


def _read_id(call: NativeCall) -> str:
    return call.params[0].lower()


def _read_rules(call: NativeCall) -> ConflictRules:
    return ConflictRules(call.conflict_policy(), call.services.settings.conflict_repeat)


def _find_server(view: View, call: NativeCall) -> Server | Rejection:
    """The server, if there is one for the caller."""
    server = view.records.get(Server, _read_id(call))
    if server is None or not call.may_touch(server.project):
        return ServerNotFound(_read_id(call))
    return server


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/servers/{server}",
        answer_from(show_server),
        policy="berth:servers:show",
        name="show_server",
        answer=OneServer,
        summary="Show what a server holds",
        description="With what other clients have added, and the conflict that an operation was refused for.",
    ),
    NativeRoute(
        "GET",
        "/servers/{server}/devices",
        answer_from(show_devices),
        policy="berth:devices:show",
        name="show_devices",
        answer=Devices,
        summary="Show which devices a server has",
        description="Kinds and counts for members of its project; for administrators also which units, "
        "where, and what its migration holds. While the server's cell is away this is what was last known.",
    ),
    NativeRoute(
        "GET",
        "/servers/{server}/needs",
        answer_from(list_needs),
        policy="berth:needs:list",
        name="list_needs",
        answer=Needs,
        summary="List what other services need for a server",
        description="Each with where it is met, as long as the server holds anything.",
    ),
    NativeRoute(
        "GET",
        "/servers/{server}/needs/{need}",
        answer_from(show_need),
        policy="berth:needs:show",
        name="show_need",
        answer=OneNeed,
        summary="Show a need of a server",
        description="With where it is met, as long as the server holds anything.",
    ),
    NativeRoute(
        "PUT",
        "/servers/{server}/needs/{need}",
        put_need,
        policy="berth:needs:update",
        name="put_need",
        body=NeedBody,
        example={"resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 400}},
        answer=OneNeed,
        summary="Put a need of a server",
        description="Part of every claim and move of the server from now on. It is claimed at once, on the "
        "host where the server is; without room there the answer is 409, `berth.no_fit`, and names the group "
        "that has none. A need of the same name is replaced. Refused with 409 while an operation on the "
        "server is in progress.",
    ),
    NativeRoute(
        "DELETE",
        "/servers/{server}/needs/{need}",
        delete_need,
        policy="berth:needs:delete",
        name="delete_need",
        status=204,
        summary="Delete a need of a server",
        description="What is held for it is released in the same change.",
    ),
)

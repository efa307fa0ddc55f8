"""/resource_classes: list, create, show, rename (before 1.7) or ensure (from then), delete."""

import json

from berth.api.kernel.http import JSON, Response
from berth.api.kernel.rejections import Attempt, placement_problem
from berth.api.placement import wire
from berth.api.placement.calls import Answer, PlacementCall, encode, no_content
from berth.model.commands import CreateResourceClass, DeleteResourceClass, RenameResourceClass
from berth.model.rejections import ResourceClassNotFound
from berth.view import View

ENSURES_SINCE = 7


def _path(name: str) -> str:
    return f"/resource_classes/{name}"


def _entry(name: str) -> dict[str, object]:
    return {"name": name, "links": [{"rel": "self", "href": _path(name)}]}


async def list_all(call: PlacementCall) -> Answer:
    def answer(view: View) -> Response:
        names = map(view.classes.name_of, view.classes.ids())
        # Standard classes have no date: the list counts as changed now.
        return call.json(encode({"resource_classes": [_entry(name) for name in names]}), call.now_s)

    return await call.read(answer)


async def show(call: PlacementCall) -> Answer:
    name = call.params[0]

    def answer(view: View) -> Answer:
        id = view.classes.id_of(name)
        if id is None:
            return placement_problem(ResourceClassNotFound(name), Attempt.SHOW_CLASS)
        created_at_s = view.classes.created_at_s(id)
        return call.json(encode(_entry(name)), call.now_s if created_at_s is None else created_at_s)

    return await call.read(answer)


async def create(call: PlacementCall) -> Answer:
    name = wire.RESOURCE_CLASS.decode(call.request.body).name

    def answer(view: View, changed: bool) -> Response:
        return call.located(Response(201), _path(name))

    return await call.carry_out(CreateResourceClass(name), Attempt.CREATE_CLASS, answer)


async def put(call: PlacementCall) -> Answer:
    return await (_ensure(call) if call.version >= ENSURES_SINCE else _rename(call))


async def _ensure(call: PlacementCall) -> Answer:
    name = call.params[0]
    # The name is held to the rules of a body, in the words for a body.
    wire.RESOURCE_CLASS.decode(json.dumps({"name": name}).encode())

    def answer(view: View, changed: bool) -> Response:
        return call.located(Response(201 if changed else 204), _path(name))

    return await call.carry_out(CreateResourceClass(name, exist_ok=True), Attempt.CREATE_CLASS, answer)


async def _rename(call: PlacementCall) -> Answer:
    new_name = wire.RESOURCE_CLASS.decode(call.request.body).name

    def answer(view: View, changed: bool) -> Response:
        return Response(200, encode(_entry(new_name)), JSON)

    return await call.carry_out(RenameResourceClass(call.params[0], new_name), Attempt.RENAME_CLASS, answer)


async def delete(call: PlacementCall) -> Answer:
    return await call.carry_out(DeleteResourceClass(call.params[0]), Attempt.DELETE_CLASS, no_content)

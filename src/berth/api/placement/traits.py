"""/traits and /resource_providers/{uuid}/traits."""

from collections.abc import Callable, Sequence
from typing import Final

from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import Attempt, placement_problem
from berth.api.placement import query as q
from berth.api.placement import wire
from berth.api.placement.calls import Answer, PlacementCall, encode, no_content
from berth.model.commands import CreateTrait, DeleteTrait, SetTraits
from berth.model.placement import STANDARD_TRAITS, is_custom_name
from berth.model.rejections import TraitsNotFound
from berth.view import ProviderRecord, View

_STANDARD: Final = tuple(sorted(STANDARD_TRAITS))

_INVALID: Final = (
    "The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix "
    '"CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
)

Matches = Callable[[str], bool]


# -- the vocabulary -----------------------------------------------------------------------------


def _modified_s(call: PlacementCall, view: View, names: Sequence[str]) -> int:
    """When the newest was created. Standard traits have no date: they count as created now."""
    now_s = call.now_s
    return max((view.custom_traits.get(name, now_s) for name in names), default=now_s)


async def list_matching(call: PlacementCall) -> Answer:
    q.validate_traits(call.query)
    matches = _parse_name(call.query.get("name"))
    associated = _parse_associated(call.query.get("associated"))

    def answer(view: View) -> Response:
        names = [name for name in (*_STANDARD, *sorted(view.custom_traits)) if matches(name)]
        if associated is not None:
            in_use = set(view.traits_in_use())
            names = [name for name in names if (name in in_use) is associated]
        return call.json(encode({"traits": names}), _modified_s(call, view, names))

    return await call.read(answer)


def _parse_name(value: str | None) -> Matches:
    """``in:A,B`` or ``startswith:A``; any other operator matches everything."""
    if value is None:
        return lambda name: True
    operator, colon, operand = value.partition(":")
    if not colon:
        raise Problem(
            400,
            "Badly formatted name parameter. Expected name query string parameter in form: "
            f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{value}"',
        )
    if operator == "in":
        return frozenset(operand.split(",")).__contains__
    if operator == "startswith":
        return lambda name: name.startswith(operand)
    return lambda name: True


def _parse_associated(value: str | None) -> bool | None:
    if value is None:
        return None
    if value.lower() not in ("true", "false"):
        raise Problem(400, 'The query parameter "associated" only accepts "true" or "false"')
    return value.lower() == "true"


async def show(call: PlacementCall) -> Answer:
    name = call.params[0]

    def answer(view: View) -> Answer:
        if not view.has_trait(name):
            return placement_problem(TraitsNotFound((name,)), Attempt.SHOW_TRAIT)
        return call.dated(Response(204), _modified_s(call, view, (name,)))

    return await call.read(answer)


async def ensure(call: PlacementCall) -> Answer:
    name = call.params[0]
    if not is_custom_name(name):
        return Problem(400, _INVALID)

    def answer(view: View, changed: bool) -> Response:
        response = call.located(Response(201 if changed else 204), f"/traits/{name}")
        return call.dated(response, _modified_s(call, view, (name,)))

    return await call.carry_out(CreateTrait(name), Attempt.ENSURE_TRAIT, answer)


async def delete(call: PlacementCall) -> Answer:
    return await call.carry_out(DeleteTrait(call.params[0]), Attempt.DELETE_TRAIT, no_content)


# -- a provider's traits ------------------------------------------------------------------------


def _respond(call: PlacementCall, view: View, record: ProviderRecord) -> Response:
    payload = {"traits": record.traits, "resource_provider_generation": record.generation}
    return call.json(encode(payload), _modified_s(call, view, record.traits))


async def show_of_provider(call: PlacementCall) -> Answer:
    return await call.read_provider(
        lambda view, record: _respond(call, view, record),
        missing="No resource provider with uuid {id} found: {says}",
    )


async def replace_of_provider(call: PlacementCall) -> Answer:
    id = call.provider
    body = wire.PROVIDER_TRAITS.decode(call.request.body)
    call.limit_list(len(body.traits), "traits")
    command = SetTraits(id, body.resource_provider_generation, frozenset(body.traits))

    def answer(view: View, changed: bool) -> Response:
        return _respond(call, view, view.providers[id])

    return await call.carry_out(command, Attempt.SET_TRAITS, answer)


async def delete_of_provider(call: PlacementCall) -> Answer:
    command = SetTraits(call.provider, None, frozenset())
    return await call.carry_out(command, Attempt.SET_TRAITS, no_content)

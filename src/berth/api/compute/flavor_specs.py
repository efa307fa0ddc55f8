"""/flavors/{id}/os-extra_specs: what a flavor says beyond its sizes.

Each is used, goes to the driver or is refused (``scheduler/spec_table.py``): a flavor never gets one that no
server could be made with.
"""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.api.compute.flavors import checked, visible
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import nova_problem
from berth.api.kernel.router import Route
from berth.ledger.records import replace_record
from berth.model.commands import Command, Enact
from berth.model.servers import Flavor
from berth.scheduler.flavors import SPECS_MAX
from berth.scheduler.spec_table import wrong_extra_spec
from berth.view import View

_KEY: Final = re.compile(r"[a-zA-Z0-9_:. -]{1,255}")

Value = Annotated[str, Meta(max_length=255)] | int | float
Specs = Annotated[dict[str, Value], Meta(min_length=1, max_length=SPECS_MAX)]


class GivenSpecs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    extra_specs: Specs


async def index(call: Call) -> Response:
    flavor = await call.read(lambda view: visible(view, call))
    return json({"extra_specs": flavor.extra_specs})


async def show(call: Call) -> Response:
    flavor = await call.read(lambda view: visible(view, call))
    return json({_named(call): _value(flavor, _named(call))})


async def create(call: Call) -> Response:
    """Add to them; what is there already is replaced."""
    given = _texts(call.decode(GivenSpecs).extra_specs)
    return await call.submit(
        lambda view, _: _with(view, call, given), lambda view: json({"extra_specs": given})
    )


async def update(call: Call) -> Response:
    given = _texts(call.decode(dict[str, Value]))
    if list(given) != [_named(call)]:
        raise Problem(400, f"The body must have one key, {_named(call)!r}, as the path does.")
    return await call.submit(lambda view, _: _with(view, call, given), lambda view: json(given))


async def delete(call: Call) -> Response:
    def make(view: View, now_s: int) -> Command:
        flavor = visible(view, call)
        _value(flavor, _named(call))
        left = {key: value for key, value in flavor.extra_specs.items() if key != _named(call)}
        return Enact((replace_record(view, checked(msgspec.structs.replace(flavor, extra_specs=left))),))

    return await call.submit(make, lambda view: Response(200))


def _named(call: Call) -> str:
    return call.params[1]


def _value(flavor: Flavor, key: str) -> str:
    value = flavor.extra_specs.get(key)
    if value is None:
        raise Problem(404, f"Flavor {flavor.id} has no extra specs with key {key}.")
    return value


def _texts(specs: dict[str, str | int | float]) -> dict[str, str]:
    for key in specs:
        if _KEY.fullmatch(key) is None:
            raise Problem(400, f"The key {key!r} must have 1 to 255 letters, digits, spaces or any of _:.-")
    return {key: str(value) for key, value in specs.items()}


def _with(view: View, call: Call, given: dict[str, str]) -> Command:
    flavor = visible(view, call)
    after = msgspec.structs.replace(flavor, extra_specs=flavor.extra_specs | given)
    checked(after)
    wrong = wrong_extra_spec(after.extra_specs)
    if wrong is not None:
        raise nova_problem(wrong)
    return Enact((replace_record(view, after),))


ROUTES: Final = (
    Route("GET", "/flavors/{id}/os-extra_specs", index, policy="os_compute_api:os-flavor-extra-specs:index"),
    Route(
        "POST", "/flavors/{id}/os-extra_specs", create, policy="os_compute_api:os-flavor-extra-specs:create"
    ),
    Route(
        "GET", "/flavors/{id}/os-extra_specs/{key}", show, policy="os_compute_api:os-flavor-extra-specs:show"
    ),
    Route(
        "PUT",
        "/flavors/{id}/os-extra_specs/{key}",
        update,
        policy="os_compute_api:os-flavor-extra-specs:update",
    ),
    Route(
        "DELETE",
        "/flavors/{id}/os-extra_specs/{key}",
        delete,
        policy="os_compute_api:os-flavor-extra-specs:delete",
    ),
)

"""/resource_providers/{uuid}/inventories, all of them and one by one."""

from collections.abc import Iterable
from typing import Final

from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import Attempt
from berth.api.placement import wire
from berth.api.placement.calls import Answer, PlacementCall, encode, no_content
from berth.model.commands import AddInventory, DeleteInventory, PutInventory, SetInventories
from berth.model.ids import ProviderId
from berth.model.placement import AGENT_CELL_HEADER, Inventory
from berth.view import ProviderRecord, View

RESERVE_ALL_SINCE: Final = 26

_NOT_FOUND: Final = "No resource provider with uuid {id} found : {says}"


# -- rendering ----------------------------------------------------------------------------------


def inventory_of(record: wire.InventoryRecord) -> Inventory:
    return Inventory(
        record.total,
        record.reserved,
        record.min_unit,
        record.max_unit,
        record.step_size,
        record.allocation_ratio,
    )


def is_by_cell(call: PlacementCall) -> bool:
    """Whether the conductor of a cell writes what an agent of it has reported."""
    return AGENT_CELL_HEADER in call.request.headers


def _fields(inventory: Inventory) -> dict[str, int | float]:
    return {
        "total": inventory.total,
        "reserved": inventory.reserved,
        "min_unit": inventory.min_unit,
        "max_unit": inventory.max_unit,
        "step_size": inventory.step_size,
        "allocation_ratio": inventory.allocation_ratio,
    }


def _respond_one(
    call: PlacementCall, record: ProviderRecord, inventory: Inventory, status: int = 200
) -> Response:
    fields = _fields(inventory)
    # A generation of 0 has always been left out here.
    if record.generation:
        fields["resource_provider_generation"] = record.generation
    return call.json(encode(fields), inventory.written_at_s, status)


def _respond_all(call: PlacementCall, view: View, record: ProviderRecord) -> Response:
    inventories = record.inventories
    payload = {
        "resource_provider_generation": record.generation,
        "inventories": {
            view.classes.name_of(id): _fields(inventory) for id, inventory in inventories.items()
        },
    }
    return call.json(encode(payload), _modified_s(inventories.values()))


def _modified_s(inventories: Iterable[Inventory]) -> int | None:
    return max((inventory.written_at_s for inventory in inventories), default=None)


def _find(view: View, provider: ProviderId, resource_class: str) -> Inventory | None:
    id = view.classes.id_of(resource_class)
    return None if id is None else view.providers[provider].inventories.get(id)


# -- handlers -----------------------------------------------------------------------------------


async def list_all(call: PlacementCall) -> Answer:
    return await call.read_provider(lambda view, record: _respond_all(call, view, record), missing=_NOT_FOUND)


async def show(call: PlacementCall) -> Answer:
    resource_class = call.params[1]

    def render(view: View, record: ProviderRecord) -> Answer:
        inventory = _find(view, record.id, resource_class)
        if inventory is None:
            return Problem(404, f"No inventory of class {resource_class} for {record.id}")
        return _respond_one(call, record, inventory)

    return await call.read_provider(render, missing=_NOT_FOUND)


async def add(call: PlacementCall) -> Answer:
    body = await call.decode_for_provider(wire.NEW_INVENTORY)
    id, resource_class = call.provider, body.resource_class
    command = AddInventory(
        id, resource_class, inventory_of(body), call.version >= RESERVE_ALL_SINCE, is_by_cell(call)
    )

    def answer(view: View, changed: bool) -> Response:
        inventory = _find(view, id, resource_class)
        assert inventory is not None, "an inventory was added and is not there"
        response = _respond_one(call, view.providers[id], inventory, status=201)
        return call.located(response, f"/resource_providers/{id}/inventories/{resource_class}")

    return await call.carry_out(command, Attempt.ADD_INVENTORY, answer, provider=id)


async def put(call: PlacementCall) -> Answer:
    body = await call.decode_for_provider(wire.CHANGED_INVENTORY)
    id, resource_class = call.provider, call.params[1]
    command = PutInventory(
        id,
        body.resource_provider_generation,
        resource_class,
        inventory_of(body),
        call.version >= RESERVE_ALL_SINCE,
        is_by_cell(call),
    )

    def answer(view: View, changed: bool) -> Response:
        inventory = _find(view, id, resource_class)
        assert inventory is not None, "an inventory was put and is not there"
        return _respond_one(call, view.providers[id], inventory)

    return await call.carry_out(command, Attempt.PUT_INVENTORY, answer)


async def replace(call: PlacementCall) -> Answer:
    body = await call.decode_for_provider(wire.INVENTORIES)
    call.limit_list(len(body.inventories), "inventories")
    id = call.provider
    inventories = {name: inventory_of(record) for name, record in body.inventories.items()}
    command = SetInventories(
        id,
        body.resource_provider_generation,
        inventories,
        call.version >= RESERVE_ALL_SINCE,
        is_by_cell(call),
    )

    def answer(view: View, changed: bool) -> Response:
        return _respond_all(call, view, view.providers[id])

    return await call.carry_out(command, Attempt.SET_INVENTORIES, answer, provider=id)


async def delete(call: PlacementCall) -> Answer:
    command = DeleteInventory(call.provider, call.params[1])
    return await call.carry_out(command, Attempt.DELETE_INVENTORY, no_content)


async def delete_all(call: PlacementCall) -> Answer:
    command = SetInventories(call.provider, None, {})
    return await call.carry_out(command, Attempt.DELETE_INVENTORIES, no_content)

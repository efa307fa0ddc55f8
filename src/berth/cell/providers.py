"""What a host says it has, written into Placement: the provider tree, inventories, traits, and the cell's own
aggregate, by which the scheduler knows which hosts belong together."""

from collections.abc import Callable
from typing import Any, Final

from berth.cell.books import BooksAway, Refused
from berth.cell.protocol import Provider, Register
from berth.client.http import Answer, HttpClient, Unreachable
from berth.operations.hosts import cell_aggregate

_ATTEMPTS: Final = 10


class Providers:
    def __init__(self, client: HttpClient, cell: str) -> None:
        self._client = client
        self._cell = cell

    async def write(self, host: Register) -> None:
        """Make the tree what the host says. What is so already is left alone."""
        for provider in host.providers:
            await self._write_one(provider)
            if provider.id == host.host:
                # Before it has anything to give: nobody may be placed on a host of no cell.
                await self._join(host)
            await self._furnish(provider)

    async def _write_one(self, provider: Provider) -> None:
        found = await self._ask("GET", f"/resource_providers/{provider.id}")
        if found.status == 404:
            body = {"uuid": provider.id, "name": provider.name, "parent_provider_uuid": provider.parent}
            made = await self._ask("POST", "/resource_providers", body)
            is_there = made.status == 409 and await self._is_there(provider.id)
            if made.status != 200 and not is_there:
                raise Refused(made.detail)

    async def _is_there(self, provider: str) -> bool:
        return (await self._ask("GET", f"/resource_providers/{provider}")).status == 200

    async def _furnish(self, provider: Provider) -> None:
        for name in provider.traits:
            if name.startswith("CUSTOM_"):
                await self._ask("PUT", f"/traits/{name}")
        for name in provider.inventories:
            if name.startswith("CUSTOM_"):
                await self._ask("PUT", f"/resource_classes/{name}")
        path = f"/resource_providers/{provider.id}"
        await self._bring(f"{path}/inventories", "inventories", _complete(provider.inventories))
        await self._bring(f"{path}/traits", "traits", list(provider.traits), keeps=_is_custom)

    async def _join(self, host: Register) -> None:
        """The aggregates that others have put the host in stay; ours are added."""
        path = f"/resource_providers/{host.host}/aggregates"
        ours = {cell_aggregate(self._cell), *host.aggregates}
        for _ in range(_ATTEMPTS):
            found = await self._ask("GET", path)
            there = set(found.body["aggregates"])
            if ours <= there:
                return
            body = {
                "aggregates": sorted(there | ours),
                "resource_provider_generation": found.body["resource_provider_generation"],
            }
            if await self._put(path, body):
                return
        raise BooksAway(f"{path}: others were first")

    async def _bring(
        self, path: str, key: str, said: Any, keeps: Callable[[str], bool] = lambda name: False
    ) -> None:
        """Have what the host says, and of what is there beside that what is somebody else's."""
        for _ in range(_ATTEMPTS):
            found = await self._ask("GET", path)
            there = found.body[key]
            wanted = said if isinstance(said, dict) else sorted({*said, *filter(keeps, there)})
            if (sorted(there) if isinstance(there, list) else there) == wanted:
                return
            body = {key: wanted, "resource_provider_generation": found.body["resource_provider_generation"]}
            if await self._put(path, body):
                return
        raise BooksAway(f"{path}: others were first")

    async def _put(self, path: str, body: dict[str, Any]) -> bool:
        """Whether it was written; if not, somebody was first."""
        answer = await self._ask("PUT", path, body)
        if answer.status == 200:
            return True
        if answer.status == 409 and answer.code == "placement.concurrent_update":
            return False
        raise Refused(answer.detail)

    async def _ask(self, method: str, path: str, body: object = None) -> Answer:
        try:
            answer = await self._client.ask(method, path, body)
        except Unreachable as error:
            raise BooksAway(str(error)) from error
        if answer.status >= 500 or answer.status in (401, 403):
            raise BooksAway(answer.detail)
        return answer


def _is_custom(trait: str) -> bool:
    """Whether an operator may have given it to the host."""
    return trait.startswith("CUSTOM_")


def _complete(inventories: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Inventories with what Placement adds to them, so that they can be compared."""
    return {
        name: {
            "total": given["total"],
            "reserved": given.get("reserved", 0),
            "min_unit": given.get("min_unit", 1),
            "max_unit": given.get("max_unit", given["total"]),
            "step_size": given.get("step_size", 1),
            "allocation_ratio": float(given.get("allocation_ratio", 1.0)),
        }
        for name, given in inventories.items()
    }

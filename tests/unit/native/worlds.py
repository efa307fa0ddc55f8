"""An application on a journal of its own, without a network, and ways to fill and ask it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from berth.api.kernel.application import Application
from berth.api.kernel.auth.noauth import NoAuth
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.call import Services
from berth.api.kernel.cors import Cors
from berth.api.kernel.health import Health
from berth.api.native.api import NativeApi
from berth.api.placement.api import PlacementApi
from berth.engine import Engine
from berth.journal import SqliteAddress, open_journal
from berth.model.quotas import RESOURCES
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.runtime.telemetry import Telemetry
from berth.scheduler.options import scheduler_options

T = TypeVar("T")


def uuid_of(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012}"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        [error] = self.json["errors"]
        return error


NO_QUOTAS: dict[str, Any] = {f"quota_{name}": -1 for name in RESOURCES if name != "metadata_items"}


class World:
    """Without quotas, unless ``settings`` have some."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.settings = Settings(log_level="error", **NO_QUOTAS | settings)
        self.engine: Engine
        self.application: Application

    def run(self, story: Callable[["World"], Awaitable[T]]) -> T:
        async def told() -> T:
            clock, ids = SystemClock(), Ids(seed=1)
            telemetry = Telemetry(self.settings, clock)
            journal = open_journal(SqliteAddress(self.path / "journal.db"), shared=False)
            self.engine = Engine(journal, clock, ids, telemetry)
            await self.engine.start()
            policy = Policy(None, "legacy", clock)
            services = Services(self.engine, ids, clock, scheduler_options(), self.settings, policy)
            self.application = Application(
                (PlacementApi(services), NativeApi(services)),
                Health(self.engine, telemetry.exposition),
                NoAuth(),
                Cors((), ()),
                clock,
                ids,
                telemetry,
                body_bytes_max=self.settings.body_bytes_max,
            )
            try:
                return await story(self)
            finally:
                await self.engine.stop()

        return asyncio.run(told())

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "admin",
        version: str = "1.39",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        return await self.ask_raw(method, path, content, token=token, version=version, headers=headers)

    async def ask_raw(
        self,
        method: str,
        path: str,
        content: bytes | None,
        *,
        token: str | None = "admin",
        version: str = "1.39",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        messages: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": content or b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        sent = {"openstack-api-version": f"placement {version}"}
        if content:
            sent |= {"content-length": str(len(content)), "content-type": "application/json"}
        sent |= headers or {}
        if token is not None:
            sent["x-auth-token"] = token
        await self.application(scope_of(method, path, sent), receive, send)
        start, rest = messages
        received = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], received, rest["body"])

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    # -- filling --------------------------------------------------------------------------------

    async def change(self, method: str, path: str, body: object = None, version: str = "1.39") -> Any:
        answer = await self.ask(method, path, body, version=version)
        assert answer.status < 300, answer.body
        return answer.json if answer.body else None

    async def host(
        self, number: int, inventories: Mapping[str, int] | None = None, parent: int | None = None
    ) -> str:
        """A provider with these totals, below the given one."""
        id = uuid_of(number)
        body = {"name": f"host-{number}", "uuid": id}
        if parent is not None:
            body["parent_provider_uuid"] = uuid_of(parent)
        await self.change("POST", "/resource_providers", body)
        await self.change(
            "PUT",
            f"/resource_providers/{id}/inventories",
            {
                "resource_provider_generation": 0,
                "inventories": {
                    name: {"total": total} for name, total in (inventories or {"VCPU": 8}).items()
                },
            },
        )
        return id

    async def join(self, number: int, *aggregates: str) -> None:
        path = f"/resource_providers/{uuid_of(number)}/aggregates"
        await self.change("PUT", path, aggregates, version="1.18")

    async def claim(
        self,
        number: int,
        held: Mapping[int, Mapping[str, int]],
        *,
        project: str = "p",
        user: str = "u",
        type: str | None = "INSTANCE",
    ) -> str:
        """A consumer that holds these amounts, by the numbers of hosts."""
        body: dict[str, object] = {
            "allocations": {uuid_of(host): {"resources": amounts} for host, amounts in held.items()},
            "project_id": project,
            "user_id": user,
            "consumer_generation": None,
        }
        if type is not None:
            body["consumer_type"] = type
        version = "1.39" if type is not None else "1.37"
        await self.change("PUT", f"/allocations/{uuid_of(number)}", body, version=version)
        return uuid_of(number)


def scope_of(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("192.0.2.1", 5),
    }

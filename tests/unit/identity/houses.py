"""A region with all its APIs, and a way to choose how its callers are known."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from berth.api.compute.api import ComputeApi
from berth.api.identity.api import IdentityApi
from berth.api.identity.issuers import issuer_of
from berth.api.identity.revocations import RevocableTokens, Revocations
from berth.api.image.api import ImageApi
from berth.api.kernel.application import Application
from berth.api.kernel.auth.caller import Authenticator
from berth.api.kernel.auth.noauth import NoAuth
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.auth.tokens import Tokens
from berth.api.kernel.call import Services
from berth.api.kernel.cors import Cors
from berth.api.kernel.health import Health
from berth.api.native.api import NativeApi
from berth.api.placement.api import PlacementApi
from berth.engine import Engine
from berth.journal import SqliteAddress, open_journal
from berth.runtime.ids import Ids
from berth.runtime.telemetry import Telemetry
from berth.scheduler.options import scheduler_options
from tests.clocks import FakeClock
from tests.unit.native.worlds import World

T = TypeVar("T")


class House(World):
    """With ``tokens``, the text of a tokens file, callers are known by that; without, all are believed."""

    def __init__(self, path: Path, tokens: str | None = None, **settings: Any) -> None:
        super().__init__(path, **settings)
        self.clock = FakeClock()
        self.policy = Policy(self.settings.policy_file, "legacy", self.clock)
        self.tokens_file = path / "tokens.toml"
        self._is_file = tokens is not None
        if tokens is not None:
            self.write_tokens(tokens)

    def write_tokens(self, text: str) -> None:
        self.tokens_file.write_text(text)
        self.tokens_file.chmod(0o600)

    def authenticator(self) -> Authenticator:
        """As every worker has its own."""
        return Tokens(str(self.tokens_file), self.clock, issues=True) if self._is_file else NoAuth()

    def _revocable(self, authenticator: Authenticator) -> Authenticator:
        if not isinstance(authenticator, Tokens):
            return authenticator
        return RevocableTokens(authenticator, Revocations(self.engine))

    def run(self, story: Callable[["House"], Awaitable[T]]) -> T:
        async def told() -> T:
            await self.start()
            try:
                return await story(self)
            finally:
                await self.engine.stop()

        return asyncio.run(told())

    async def start(self) -> None:
        """As a process starts: on its journal, with nothing remembered."""
        ids = Ids(seed=1)
        telemetry = Telemetry(self.settings, self.clock)
        journal = open_journal(SqliteAddress(self.path / "journal.db"), shared=False)
        self.engine = Engine(journal, self.clock, ids, telemetry)
        await self.engine.start()
        self.application = self._composed(ids, telemetry)

    def _composed(self, ids: Ids, telemetry: Telemetry) -> Application:
        policy, options = self.policy, scheduler_options()
        services = Services(self.engine, ids, self.clock, options, self.settings, policy)
        authenticator = self.authenticator()
        issuer = issuer_of(authenticator)
        assert issuer is not None
        identity = IdentityApi(services, issuer)
        self.identity_routes = identity.routes
        return Application(
            (
                PlacementApi(services),
                NativeApi(services),
                ComputeApi(services),
                ImageApi(services),
                identity,
            ),
            Health(self.engine, telemetry.exposition),
            self._revocable(authenticator),
            Cors((), ()),
            self.clock,
            ids,
            telemetry,
            body_bytes_max=self.settings.body_bytes_max,
            public_url=self.settings.public_url,
        )

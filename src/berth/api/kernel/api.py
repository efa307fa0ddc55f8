"""What every API is: it serves the paths below a prefix, and refuses in its own shape."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Final

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Handler, Services, admit
from berth.api.kernel.http import Request, Response
from berth.api.kernel.problem import Problem, outage_problem
from berth.api.kernel.router import Route, Router
from berth.engine import Overloaded, Unavailable

NOBODY: Final = Caller(None, None, ())
"""Who asks what is open, without a token. No rule lets it do anything else."""


class Api(ABC):
    PREFIX: ClassVar[str]

    def is_open(self, request: Request) -> bool:
        """Whether anybody may ask this, without a token."""
        return False

    def drain(self) -> None:  # noqa: B027
        """No more requests come: end what would go on for ever, if there is such a thing."""

    @abstractmethod
    async def answer(self, request: Request, caller: Caller) -> Response:
        """The response; Problem if there is none."""

    @abstractmethod
    def refuse(self, problem: Problem, request: Request) -> Response:
        """The response to a request that is refused, in the API's own shape."""

    async def handle(self, request: Request, caller: Caller) -> Response:
        try:
            return await self.answer(request, caller)
        except Problem as problem:
            return self.refuse(problem, request)
        except (Overloaded, Unavailable) as outage:
            return self.refuse(outage_problem(outage, request), request)


class RoutedApi(Api):
    """One with a table of routes, as the services of OpenStack have them: paths end with or without a slash,
    HEAD is a GET, and anybody may read the versions."""

    def __init__(
        self, services: Services, routes: Iterable[Route[Handler]], below: str, versions_at: Iterable[str]
    ) -> None:
        self._services = services
        self._router = Router(routes, below)
        self._versions_at = frozenset(versions_at)

    def is_open(self, request: Request) -> bool:
        return request.path.rstrip("/") in self._versions_at

    @abstractmethod
    def show_versions(self, request: Request) -> Response: ...

    def version_of(self, request: Request) -> int:
        """The minor of the microversion that a request speaks, where there are such."""
        return 0

    async def answer(self, request: Request, caller: Caller) -> Response:
        version = self.version_of(request)
        path = request.path.rstrip("/")
        if path in self._versions_at:
            request.route = path
            return self.show_versions(request)
        method = "GET" if request.method == "HEAD" else request.method
        route, params, request.route = self._router.match(method, path)
        return await route.handler(admit(route, request, caller, params, self._services, version))

"""The compute API: find the route, check the version, call the handler, and answer in Nova's shapes."""

from typing import Final

from berth.api.compute import versions
from berth.api.compute.calls import Route, Services, json
from berth.api.compute.errors import render
from berth.api.compute.routes import ROUTES
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.http import Request, Response, origin_of
from berth.api.kernel.problem import Problem, outage_problem
from berth.engine import Overloaded, Unavailable

_PREFIX: Final = "/compute"
_V21: Final = f"{_PREFIX}/v2.1"
_OPEN: Final = frozenset((_PREFIX, f"{_PREFIX}/", _V21, f"{_V21}/"))
"""What anybody may read without a token: the versions."""


class ComputeApi:
    PREFIX = _PREFIX

    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes = Routes(ROUTES, below=_V21)

    def is_open(self, request: Request) -> bool:
        return request.path in _OPEN

    def refuse(self, problem: Problem, request: Request) -> Response:
        return render(problem)

    async def handle(self, request: Request, caller: Caller | None) -> Response:
        version = versions.MIN
        try:
            version = versions.version_of(request.headers)
            response = await self._answer(request, caller, version)
        except Problem as problem:
            response = render(problem)
        except (Overloaded, Unavailable) as outage:
            response = render(outage_problem(outage, request))
        response.headers += versions.headers_of(version)
        return response

    async def _answer(self, request: Request, caller: Caller | None, version: int) -> Response:
        path = request.path
        if path in _OPEN:
            return _versions(request)
        assert caller is not None, "only the versions are for everybody"
        route, params, template = self._routes.find(request.method, path)
        request.route = _V21 + template
        return await route.handler(route.admit(request, caller, params, version, self._services))


def _versions(request: Request) -> Response:
    document = versions.document(f"{origin_of(request)}{_V21}")
    if request.path.rstrip("/") == _PREFIX:
        return json({"versions": [document]})
    return json({"version": document})


class Routes:
    """Finds the route of a path ``below`` a prefix. Fixed parts are looked at before variable ones:
    /servers/detail is no server."""

    def __init__(self, routes: tuple[Route, ...], below: str) -> None:
        self._below = f"{below}/"
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        for route in routes:
            parts = tuple(route.path.strip("/").split("/"))
            bucket = self._by_length.setdefault(len(parts), [])
            for known, methods in bucket:
                if known == parts:
                    methods[route.method] = route
                    break
            else:
                bucket.append((parts, {route.method: route}))
        for bucket in self._by_length.values():
            bucket.sort(key=lambda entry: [part.startswith("{") for part in entry[0]])

    def find(self, method: str, path: str) -> tuple[Route, tuple[str, ...], str]:
        if not path.startswith(self._below):
            raise Problem(404, f"There is nothing at {path}: this API is below {self._below}.")
        parts = tuple(path.removeprefix(self._below).strip("/").split("/"))
        for template, methods in self._by_length.get(len(parts), ()):
            if all(
                known.startswith("{") or known == part for known, part in zip(template, parts, strict=True)
            ):
                route = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
                if route is None:
                    allowed = ", ".join(sorted(methods))
                    raise Problem(
                        405, f"Not here: {method}. Allowed: {allowed}.", headers=(("allow", allowed),)
                    )
                variable = (
                    part for known, part in zip(template, parts, strict=True) if known.startswith("{")
                )
                return route, tuple(variable), route.path
        raise Problem(404, f"There is nothing at {path}.")

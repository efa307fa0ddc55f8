"""Routes, and which one a path belongs to.

A fixed part of a path goes before a variable one: /servers/detail is no server. What a route asks of a
request beside its policy is its API's business, in a route of its own kind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from berth.api.kernel import codes
from berth.api.kernel.problem import Problem

H = TypeVar("H", covariant=True)
"""What handles a request."""


@dataclass(frozen=True)
class Route(Generic[H]):
    """``path`` has its variable parts in braces: ``/servers/{id}/action``. ``policy`` is the rule that lets
    callers in, None: everybody. A body that names ``actions`` is judged by the rules of those instead."""

    method: str
    path: str
    handler: H
    policy: str | None = None
    actions: Mapping[str, str] = field(default_factory=dict, kw_only=True)


R = TypeVar("R", bound=Route[Any])


class Resource(Generic[R]):
    """What can be done at a path, by method."""

    __slots__ = ("allow", "routes", "template")

    def __init__(self, template: str) -> None:
        self.template: Final = template
        self.routes: dict[str, R] = {}
        self.allow = ""

    def add(self, route: R) -> None:
        assert route.method not in self.routes, f"{route.method} {route.path} has two routes"
        self.routes[route.method] = route
        self.allow = ", ".join(self.routes)


class _Node(Generic[R]):
    __slots__ = ("fixed", "resource", "variable")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node[R]] = {}
        self.variable: _Node[R] | None = None
        self.resource: Resource[R] | None = None


class Router(Generic[R]):
    """Finds the routes of paths ``below`` a prefix. A variable part is never empty, nor longer than
    ``part_max``. ``names_paths``: a 404 lists the paths that there are."""

    def __init__(
        self, routes: Iterable[R], below: str = "", part_max: int = 1 << 20, *, names_paths: bool = False
    ) -> None:
        self.resources: dict[str, Resource[R]] = {}
        self._below: Final = below
        self._part_max: Final = part_max
        self._root: _Node[R] = _Node()
        self._static: dict[str, Resource[R]] = {}
        for route in routes:
            if route.path not in self.resources:
                self.resources[route.path] = self._plant(route.path)
            self.resources[route.path].add(route)
        known = ", ".join(resource.template for resource in self.resources.values())
        self._hint: Final = f" Known paths: {known}." if names_paths else ""

    def _plant(self, path: str) -> Resource[R]:
        node = self._root
        for part in path.split("/"):
            if part.startswith("{"):
                node.variable = node.variable or _Node()
                node = node.variable
            else:
                node = node.fixed.setdefault(part, _Node())
        assert node.resource is None, f"{path} stands in the table under another name too"
        node.resource = Resource(self._below + path)
        if "{" not in path:
            self._static[node.resource.template] = node.resource
        return node.resource

    def find(self, path: str) -> tuple[Resource[R], tuple[str, ...]] | None:
        """What is at a path, and the values of its variable parts, in order."""
        static = self._static.get(path)
        if static is not None:
            return static, ()
        if not path.startswith(self._below):
            return None
        parts = path[len(self._below) :].split("/")
        # Nearly every path is found without going back, and every request asks here.
        node = self._root
        values: list[str] = []
        for part in parts:
            below = node.fixed.get(part)
            if below is None:
                below = node.variable
                if below is None or not part or len(part) > self._part_max:
                    break
                values.append(part)
            node = below
        else:
            if node.resource is not None:
                return node.resource, tuple(values)
        return self._walk(self._root, parts, 0, ())

    def _walk(
        self, node: _Node[R], parts: list[str], at: int, values: tuple[str, ...]
    ) -> tuple[Resource[R], tuple[str, ...]] | None:
        if at == len(parts):
            return None if node.resource is None else (node.resource, values)
        part = parts[at]
        fixed = node.fixed.get(part)
        if fixed is not None:
            found = self._walk(fixed, parts, at + 1, values)
            if found is not None:
                return found
        if node.variable is None or not 0 < len(part) <= self._part_max:
            return None
        return self._walk(node.variable, parts, at + 1, (*values, part))

    def match(self, method: str, path: str) -> tuple[R, tuple[str, ...], str]:
        """The route, the values of the variable parts, and the template of the path; Problem if there is
        none."""
        found = self.find(path)
        if found is None:
            raise Problem(404, f"Unknown path: {path}.{self._hint}", codes.NOT_FOUND)
        resource, values = found
        route = resource.routes.get(method)
        if route is None:
            text = f"{method} is not allowed here, only {resource.allow}."
            headers = (("allow", resource.allow),)
            raise Problem(405, text, codes.METHOD_NOT_ALLOWED, headers=headers)
        return route, values, resource.template

"""The table of routes: every path, every method, and what is asked of a request before its handler runs.

Clients see the order of these questions when more than one thing is wrong, so it is kept as upstream has
it: on most routes the version first, then the media types, then the policy; ``media_first`` routes ask
for the media types before the version.
"""

from typing import Final, NamedTuple

from berth.api.placement import (
    aggregates,
    allocations,
    candidates,
    inventories,
    reshaper,
    resource_classes,
    resource_providers,
    root,
    traits,
    usages,
)
from berth.api.placement.calls import Handler
from berth.api.placement.versions import LATEST

NEVER: Final = -1


class Route(NamedTuple):
    """``json_until``: the last version that insists on a JSON body. ``rule`` None: open to everybody.

    ``is_search``: finding the answer is the work, and so a conditional read is judged before it is done.
    """

    handler: Handler
    rule: str | None
    since: int = 0
    too_new: int = 404
    json_until: int = NEVER
    checks_accept: bool = False
    media_first: bool = False
    of_project: bool = False
    is_search: bool = False


class Resource(NamedTuple):
    """A path: what can be done there, and (for a 405) the names of it."""

    template: str
    routes: dict[str, Route]
    allow: str
    actions: dict[str, str]


def _reads(handler: Handler, rule: str, since: int = 0, *, media_first: bool = False) -> Route:
    return Route(handler, f"placement:{rule}", since, checks_accept=True, media_first=media_first)


def _searches(handler: Handler, rule: str, since: int = 0) -> Route:
    return Route(handler, f"placement:{rule}", since, checks_accept=True, is_search=True)


def _writes(handler: Handler, rule: str, since: int = 0, *, media_first: bool = False) -> Route:
    return Route(handler, f"placement:{rule}", since, json_until=LATEST, media_first=media_first)


def _acts(handler: Handler, rule: str, since: int = 0, *, too_new: int = 404) -> Route:
    """Without a body either way."""
    return Route(handler, f"placement:{rule}", since, too_new)


TABLE: Final[dict[str, dict[str, Route]]] = {
    "/": {"GET": Route(root.show, None)},
    "/resource_classes": {
        "GET": _reads(resource_classes.list_all, "resource_classes:list", 2),
        "POST": _writes(resource_classes.create, "resource_classes:create", 2),
    },
    "/resource_classes/{name}": {
        "GET": _reads(resource_classes.show, "resource_classes:show", 2),
        "PUT": Route(
            resource_classes.put,
            "placement:resource_classes:update",
            2,
            json_until=resource_classes.ENSURES_SINCE - 1,
        ),
        "DELETE": _acts(resource_classes.delete, "resource_classes:delete", 2),
    },
    "/resource_providers": {
        "GET": _searches(resource_providers.list_matching, "resource_providers:list"),
        "POST": _writes(resource_providers.create, "resource_providers:create"),
    },
    "/resource_providers/{uuid}": {
        "GET": _reads(resource_providers.show, "resource_providers:show"),
        "DELETE": _acts(resource_providers.delete, "resource_providers:delete"),
        "PUT": _writes(resource_providers.update, "resource_providers:update"),
    },
    "/resource_providers/{uuid}/inventories": {
        "GET": _reads(inventories.list_all, "resource_providers:inventories:list"),
        "POST": _writes(inventories.add, "resource_providers:inventories:create"),
        "PUT": _writes(inventories.replace, "resource_providers:inventories:update"),
        "DELETE": _acts(inventories.delete_all, "resource_providers:inventories:delete", 5, too_new=405),
    },
    "/resource_providers/{uuid}/inventories/{resource_class}": {
        "GET": _reads(inventories.show, "resource_providers:inventories:show"),
        "PUT": _writes(inventories.put, "resource_providers:inventories:update"),
        "DELETE": _acts(inventories.delete, "resource_providers:inventories:delete"),
    },
    "/resource_providers/{uuid}/usages": {
        "GET": _reads(usages.show_of_provider, "resource_providers:usages"),
    },
    "/resource_providers/{uuid}/aggregates": {
        "GET": _reads(aggregates.show, "resource_providers:aggregates:list", 1, media_first=True),
        "PUT": _writes(aggregates.replace, "resource_providers:aggregates:update", 1, media_first=True),
    },
    "/resource_providers/{uuid}/allocations": {
        "GET": _reads(allocations.show_of_provider, "resource_providers:allocations:list"),
    },
    "/allocations": {
        "POST": _writes(allocations.post, "allocations:manage", 13),
    },
    "/allocations/{consumer_uuid}": {
        "GET": _reads(allocations.show, "allocations:list"),
        "PUT": _writes(allocations.put, "allocations:update"),
        "DELETE": _acts(allocations.delete, "allocations:delete"),
    },
    "/allocation_candidates": {
        "GET": _searches(candidates.list_candidates, "allocation_candidates:list", 10),
    },
    "/traits": {
        "GET": _reads(traits.list_matching, "traits:list", 6),
    },
    "/traits/{name}": {
        "GET": _acts(traits.show, "traits:show", 6),
        "PUT": _acts(traits.ensure, "traits:update", 6),
        "DELETE": _acts(traits.delete, "traits:delete", 6),
    },
    "/resource_providers/{uuid}/traits": {
        "GET": _reads(traits.show_of_provider, "resource_providers:traits:list", 6),
        "PUT": _writes(traits.replace_of_provider, "resource_providers:traits:update", 6),
        "DELETE": _acts(traits.delete_of_provider, "resource_providers:traits:delete", 6),
    },
    "/usages": {
        "GET": Route(usages.show_total, "placement:usages", 9, checks_accept=True, of_project=True),
    },
    "/reshaper": {
        "POST": _writes(reshaper.reshape, "reshaper:reshape", 30),
    },
}


# -- finding ------------------------------------------------------------------------------------

_VARIABLE: Final = "{}"


def _key(template: str) -> str:
    """The path with its variable segments blotted out."""
    return "/".join(_VARIABLE if part.startswith("{") else part for part in template.split("/"))


_RESOURCES: Final = {
    _key(template): Resource(
        template, routes, ", ".join(routes), {method: f"{method} {template}" for method in routes}
    )
    for template, routes in TABLE.items()
}


def find(path: str) -> tuple[Resource, tuple[str, ...]] | None:
    """The resource of a path and the values of its variable segments. Every second segment is one."""
    match (path or "/").split("/"):
        case ["", kind]:
            resource = _RESOURCES.get(f"/{kind}")
            return None if resource is None else (resource, ())
        case ["", kind, first] if first:
            resource = _RESOURCES.get(f"/{kind}/{{}}")
            return None if resource is None else (resource, (first,))
        case ["", kind, first, part] if first:
            resource = _RESOURCES.get(f"/{kind}/{{}}/{part}")
            return None if resource is None else (resource, (first,))
        case ["", kind, first, part, second] if first and second:
            resource = _RESOURCES.get(f"/{kind}/{{}}/{part}/{{}}")
            return None if resource is None else (resource, (first, second))
    return None

"""The table of routes: every path, every method, and what is asked of a request before its handler runs.

Clients see the order of these questions when more than one thing is wrong, so it is kept as upstream has
it: on most routes the version first, then the media types, then the policy; ``media_first`` routes ask
for the media types before the version.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from berth.api.kernel.http import Response
from berth.api.kernel.router import Route
from berth.api.placement import (
    allocation_candidates,
    allocations,
    inventories,
    resource_classes,
    resource_providers,
    traits,
    usages,
)
from berth.api.placement.calls import PlacementCall, PlacementHandler, encode
from berth.api.placement.versions import LATEST, MAX_TEXT, MIN_TEXT

NEVER: Final = -1


@dataclass(frozen=True, kw_only=True)
class PlacementRoute(Route[PlacementHandler]):
    """``json_until``: the last version that insists on a JSON body.

    ``is_search``: finding the answer is the work, and so a conditional read is judged before it is done.
    """

    since: int = 0
    too_new: int = 404
    json_until: int = NEVER
    checks_accept: bool = False
    media_first: bool = False
    of_project: bool = False
    is_search: bool = False


_reads = partial(PlacementRoute, checks_accept=True)
_searches = partial(PlacementRoute, checks_accept=True, is_search=True)
_writes = partial(PlacementRoute, json_until=LATEST)
_acts = PlacementRoute
"""Without a body either way."""

_VERSIONS: Final = encode(
    {
        "versions": [
            {
                "id": f"v{MIN_TEXT}",
                "max_version": MAX_TEXT,
                "min_version": MIN_TEXT,
                "status": "CURRENT",
                "links": [{"rel": "self", "href": ""}],
            }
        ]
    }
)


async def show_versions(call: PlacementCall) -> Response:
    return call.json(_VERSIONS, call.now_s)


ROUTES: Final[tuple[PlacementRoute, ...]] = (
    PlacementRoute("GET", "/", show_versions),
    _reads(
        "GET",
        "/resource_classes",
        resource_classes.list_all,
        policy="placement:resource_classes:list",
        since=2,
    ),
    _writes(
        "POST",
        "/resource_classes",
        resource_classes.create,
        policy="placement:resource_classes:create",
        since=2,
    ),
    _reads(
        "GET",
        "/resource_classes/{name}",
        resource_classes.show,
        policy="placement:resource_classes:show",
        since=2,
    ),
    PlacementRoute(
        "PUT",
        "/resource_classes/{name}",
        resource_classes.put,
        policy="placement:resource_classes:update",
        since=2,
        json_until=resource_classes.ENSURES_SINCE - 1,
    ),
    _acts(
        "DELETE",
        "/resource_classes/{name}",
        resource_classes.delete,
        policy="placement:resource_classes:delete",
        since=2,
    ),
    _searches(
        "GET",
        "/resource_providers",
        resource_providers.list_matching,
        policy="placement:resource_providers:list",
    ),
    _writes(
        "POST", "/resource_providers", resource_providers.create, policy="placement:resource_providers:create"
    ),
    _reads(
        "GET",
        "/resource_providers/{uuid}",
        resource_providers.show,
        policy="placement:resource_providers:show",
    ),
    _acts(
        "DELETE",
        "/resource_providers/{uuid}",
        resource_providers.delete,
        policy="placement:resource_providers:delete",
    ),
    _writes(
        "PUT",
        "/resource_providers/{uuid}",
        resource_providers.update,
        policy="placement:resource_providers:update",
    ),
    _reads(
        "GET",
        "/resource_providers/{uuid}/inventories",
        inventories.list_all,
        policy="placement:resource_providers:inventories:list",
    ),
    _writes(
        "POST",
        "/resource_providers/{uuid}/inventories",
        inventories.add,
        policy="placement:resource_providers:inventories:create",
    ),
    _writes(
        "PUT",
        "/resource_providers/{uuid}/inventories",
        inventories.replace,
        policy="placement:resource_providers:inventories:update",
    ),
    _acts(
        "DELETE",
        "/resource_providers/{uuid}/inventories",
        inventories.delete_all,
        policy="placement:resource_providers:inventories:delete",
        since=5,
        too_new=405,
    ),
    _reads(
        "GET",
        "/resource_providers/{uuid}/inventories/{resource_class}",
        inventories.show,
        policy="placement:resource_providers:inventories:show",
    ),
    _writes(
        "PUT",
        "/resource_providers/{uuid}/inventories/{resource_class}",
        inventories.put,
        policy="placement:resource_providers:inventories:update",
    ),
    _acts(
        "DELETE",
        "/resource_providers/{uuid}/inventories/{resource_class}",
        inventories.delete,
        policy="placement:resource_providers:inventories:delete",
    ),
    _reads(
        "GET",
        "/resource_providers/{uuid}/usages",
        usages.show_of_provider,
        policy="placement:resource_providers:usages",
    ),
    _reads(
        "GET",
        "/resource_providers/{uuid}/aggregates",
        resource_providers.show_aggregates,
        policy="placement:resource_providers:aggregates:list",
        since=1,
        media_first=True,
    ),
    _writes(
        "PUT",
        "/resource_providers/{uuid}/aggregates",
        resource_providers.replace_aggregates,
        policy="placement:resource_providers:aggregates:update",
        since=1,
        media_first=True,
    ),
    _reads(
        "GET",
        "/resource_providers/{uuid}/allocations",
        allocations.show_of_provider,
        policy="placement:resource_providers:allocations:list",
    ),
    _writes("POST", "/allocations", allocations.post, policy="placement:allocations:manage", since=13),
    _reads("GET", "/allocations/{consumer_uuid}", allocations.show, policy="placement:allocations:list"),
    _writes("PUT", "/allocations/{consumer_uuid}", allocations.put, policy="placement:allocations:update"),
    _acts(
        "DELETE", "/allocations/{consumer_uuid}", allocations.delete, policy="placement:allocations:delete"
    ),
    _searches(
        "GET",
        "/allocation_candidates",
        allocation_candidates.list_candidates,
        policy="placement:allocation_candidates:list",
        since=10,
    ),
    _reads("GET", "/traits", traits.list_matching, policy="placement:traits:list", since=6),
    _acts("GET", "/traits/{name}", traits.show, policy="placement:traits:show", since=6),
    _acts("PUT", "/traits/{name}", traits.ensure, policy="placement:traits:update", since=6),
    _acts("DELETE", "/traits/{name}", traits.delete, policy="placement:traits:delete", since=6),
    _reads(
        "GET",
        "/resource_providers/{uuid}/traits",
        traits.show_of_provider,
        policy="placement:resource_providers:traits:list",
        since=6,
    ),
    _writes(
        "PUT",
        "/resource_providers/{uuid}/traits",
        traits.replace_of_provider,
        policy="placement:resource_providers:traits:update",
        since=6,
    ),
    _acts(
        "DELETE",
        "/resource_providers/{uuid}/traits",
        traits.delete_of_provider,
        policy="placement:resource_providers:traits:delete",
        since=6,
    ),
    PlacementRoute(
        "GET",
        "/usages",
        usages.show_total,
        policy="placement:usages",
        since=9,
        checks_accept=True,
        of_project=True,
    ),
    _writes("POST", "/reshaper", allocations.reshape, policy="placement:reshaper:reshape", since=30),
)

"""Every route of /berth/v1, below its prefix. Each module says which are its own.

What a row says of a route is all there is to say: requests are judged by it, and the OpenAPI description is
read off it.
"""

from functools import cache
from typing import Final

from berth.api.kernel.http import Response
from berth.api.native import (
    aggregates,
    allocations,
    clusters,
    doctor,
    events,
    groups,
    hosts,
    schedule,
    servers,
    usage,
)
from berth.api.native.calls import NativeCall, NativeRoute, fixed
from berth.api.native.openapi import description

PREFIX: Final = "/berth/v1"


async def show_openapi(call: NativeCall) -> Response:
    return fixed(call, openapi_json())


ROUTES: Final[tuple[NativeRoute, ...]] = (
    *allocations.ROUTES,
    *usage.ROUTES,
    *events.ROUTES,
    *groups.ROUTES,
    *aggregates.ROUTES,
    *hosts.ROUTES,
    *schedule.ROUTES,
    *servers.ROUTES,
    *doctor.ROUTES,
    *clusters.ROUTES,
    NativeRoute(
        "GET",
        "/openapi.json",
        show_openapi,
        policy="berth:openapi:show",
        name="show_openapi",
        summary="Describe this API",
        description="This description, in OpenAPI 3.1. Everybody with a role may read it.",
    ),
)


@cache
def openapi_json() -> bytes:
    return description(PREFIX, ROUTES)

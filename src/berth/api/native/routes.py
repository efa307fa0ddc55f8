"""The table of routes of /berth/v1: each with its parameters, its answer and its words. All are reads.

What the table says of a route is all there is to say: requests are judged by it, and the OpenAPI
description is read off it.
"""

from functools import cache
from typing import Final

from berth.api.http import Response
from berth.api.native import allocations, consumers, events, usage, wire
from berth.api.native.calls import Call, Route, fixed, listing
from berth.api.native.openapi import description
from berth.api.native.parameters import (
    AllocationsQuery,
    ConsumersQuery,
    EventsQuery,
    Nothing,
    UsageQuery,
)

PREFIX: Final = "/berth/v1"


async def describe(call: Call) -> Response:
    return fixed(call, openapi_json())


TABLE: Final[dict[str, Route]] = {
    f"{PREFIX}/consumers": Route(
        listing(consumers.page),
        "berth:consumers:list",
        ConsumersQuery,
        wire.Consumers,
        "list_consumers",
        "List consumers",
        "Everybody who holds resources, in the order of their uuids. Pages stay in step while consumers come "
        "and go: nothing is repeated, and nothing left out that was there throughout.",
    ),
    f"{PREFIX}/allocations": Route(
        listing(allocations.page),
        "berth:allocations:list",
        AllocationsQuery,
        wire.Allocations,
        "list_allocations",
        "List allocations",
        "A row per consumer and provider, in the order of the consumers. The rows of one consumer are always "
        "on one page: a page may end before its limit, and one consumer alone may go beyond it.",
    ),
    f"{PREFIX}/usage": Route(
        listing(usage.page),
        "berth:usage:show",
        UsageQuery,
        wire.Usage,
        "show_usage",
        "Sum up capacity, use and what is free",
        "Totals per resource class, by provider, root (host), aggregate, project or resource class. With "
        "`project`, `used` is what that project uses.",
    ),
    f"{PREFIX}/events": Route(
        events.show,
        "berth:events:list",
        EventsQuery,
        wire.Events,
        "list_events",
        "Watch what changes",
        "Every change since an index, with who asked for it. As JSON in pages, or as server-sent events that "
        "go on: `id` is the index, and a client that comes back with `Last-Event-ID` misses nothing. "
        "`limit` is for pages.",
        is_stream=True,
    ),
    f"{PREFIX}/openapi.json": Route(
        describe,
        None,
        Nothing,
        None,
        "show_openapi",
        "Describe this API",
        "This description, in OpenAPI 3.1. Everybody whose token is known may read it.",
    ),
}


@cache
def openapi_json() -> bytes:
    return description(TABLE)

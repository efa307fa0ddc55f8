"""The table of routes of /berth/v1: each with its parameters, its body, its answer and its words.

What the table says of a route is all there is to say: requests are judged by it, and the OpenAPI
description is read off it.
"""

from functools import cache
from typing import Final

from berth.api.kernel.http import Response
from berth.api.native import (
    aggregates,
    allocations,
    bodies,
    bodies_schedule,
    consumers,
    events,
    groups,
    hosts,
    routes_clusters,
    routes_servers,
    schedule,
    usage,
    wire,
    wire_events,
    wire_groups,
    wire_schedule,
)
from berth.api.native.calls import Call, Route, fixed, listing
from berth.api.native.openapi import description
from berth.api.native.parameters import (
    AggregatesQuery,
    AllocationsQuery,
    ConsumersQuery,
    DeleteGroupQuery,
    EventsQuery,
    GroupsQuery,
    HostsQuery,
    Nothing,
    UsageQuery,
)

PREFIX: Final = "/berth/v1"


async def describe(call: Call) -> Response:
    return fixed(call, openapi_json())


TABLE: Final[dict[str, dict[str, Route]]] = {
    f"{PREFIX}/consumers": {
        "GET": Route(
            listing(consumers.page),
            "berth:consumers:list",
            ConsumersQuery,
            wire.Consumers,
            "list_consumers",
            "List consumers",
            "Everybody who holds resources, in the order of their uuids. Pages stay in step while consumers "
            "come and go: nothing is repeated, and nothing left out that was there throughout.",
        ),
    },
    f"{PREFIX}/allocations": {
        "GET": Route(
            listing(allocations.page),
            "berth:allocations:list",
            AllocationsQuery,
            wire.Allocations,
            "list_allocations",
            "List allocations",
            "A row per consumer and provider, in the order of the consumers. The rows of one consumer are "
            "always on one page: a page may end before its limit, and one consumer alone may go beyond it.",
        ),
    },
    f"{PREFIX}/usage": {
        "GET": Route(
            listing(usage.page),
            "berth:usage:show",
            UsageQuery,
            wire.Usage,
            "show_usage",
            "Sum up capacity, use and what is free",
            "Totals per resource class, by provider, root (host), aggregate, project or resource class. With "
            "`project`, `used` is what that project uses.",
        ),
    },
    f"{PREFIX}/events": {
        "GET": Route(
            events.show,
            "berth:events:list",
            EventsQuery,
            wire_events.Events,
            "list_events",
            "Watch what changes",
            "Every change since an index, with who asked for it. As JSON in pages, or as server-sent events "
            "that go on: `id` is the index, and a client that comes back with `Last-Event-ID` misses "
            "nothing. `limit` is for pages.",
            is_stream=True,
        ),
    },
    f"{PREFIX}/groups": {
        "GET": Route(
            listing(groups.page),
            "berth:groups:list",
            GroupsQuery,
            wire_groups.Groups,
            "list_groups",
            "List groups",
            "Groups in the order of their uuids.",
        ),
        "POST": Route(
            groups.create,
            "berth:groups:create",
            Nothing,
            wire_groups.OneGroup,
            "create_group",
            "Create a group",
            "A hard policy (`affinity`, `anti-affinity`) is judged in every claim, through whichever API it "
            "comes; a soft one weighs when a host is chosen. Members may be declared here, later, or with "
            "their claim.",
            body=bodies.CreateGroup,
            status=201,
        ),
    },
    f"{PREFIX}/groups/{{group}}": {
        "GET": Route(
            listing(groups.show),
            "berth:groups:show",
            Nothing,
            wire_groups.OneGroup,
            "show_group",
            "Show a group",
            "Its members, where each stands, and how many each domain has.",
        ),
        "PATCH": Route(
            groups.change,
            "berth:groups:update",
            Nothing,
            wire_groups.OneGroup,
            "change_group",
            "Rename a group, or change its rule",
            "Refused with 409 if members stand where the new rule would not let them.",
            body=bodies.ChangeGroup,
        ),
        "DELETE": Route(
            groups.delete,
            "berth:groups:delete",
            DeleteGroupQuery,
            None,
            "delete_group",
            "Delete a group",
            "Refused with 409 while it has members, unless forced.",
            status=204,
        ),
    },
    f"{PREFIX}/groups/{{group}}/members": {
        "POST": Route(
            groups.change_members,
            "berth:groups:update",
            Nothing,
            wire_groups.OneGroup,
            "change_members",
            "Declare members, and let members go",
            "Consumers need not hold anything yet. Those that do are judged by where they stand.",
            body=bodies.ChangeMembers,
        ),
    },
    f"{PREFIX}/aggregates": {
        "GET": Route(
            listing(aggregates.page),
            "berth:aggregates:list",
            AggregatesQuery,
            wire_groups.Aggregates,
            "list_aggregates",
            "List aggregates of which something is said",
            "Aggregates with a kind, a name or metadata, in the order of their uuids.",
        ),
    },
    f"{PREFIX}/aggregates/{{aggregate}}": {
        "PUT": Route(
            aggregates.put,
            "berth:aggregates:update",
            Nothing,
            wire_groups.OneAggregate,
            "label_aggregate",
            "Say what an aggregate is",
            "A kind, such as `rack`, `zone` or `cell`, makes it a domain of groups and of the scheduler.",
            body=bodies.LabelAggregate,
        ),
        "DELETE": Route(
            aggregates.delete,
            "berth:aggregates:update",
            Nothing,
            None,
            "unlabel_aggregate",
            "Take back what was said of an aggregate",
            "Providers stay in it.",
            status=204,
        ),
    },
    f"{PREFIX}/hosts": {
        "GET": Route(
            listing(hosts.page),
            "berth:hosts:list",
            HostsQuery,
            wire_groups.Hosts,
            "list_hosts",
            "List hosts",
            "Root providers with their status and their domains, in the order of their uuids.",
        ),
    },
    f"{PREFIX}/hosts/{{host}}": {
        "GET": Route(
            listing(hosts.show),
            "berth:hosts:list",
            Nothing,
            wire_groups.OneHost,
            "show_host",
            "Show a host",
            "Its status, its domains, and the complaints of its agent: what the host has or had, and could "
            "not be written, and why.",
        ),
        "PUT": Route(
            hosts.put,
            "berth:hosts:update",
            Nothing,
            wire_groups.OneHost,
            "set_host_status",
            "Say how a host is doing",
            "A host that is disabled or down keeps what it has, and nothing new is scheduled to it.",
            body=bodies.SetStatus,
        ),
    },
    f"{PREFIX}/schedule": {
        "POST": Route(
            schedule.schedule,
            "berth:schedule",
            Nothing,
            wire_schedule.Schedule,
            "schedule",
            "Choose hosts and claim them, in one act",
            "All members or none: max_count if so many fit, at least min_count. With `dry_run` nothing is "
            "claimed; the token in the answer, sent alone, claims exactly that plan, or is refused if the "
            "plan is stale (409, `berth.plan_moved`). Where nothing fits the answer is 409, "
            "`berth.no_fit`.",
            body=bodies_schedule.Schedule,
        ),
    },
    f"{PREFIX}/explain": {
        "POST": Route(
            schedule.explain,
            "berth:explain",
            Nothing,
            wire_schedule.OneExplanation,
            "explain",
            "Why there, and why nowhere",
            "How many hosts each constraint removes, in order; each constraint at the hosts that are named; "
            "and the smallest change that would make it fit.",
            body=bodies_schedule.Explain,
        ),
    },
    f"{PREFIX}/capacity": {
        "POST": Route(
            schedule.capacity,
            "berth:capacity",
            Nothing,
            wire_schedule.OneCapacity,
            "count_capacity",
            "How many more fit",
            "How many more of this the fleet can take now, in all and in each cell, zone and other labelled "
            "aggregate, policies included.",
            body=bodies_schedule.Ask,
        ),
    },
    **routes_servers.table(PREFIX),
    **routes_clusters.table(PREFIX),
    f"{PREFIX}/openapi.json": {
        "GET": Route(
            describe,
            "berth:openapi:show",
            Nothing,
            None,
            "show_openapi",
            "Describe this API",
            "This description, in OpenAPI 3.1. Everybody with a role may read it.",
        ),
    },
}


_VARIABLE: Final = [(template, template.split("/")) for template in TABLE if "{" in template]
_SEGMENT_MAX: Final = 64
"""No id is longer."""


def find(path: str) -> tuple[str, tuple[str, ...]] | None:
    """The template that a path follows, and what stands for its variable parts."""
    if path in TABLE:
        return path, ()
    segments = path.split("/")
    for template, parts in _VARIABLE:
        if len(parts) == len(segments):
            pairs = list(zip(parts, segments, strict=True))
            params = tuple(given for part, given in pairs if part.startswith("{"))
            fits = all(part == given or part.startswith("{") for part, given in pairs)
            if fits and all(0 < len(given) <= _SEGMENT_MAX for given in params):
                return template, params
    return None


@cache
def openapi_json() -> bytes:
    return description(TABLE)

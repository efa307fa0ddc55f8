"""Every route of /berth/v1, below its prefix, and the OpenAPI 3.1 description of them. Each resource says
which routes are its own.

What a row says of a route is all there is to say: requests are judged by it, and the description is read off
it and off the structs that it names.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from berth import __version__
from berth.api.kernel.http import Response
from berth.api.native import (
    aggregates,
    allocations,
    caller,
    cells,
    clusters,
    doctor,
    drains,
    events,
    groups,
    hosts,
    operations,
    overview,
    pools,
    schedule,
    servers,
    usage,
)
from berth.api.native.calls import NativeCall, NativeRoute, Refusals, kinds_of, respond_fixed
from berth.model.placement import NAME_LENGTH_MAX

PREFIX: Final = "/berth/v1"


async def show_openapi(call: NativeCall) -> Response:
    return respond_fixed(call, openapi_json())


class Tag(NamedTuple):
    """Routes that belong together in the description."""

    name: str
    about: str
    routes: tuple[NativeRoute, ...]


_API: Final = (
    *caller.ROUTES,
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

TAGS: Final = (
    Tag("allocations", "Who holds what: consumers, and their allocations.", allocations.ROUTES),
    Tag("usage", "Capacity, use and what is free, summed up.", usage.ROUTES),
    Tag("events", "Every change, who asked for it and when: in pages, or as a stream.", events.ROUTES),
    Tag("groups", "Consumers that share or avoid a host, a rack or a zone.", groups.ROUTES),
    Tag("aggregates", "Kinds, names and metadata of aggregates.", aggregates.ROUTES),
    Tag("overview", "Whether everything is well, and if not, what to do.", overview.ROUTES),
    Tag("hosts", "Hosts: what they have, who holds it, and their status.", hosts.ROUTES),
    Tag("operations", "What is under way on servers, and what has failed.", operations.ROUTES),
    Tag("cells", "Whether each cell can be reached and is at work.", cells.ROUTES),
    Tag("drains", "Hosts that all servers are to leave.", drains.ROUTES),
    Tag("pools", "What hosts share: storage, addresses.", pools.ROUTES),
    Tag("scheduling", "Choose hosts and claim them; why there, why nowhere, how many fit.", schedule.ROUTES),
    Tag("servers", "What servers hold, and what other services need for them.", servers.ROUTES),
    Tag("doctor", "What does not add up, and repairs.", doctor.ROUTES),
    Tag("clusters", "Servers that are kept at a number, and apart by a ratio.", clusters.ROUTES),
    Tag("api", "The caller, and this description.", _API),
)

ROUTES: Final[tuple[NativeRoute, ...]] = tuple(route for tag in TAGS for route in tag.routes)


@cache
def openapi_json() -> bytes:
    return describe_routes(PREFIX, TAGS)


# -- the description ----------------------------------------------------------------------------

Object = dict[str, Any]
_REFUSALS: Final = {
    "400": "A parameter is unknown, malformed or out of its range (`berth.unknown_parameter`, "
    "`berth.bad_parameter`).",
    "401": "The token is missing or invalid, has expired or has been revoked (`berth.unauthorized`).",
    "403": "The policy does not allow it (`berth.forbidden`).",
    "405": "Another method is known here (`berth.method_not_allowed`).",
    "406": "Something else than JSON is asked for (`berth.not_acceptable`).",
    "500": "A bug of Berth (`berth.unexpected`): the log of the server has it under the id of the request.",
    "503": "The ledger cannot be reached, or too much is asked of it at once (`berth.unavailable`, "
    "`berth.overloaded`, `berth.too_many_streams`, `berth.too_many_searches`); try again after `Retry-After` "
    "seconds.",
}
_WRITES: Final = {
    "400": "A parameter or the body is not what is expected (`berth.bad_body`, `berth.bad_parameter`, "
    "`berth.unknown_parameter`).",
    "403": "The policy does not allow it (`berth.forbidden`), or the project's quota is used up "
    "(`berth.quota_exceeded`).",
    "404": "There is no such thing, or no such group as is named (`berth.not_found`).",
    "409": "It goes against what there is (`berth.conflict`), or against the policy of a group "
    "(`berth.group_policy`); nothing fits (`berth.no_fit`), what a plan was made from has changed "
    "(`berth.plan_moved`), or it is new in this release and the upgrade is not finished "
    "(`berth.format_too_old`).",
    "413": "The body is too large (`berth.body_too_large`), or what it asks for would write too much "
    "(`berth.too_large`).",
    "415": "The body is not JSON (`berth.unsupported_media`).",
}
_MISSING: Final = {"404": "There is no such thing (`berth.not_found`)."}
_PRUNED: Final = (
    "The index is older than what is kept (`berth.pruned`), or beyond the end (`berth.index_ahead`): the "
    "region was restored from a backup. The answer says where to start again."
)
_TEMPLATE: Final = "#/components/schemas/{name}"
_NAMES: Final = re.compile(r"{([a-z]+)}")
_NAMED: Final = {
    "host": "The uuid or the name of the host.",
    "need": "What the need is called: 1 to 32 letters, digits, `_` or `-`.",
    "node": "What the node is called.",
}
_TEXT: Final = {"type": "string"}


def describe_routes(prefix: str, tags: Sequence[Tag]) -> bytes:
    paths: dict[str, Object] = {}
    routes = [route for tag in tags for route in tag.routes]
    answers = [route.answer for route in routes if route.answer is not None]
    bodies = [route.body for route in routes if route.body is not None]
    described: list[type] = list(dict.fromkeys([*answers, *bodies, Refusals]))
    schemas, components = msgspec.json.schema_components(described, ref_template=_TEMPLATE)
    references: dict[type, Object] = dict(zip(described, schemas, strict=True))
    for tag in tags:
        for route in tag.routes:
            path = prefix + route.path
            operation = _operation(path, route, references) | {"tags": [tag.name]}
            paths.setdefault(path, {})[route.method.lower()] = operation
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Berth",
            "version": __version__,
            "summary": "What Berth offers beyond the OpenStack Placement API, on the same ledger.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that gave this description."}],
        "tags": [{"name": tag.name, "description": tag.about} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-Auth-Token",
                    "description": "A token of Keystone, or one that this Berth knows.",
                }
            },
        },
        "security": [{"token": []}],
    }
    # The end of a text is \Z in Python's patterns, and $ in those of JSON schemas.
    return msgspec.json.encode(document, order="deterministic").replace(rb'\\Z"', b'$"')


def _operation(path: str, route: NativeRoute, references: dict[type, Object]) -> Object:
    schema = {"type": "object"} if route.answer is None else references[route.answer]
    contents: Object = {"application/json": {"schema": schema}}
    refused = _REFUSALS if route.method == "GET" else {**_REFUSALS, **_WRITES}
    if "{" in path or route.names_in_query:
        refused = {**refused, **_MISSING}
    if route.is_stream:
        contents["text/event-stream"] = {
            "schema": {"type": "string", "description": "`data` of an event is an Event as JSON."}
        }
        refused = {**refused, "410": _PRUNED}
    is_tagged = route.method == "GET" and route.is_tagged and not route.is_stream
    parameters = [_in_path(name) for name in _NAMES.findall(path)] + _parameters(route.query)
    if route.is_stream:
        parameters.append(_header("Last-Event-ID", "The id of the last event that came; wins over `after`."))
    elif is_tagged:
        parameters.append(_header("If-None-Match", "The tag of an answer that the client has."))
    operation: Object = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.description + (f" Policy rule: `{route.policy}`." if route.policy else ""),
        "parameters": parameters,
        "responses": _responses(route.status, contents, refused, references, is_tagged=is_tagged),
    }
    if route.body is not None:
        content = {"application/json": {"schema": references[route.body], "example": route.example}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _in_path(name: str) -> Object:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": _NAMED.get(name, f"The uuid of the {name}."),
        "schema": {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX},
    }


def _parameters(query: type[msgspec.Struct]) -> list[Object]:
    kinds = kinds_of(query)
    parameters = []
    for field in msgspec.structs.fields(query):
        schema = msgspec.json.schema(kinds[field.name])
        about = schema.pop("description")
        if not field.required and field.default is not None:
            schema["default"] = field.default
        parameters.append(
            {
                "name": field.name,
                "in": "query",
                "required": field.required,
                "description": about,
                "schema": schema,
            }
        )
    return parameters


def _header(name: str, about: str) -> Object:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": _TEXT}


def _responses(
    status: int,
    contents: Object,
    refused: dict[str, str],
    references: dict[type, Object],
    *,
    is_tagged: bool,
) -> Object:
    tag = {"ETag": {"description": "The tag of this answer.", "schema": _TEXT}}
    good: Object = {"description": "Done." if status == 204 else "What was asked for."}
    if status != 204:
        good["content"] = contents
    responses: Object = {str(status): good}
    if is_tagged:
        good["headers"] = tag
        responses["304"] = {"description": "The client has this answer already.", "headers": tag}
    refusals = {"application/json": {"schema": references[Refusals]}}
    responses |= {status: {"description": text, "content": refusals} for status, text in refused.items()}
    return responses

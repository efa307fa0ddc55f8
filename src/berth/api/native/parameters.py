"""Query strings of /berth/v1: one struct per route says what may be asked for, and in which range.

A parameter that the struct does not have is refused by name, with the names that it has; so is one that is
given twice. Nothing is guessed and nothing is ignored. The OpenAPI description is read off the same
structs.
"""

import re
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_PARAMETER, UNKNOWN_PARAMETER
from berth.api.kernel.problem import Problem

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000
INDEX_MAX: Final = 2**63 - 1

UUID: Final = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\\Z"
_SHOWN_MAX: Final = 100
_NUMBER = re.compile(r"(0|[1-9][0-9]*)\Z")

# -- kinds of parameter -------------------------------------------------------------------------

Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="How many entries a page holds at most.")]
ConsumerMarker = Annotated[
    str,
    Meta(
        pattern="^[0-9a-fA-F-]{36}\\Z",
        description="The last consumer of the page before; this page goes on behind it.",
    ),
]
KeyMarker = Annotated[
    str,
    Meta(min_length=1, max_length=255, description="The last key of the page before; this page goes on."),
]
Provider = Annotated[str, Meta(pattern=UUID, description="Only what is held on this provider.")]
Tree = Annotated[
    str, Meta(pattern=UUID, description="Only what is on a provider of the tree that this provider is in.")
]
Aggregate = Annotated[
    str,
    Meta(
        pattern="^[0-9a-fA-F-]{32,36}\\Z",
        description="Only what is on providers of this aggregate, spelled as its writer spelled it.",
    ),
]
Project = Annotated[str, Meta(min_length=1, max_length=255, description="Only what this project holds.")]
User = Annotated[str, Meta(min_length=1, max_length=255, description="Only what this user holds.")]
ConsumerType = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="Only consumers of this type; `unknown` are those written before there were types.",
    ),
]
ResourceClass = Annotated[
    str, Meta(min_length=1, max_length=255, description="Only this resource class, by its name.")
]
By = Annotated[
    Literal["provider", "root", "aggregate", "project", "resource_class"],
    Meta(description="What a row stands for."),
]
OfProject = Annotated[str, Meta(min_length=1, max_length=255, description="Only groups of this project.")]
OfName = Annotated[str, Meta(min_length=1, max_length=64, description="Only clusters of this name.")]
OfKind = Annotated[str, Meta(min_length=1, max_length=64, description="Only aggregates of this kind.")]
Force = Annotated[
    Literal["true", "false"], Meta(description="`true`: let the members go, and delete it all the same.")
]
After = Annotated[
    int,
    Meta(
        ge=0,
        le=INDEX_MAX,
        description="The last index already known. Without it a page begins with the oldest event kept, "
        "and a stream with the next one to come.",
    ),
]
Stream = Annotated[
    Literal["true", "false"],
    Meta(description="`true`: server-sent events without end, as with `Accept: text/event-stream`."),
]

# -- one struct per route -----------------------------------------------------------------------


class NoQuery(msgspec.Struct, frozen=True, kw_only=True):
    """No parameters at all."""


class ConsumersQuery(msgspec.Struct, frozen=True, kw_only=True):
    project: Project | None = None
    user: User | None = None
    type: ConsumerType | None = None
    provider: Provider | None = None
    tree: Tree | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: ConsumerMarker | None = None


class AllocationsQuery(ConsumersQuery, frozen=True, kw_only=True):
    resource_class: ResourceClass | None = None


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    by: By
    tree: Tree | None = None
    aggregate: Aggregate | None = None
    project: Project | None = None
    resource_class: ResourceClass | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    after: After | None = None
    limit: Limit = LIMIT_DEFAULT
    stream: Stream = "false"


class GroupsQuery(msgspec.Struct, frozen=True, kw_only=True):
    project: OfProject | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


class DeleteGroupQuery(msgspec.Struct, frozen=True, kw_only=True):
    force: Force = "false"


class AggregatesQuery(msgspec.Struct, frozen=True, kw_only=True):
    kind: OfKind | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


class ClustersQuery(msgspec.Struct, frozen=True, kw_only=True):
    name: OfName | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


class HostsQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


Q = TypeVar("Q", bound=msgspec.Struct)

# -- decoding -----------------------------------------------------------------------------------


def decode(query_string: str, kind: type[Q]) -> Q:
    """The parameters of a request; Problem if they are not what the struct says."""
    known = kinds_of(kind)
    given: dict[str, object] = {}
    for part in query_string.split("&"):
        if not part:
            continue
        raw_name, _, raw_value = part.partition("=")
        name = _text(raw_name)
        if name not in known:
            listed = ", ".join(known) or "none"
            raise _refused(
                f"There is no parameter {_shown(name)} here; known are: {listed}.", UNKNOWN_PARAMETER
            )
        if name in given:
            raise _refused(f"{name}: it is given more than once.")
        given[name] = _value(name, _text(raw_value), known[name])
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in given:
            raise _refused(f"{field.name}: it is missing, and {_expectation(known[field.name])}.")
    return kind(**given)


@cache
def kinds_of(query: type[msgspec.Struct]) -> dict[str, Any]:
    """The type of each parameter, without the None that stands for its absence."""
    hints = get_type_hints(query, include_extras=True)
    return {field.name: _present(hints[field.name]) for field in msgspec.structs.fields(query)}


def _present(hint: Any) -> Any:
    return get_args(hint)[0] if type(None) in get_args(hint) else hint


def _value(name: str, text: str, kind: Any) -> object:
    value: str | int = text
    if get_args(kind)[0] is int:
        # Strictly: 1, not 01, 1.0, +1 or 1_0.
        value = int(text) if len(text) < 20 and _NUMBER.match(text) else text
    try:
        converted: object = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise _refused(f"{name}: {_expectation(kind)}; it is {_shown(text)}.") from None
    return converted


def _expectation(kind: Any) -> str:
    """What a value must be, read off its type."""
    schema = msgspec.json.schema(kind)
    if "enum" in schema:
        return f"it must be one of {', '.join(sorted(schema['enum']))}"
    if schema["type"] == "integer":
        return f"it must be a whole number from {schema['minimum']} to {schema['maximum']}"
    if schema.get("pattern") == UUID:
        return "it must be a uuid, with its dashes"
    if "pattern" in schema:
        return "it must be a uuid"
    return f"it must be a text of {schema['minLength']} to {schema['maxLength']} characters"


def _text(raw: str) -> str:
    try:
        return unquote_to_bytes(raw.replace("+", " ").encode("latin-1")).decode("utf-8")
    except UnicodeError:
        raise _refused("The query is not UTF-8.") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "...")


def _refused(detail: str, code: str = BAD_PARAMETER) -> Problem:
    return Problem(400, detail, code)

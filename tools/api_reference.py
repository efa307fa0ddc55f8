"""Write the API reference below docs/api: ``make docs`` does. tests/unit/test_api_reference.py compares the
pages with the program.

The page of /berth/v1 is rendered from its OpenAPI description, by tag. The other APIs are those of OpenStack:
their pages list the routes that Berth has, with what is Berth's own about them (``upstream_routes``), and
leave the shapes of answers to the documentation of their projects. Who may call a route by default is
asked of the policy itself, role by role.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from berth.api.compute.versions import MAX as COMPUTE_MAX
from berth.api.kernel.auth.caller import Caller, with_implied
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.router import Route
from berth.api.native.calls import NativeRoute
from berth.api.native.fields import UUID
from berth.api.native.routes import PREFIX, TAGS, openapi_json
from berth.runtime.clock import SystemClock
from tools.upstream_routes import APIS, About, UpstreamApi

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "api"
Schema = dict[str, Any]

_ROLES: Final = ("reader", "member", "manager", "admin", "service", "operator", "auditor")
_WRITTEN: Final = "<!-- Written by tools/api_reference.py: run `make docs`. -->\n"
_SHAPES: Final = "berth-shapes.md"
_UUIDS: Final = (UUID.replace("\\Z", "$"), "^[0-9a-fA-F-]{36}$")


def render_pages() -> dict[str, str]:
    """Every page, by the name of its file."""
    pages = {"README.md": _render_index(), "berth.md": _render_native(), _SHAPES: _render_shapes()}
    return pages | {f"{api.name}.md": _render_upstream(api) for api in APIS}


# -- who ----------------------------------------------------------------------------------------


@cache
def _policy() -> Policy:
    return Policy(None, "secure", SystemClock())


def list_roles(rule: str) -> list[str]:
    """The roles of which one alone lets a caller do what the rule guards, in a project of its own."""
    return [
        role
        for role in _ROLES
        if _policy().allows(rule, Caller("somebody", "blue", with_implied((role,))), None)
    ]


def _name_callers(rule: str | None) -> str:
    if rule is None:
        return "everybody, without a token"
    roles = list_roles(rule)
    return "every known role" if len(roles) == len(_ROLES) else ", ".join(roles)


# -- schemas ------------------------------------------------------------------------------------


def describe_type(schema: Schema) -> str:
    """What a value may be, in a few words."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}]({_SHAPES}#{name.lower()})"
    if "anyOf" in schema:
        kinds = list(dict.fromkeys(describe_type(one) for one in schema["anyOf"]))
        return " or ".join(sorted(kinds, key=lambda kind: kind == "null"))
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(describe_type(schema | {"type": one}) for one in kind)
    match kind:
        case "array":
            return _describe_array(schema)
        case "object":
            return _describe_object(schema)
        case "integer":
            return "whole number" + _describe_range(schema, "minimum", "maximum")
        case "number":
            return "number" + _describe_range(schema, "minimum", "maximum")
        case "string":
            return _describe_text(schema)
        case "boolean":
            return "true or false"
        case None:
            return "anything"
        case other:
            return str(other)


def _describe_range(schema: Schema, low: str, high: str, unit: str = "") -> str:
    least = schema.get(low, schema.get("exclusiveMinimum"))
    most = schema.get(high)
    above = "more than " if low not in schema and least is not None else ""
    if least is None:
        return "" if most is None else f", at most {_number(most)}{unit}"
    if most is None:
        return f", {above}{_number(least)}{unit} or more"
    return (
        f", {above}{_number(least)} to {_number(most)}{unit}" if least != most else f", {_number(most)}{unit}"
    )


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _describe_text(schema: Schema) -> str:
    pattern = schema.get("pattern")
    if schema.get("format") == "uuid" or pattern in _UUIDS:
        return "uuid"
    text = "text" + _describe_range(schema, "minLength", "maxLength", " characters")
    return text if pattern is None else f"{text}, like `{pattern}`".replace("\\Z", "$")


def _describe_array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"list of {' and '.join(map(describe_type, schema['prefixItems']))}"
    items = schema.get("items")
    of = f" of {describe_type(items)}" if isinstance(items, dict) and items else ""
    return f"list{of}" + _describe_range(schema, "minItems", "maxItems", " entries")


def _describe_object(schema: Schema) -> str:
    patterns = schema.get("patternProperties")
    if patterns:
        [(pattern, values)] = patterns.items()
        keys = "uuid" if pattern in _UUIDS else f"`{pattern}`"
        return f"map of {keys} to {describe_type(values)}"
    if "properties" in schema:
        required = schema.get("required", ())
        fields = (
            f"`{name}`{'' if name in required else '?'}: {describe_type(field)}"
            for name, field in schema["properties"].items()
        )
        return f"{{{'; '.join(fields)}}}"
    values = schema.get("additionalProperties")
    of = f" to {describe_type(values)}" if isinstance(values, dict) and values else ""
    return f"map{of}" + _describe_range(schema, "minProperties", "maxProperties", " entries")


def _words(text: str) -> str:
    """A docstring or a description as one line of Markdown."""
    return re.sub(r"\s+", " ", text).replace("``", "`").strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, without the columns that nothing stands in."""
    rows = list(rows)
    used = [column for column in range(len(head)) if any(row[column] for row in rows)]
    lines = [[line[column] for column in used] for line in (head, ["---"] * len(head), *rows)]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _field_row(name: str, schema: Schema, *, is_required: bool = False) -> tuple[str, str, str, str]:
    about = schema.get("description", "")
    alike = next((one for one in schema.get("anyOf", ()) if one.get("description")), None)
    if not about and alike is not None:
        about = alike["description"]
    default = "required" if is_required else _show_default(schema.get("default"))
    return f"`{name}`", describe_type(schema), default, _words(about)


def _show_default(value: object) -> str:
    return "" if value in (None, {}, [], ()) else f"`{msgspec.json.encode(value).decode()}`"


def _fields_table(schema: Schema, schemas: dict[str, Schema], above: str = "") -> list[tuple[str, ...]]:
    """The fields of a body. A field that is nothing but a frame around others is shown with them."""
    rows: list[tuple[str, ...]] = []
    for name, field in schema.get("properties", {}).items():
        is_required = name in schema.get("required", ())
        inner = schemas.get(str(field.get("$ref", "")).rpartition("/")[2], {})
        if not above and "properties" in inner and len(schema["properties"]) == 1:
            rows += _fields_table(inner, schemas, f"{name}.")
        else:
            rows.append(_field_row(above + name, field, is_required=is_required))
    return rows


_FIELDS: Final = ("field", "what it may be", "default", "what it is")
_PARAMETERS: Final = ("parameter", "what it may be", "default", "what it is")

# -- /berth/v1 ----------------------------------------------------------------------------------

_NATIVE_HEAD: Final = f"""{_WRITTEN}
# /berth/v1

What Berth offers beyond the APIs of OpenStack, on the same ledger. The same is at `GET
/berth/v1/openapi.json`, for programs. [Who holds what, and what has happened](../guides/native-api.md) has
examples and explains the event feed; [README.md](README.md) what holds for all APIs.

Unknown parameters and fields are refused by name, and so is a parameter that is given twice. Answers are
JSON, and so are refusals ([Refusals](berth-shapes.md#refusals)); `Accept-Encoding: gzip` is honoured. Answers
of GET have an `ETag` unless it is said otherwise: send it back in `If-None-Match`, and an unchanged answer is
a 304.

"""

_SHAPES_HEAD: Final = f"""{_WRITTEN}
# Shapes of /berth/v1

What the bodies and answers of [/berth/v1](berth.md) are made of, by name.

"""


class Operation(NamedTuple):
    route: NativeRoute
    described: Schema

    @property
    def title(self) -> str:
        return f"{self.route.method} {PREFIX}{self.route.path}"


def _render_native() -> str:
    document = msgspec.json.decode(openapi_json())
    schemas: dict[str, Schema] = document["components"]["schemas"]
    parts = [_NATIVE_HEAD, _render_contents(), _render_statuses(document)]
    for tag in TAGS:
        parts.append(f"## {tag.name.capitalize()}\n\n{tag.about}\n\n")
        for route in tag.routes:
            described = document["paths"][PREFIX + route.path][route.method.lower()]
            parts.append(_render_operation(Operation(route, described), schemas))
    return _end("".join(parts))


def _render_shapes() -> str:
    schemas = msgspec.json.decode(openapi_json())["components"]["schemas"]
    return _end(_SHAPES_HEAD + "".join(_render_shape(*one) for one in sorted(schemas.items())))


def _end(page: str) -> str:
    return page.rstrip("\n") + "\n"


def _render_contents() -> str:
    rows = [
        (
            f"[{tag.name}](#{tag.name})",
            ", ".join(f"[{route.method} {route.path}](#{_anchor(route)})" for route in tag.routes),
        )
        for tag in TAGS
    ]
    return _table(("about", f"routes, below `{PREFIX}`"), rows) + "\n"


def _anchor(route: NativeRoute) -> str:
    return re.sub(r"[^a-z0-9_ -]", "", f"{route.method} {PREFIX}{route.path}".lower()).replace(" ", "-")


def _render_statuses(document: Schema) -> str:
    """What each status of a refusal means, the longest explanation that an operation gives."""
    texts: dict[str, str] = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if status >= "400" and len(answer["description"]) > len(texts.get(status, "")):
                    texts[status] = answer["description"]
    return "## Refusals by status\n\n" + _table(("status", "why, and the code"), sorted(texts.items())) + "\n"


def _render_operation(operation: Operation, schemas: dict[str, Schema]) -> str:
    route, described = operation
    about = route.description
    who = f"Policy rule `{route.policy}`: {_name_callers(route.policy)}."
    parts = [f"### {operation.title}\n\n{route.summary}. {about}\n\n{who}\n\n".replace("?.", "?")]
    parameters = [
        _field_row(
            one["name"] + (" (header)" if one["in"] == "header" else ""),
            one["schema"] | {"description": one["description"]},
            is_required=one["required"],
        )
        for one in described["parameters"]
        if one["name"] != "If-None-Match"
    ]
    if parameters:
        parts.append(_table(_PARAMETERS, parameters) + "\n")
    if "requestBody" in described:
        reference = described["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        rows = _fields_table(schemas[reference.rpartition("/")[2]], schemas)
        example = msgspec.json.format(msgspec.json.encode(route.example), indent=0).decode()
        parts.append(f"Body, such as `{example}`:\n\n{_table(_FIELDS, rows)}\n")
    return "".join(parts) + _render_answers(route, described)


def _render_answers(route: NativeRoute, described: Schema) -> str:
    answer = described["responses"][str(route.status)]
    content = answer.get("content", {}).get("application/json", {}).get("schema")
    shape = "no body" if content is None else describe_type(content)
    refused = ", ".join(status for status in sorted(described["responses"]) if status >= "400")
    streamed = f", or a stream of [Event]({_SHAPES}#event)" if route.is_stream else ""
    untagged = "" if "304" in described["responses"] or route.method != "GET" else " No `ETag`."
    return f"Answer: {route.status}, {shape}{streamed}.{untagged} Refusals: {refused}.\n\n"


def _render_shape(name: str, schema: Schema) -> str:
    about = _words(schema.get("description", ""))
    said = f"{about}\n\n" if about else ""
    if "properties" not in schema:
        return f"## {name}\n\n{said}{describe_type(schema)}\n\n"
    rows = [_field_row(field, one) for field, one in schema["properties"].items()]
    return f"## {name}\n\n{said}{_table(_FIELDS, rows)}\n"


# -- the APIs of OpenStack ----------------------------------------------------------------------


def _render_upstream(api: UpstreamApi) -> str:
    parts = [f"{_WRITTEN}\n# {api.title}\n\n{api.text.strip()}\n\n"]
    for resource, routes in _by_resource(api).items():
        parts.append(f"## {resource}\n\n")
        parts.append(_table(api.head, [_upstream_row(api, route) for route in routes]) + "\n")
        for route in routes:
            parts.append(_render_details(route, api.about(route)))
            parts.append(_render_actions(route))
    return _end("".join(parts))


def _by_resource(api: UpstreamApi) -> dict[str, list[Route[Any]]]:
    found: dict[str, list[Route[Any]]] = {}
    for route in api.routes:
        found.setdefault(route.path.split("/")[1] or "/", []).append(route)
    return found


def _upstream_row(api: UpstreamApi, route: Route[Any]) -> tuple[str, ...]:
    about = api.about(route)
    rule = f"`{route.policy}`: {_name_callers(route.policy)}" if route.policy else _name_callers(None)
    since = (api.since(route),) if api.since is not None else ()
    return (f"`{route.method} {api.prefix}{route.path}`", *since, about.text, rule)


def _render_details(route: Route[Any], about: About) -> str:
    parts = []
    name = f"`{route.method} {route.path}`"
    if about.query:
        parts.append(f"Parameters of {name}: {', '.join(about.query)}.\n\n")
    if about.body is not None:
        schema: Any = about.body
        schemas: dict[str, Schema] = {}
        if not isinstance(schema, dict):
            [schema], schemas = msgspec.json.schema_components([about.body], ref_template="#/{name}")
        rows = list(_flatten("", _resolve(schema, schemas), about, is_required=True))
        parts.append(f"Body of {name}:\n\n{_table(_FIELDS, rows)}\n")
    return "".join(parts)


def _flatten(path: str, schema: Schema, about: About, *, is_required: bool) -> Iterator[tuple[str, ...]]:
    """The innermost fields of a body, each by its path."""
    [whole] = [one for one in schema.get("anyOf", ()) if "properties" in one] or [schema]
    below = f"{path}." if path else ""
    items, values = whole.get("items"), whole.get("additionalProperties")
    patterns = list(whole.get("patternProperties", {}).values())
    if "properties" in whole:
        for name, field in whole["properties"].items():
            yield from _flatten(f"{below}{name}", field, about, is_required=name in whole.get("required", ()))
    elif isinstance(items, dict) and "properties" in items:
        yield from _flatten(f"{path}[]", items, about, is_required=is_required)
    elif patterns and _has_fields(patterns[0]):
        yield from _flatten(f"{below}*", patterns[0], about, is_required=is_required)
    elif isinstance(values, dict) and _has_fields(values):
        yield from _flatten(f"{below}*", values, about, is_required=is_required)
    else:
        known = about.fields.get(path.removeprefix("server."))
        said = {} if known is None else {"description": f"{known.fate.value}: {known.words}"}
        yield _field_row(path, schema | said, is_required=is_required)


def _has_fields(schema: Schema) -> bool:
    return "properties" in schema or "patternProperties" in schema


def _resolve(schema: Any, schemas: dict[str, Schema]) -> Any:
    """The schema with what it refers to in its place: these bodies are small."""
    if isinstance(schema, list):
        return [_resolve(one, schemas) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolve(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    return {key: _resolve(value, schemas) for key, value in schema.items() if key != "title"}


def _render_actions(route: Route[Any]) -> str:
    if not route.actions:
        return ""
    rows = [(f"`{name}`", f"`{rule}`: {_name_callers(rule)}") for name, rule in sorted(route.actions.items())]
    return f"Actions of `{route.method} {route.path}`:\n\n{_table(('action', 'policy rule'), rows)}\n"


# -- the index ----------------------------------------------------------------------------------

_APIS: Final = (
    ("Placement, 1.0 to 1.39", "`/`", "placement", "`{errors: [{status, title, detail, code, request_id}]}`"),
    ("Berth's own", "`/berth/v1`", "berth", "the same; codes begin with `berth.`"),
    (
        f"compute (Nova), 2.1 to 2.{COMPUTE_MAX}",
        "`/compute/v2.1`",
        "compute",
        "`{conflictingRequest: {code, message}}` and the like",
    ),
    ("image (Glance), 2.0 to 2.9", "`/image/v2`", "image", "`{code, title, message}`"),
    ("identity (Keystone), 3.14", "`/identity/v3`", "identity", "`{error: {code, title, message}}`"),
)

_INDEX_TEXT: Final = """
# API reference

Every route of every API of Berth, on one port. `make docs` writes these pages from the program.

{apis}
A server without cells (`berth serve`) has Placement and `/berth/v1` alone, a region all of them. Where a
Keystone identifies callers, users and images are its and Glance's business, and the last two are not there.
`/healthz`, `/readyz` and `/metrics` need no token ([logs, metrics and alerts](../guides/observing.md)),
`/console/` is [the console](../guides/console.md). Agents talk to their conductor, not to a region; that
protocol is internal.

## All APIs

- A token goes into `X-Auth-Token`. Without one, or with one that is invalid, the answer is 401.
- Each route names a rule of the policy. The pages list the roles of which one alone is enough by default, for
  what is in the caller's own project; [tokens, Keystone and policy](../guides/authentication-and-policy.md)
  says how to change that.
- Every answer has `X-OpenStack-Request-ID`. The logs of the region, the cells and the agents, and the event
  feed have the same id.
- 503: the database is away, or too much is asked at once. Nothing was changed; `Retry-After` says when to try
  again.
- In the tables of bodies `*` stands for a name or uuid that you choose, and `[]` for each entry of a list.
- Bodies, lists, numbers and texts have limits. What is beyond one is refused and told by name, never cut.
"""


def _render_index() -> str:
    rows = [(api, below, f"[{page}.md]({page}.md)", shape) for api, below, page, shape in _APIS]
    table = _table(("API", "below", "page", "shape of a refusal"), rows)
    return _WRITTEN + _INDEX_TEXT.replace("{apis}", table)


def write_pages() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in render_pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write_pages()

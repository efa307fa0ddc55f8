"""The OpenAPI description: whole, sound, and the same as what the server does."""

import re
from typing import Any

import msgspec
import pytest
import schemathesis
from jsonschema import Draft202012Validator

from berth.api.kernel import codes
from berth.api.native.calls import NativeRoute, decode_body, kinds_of
from berth.api.native.routes import PREFIX, ROUTES, openapi_json

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def document() -> Any:
    return msgspec.json.decode(openapi_json())


def references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in references(inner)]
    return [found for inner in value for found in references(inner)] if isinstance(value, list) else []


def test_the_description_has_its_frame(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    assert {"title", "version", "summary", "license"} <= document["info"].keys()
    assert document["security"] == [{"token": []}]
    assert set(document["components"]) == {"schemas", "securitySchemes"}
    assert [server["url"] for server in document["servers"]] == ["/"]


def test_the_description_is_what_openapi_says_one_is(document: Any) -> None:
    """By the schema of OpenAPI 3.1 itself."""
    schemathesis.openapi.from_dict(document).validate()


def test_every_operation_has_one_tag_and_every_tag_is_described(document: Any) -> None:
    tags = {tag["name"]: tag["description"] for tag in document["tags"]}
    assert len(tags) == len(document["tags"]), "no tag stands there twice"
    assert all(text.endswith(".") for text in tags.values())
    used = [operation["tags"] for _, _, operation in operations(document)]
    assert {tag for [tag] in used} == set(tags)


def test_names_say_nothing_of_modules(document: Any) -> None:
    """Two structs of one name would get the paths of their modules."""
    assert [
        name for name in document["components"]["schemas"] if not re.fullmatch("[A-Z][A-Za-z]+", name)
    ] == []
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert [id for id in ids if not re.fullmatch("[a-z]+(_[a-z]+)*", id)] == []
    assert "berth." + "api" not in openapi_json().decode()


def test_operations_are_told_in_sentences(document: Any) -> None:
    for path, method, operation in operations(document):
        summary, description = operation["summary"], operation["description"]
        assert re.fullmatch(r"[A-Z][^.]{3,80}", summary), (method, path)
        assert re.match(r"[A-Z`].*[.]\Z", description, re.DOTALL), (method, path)
        assert "``" not in description, (method, path)


def test_every_refusal_has_its_shape(document: Any) -> None:
    always = {"400", "401", "403", "405", "406", "500", "503"}
    for path, method, operation in operations(document):
        refused = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        wanted = set(always)
        if method != "get":
            wanted |= {"409", "413", "415"}
        if "{" in path:
            wanted.add("404")
        assert wanted <= refused.keys(), (method, path)
        for answer in refused.values():
            assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/Refusals")


@pytest.mark.parametrize("route", [one for one in ROUTES if one.body is not None], ids=lambda one: one.name)
def test_a_body_has_an_example_that_is_one(route: NativeRoute) -> None:
    assert route.example is not None
    assert route.body is not None
    decode_body(msgspec.json.encode(route.example), route.body)


def open_ends(schema: Any, schemas: Any, path: str = "", seen: frozenset[str] = frozenset()) -> list[str]:
    """What has no bound in a body."""
    if not isinstance(schema, dict):
        return []
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return [] if name in seen else open_ends(schemas[name], schemas, path, seen | {name})
    found = []
    match schema.get("type"):
        case "integer" | "number" if not _has_range(schema):
            found.append(f"{path}: a number without a range")
        case "string" if not schema.keys() & {"maxLength", "pattern", "enum", "const"}:
            found.append(f"{path}: a text without a length")
        case "array" if "maxItems" not in schema:
            found.append(f"{path}: a list without a limit")
        case "object" if "properties" not in schema and "maxProperties" not in schema:
            found.append(f"{path}: a map without a limit")
    for one in (*schema.get("anyOf", ()), schema.get("items"), schema.get("additionalProperties")):
        found += open_ends(one, schemas, path, seen)
    for name, one in schema.get("properties", {}).items():
        found += open_ends(one, schemas, f"{path}.{name}", seen)
    return found


def list_untold(schema: Any, schemas: Any, told: str = "", seen: frozenset[str] = frozenset()) -> list[str]:
    """Fields of a body that neither they themselves nor their struct say anything about."""
    found = []
    for name in dict.fromkeys(one.rpartition("/")[2] for one in references(schema)):
        if name not in seen:
            found += list_untold(schemas[name], schemas, name, seen | {name})
    for name, field in schema.get("properties", {}).items():
        is_told = any("description" in one for one in (field, *field.get("anyOf", ())))
        is_frame = "$ref" in field
        if not is_told and not is_frame and f"``{name}``" not in schema.get("description", ""):
            found.append(f"{told}.{name}")
    return found


def test_every_field_of_a_body_is_told_of(document: Any) -> None:
    schemas = document["components"]["schemas"]
    bodies = [one["requestBody"] for _, _, one in operations(document) if "requestBody" in one]
    assert len(bodies) > 10
    assert sorted({name for body in bodies for name in list_untold(body, schemas)}) == []


def _has_range(schema: Any) -> bool:
    least, most = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
    return bool(schema.keys() & least) and bool(schema.keys() & most)


def test_every_number_of_a_body_has_a_range_and_every_list_a_limit(document: Any) -> None:
    schemas = document["components"]["schemas"]
    for path, method, operation in operations(document):
        if "requestBody" in operation:
            body = operation["requestBody"]["content"]["application/json"]["schema"]
            assert open_ends(body, schemas) == [], (method, path)


def operations(document: Any) -> list[tuple[str, str, Any]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_and_parameter_is_described(document: Any) -> None:
    known = {(PREFIX + route.path, route.method.lower()): route for route in ROUTES}
    assert {(path, method) for path, method, _ in operations(document)} == known.keys()
    for path, method, operation in operations(document):
        route = known[path, method]
        assert operation["summary"]
        assert operation["description"]
        assert ("requestBody" in operation) == (route.body is not None)
        asked = [p for p in operation["parameters"] if p["in"] == "query"]
        assert [parameter["name"] for parameter in asked] == list(kinds_of(route.query))
        in_path = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
        assert [f"{{{name}}}" for name in in_path] == [part for part in path.split("/") if "{" in part]
        for parameter in operation["parameters"]:
            assert parameter["description"]
            schema = parameter["schema"]
            Draft202012Validator.check_schema(schema)
            if schema.get("type") == "integer":
                assert {"minimum", "maximum"} <= schema.keys(), "every number has a range"
        for answer in operation["responses"].values():
            assert answer["description"]


def test_operations_have_names_of_their_own(document: Any) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)


def test_every_schema_is_sound_and_every_reference_leads_somewhere(document: Any) -> None:
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    named = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert named <= schemas.keys()
    assert {"Consumers", "Allocations", "Usage", "Events", "Refusals"} <= named


def test_every_code_is_described(document: Any) -> None:
    texts = {value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)}
    ours = {text for text in texts if text.startswith("berth.")}
    assert len(ours) > 10
    text = openapi_json().decode()
    assert {code for code in ours if f"`{code}`" not in text} == set()

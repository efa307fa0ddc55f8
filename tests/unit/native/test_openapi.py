"""The OpenAPI description: whole, sound, and the same as what the server does."""

from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from berth.api.kernel import codes
from berth.api.native.calls import kinds_of
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
    ours -= {codes.UNEXPECTED}
    text = openapi_json().decode()
    assert {code for code in ours if f"`{code}`" not in text} == set()

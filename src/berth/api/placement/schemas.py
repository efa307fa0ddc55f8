"""The JSON schemas of bodies and queries, by version, and which spellings of a uuid they take for one. The
words of a schema are part of the contract.

They never judge a good request: ``wire`` and ``query`` do that, much faster. When those refuse, the
schema says why, in jsonschema's own sentence, which prints the part of the schema that was broken. So
the order of the keys here matters too.
"""

import json
import math
import re
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import jsonschema
from jsonschema.exceptions import ValidationError, best_match

from berth.model.placement import AMOUNT_MAX, RATIO_MAX

Schema = dict[str, Any]

UUID_PATTERN: Final = "^[0-9a-fA-F-]{36}$"
NAME_PATTERN: Final = "^[A-Z0-9_]+$"
CUSTOM_NAME_PATTERN: Final = "^CUSTOM_[A-Z0-9_]+$"
CONSUMER_TYPE_QUERY_PATTERN: Final = "^[A-Z0-9_]+$|^all|^unknown$"
SUFFIX_PATTERN: Final = "[1-9][0-9]*"
VERBOSE_SUFFIX_PATTERN: Final = "[a-zA-Z0-9_-]{1,64}"

PROVIDER_NAME_LENGTH_MAX: Final = 200
NAME_LENGTH_MAX: Final = 255


# -- the spellings of a uuid ---------------------------------------------------------------------

_DASHED = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")


def is_dashed(text: str) -> bool:
    """Whether this is a uuid as it is usually written, in any case."""
    return _DASHED.match(text) is not None


def is_uuid(text: str) -> bool:
    """``is_uuid_like``, quick for the usual spelling."""
    return is_dashed(text) or is_uuid_like(text)


def is_uuid_like(value: object) -> bool:
    """Whether this is a uuid in any spelling: any case, with or without dashes, braces or urn:uuid:."""
    if not isinstance(value, str):
        return False
    try:
        digits = uuid.UUID(value).hex
    except ValueError:
        return False
    bare = value.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "").lower()
    return digits == bare


def canonical_uuid(text: str) -> str:
    """What ``is_uuid`` accepts, in lower case and with dashes."""
    return text.lower() if is_dashed(text) else str(uuid.UUID(text))


# -- judging ------------------------------------------------------------------------------------


_BODY_FORMATS: Final = jsonschema.FormatChecker()
_BODY_FORMATS.checks("uuid")(is_uuid_like)

_QUERY_FORMATS: Final = jsonschema.FormatChecker()
"""In queries a uuid must have its dashes."""


def body_complaint(schema: Schema, data: object) -> str | None:
    """What is wrong with a body, or None."""
    return _complaint(schema, data, _BODY_FORMATS)


def query_complaint(schema: Schema, parameters: dict[str, str]) -> str | None:
    """What is wrong with a query, or None."""
    return _complaint(schema, parameters, _QUERY_FORMATS)


def _complaint(schema: Schema, data: object, formats: jsonschema.FormatChecker) -> str | None:
    error = best_match(_Validator(schema, format_checker=formats).iter_errors(data))
    return None if error is None else str(error)


def _unique_items(validator: Any, wanted: bool, items: Any, schema: Schema) -> Iterator[ValidationError]:
    """jsonschema's own check compares members pair by pair where they cannot be sorted."""
    if not wanted or not isinstance(items, list):
        return
    spellings = {json.dumps(normal(item), sort_keys=True) for item in items}
    if len(spellings) < len(items):
        yield ValidationError(f"{items!r} has non-unique elements")


def normal(data: Any) -> Any:
    """The same data with integral numbers as integers."""
    if isinstance(data, dict):
        return {key: normal(value) for key, value in data.items()}
    if isinstance(data, list):
        return [normal(value) for value in data]
    if isinstance(data, float) and math.isfinite(data) and data.is_integer():
        return int(data)
    return data


_Validator: Final = jsonschema.validators.extend(
    jsonschema.Draft202012Validator, {"uniqueItems": _unique_items}
)


# -- parts --------------------------------------------------------------------------------------

_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_INTEGER: Final[Schema] = {"type": "integer"}
_STRING: Final[Schema] = {"type": "string"}
_EXTERNAL_ID: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX}


def _closed(properties: Schema, *required: str) -> Schema:
    """An object with these properties and no others."""
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    schema["additionalProperties"] = False
    return schema


# -- vocabulary ---------------------------------------------------------------------------------

RESOURCE_CLASS: Final = _closed(
    {"name": {"type": "string", "pattern": CUSTOM_NAME_PATTERN, "maxLength": NAME_LENGTH_MAX}}, "name"
)

PROVIDER_TRAITS: Final = _closed(
    {
        "traits": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX},
        },
        "resource_provider_generation": _INTEGER,
    },
    "traits",
    "resource_provider_generation",
)

TRAITS_QUERY: Final = _closed({"name": _STRING, "associated": _STRING})

# -- providers ----------------------------------------------------------------------------------

_PROVIDER_NAME: Final[Schema] = {"type": "string", "maxLength": PROVIDER_NAME_LENGTH_MAX}
_PARENT: Final[Schema] = {"anyOf": [_UUID, {"type": "null"}]}


@cache
def new_provider(version: int) -> Schema:
    properties: Schema = {"name": _PROVIDER_NAME, "uuid": _UUID}
    if version >= 14:
        properties["parent_provider_uuid"] = _PARENT
    return _closed(properties, "name")


@cache
def changed_provider(version: int) -> Schema:
    properties: Schema = {"name": _PROVIDER_NAME}
    if version >= 14:
        properties["parent_provider_uuid"] = _PARENT
    return _closed(properties, "name")


@cache
def providers_query(version: int) -> Schema:
    properties: Schema = {"name": _STRING, "uuid": _UUID}
    for since, name, schema in (
        (3, "member_of", _STRING),
        (4, "resources", _STRING),
        (14, "in_tree", _UUID),
        (18, "required", _STRING),
    ):
        if version >= since:
            properties[name] = schema
    return _closed(properties)


_AGGREGATES: Final[Schema] = {"type": "array", "items": _UUID, "uniqueItems": True}


@cache
def aggregates(version: int) -> Schema:
    if version < 19:
        return _AGGREGATES
    return _closed(
        {"aggregates": _AGGREGATES, "resource_provider_generation": _INTEGER},
        "aggregates",
        "resource_provider_generation",
    )


# -- inventories --------------------------------------------------------------------------------


def _amount(minimum: int) -> Schema:
    return {"type": "integer", "maximum": AMOUNT_MAX, "minimum": minimum}


_INVENTORY: Final[Schema] = {
    "resource_provider_generation": _INTEGER,
    "total": _amount(1),
    "reserved": _amount(0),
    "min_unit": _amount(1),
    "max_unit": _amount(1),
    "step_size": _amount(1),
    "allocation_ratio": {"type": "number", "maximum": RATIO_MAX},
}

CHANGED_INVENTORY: Final = _closed(_INVENTORY, "total", "resource_provider_generation")

NEW_INVENTORY: Final = _closed(
    {**_INVENTORY, "resource_class": {"type": "string", "pattern": NAME_PATTERN}}, "total", "resource_class"
)

INVENTORIES: Final = _closed(
    {
        "resource_provider_generation": _INTEGER,
        "inventories": {"type": "object", "patternProperties": {NAME_PATTERN: _closed(_INVENTORY, "total")}},
    },
    "resource_provider_generation",
    "inventories",
)

# -- allocations --------------------------------------------------------------------------------

_RESOURCES: Final[Schema] = {
    "type": "object",
    "minProperties": 1,
    "patternProperties": {NAME_PATTERN: {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}

_ALLOCATIONS_LIST: Final[Schema] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "resource_provider": {
                "type": "object",
                "properties": {"uuid": _UUID},
                "additionalProperties": False,
                "required": ["uuid"],
            },
            "resources": _RESOURCES,
        },
        "required": ["resource_provider", "resources"],
        "additionalProperties": False,
    },
}

_MAPPINGS: Final[Schema] = {
    "type": "object",
    "minProperties": 1,
    "patternProperties": {VERBOSE_SUFFIX_PATTERN: {"type": "array", "minItems": 1, "items": _UUID}},
}


def _allocations_by_provider(minimum: int) -> Schema:
    return {
        "type": "object",
        "minProperties": minimum,
        "patternProperties": {
            UUID_PATTERN: {
                "type": "object",
                "properties": {"generation": _INTEGER, "resources": _RESOURCES},
                "required": ["resources"],
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    }


def _claim(version: int, minimum: int) -> Schema:
    """One consumer's allocations, keyed by provider (from 1.12)."""
    properties: Schema = {
        "allocations": _allocations_by_provider(minimum),
        "project_id": _EXTERNAL_ID,
        "user_id": _EXTERNAL_ID,
    }
    required = ["allocations", "project_id", "user_id"]
    if version >= 28:
        properties["consumer_generation"] = {"type": ["integer", "null"], "additionalProperties": False}
        required.append("consumer_generation")
    if version >= 34:
        properties["mappings"] = _MAPPINGS
    if version >= 38:
        properties["consumer_type"] = {
            "type": "string",
            "pattern": NAME_PATTERN,
            "minLength": 1,
            "maxLength": NAME_LENGTH_MAX,
        }
        required.append("consumer_type")
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "required": required,
    }


@cache
def claim(version: int) -> Schema:
    """PUT /allocations/{consumer}."""
    if version >= 12:
        return _claim(version, 0 if version >= 28 else 1)
    if version < 8:
        return _closed({"allocations": _ALLOCATIONS_LIST}, "allocations")
    return _closed(
        {"allocations": _ALLOCATIONS_LIST, "project_id": _EXTERNAL_ID, "user_id": _EXTERNAL_ID},
        "allocations",
        "project_id",
        "user_id",
    )


def _claims(version: int, minimum: int) -> Schema:
    return {
        "type": "object",
        "minProperties": minimum,
        "additionalProperties": False,
        "patternProperties": {UUID_PATTERN: _claim(version, 0)},
    }


@cache
def claims(version: int) -> Schema:
    """POST /allocations."""
    return _claims(version, 1)


@cache
def reshape(version: int) -> Schema:
    return _closed(
        {
            "inventories": {
                "type": "object",
                "patternProperties": {UUID_PATTERN: INVENTORIES},
                "minProperties": 1,
                "additionalProperties": False,
            },
            "allocations": _claims(version, 0),
        },
        "inventories",
        "allocations",
    )


# -- queries ------------------------------------------------------------------------------------


@cache
def usages_query(version: int) -> Schema:
    properties: Schema = {"project_id": _EXTERNAL_ID, "user_id": _EXTERNAL_ID}
    if version >= 38:
        properties["consumer_type"] = {
            "type": "string",
            "pattern": CONSUMER_TYPE_QUERY_PATTERN,
            "minLength": 1,
            "maxLength": NAME_LENGTH_MAX,
        }
    return _closed(properties, "project_id")


@cache
def candidates_query(version: int) -> Schema:
    limit: Schema = {"type": ["integer", "string"], "pattern": "^[1-9][0-9]*$", "minimum": 1, "minLength": 1}
    properties: Schema = {}
    if version < 25:
        properties["resources"] = _STRING
    if version >= 16:
        properties["limit"] = limit
    if version < 25:
        if version >= 17:
            properties["required"] = {"type": ["string"]}
        if version >= 21:
            properties["member_of"] = {"type": ["string"]}
        return _closed(properties, "resources")
    properties["group_policy"] = {"type": "string", "enum": ["none", "isolate"]}
    if version >= 35:
        properties["root_required"] = {"type": ["string"]}
    if version >= 36:
        properties["same_subtree"] = {"type": ["string"]}
    schema = _closed(properties)
    suffix = VERBOSE_SUFFIX_PATTERN if version >= 33 else SUFFIX_PATTERN
    names = ("resources", "required", "member_of") + (("in_tree",) if version >= 31 else ())
    schema["patternProperties"] = {f"^{name}({suffix})?$": _STRING for name in names}
    return schema

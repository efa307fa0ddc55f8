"""Write the types of the console's JavaScript: ``make docs`` writes them to src/berth/console/api.d.ts.

They are those of the schemas in our OpenAPI description, all of them, below the namespace ``Api``. Nobody
edits them; tests/unit/console compares them with the program.
"""

import re
from typing import Any, Final

import msgspec

from berth.api.native.routes import openapi_json

_HEAD: Final = """\
// The answers and bodies of /berth/v1, from its OpenAPI description. Written by tools/console_types.py.

declare namespace Api {
"""
_PLAIN: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

Schema = dict[str, Any]


def write_types() -> str:
    """All of the file."""
    schemas: dict[str, Schema] = msgspec.json.decode(openapi_json())["components"]["schemas"]
    return _HEAD + "\n".join(_declare(name, schema) for name, schema in sorted(schemas.items())) + "}\n"


def _declare(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return f"  type {name} = {_type(schema)};\n"
    fields = "".join(f"    {line};\n" for line in _fields(schema))
    return f"  interface {name} {{\n{fields}  }}\n"


def _fields(schema: Schema) -> list[str]:
    required = schema.get("required", ())
    return [
        f"{name if _IDENTIFIER.match(name) else repr(name)}{'' if name in required else '?'}: {_type(field)}"
        for name, field in schema["properties"].items()
    ]


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(_literal(value) for value in schema["enum"])
    match schema.get("type"):
        case "array":
            return _array(schema)
        case "object":
            return _object(schema)
        case None:
            return "unknown"
        case str(plain):
            return _PLAIN[plain]
        case other:
            raise ValueError(f"a schema has the type {other!r}, and this script knows no such thing")


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    items = schema.get("items", {})
    return f"Array<{_type(items if isinstance(items, dict) else {})}>"


def _object(schema: Schema) -> str:
    if "properties" in schema:
        return f"{{ {'; '.join(_fields(schema))} }}"
    values = schema.get("additionalProperties", {})
    return f"Record<string, {_type(values if isinstance(values, dict) else {})}>"


def _literal(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    print(write_types(), end="")

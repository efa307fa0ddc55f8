"""Write down what Nova validates: every name that a caller can give to a flavor, an image, a server, a list
or an aggregate, with the values that are valid.

The list is a file beside this one. To make it anew, for this version of Nova or another, run this with a
Python that has Nova installed:

    python tests/unit/names/list_nova_names.py > tests/unit/names/nova_34_names.json
"""

import importlib
import importlib.metadata
import json
import pathlib
import re
from typing import Any

_BODIES = {
    "create": ("servers", "create", "server"),
    "update": ("servers", "update", "server"),
    "rebuild": ("servers", "rebuild", "rebuild"),
    "resize": ("servers", "resize", "resize"),
    "migrate": ("migrate_server", "migrate", "migrate"),
    "os-migrateLive": ("migrate_server", "migrate_live", "os-migrateLive"),
    "evacuate": ("evacuate", "evacuate", "evacuate"),
    "unshelve": ("shelve", "unshelve", "unshelve"),
    "lock": ("lock_server", "lock", "lock"),
}
"""The operation: the module that has its schemas, what their names begin with, and the key of its fields."""

_LISTS = {
    "servers": "servers",
    "flavors": "flavors",
    "migrations": "migrations",
    "hypervisors": "hypervisors",
    "services": "services",
    "server groups": "server_groups",
    "instance actions": "instance_actions",
    "aggregates": "aggregates",
    "availability zones": "availability_zone",
}


def extra_specs() -> list[dict[str, Any]]:
    validators = importlib.import_module("nova.api.validation.extra_specs.validators")
    return [
        {"name": name, **{key: _plain(value) for key, value in found.value.items() if key != "description"}}
        for name, found in sorted(validators.VALIDATORS.items())
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, type):
        return value.__name__
    return list(value) if isinstance(value, tuple) else value


def image_properties() -> dict[str, Any]:
    properties = importlib.import_module("nova.objects.image_meta").ImageMetaProps
    found: dict[str, Any] = {}
    for name, field in sorted(properties.fields.items()):
        values = getattr(field, "valid_values", None)
        found[name] = {"type": type(field).__name__} | ({"enum": list(values)} if values else {})
    return found


def old_image_properties() -> dict[str, str]:
    properties = importlib.import_module("nova.objects.image_meta").ImageMetaProps
    return dict(sorted(properties._legacy_property_map.items()))


def schemas(module: str, begins: str) -> list[dict[str, Any]]:
    found = importlib.import_module(f"nova.api.openstack.compute.schemas.{module}")
    named = re.compile(rf"{begins}(_v[0-9_]+)?")
    return [value for name, value in vars(found).items() if named.fullmatch(name)]


def fields(module: str, begins: str, key: str) -> list[str]:
    names: set[str] = set()
    for schema in schemas(module, begins):
        inside = schema["properties"].get(key, {})
        for one in (inside, *inside.get("oneOf", ())):
            names |= set(one.get("properties", ()))
    return sorted(names)


def hints() -> list[str]:
    [create, *_] = schemas("servers", "create")
    return sorted(create["properties"]["os:scheduler_hints"]["properties"])


def filters(module: str) -> list[str]:
    names: set[str] = set()
    for schema in schemas(module, "index_query"):
        names |= set(schema.get("properties", ()))
    return sorted(names)


def sort_keys(module: str) -> list[str]:
    names: set[str] = set()
    for schema in schemas(module, "index_query"):
        names |= set(schema["properties"].get("sort_key", {}).get("items", {}).get("enum", ()))
    return sorted(names)


def aggregate_keys() -> list[str]:
    """The keys of an aggregate's metadata that filters and weighers read by their names."""
    [folder] = importlib.import_module("nova.scheduler").__path__
    read = re.compile(r"(?:aggregate_values_from_key|get_weight_multiplier)\(\s*host_state,\s*'([a-z_]+)'")
    names = {"availability_zone", "filter_tenant_id"}
    for file in pathlib.Path(folder).rglob("*.py"):
        names |= set(read.findall(file.read_text()))
    return sorted(names)


def main() -> None:
    found = {
        "nova": importlib.metadata.version("nova"),
        "extra_specs": extra_specs(),
        "image_properties": image_properties(),
        "old_image_properties": old_image_properties(),
        "hints": hints(),
        "fields": {name: fields(*where) for name, where in _BODIES.items()},
        "filters": {name: filters(module) for name, module in _LISTS.items()},
        "sort_keys": {name: sort_keys(name) for name in ("servers", "flavors")},
        "aggregate_keys": aggregate_keys(),
    }
    print(_in_lines(found))


def _in_lines(found: dict[str, Any]) -> str:
    """JSON with one line for each entry of each part, so that a change of the list is read as a change."""
    parts = []
    for name, part in found.items():
        if isinstance(part, str):
            lines = json.dumps(part)
        elif isinstance(part, list):
            lines = "[\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in part) + "\n ]"
        else:
            rows = (f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in part.items())
            lines = "{\n" + ",\n".join(rows) + "\n }"
        parts.append(f" {json.dumps(name)}: {lines}")
    return "{\n" + ",\n".join(parts) + "\n}"


if __name__ == "__main__":
    main()

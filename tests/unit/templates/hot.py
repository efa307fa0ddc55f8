"""What a Heat template may be, as far as ours go: a check of its sections, of the types of resources with
their properties, of the functions, and that everything that is named is there. Heat's own engine reads the
same templates in tests/clients/test_heat.py; this is the part that takes no time."""

from typing import Any, Final

SECTIONS: Final = {"heat_template_version", "description", "parameters", "conditions", "resources", "outputs"}
PARAMETERS: Final = {"string", "number", "comma_delimited_list"}
FUNCTIONS: Final = {
    "get_param": "parameters",
    "get_resource": "resources",
    "get_attr": "resources",
    "if": "conditions",
}
"""The functions, with the section that their first argument is in."""
PROPERTIES: Final = {
    "OS::Nova::ServerGroup": {"name", "policies"},
    "OS::Nova::Server": {"name", "flavor", "image", "networks", "scheduler_hints"},
    "OS::Heat::ResourceGroup": {"count", "index_var", "resource_def"},
}


def faults(templates: dict[str, Any]) -> list[str]:
    """What is wrong with templates that refer to each other by their names."""
    return [
        f"{name}: {fault}" for name, template in templates.items() for fault in _faults(template, templates)
    ]


def _faults(template: Any, templates: dict[str, Any]) -> list[str]:
    found = [f"unknown section {section}" for section in template.keys() - SECTIONS]
    if template.get("heat_template_version") != "2018-08-31":
        found.append(f"version {template.get('heat_template_version')}")
    for name, parameter in template["parameters"].items():
        if parameter.get("type") not in PARAMETERS or parameter.keys() - {"type", "description", "default"}:
            found.append(f"parameter {name}: {parameter}")
    for name, resource in template["resources"].items():
        if resource.keys() != {"type", "properties"}:
            found.append(f"resource {name}: {sorted(resource)}")
        found += [f"resource {name}: {fault}" for fault in _definition(resource, templates)]
    for name, output in template["outputs"].items():
        if output.keys() != {"description", "value"}:
            found.append(f"output {name}: {sorted(output)}")
    return found + _named([template.get("conditions"), template["resources"], template["outputs"]], template)


def _definition(resource: Any, templates: dict[str, Any]) -> list[str]:
    kind, given = resource["type"], set(resource["properties"])
    if kind in templates:
        # A nested template has its parameters for properties, and none of ours has a default.
        wanted = set(templates[kind]["parameters"])
        return [] if given == wanted else [f"{kind} takes {sorted(wanted)}, and is given {sorted(given)}"]
    if kind not in PROPERTIES:
        return [f"unknown type {kind}"]
    found = [f"unknown property {name} of {kind}" for name in given - PROPERTIES[kind]]
    if "resource_def" in given:
        found += _definition(resource["properties"]["resource_def"], templates)
    return found


def _named(value: Any, template: Any) -> list[str]:
    """Functions, wherever they stand, that are not known or name what is not there."""
    if isinstance(value, list):
        return [fault for one in value for fault in _named(one, template)]
    if not isinstance(value, dict):
        return []
    found = [fault for one in value.values() for fault in _named(one, template)]
    for name in value.keys() & FUNCTIONS.keys():
        argument = value[name][0] if isinstance(value[name], list) else value[name]
        section = template.get(FUNCTIONS[name], ())
        if len(value) != 1 or argument not in section:
            found.append(f"{name} of {argument}, which is not there")
    return found

"""Read a template as Heat reads it, with Heat's own engine, and say as JSON what it would make.

    PYTHONPATH=build/heat python -m tests.clients.heat_stack FOLDER MAIN.yaml PARAMETERS

Templates, parameters, properties and outputs are validated by their schemas, and functions are resolved;
every ResourceGroup and every nested template is taken apart. Services are not asked: whether a flavor is
there is not said.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from heat.common import context, template_format
from heat.engine import environment, template
from heat.engine import stack as stacks

logging.disable(logging.CRITICAL)
CONTEXT = context.RequestContext(username="u", user_id="u", project_id="p", is_admin=False)


def stack_of(parsed: Any, files: dict[str, str], parameters: dict[str, Any]) -> Any:
    """A stack that is sound, as far as that can be known here."""
    env = environment.Environment({"parameters": parameters})
    read = template.Template(parsed, files=files, env=env)
    read.validate()
    stack = stacks.Stack(CONTEXT, "stack", read, strict_validate=False)
    stack.parameters.validate(validate_value=True, context=CONTEXT)
    for resource in stack.resources.values():
        resource.properties.validate(with_value=False)
    stack._update_all_resource_data(for_resources=True, for_outputs=True)
    for output in stack.outputs.values():
        output.validate()
    return stack


def made_by(stack: Any, files: dict[str, str]) -> dict[str, Any]:
    """What each resource is, down to the last."""
    made = {}
    for name, resource in stack.resources.items():
        if resource.type() == "OS::Heat::ResourceGroup":
            names = [str(number) for number in range(resource.properties["count"])]
            parsed = resource._assemble_nested(names).t
            made[name] = made_by(stack_of(parsed, files, {}), files)
        elif resource.type() in files:
            parsed = template_format.parse(resource.template_data())
            made[name] = made_by(stack_of(parsed, files, resource.child_params()), files)
        else:
            properties = {key: value for key, value in resource.properties.items() if value is not None}
            made[name] = {"type": resource.type(), "properties": properties}
            if resource.type() == "OS::Nova::Server":
                # What Nova is asked for, where that is no list of networks.
                made[name]["nics"] = resource._str_network(properties["networks"])
    return made


def main() -> int:
    folder, name, parameters = sys.argv[1:]
    files = {path.name: path.read_text() for path in Path(folder).glob("*.yaml")}
    stack = stack_of(template_format.parse(files[name]), files, json.loads(parameters))
    print(json.dumps({"resources": made_by(stack, files), "outputs": sorted(stack.outputs)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Changes of an image as a list of steps: JSON patch, as far as Glance has it.

A step adds, replaces or removes one field, one property, or one tag of the list. All of them are done or
none.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from berth.api.image import fields
from berth.api.image.wire import FIELDS, READ_ONLY
from berth.api.kernel.problem import Problem
from berth.model.servers import Image

MEDIA_TYPE: Final = "application/openstack-images-v2.1-json-patch"
_STEPS_MAX: Final = 500


class Step(msgspec.Struct, frozen=True):
    op: Literal["add", "replace", "remove"]
    path: Annotated[str, Meta(min_length=2, max_length=600)]
    value: Any = None


Patch = Annotated[tuple[Step, ...], Meta(max_length=_STEPS_MAX)]


def patched(image: Image, steps: tuple[Step, ...]) -> Image:
    after = image
    for step in steps:
        after = _done(after, step)
    return fields.checked(after, image)


def _done(image: Image, step: Step) -> Image:
    name, *rest = _parts(step.path)
    if rest:
        if name != "tags" or len(rest) > 1:
            raise Problem(400, f"The path {step.path} goes too deep: only tags have parts.")
        return msgspec.structs.replace(image, tags=_tags(image.tags, rest[0], step))
    if step.op != "add" and name not in FIELDS and name not in READ_ONLY and name not in image.properties:
        raise Problem(409, f"Property {name} does not exist: it cannot be {step.op}d.")
    if step.op != "remove":
        return fields.with_value(image, name, step.value)
    if name in FIELDS or name in READ_ONLY:
        raise Problem(403, f"Property {name} may not be removed: replace it.")
    left = {key: value for key, value in image.properties.items() if key != name}
    return msgspec.structs.replace(image, properties=left)


def _parts(path: str) -> list[str]:
    if not path.startswith("/"):
        raise Problem(400, f"The path {path!r} must begin with a slash.")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _tags(tags: tuple[str, ...], place: str, step: Step) -> tuple[str, ...]:
    changed = list(tags)
    number = len(tags) if place == "-" else int(place) if place.isascii() and place.isdigit() else -1
    if not 0 <= number < len(tags) + (step.op == "add"):
        raise Problem(409, f"There is no tag at {step.path}: there are {len(tags)}.")
    if step.op == "add":
        changed.insert(number, step.value)
    elif step.op == "replace":
        changed[number] = step.value
    else:
        del changed[number]
    # Not put in order before the last step: the places of the next ones count on it.
    for value in changed:
        fields.tag(value)
    return tuple(changed)

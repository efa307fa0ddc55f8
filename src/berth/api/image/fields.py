"""The fields of an image: how they are written, what each may be, and how a list of changes is applied.

An image is one flat object on the wire, in which further properties stand beside its own fields. A change is
JSON patch, as far as Glance has it: a step adds, replaces or removes one field, one property, or one tag of
the list. All of them are done or none.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from berth.api.kernel.problem import Problem
from berth.api.kernel.times import show_time
from berth.model.placement import AMOUNT_MAX
from berth.model.rejections import (
    ImageFormatFixed,
    ImagePropertiesTooLarge,
    ImagePropertyNotFound,
    ImageTagPlaceWrong,
    Rejection,
    SpecInvalid,
    TooManyImageProperties,
)
from berth.model.servers import Image
from berth.scheduler.flavors import wrong_image_traits
from berth.scheduler.spec_table import count_bytes, keep_properties, wrong_image_property

# -- as they are written ------------------------------------------------------------------------

FIELDS: Final = {
    "name": "name",
    "visibility": "visibility",
    "owner": "owner",
    "tags": "tags",
    "disk_format": "disk_format",
    "container_format": "container_format",
    "min_disk": "min_disk_gb",
    "min_ram": "min_memory_mb",
    "protected": "is_protected",
    "os_hidden": "is_hidden",
}
"""The fields that callers may set, by their names on the wire."""
READ_ONLY: Final = frozenset(
    (
        "id",
        "status",
        "size",
        "virtual_size",
        "checksum",
        "os_hash_algo",
        "os_hash_value",
        "created_at",
        "updated_at",
        "self",
        "file",
        "schema",
        "locations",
        "direct_url",
        "stores",
    )
)
HASH: Final = "sha512"


def render_image(image: Image) -> dict[str, Any]:
    path = f"/v2/images/{image.id}"
    fields = {name: getattr(image, field) for name, field in FIELDS.items()}
    return image.properties | {
        **fields,
        "id": image.id,
        "status": image.status,
        "size": image.size,
        "virtual_size": image.virtual_size,
        "checksum": image.checksum,
        "os_hash_algo": None if image.hash_value is None else HASH,
        "os_hash_value": image.hash_value,
        "created_at": show_time(image.created_at_s),
        "updated_at": show_time(image.updated_at_s),
        "self": path,
        "file": f"{path}/file",
        "schema": "/v2/schemas/image",
    }


# -- what they may be ---------------------------------------------------------------------------

_RESERVED: Final = "os_glance"
"""Properties that Glance alone sets."""
_ONLY_KEPT: Final = ("kernel_id", "ramdisk_id")
"""Images may say that they need these, as in Glance; no server is made from such an image."""
_PROPERTIES_MAX: Final = 128
_PROPERTIES_BYTES_MAX: Final = 64 << 10
_TAGS_MAX: Final = 128
_TAGS_WANTED: Final = f"a list of at most {_TAGS_MAX} texts"
_NAME_MAX: Final = 255
_VALUE_MAX: Final = 65_535
_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
UUID_PATTERN: Final = f"^{_UUID.pattern}$"
"""For the schemas that clients read."""
STATUSES: Final[tuple[str, ...]] = get_args(get_type_hints(Image)["status"])
VISIBILITIES: Final[tuple[str, ...]] = get_args(get_type_hints(Image)["visibility"])
DISK_FORMATS: Final = (
    "ami",
    "ari",
    "aki",
    "vhd",
    "vhdx",
    "vmdk",
    "raw",
    "qcow2",
    "vdi",
    "iso",
    "ploop",
)
_FORMATS: Final = ("disk_format", "container_format")
CONTAINER_FORMATS: Final = ("ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed")


def _check_value(name: str, value: Any) -> Any:
    """What a field or a property is set to. Problem if it may not be that."""
    if name in READ_ONLY:
        raise Problem(403, f"Attribute '{name}' is read-only.")
    if name in FIELDS:
        return _check_field(name, value)
    if name.startswith(_RESERVED):
        raise Problem(403, f"Attribute '{name[:100]}' is reserved.")
    if not 1 <= len(name) <= _NAME_MAX:
        raise Problem(400, f"The name of a property must have 1 to {_NAME_MAX} characters: {name!r}.")
    if not isinstance(value, str) or len(value) > _VALUE_MAX:
        raise _refuse_value(name, value, f"a text of at most {_VALUE_MAX} characters")
    return value


def _set_value(image: Image, name: str, value: Any) -> Image:
    if name in FIELDS:
        return msgspec.structs.replace(image, **{FIELDS[name]: value})
    return msgspec.structs.replace(image, properties=image.properties | {name: value})


def _check_image(image: Image, before: Image | None = None) -> Image | Rejection:
    """The image, if there are not too many properties and each that is new has a meaning here."""
    if len(image.properties) > _PROPERTIES_MAX:
        return TooManyImageProperties(len(image.properties), _PROPERTIES_MAX)
    size = count_bytes(image.properties)
    if size > _PROPERTIES_BYTES_MAX:
        return ImagePropertiesTooLarge(size, _PROPERTIES_BYTES_MAX)
    kept = keep_properties(image.properties)
    if isinstance(kept, SpecInvalid):
        return kept
    had = {} if before is None else before.properties
    new = {
        name: value
        for name, value in image.properties.items()
        if had.get(name) != value and name not in _ONLY_KEPT
    }
    wrong = wrong_image_traits(image.properties) or wrong_image_property(new)
    return image if wrong is None else wrong


def check_tag(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _NAME_MAX:
        raise _refuse_value("A tag", value, f"a text of 1 to {_NAME_MAX} characters")
    return value


def _check_tags(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) > _TAGS_MAX:
        raise _refuse_value("tags", values, _TAGS_WANTED)
    return tuple(sorted({check_tag(value) for value in values}))


def sort_tags(tags: tuple[str, ...]) -> tuple[str, ...] | SpecInvalid:
    """The tags of an image, each once."""
    if len(tags) > _TAGS_MAX:
        return SpecInvalid("tags", str(tags)[:100], _TAGS_WANTED)
    return tuple(sorted(set(tags)))


def read_id(value: Any) -> str:
    if not isinstance(value, str) or _UUID.fullmatch(value.lower()) is None:
        raise _refuse_value("id", value, "a uuid")
    return value.lower()


def _check_field(name: str, value: Any) -> Any:
    match name:
        case "tags":
            return _check_tags(value)
        case "protected" | "os_hidden":
            if not isinstance(value, bool):
                raise _refuse_value(name, value, "true or false")
        case "min_disk" | "min_ram":
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= AMOUNT_MAX:
                raise _refuse_value(name, value, f"a whole number from 0 to {AMOUNT_MAX}")
        case "visibility":
            _refuse_unlisted(name, value, VISIBILITIES)
        case "disk_format" if value is not None:
            _refuse_unlisted(name, value, DISK_FORMATS)
        case "container_format" if value is not None:
            _refuse_unlisted(name, value, CONTAINER_FORMATS)
        case "owner":
            if not isinstance(value, str) or not 1 <= len(value) <= _NAME_MAX:
                raise _refuse_value(name, value, f"a project's id of at most {_NAME_MAX} characters")
        case "name" if value is not None and (not isinstance(value, str) or len(value) > _NAME_MAX):
            raise _refuse_value(name, value, f"a text of at most {_NAME_MAX} characters")
    return value


def _refuse_unlisted(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise _refuse_value(name, value, f"one of {', '.join(known)}")


def _refuse_value(name: str, value: Any, accepted: str) -> Problem:
    return Problem(400, f"{name} is {str(value)[:100]!r}; it must be {accepted}.")


def make_image(id: str, owner: str, given: Mapping[str, Any]) -> Image | Rejection:
    """A new image with the fields that were given."""
    image = Image(id=id, owner=owner)
    for name, value in given.items():
        if name != "id":
            image = _set_value(image, name, _check_value(name, value))
    return _check_image(image)


# -- changes ------------------------------------------------------------------------------------

MEDIA_TYPE: Final = "application/openstack-images-v2.1-json-patch"
OLD_MEDIA_TYPE: Final = "application/openstack-images-v2.0-json-patch"
"""Of an older draft of JSON patch, in which the name of a step is that of its path: {"replace": "/name",
...}."""
_STEPS_MAX: Final = 500


class PatchStep(msgspec.Struct, frozen=True):
    op: Literal["add", "replace", "remove"]
    path: Annotated[str, Meta(min_length=2, max_length=600)]
    value: Any = None


Patch = Annotated[tuple[PatchStep, ...], Meta(max_length=_STEPS_MAX)]


class OldPatchStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    add: str | None = None
    replace: str | None = None
    remove: str | None = None
    value: Any = None


OldPatch = Annotated[tuple[OldPatchStep, ...], Meta(max_length=_STEPS_MAX)]


def renew_patch(steps: tuple[OldPatchStep, ...]) -> list[dict[str, Any]]:
    """The steps of the older draft in the words of the newer."""
    renewed = []
    for step in steps:
        named = [(op, path) for op in ("add", "replace", "remove") if (path := getattr(step, op)) is not None]
        if len(named) != 1:
            raise Problem(400, "A step of the patch must have one of add, replace and remove.")
        [(op, path)] = named
        renewed.append({"op": op, "path": path, "value": step.value})
    return renewed


class PatchChange(NamedTuple):
    """One step of a patch that any image could have. ``place``: of a tag, where it names one."""

    step: PatchStep
    name: str
    place: str | None
    value: Any


def read_patch(steps: tuple[PatchStep, ...]) -> tuple[PatchChange, ...]:
    """The changes of a patch. Problem if there is one that no image could have."""
    return tuple(_read_step(step) for step in steps)


def _read_step(step: PatchStep) -> PatchChange:
    name, *rest = _split_path(step.path)
    if rest:
        if name != "tags" or len(rest) > 1:
            raise Problem(400, f"The path {step.path} goes too deep: only tags have parts.")
        return PatchChange(step, name, rest[0], None if step.op == "remove" else check_tag(step.value))
    if step.op != "remove":
        return PatchChange(step, name, None, _check_value(name, step.value))
    if name in FIELDS or name in READ_ONLY:
        raise Problem(403, f"Property {name} may not be removed: replace it.")
    return PatchChange(step, name, None, None)


def patch_image(image: Image, changes: tuple[PatchChange, ...]) -> Image | Rejection:
    after = image
    for change in changes:
        changed = _apply_change(after, change)
        if isinstance(changed, Rejection):
            return changed
        after = changed
    return _check_image(after, image)


def _apply_change(image: Image, change: PatchChange) -> Image | Rejection:
    step, name = change.step, change.name
    if change.place is not None:
        tags = _patch_tags(image.tags, change.place, change)
        return tags if isinstance(tags, Rejection) else msgspec.structs.replace(image, tags=tags)
    if step.op != "add" and name not in FIELDS and name not in image.properties:
        return ImagePropertyNotFound(name, step.op)
    if name in _FORMATS and image.status != "queued" and getattr(image, name) != change.value:
        return ImageFormatFixed(name, image.status)
    if step.op != "remove":
        return _set_value(image, name, change.value)
    left = {key: value for key, value in image.properties.items() if key != name}
    return msgspec.structs.replace(image, properties=left)


def _split_path(path: str) -> list[str]:
    if not path.startswith("/"):
        raise Problem(400, f"The path {path!r} must begin with a slash.")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _patch_tags(
    tags: tuple[str, ...], place: str, change: PatchChange
) -> tuple[str, ...] | ImageTagPlaceWrong:
    """Tags are sorted after the last step only: the next steps name their places."""
    step = change.step
    changed = list(tags)
    number = len(tags) if place == "-" else int(place) if place.isascii() and place.isdigit() else -1
    if not 0 <= number < len(tags) + (step.op == "add"):
        return ImageTagPlaceWrong(step.path, len(tags))
    if step.op == "add":
        changed.insert(number, change.value)
    elif step.op == "replace":
        changed[number] = change.value
    else:
        del changed[number]
    return tuple(changed)

"""What an image may say: every field within its limits, and traits that the scheduler understands."""

import re
from collections.abc import Mapping
from typing import Any, Final, get_args, get_type_hints

import msgspec

from berth.api.image.wire import FIELDS, READ_ONLY
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import nova_problem
from berth.model.placement import AMOUNT_MAX
from berth.model.rejections import SpecInvalid
from berth.model.servers import Image
from berth.scheduler.flavors import FlavorSize, read_flavor
from berth.scheduler.spec_table import count_bytes, keep_properties, wrong_image_property

_PROPERTIES_MAX: Final = 128
_PROPERTIES_BYTES_MAX: Final = 64 << 10
_TAGS_MAX: Final = 128
_NAME_MAX: Final = 255
_VALUE_MAX: Final = 65_535
_UUID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
VISIBILITIES: Final[tuple[str, ...]] = get_args(get_type_hints(Image)["visibility"])
_DISK_FORMATS: Final = (
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
_CONTAINER_FORMATS: Final = ("ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed")


def with_value(image: Image, name: str, value: Any) -> Image:
    """The image, with a field or a property of another value."""
    if name in READ_ONLY:
        raise Problem(403, f"Attribute '{name}' is read-only.")
    if name in FIELDS:
        return msgspec.structs.replace(image, **{FIELDS[name]: _field(name, value)})
    if not 1 <= len(name) <= _NAME_MAX:
        raise Problem(400, f"The name of a property must have 1 to {_NAME_MAX} characters: {name!r}.")
    if not isinstance(value, str) or len(value) > _VALUE_MAX:
        raise _wrong(name, value, f"a text of at most {_VALUE_MAX} characters")
    return msgspec.structs.replace(image, properties=image.properties | {name: value})


def checked(image: Image, before: Image | None = None) -> Image:
    """The image, if there are not too many properties and each that is new has a meaning here."""
    if len(image.properties) > _PROPERTIES_MAX:
        raise Problem(
            413,
            f"The limit has been exceeded on the number of allowed image properties. Attempted: "
            f"{len(image.properties)}, Maximum: {_PROPERTIES_MAX}",
        )
    size = count_bytes(image.properties)
    if size > _PROPERTIES_BYTES_MAX:
        raise Problem(
            413,
            f"The properties of the image would have {size} bytes together, names and values; they may have "
            f"{_PROPERTIES_BYTES_MAX} at most.",
        )
    kept = keep_properties(image.properties)
    if isinstance(kept, SpecInvalid):
        raise nova_problem(kept)
    had = {} if before is None else before.properties
    new = {name: value for name, value in image.properties.items() if had.get(name) != value}
    ask = read_flavor(FlavorSize(vcpus=1, memory_mb=1), image.properties)
    wrong = ask if isinstance(ask, SpecInvalid) else wrong_image_property(new)
    if wrong is not None:
        raise nova_problem(wrong)
    return image


def tag(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _NAME_MAX:
        raise _wrong("A tag", value, f"a text of 1 to {_NAME_MAX} characters")
    return value


def tags(values: Any) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)) or len(values) > _TAGS_MAX:
        raise _wrong("tags", values, f"a list of at most {_TAGS_MAX} texts")
    return tuple(sorted({tag(value) for value in values}))


def id_given(value: Any) -> str:
    if not isinstance(value, str) or _UUID.fullmatch(value.lower()) is None:
        raise _wrong("id", value, "a uuid")
    return value.lower()


def _field(name: str, value: Any) -> Any:
    match name:
        case "tags":
            return tags(value)
        case "protected" | "os_hidden":
            if not isinstance(value, bool):
                raise _wrong(name, value, "true or false")
        case "min_disk" | "min_ram":
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= AMOUNT_MAX:
                raise _wrong(name, value, f"a whole number from 0 to {AMOUNT_MAX}")
        case "visibility":
            _refuse_unlisted(name, value, VISIBILITIES)
        case "disk_format" if value is not None:
            _refuse_unlisted(name, value, _DISK_FORMATS)
        case "container_format" if value is not None:
            _refuse_unlisted(name, value, _CONTAINER_FORMATS)
        case "owner":
            if not isinstance(value, str) or not 1 <= len(value) <= _NAME_MAX:
                raise _wrong(name, value, f"a project's id of at most {_NAME_MAX} characters")
        case "name" if value is not None and (not isinstance(value, str) or len(value) > _NAME_MAX):
            raise _wrong(name, value, f"a text of at most {_NAME_MAX} characters")
    return value


def _refuse_unlisted(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise _wrong(name, value, f"one of {', '.join(known)}")


def _wrong(name: str, value: Any, accepted: str) -> Problem:
    return Problem(400, f"{name} is {str(value)[:100]!r}; it must be {accepted}.")


def new_image(id: str, owner: str, given: Mapping[str, Any]) -> Image:
    """An image that says what was given."""
    image = Image(id=id, owner=owner)
    for name, value in given.items():
        if name != "id":
            image = with_value(image, name, value)
    return checked(image)

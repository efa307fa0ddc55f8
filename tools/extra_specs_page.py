"""The page of everything that can be asked for by name: docs/guides/extra-specs.md, made from the tables."""

from collections.abc import Iterable
from typing import Final

from berth.api.compute.servers.fields import FIELDS, HINTS, Field
from berth.scheduler.spec_table import (
    AGGREGATE_KEYS,
    EXTRA_SPECS,
    IMAGE_PROPERTIES,
    OLD_NAMES,
    Fate,
    SpecRow,
)

_INTRODUCTION: Final = """\
# Extra specs, image properties, hints and fields

Nothing that is asked for is ignored. Every name that Nova 34 validates is one of three things here:

- **used**: it decides where a server may be;
- **passed to the driver**: it changes nothing about where. It reaches the driver of the host with the
  flavor's extra specs and the image's properties;
- **refused**: 400, with the name, what was asked, and why not.

So a server that is ACTIVE has what was asked for. This page is made from the tables in the code (`make
docs`), and a test holds those against Nova's own list.

Where it is judged: flavors when extra specs are set, images when they are made or changed, and both again
when a server is created, resized or rebuilt, when a cluster is made, and in the flavors of
`/berth/v1/schedule`, `explain` and `capacity`. A flavor or an image from before a name was refused can
still be changed and deleted; a server that was made of it can still be moved.

## Extra specs of flavors

| extra spec | | values | meaning |
| --- | --- | --- | --- |
"""

_FREE_SPECS: Final = """
`{group}` is empty or the name of a group, of up to 64 letters, digits, `_` and `-`. Classes and traits
are standard ones or begin with `CUSTOM_`.

A key of another namespace (`site:rack`) is the operator's own, and goes to the driver with the flavor. A
key without a namespace is refused: Nova reads it in one filter as a wish about aggregates and in another
one about the host. Write `aggregate_instance_extra_specs:KEY`.

What `aggregate_instance_extra_specs:` wants is compared with each value that the host's aggregates list
under the key, with commas between them. One that meets it is enough.

| written | met by a value that |
| --- | --- |
| `text` | is this text |
| `s== a`, `s!= a`, `s< a`, `s<= a`, `s> a`, `s>= a` | compares so with `a`, as text |
| `= 5`, `>= 5`, `<= 5`, `== 5`, `!= 5` | compares so with 5, as a number (`=` is `>=`) |
| `<in> a` | has `a` in it |
| `<all-in> a b` | has `a` and `b` in it |
| `<or> a <or> b` | is `a` or `b` |

## Properties of images

| property | | values | meaning |
| --- | --- | --- | --- |
"""

_FREE_PROPERTIES: Final = """
Other names that begin with `hw_`, `img_`, `os_` or `trait:` are refused. All other properties are kept
with the image, and nothing reads them. A property may have its old name:

| old name | name |
| --- | --- |
"""

_HOSTS: Final = """
A host says its architecture with a trait of its provider, `HW_ARCH_X86_64` or another; agents report it.
It says its hypervisor with the driver of its agent: the driver `sim` runs `fake`. A host that does not
say takes no image that asks, as in Nova: before images with an architecture are used, start the agents of
this version.

## Metadata of aggregates

| key | | meaning |
| --- | --- | --- |
"""

_SERVERS: Final = """
Each of these is a filter of its own (`project_isolation`, `trait_isolation`, `image_isolation`,
`aggregate_metadata`; the setting `scheduler_filters`), is named in explanations, and costs nothing while
no aggregate has such a key.

## Hints

| hint | | meaning |
| --- | --- | --- |
"""

_FIELDS: Final = """
Any other hint is refused.

## Fields of requests about servers

What a client sends although nothing was asked for is accepted: it is in the last column. The image as the
only disk (`block_device_mapping_v2` with source `image`, destination `local` and boot index 0) is
accepted beside `imageRef`.

| request | field | | meaning | accepted all the same |
| --- | --- | --- | --- | --- |
"""

_LISTS: Final = """
## Lists

A parameter that a list does not know is refused, with those that it knows; so is one that is given twice.
Servers come newest first, and can be asked for in no other order.
"""


def page() -> str:
    """The whole of docs/guides/extra-specs.md."""
    return (
        _INTRODUCTION
        + "".join(map(_row_with_values, EXTRA_SPECS))
        + _FREE_SPECS
        + "".join(map(_row_with_values, IMAGE_PROPERTIES))
        + _FREE_PROPERTIES
        + "".join(_row(f"`{old}`", f"`{new}`") for old, new in OLD_NAMES.items())
        + _HOSTS
        + "".join(_row(_keys(row), _fate(row.fate), row.words) for row in AGGREGATE_KEYS)
        + _SERVERS
        + "".join(_row(f"`{name}`", _fate(hint.fate), hint.words) for name, hint in HINTS.items())
        + _FIELDS
        + "".join(_field(operation, name, field) for operation, name, field in _fields())
        + _LISTS
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _row_with_values(row: SpecRow) -> str:
    values = "" if row.fate is Fate.REFUSED else row.values.accepted
    return _row(_keys(row), _fate(row.fate), values, row.words)


def _keys(row: SpecRow) -> str:
    return ", ".join(key if " " in key else f"`{key}`" for key in row.keys)


def _fate(fate: Fate) -> str:
    return f"**{fate}**" if fate is Fate.REFUSED else str(fate)


def _fields() -> Iterable[tuple[str, str, Field]]:
    return (
        (operation, name, field) for operation, fields in FIELDS.items() for name, field in fields.items()
    )


def _field(operation: str, name: str, field: Field) -> str:
    accepted = ", ".join(f"`{_spelled(value)}`" for value in field.harmless)
    return _row(operation, f"`{name}`", _fate(field.fate), field.words, accepted)


def _spelled(value: object) -> str:
    match value:
        case None:
            return "null"
        case "":
            return '""'
        case bool():
            return str(value).lower()
    return str(value)


if __name__ == "__main__":
    print(page(), end="")

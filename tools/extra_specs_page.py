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

For users and operators: which names Berth supports. Nothing in a request is ignored. Every name that Nova 34
validates is one of these:

- **used**: it decides where a server may be;
- **passed to the driver**: it does not affect where. The driver of the host gets it with the flavor's extra
  specs and the image's properties;
- **refused**: 400, with the name, the value, and the reason.

So a server that is ACTIVE has what was requested. `make docs` writes this page from the tables in the code,
and a test compares them with Nova's own list.

Flavors are checked when extra specs are set, images when they are created or changed, and both again when a
server is created, resized or rebuilt, when a cluster is created, and in the flavors of `/berth/v1/schedule`,
`explain` and `capacity`. A flavor or an image from before a name was refused can still be changed and
deleted; its servers can still be moved.

## Extra specs of flavors

| extra spec | | values | meaning |
| --- | --- | --- | --- |
"""

_FREE_SPECS: Final = """
`{group}` is empty or the name of a group, of up to 64 letters, digits, `_` and `-`. Classes and traits
are standard ones or begin with `CUSTOM_`.

A key of another namespace (`site:rack`) is the operator's own, and is passed to the driver with the flavor. A
key without a namespace is refused: one filter of Nova applies it to aggregates and another one to the host.
Write `aggregate_instance_extra_specs:KEY`.

`aggregate_instance_extra_specs:` is compared with each value that the host's aggregates have under the key,
separated by commas. One match is enough.

| written | matches a value that |
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
with the image and not used. A property may have its old name:

| old name | name |
| --- | --- |
"""

_HOSTS: Final = """
The architecture of a host is a trait of its provider, `HW_ARCH_X86_64` or another; agents report it. Its
hypervisor is that of its agent's driver: the driver `sim` runs `fake`. As in Nova, a host without this
information is not chosen for an image that requires it: upgrade the agents before you use images with an
architecture.

## Metadata of aggregates

| key | | meaning |
| --- | --- | --- |
"""

_SERVERS: Final = """
Each of these is a filter of its own (`project_isolation`, `trait_isolation`, `image_isolation`,
`aggregate_metadata`; the setting `scheduler_filters`), is listed in explanations, and costs nothing while
no aggregate has such a key.

## Hints

| hint | | meaning |
| --- | --- | --- |
"""

_FIELDS: Final = """
Any other hint is refused.

## Fields of requests about servers

Values that clients send by default, without requesting anything, are accepted: see the last column. The
image as the only disk (`block_device_mapping_v2` with source `image`, destination `local` and boot index 0)
is accepted beside `imageRef`.

| request | field | | meaning | accepted anyway |
| --- | --- | --- | --- | --- |
"""

_LISTS: Final = """
## Lists

An unknown parameter of a list is refused, with the names of the known ones; so is one that is given twice.
Servers are listed newest first; there is no other order.
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

"""Changes of the journal in words: what changed, and how.

A change is what the API shows of it: a ``kind``, the object (a uuid, a name), and its fields ``before`` and
``after``; null where it was not there.
"""

from typing import Any, Final

from berth.cli.command import clean

_OBJECT_FIELDS: Final = ("name", "id", "uuid", "server", "consumer", "provider", "aggregate", "host", "group")
_SHOWN_MAX: Final = 3
_VALUE_MAX: Final = 60
_UNSHOWN: Final = ("generation", "updated_at", "created_at")


_TELLING: Final = (
    "cluster",
    "server",
    "migration",
    "host",
    "group",
    "flavor",
    "image",
    "aggregate",
    "provider",
    "consumer",
    "action",
)
"""Kinds of changes, those first that say most of what a request was about."""


def find_telling(changes: list[dict[str, Any]]) -> dict[str, Any]:
    """The change that says most of what a request was about."""
    return min(changes, key=lambda one: _TELLING.index(one["kind"]) if one["kind"] in _TELLING else 99)


def format_change(change: dict[str, Any], names: dict[str, str]) -> str:
    """A change in a line: server db: state building -> active, host-1. ``names``: of objects without one in
    the change itself."""
    kind = str(change["kind"]).replace("_", " ")
    if change["kind"] == "inventory":
        kind = f"inventory {clean(change['resource_class'])} of"
    name = find_name(change, names)
    before, after = change.get("before"), change.get("after")
    if change["kind"] == "host":
        # A host has a status only while something is unusual about it.
        return f"host {name}: {_describe_status(after)}"
    if before is None and after is None:
        return f"{kind} {name}".strip()
    if before is None:
        return f"{kind} {name} created".replace("  ", " ")
    if after is None:
        return f"{kind} {name} deleted".replace("  ", " ")
    how = _compare(before, after)
    return f"{kind} {name}: {how}" if how else f"{kind} {name}"


def _describe_status(status: Any) -> str:
    said = [
        name if value is True else f"{name} {_format(value)}"
        for name, value in (status or {}).items()
        if value
    ]
    return ", ".join(said) or "healthy"


def find_name(change: dict[str, Any], names: dict[str, str]) -> str:
    """What the object is called, or else its uuid."""
    for fields in (change.get("after"), change.get("before"), change):
        if isinstance(fields, dict) and isinstance(fields.get("name"), str) and fields["name"]:
            return clean(fields["name"])
    found = next((change[field] for field in _OBJECT_FIELDS if isinstance(change.get(field), str)), "")
    return clean(names.get(found, found))


def _compare(before: Any, after: Any) -> str:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return f"{_format(before)} -> {_format(after)}"
    names = [name for name in after if after[name] != before.get(name) and name not in _UNSHOWN]
    shown = [f"{name} {_format(before.get(name))} -> {_format(after[name])}" for name in names[:_SHOWN_MAX]]
    more = len(names) - len(shown)
    return ", ".join([*shown, f"{more} more"] if more > 0 else shown)


def _format(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict | list):
        return f"({len(value)})"
    text = clean(str(value))
    return text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 1]}…"

"""Formats: what may be written, so that every program that shares a journal can read it.

A *format* is a number. A program reads every format up to ``FORMAT``, its own, and writes the one that the
journal has, which only ever goes up and only when an operator says so (``berth db upgrade --finish``). So a
release and the next can share a journal: until then the newer one writes nothing that the older one does not
know. See docs/decisions/039.

    format 1   the first: nothing in a row says who wrote it
    format 2   every row of the journal and every part of a snapshot begins with the format and the version of
               the program that wrote it; saga runs may say which trace they belong to

``ADDED`` says what came later than format 1: a kind of event, record or part of one (``Drain``), a field
(``Server.locked_reason``), a word that a field may have (``Server.state=paused``,
``SagaRun.operation=pause``). Names are those of classes, and of fields as they are written. What is not in it
has always been there: a test compares all of that with a list that is kept. A field that is added has a
default, and says nothing while it has that.

``Additions`` finds in a value what is too new. The agent protocol has versions of its own, and uses the same.
"""

import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from berth import __version__

FORMAT: Final = 2
"""The newest format that this program reads and writes."""

SIGNED: Final = 2
"""From this format on rows say who wrote them."""

TRACED: Final = 2
"""From this format on saga runs say which trace they belong to."""

ADDED: Final[dict[str, int]] = {
    "Agent.units_gone": 2,
    "CellStatus.format": 2,
    "DeletedServer": 2,
    "Deletion": 2,
    "Guest": 2,
    "GuestAddress": 2,
    "Host.units_gone": 2,
    "Image.content": 2,
    "Image.members": 2,
    "Image.status=saving": 2,
    "Image.virtual_size": 2,
    "ImageMember": 2,
    "Image.rotation": 2,
    "Instance.sheet": 2,
    "KeyPair": 2,
    "SagaRun.addresses": 2,
    "SagaRun.cells": 2,
    **dict.fromkeys(
        (
            f"SagaRun.operation={name}"
            for name in (
                *("reboot", "reboot_hard", "pause", "unpause", "suspend", "resume", "rescue", "unrescue"),
                *("create_image", "create_backup", "soft_delete", "restore"),
            )
        ),
        2,
    ),
    "SagaRun.traceparent": TRACED,
    "Server.access_ipv4": 2,
    "Server.access_ipv6": 2,
    "Server.addresses": 2,
    "Server.deletion": 2,
    "Server.guest": 2,
    "Server.tags": 2,
    "Spec.guest": 2,
    **dict.fromkeys(
        (
            f"Server.{field}={name}"
            for field in ("state", "state_before")
            for name in ("paused", "suspended", "rescued", "soft-delete")
        ),
        2,
    ),
    **dict.fromkeys(
        (
            f"Server.task={name}"
            for name in (
                *("rebooting", "rebooting_hard", "pausing", "unpausing", "suspending", "resuming"),
                *("rescuing", "unrescuing", "image_snapshot", "image_backup", "soft-deleting", "restoring"),
            )
        ),
        2,
    ),
    "UnknownServer.last": 2,
    "UnknownServer.sheet": 2,
}
"""Since which format there is what was not in format 1."""


class Program(NamedTuple):
    """A release of Berth: its version, and the newest format that it reads."""

    version: str
    format: int

    def __str__(self) -> str:
        return f"Berth {self.version} (format {self.format})"


THIS_PROGRAM: Final = Program(__version__, FORMAT)


class _Rule(NamedTuple):
    """What to check of a field: whether the field itself is too new, which words of it are, and whether
    something that is too new may be inside."""

    field: str
    name: str
    is_new: bool
    default: Any
    words: frozenset[str]
    is_deep: bool


class Additions:
    """What was added to structs after the first version of them, and since which version it is there."""

    def __init__(self, added: Mapping[str, int]) -> None:
        self._added = added
        self._newest = max(added.values(), default=0)
        self._rules = functools.cache(self._make_rules)

    def since(self, name: str) -> int:
        return self._added.get(name, 1)

    def find_newer(self, value: object, version: int) -> str | None:
        """The name of something in a value that this version does not have; None if it has all of it."""
        return None if version >= self._newest else next(self._newer(value, version), None)

    def _newer(self, value: object, version: int) -> Iterator[str]:
        if isinstance(value, msgspec.Struct):
            kind = type(value)
            if self.since(kind.__name__) > version:
                yield kind.__name__
            for rule in self._rules(kind, version):
                found = getattr(value, rule.field)
                if rule.is_new and found != rule.default:
                    yield rule.name
                if rule.words:
                    yield from (f"{rule.name}={word}" for word in _texts(found) if word in rule.words)
                # A default is not written, whatever it is made of.
                if rule.is_deep and found != rule.default:
                    yield from self._newer(found, version)
        elif isinstance(value, tuple | list):
            for inner in value:
                yield from self._newer(inner, version)
        elif isinstance(value, dict):
            for inner in value.values():
                yield from self._newer(inner, version)

    def _make_rules(self, kind: type[msgspec.Struct], version: int) -> tuple[_Rule, ...]:
        return tuple(
            rule
            for field in msgspec.structs.fields(kind)
            if (rule := self._make_rule(kind, field, version)) is not None
        )

    def _make_rule(
        self, kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo, version: int
    ) -> _Rule | None:
        name = f"{kind.__name__}.{field.encode_name}"
        is_new = self.since(name) > version
        words = frozenset(
            key.removeprefix(f"{name}=")
            for key, since in self._added.items()
            if key.startswith(f"{name}=") and since > version
        )
        is_deep = any(self._has_newer(inner, version) for inner in structs_within(field.type))
        if not (is_new or words or is_deep):
            return None
        return _Rule(field.name, name, is_new, default_of(field), words, is_deep)

    def _has_newer(self, kind: type[msgspec.Struct], version: int) -> bool:
        """Whether a struct of this kind may hold something that is too new."""
        if self.since(kind.__name__) > version:
            return True
        own = f"{kind.__name__}."
        return any(name.startswith(own) for name, since in self._added.items() if since > version) or any(
            self._has_newer(inner, version)
            for field in msgspec.structs.fields(kind)
            for inner in structs_within(field.type)
        )


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """The default of a field; NODEFAULT if it has none."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def structs_within(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    """The kinds of structs that a value of a type is made of, not counting what is inside of those."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
        return
    if typing.get_origin(annotation) is not Literal:
        for argument in typing.get_args(annotation):
            yield from structs_within(argument)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list | dict):
        for inner in value:
            yield from _texts(inner)


ADDITIONS: Final = Additions(ADDED)
"""To events, records and parts of snapshots."""

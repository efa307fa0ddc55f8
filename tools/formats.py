"""Write the list of all that is written in journals, snapshots and messages to agents, and since when:
``python -m tools.formats > tests/golden/formats.txt``.

A line says since which format (or version of the agent protocol) there is a kind, a field with its type, a
word of a field, or a saga with its steps. A test compares the list with the program. What is added to the
program is declared in ``berth.model.formats`` or ``berth.cell.protocol`` first; lines of formats that are
released never change.
"""

import typing
from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import msgspec

from berth.cell import protocol
from berth.model.events import Entry
from berth.model.formats import ADDITIONS, Additions, default_of, structs_within
from berth.sagas.saga import Verb, all_sagas
from berth.view import snapshot

_MESSAGES: Final = (
    protocol.Register,
    protocol.Registered,
    protocol.Poll,
    protocol.PollAnswer,
    protocol.Report,
    protocol.ReportAnswer,
    protocol.NewCredential,
)


def list_formats() -> list[str]:
    parts = typing.get_args(snapshot._Part)
    agent = Additions(protocol.ADDED)
    return [
        *(f"journal {line}" for line in _lines(ADDITIONS, (Entry, *parts))),
        *(f"journal {ADDITIONS.since(name)} {name}: {steps}" for name, steps in _sagas()),
        *(f"agent {line}" for line in _lines(agent, _MESSAGES)),
        *(
            f"agent {agent.since(name)} {name}"
            for name in sorted(f"AgentCommand.verb={verb}" for verb in typing.get_args(Verb))
        ),
    ]


def _lines(additions: Additions, roots: tuple[type[msgspec.Struct], ...]) -> Iterator[str]:
    reached = _reach(roots)
    for kind in sorted(reached, key=lambda kind: kind.__name__):
        name, config = kind.__name__, kind.__struct_config__
        since = additions.since(name)
        tag = "" if config.tag is None else f", tag {config.tag}"
        yield f"{since} {name}: {'list' if config.array_like else 'object'}{tag}"
        for field in msgspec.structs.fields(kind):
            path = f"{name}.{field.encode_name}"
            since_field = max(since, additions.since(path))
            default = default_of(field)
            end = "" if default is msgspec.NODEFAULT else f" = {_plain(default)}"
            # A kind that came later is in a line of its own.
            later = {one.__name__ for one in reached if additions.since(one.__name__) > since_field}
            yield f"{since_field} {path}: {_describe(field.type, later)}{end}"
            for word in sorted(_words(field.type)):
                yield f"{max(since_field, additions.since(f'{path}={word}'))} {path}={word}"


def _reach(roots: tuple[type[msgspec.Struct], ...]) -> set[type[msgspec.Struct]]:
    found: set[type[msgspec.Struct]] = set()
    waiting = list(roots)
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            for field in msgspec.structs.fields(kind):
                waiting += structs_within(field.type)
    return found


def _plain(value: object) -> str:
    return "unset" if value is msgspec.UNSET else msgspec.json.encode(value).decode()


def _describe(annotation: Any, without: Collection[str] = ()) -> str:
    """A type without its limits: those may change, what is written may not; and ``without`` some kinds of a
    union."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _describe(arguments[0], without)
    if origin is Literal:
        return "word"
    if annotation is Ellipsis:
        return "..."
    if not arguments:
        name: str = getattr(annotation, "__supertype__", annotation).__name__
        return "null" if name == "NoneType" else name
    described = [_describe(argument, without) for argument in arguments]
    if origin in (tuple, list, dict):
        return f"{origin.__name__}[{', '.join(described)}]"
    return " | ".join(sorted(one for one in described if one not in without))


def _words(annotation: Any) -> Iterator[str]:
    """The words that a value of a type may have, where the type lists them."""
    is_list = typing.get_origin(annotation) is Literal
    for argument in typing.get_args(annotation):
        if is_list:
            yield str(argument)
        else:
            yield from _words(argument)


def _sagas() -> Iterator[tuple[str, str]]:
    """A run says in its record at which step it is, by number: the steps are part of the format."""
    for saga in sorted(all_sagas(), key=lambda saga: saga.name):
        yield f"SagaRun.operation={saga.name}", ", ".join(step.name for step in saga.steps)


if __name__ == "__main__":
    print("\n".join(list_formats()))

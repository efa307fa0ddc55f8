"""Query strings and bodies of /berth/v1: one struct says what may be asked for, and in which range.

A parameter or a field that the struct does not have is refused by name; so is a parameter that is given
twice. Nothing is guessed and nothing is ignored. The OpenAPI description is read off the same structs.
"""

import re
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec

from berth.api.kernel.codes import BAD_BODY, BAD_PARAMETER, UNKNOWN_PARAMETER
from berth.api.kernel.problem import Problem
from berth.api.native.fields import UUID

# -- queries ------------------------------------------------------------------------------------

_SHOWN_MAX: Final = 100
_NUMBER = re.compile(r"(0|[1-9][0-9]*)\Z")
Q = TypeVar("Q", bound=msgspec.Struct)


def decode_query(query_string: str, kind: type[Q]) -> Q:
    """The parameters of a request; Problem if they are not what the struct says."""
    known = kinds_of(kind)
    given: dict[str, object] = {}
    for part in query_string.split("&"):
        if not part:
            continue
        raw_name, _, raw_value = part.partition("=")
        name = _text(raw_name)
        if name not in known:
            listed = ", ".join(known) or "none"
            raise _refused(
                f"There is no parameter {_shown(name)} here; known are: {listed}.", UNKNOWN_PARAMETER
            )
        if name in given:
            raise _refused(f"{name}: it is given more than once.")
        given[name] = _value(name, _text(raw_value), known[name])
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in given:
            raise _refused(f"{field.name}: it is missing, and {_expectation(known[field.name])}.")
    return kind(**given)


@cache
def kinds_of(query: type[msgspec.Struct]) -> dict[str, Any]:
    """The type of each parameter, without the None that stands for its absence."""
    hints = get_type_hints(query, include_extras=True)
    return {field.name: _present(hints[field.name]) for field in msgspec.structs.fields(query)}


def _present(hint: Any) -> Any:
    return get_args(hint)[0] if type(None) in get_args(hint) else hint


def _value(name: str, text: str, kind: Any) -> object:
    value: str | int = text
    if get_args(kind)[0] is int:
        # Strictly: 1, not 01, 1.0, +1 or 1_0.
        value = int(text) if len(text) < 20 and _NUMBER.match(text) else text
    try:
        converted: object = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise _refused(f"{name}: {_expectation(kind)}; it is {_shown(text)}.") from None
    return converted


def _expectation(kind: Any) -> str:
    """What a value must be, read off its type."""
    schema = msgspec.json.schema(kind)
    if "enum" in schema:
        return f"it must be one of {', '.join(sorted(schema['enum']))}"
    if schema["type"] == "integer":
        return f"it must be a whole number from {schema['minimum']} to {schema['maximum']}"
    if schema.get("pattern") == UUID:
        return "it must be a uuid, with its dashes"
    if "pattern" in schema:
        return "it must be a uuid"
    return f"it must be a text of {schema['minLength']} to {schema['maxLength']} characters"


def _text(raw: str) -> str:
    try:
        return unquote_to_bytes(raw.replace("+", " ").encode("latin-1")).decode("utf-8")
    except UnicodeError:
        raise _refused("The query is not UTF-8.") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "...")


def _refused(detail: str, code: str = BAD_PARAMETER) -> Problem:
    return Problem(400, detail, code)


# -- bodies -------------------------------------------------------------------------------------

B = TypeVar("B", bound=msgspec.Struct)


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode_body(body: bytes, kind: type[B]) -> B:
    """The body of a request; Problem if it is not what the struct says."""
    try:
        decoded: B = _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise bad_body(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"The body is not JSON: {error}.", BAD_BODY) from None
    return decoded


def bad_body(reason: str) -> Problem:
    return Problem(400, f"The body is not what is expected here: {reason}.", BAD_BODY)

"""One call of /berth/v1: how its query and body are read, what a handler is given, and how it is answered.

One struct says what may be asked for, and in which range. A parameter or a field that the struct does not
have is refused by name; so is a parameter that is given twice. Nothing is guessed and nothing is ignored. The
OpenAPI description is read off the same structs.

A list is a function of the view alone, ``Reader``. Everything around it (the tag, the condition, the
encoding) is the same for all lists and stands here. A refusal has the shape of the Placement API's errors,
always in JSON.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec

from berth.api.kernel.auth.caller import TOKEN_HEADER, Caller
from berth.api.kernel.call import Call, Services
from berth.api.kernel.codes import BAD_BODY, BAD_PARAMETER, UNKNOWN_PARAMETER
from berth.api.kernel.etags import CONDITION, StateTags, add_tag, is_named, make_body_tag
from berth.api.kernel.etags import HEADER as ETAG
from berth.api.kernel.http import JSON, Request, Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import berth_problem
from berth.api.kernel.router import Route
from berth.api.native.fields import ExplanationDetail, NoQuery
from berth.model.commands import Command
from berth.model.ids import Index
from berth.model.rejections import Rejection
from berth.view import View

if TYPE_CHECKING:
    from berth.api.native.events import Feed
    from berth.api.native.overview import KeptOverview

_SHOWN_MAX: Final = 100
_NUMBER = re.compile(r"(0|[1-9][0-9]*)\Z")
_NO_CACHE: Final = ("cache-control", "no-cache")
_VARY: Final = ("vary", TOKEN_HEADER)
"""Lists are not the same for every caller."""

_encode: Final = msgspec.json.Encoder().encode
T = TypeVar("T")
Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B", bound=msgspec.Struct)

# -- the call -----------------------------------------------------------------------------------


class NativeCall(Call):
    """``query`` and ``body`` are what the route's structs made of them."""

    __slots__ = ("body", "feed", "overview", "query", "tags")

    def __init__(
        self,
        request: Request,
        caller: Caller,
        params: tuple[str, ...],
        services: Services,
        rules: tuple[str, ...],
        *,
        query: Any,
        body: Any,
        feed: "Feed",
        tags: StateTags,
        overview: "KeptOverview",
    ) -> None:
        super().__init__(request, caller, params, services, rules)
        self.query = query
        self.body = body
        self.feed = feed
        self.tags = tags
        self.overview = overview

    def problem_of(self, rejection: Rejection) -> Problem:
        return berth_problem(rejection, names_hosts=self.access.sees_hosts)


NativeHandler = Callable[[NativeCall], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class NativeRoute(Route[NativeHandler]):
    """``example`` is of the body. ``answer`` None: a JSON object that no struct describes, or nothing at all
    where the ``status`` is 204. ``names_in_query``: the query names something, which may be missing (404).
    ``is_stream``: it may be asked for as server-sent events instead. ``is_tagged``: what a GET answers
    follows from the state alone, so that a client can ask whether it has it already.
    """

    name: str
    summary: str
    description: str
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    example: Mapping[str, Any] | None = None
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    names_in_query: bool = False
    is_stream: bool = False
    is_tagged: bool = True


def change_found(
    call: NativeCall,
    find: Callable[[View, NativeCall], T | Rejection],
    change: Callable[[View, int, T], Command | Rejection],
) -> Callable[[View, int], Command | Rejection]:
    """The proposal to change what ``find`` finds for the caller, or to reject what it does not."""

    def propose(view: View, now_s: int) -> Command | Rejection:
        found = find(view, call)
        return found if isinstance(found, Rejection) else change(view, now_s, found)

    return propose


# -- queries ------------------------------------------------------------------------------------


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


# -- answers ------------------------------------------------------------------------------------

Reader = Callable[[View, NativeCall], msgspec.Struct]


def answer_from(reader: Reader) -> NativeHandler:
    """The handler that answers with what a reader says of the view; 304 to a client that has it already."""

    async def handle(call: NativeCall) -> Response:
        request = call.request
        if CONDITION in request.headers:
            index = await call.read(lambda view: view.index)
            tag = call.tags.tag(index, request, caller=call.caller)
            if is_named(request, tag):
                return Response(304, headers=[(ETAG, tag), _NO_CACHE, _VARY])

        def answer(view: View) -> tuple[Index, bytes]:
            return view.index, _encode(reader(view, call))

        index, body = await call.read(answer)
        response = respond_json(body)
        response.headers.append(_VARY)
        return add_tag(request, response, call.tags.tag(index, request, caller=call.caller))

    return handle


def respond_fixed(call: NativeCall, body: bytes) -> Response:
    """A body that follows from the program alone."""
    return add_tag(call.request, respond_json(body), make_body_tag(body))


def respond_json(body: bytes, status: int = 200) -> Response:
    return Response(status, body, JSON, [_NO_CACHE])


def respond(answer: msgspec.Struct, status: int = 200) -> Response:
    return respond_json(_encode(answer), status)


# -- refusals -----------------------------------------------------------------------------------


class Refusal(msgspec.Struct, omit_defaults=True):
    """Why a request was refused. ``oldest_index`` and ``start_at`` come with ``berth.pruned`` alone, an
    ``explanation`` with ``berth.no_fit``, if it was asked for. ``fitting_ratio``: the anti-affinity ratio
    with which a cluster that does not fit would."""

    status: int
    title: str
    detail: str
    code: str
    request_id: str
    oldest_index: int | None = None
    start_at: str | None = None
    explanation: ExplanationDetail | None = None
    fitting_ratio: int | None = None


class Refusals(msgspec.Struct):
    """The body of every answer that is not a success."""

    errors: list[Refusal]


def make_refusal(problem: Problem, request: Request) -> Refusal:
    more: dict[str, Any] = problem.more
    return Refusal(
        problem.status,
        HTTPStatus(problem.status).phrase,
        problem.text,
        problem.code or "",
        request.request_id,
        **more,
    )


def render(problem: Problem, request: Request) -> Response:
    body = b"" if request.method == "HEAD" else _encode(Refusals([make_refusal(problem, request)]))
    return Response(problem.status, body, JSON, problem.headers)

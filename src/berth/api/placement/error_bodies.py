"""How a problem reads on the wire: JSON, HTML or plain text, with the words every client has seen.

The shape is that of the API's errors guideline; the sentence before the text belongs to the status, and
line ends and spaces are where they have always been, because clients match on the whole. What a caller
sent is quoted, but not at any length: every answer is small, and costs no more than its length to make.
"""

import html
import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from berth.api.kernel import codes
from berth.api.kernel.http import JSON, Request, Response, effective_accept, error_format
from berth.api.kernel.problem import Problem
from berth.api.placement.versions import (
    HEADER,
    MAX_TEXT,
    MIN_TEXT,
    VARY_HEADER,
    VERSION_HEADER,
    negotiate,
)

ERROR_CODES_SINCE: Final = 23

_CODES: Final = frozenset((codes.GROUP_POLICY, codes.TOO_LARGE)) | {
    code for name, code in vars(codes).items() if name.isupper() and code.startswith("placement.")
}
"""Codes that clients of Placement are told: its own, and two of ours for what it has none."""

_TITLES: Final = {status.value: status.phrase for status in HTTPStatus} | {413: "Request Entity Too Large"}

_EXPLANATIONS: Final = {
    400: (
        "The server could not comply with the request since it is either malformed or otherwise incorrect."
    ),
    401: (
        "This server could not verify that you are authorized to access the document you requested. "
        "Either you supplied the wrong credentials (e.g., bad password), or your browser does not "
        "understand how to supply the credentials required."
    ),
    403: "Access was denied to this resource.",
    404: "The resource could not be found.",
    409: "There was a conflict when trying to complete your request.",
    413: "The body of your request was too large for this server.",
    500: "The server has either erred or is incapable of performing the requested operation.",
    503: "The server is currently unavailable. Please try again at a later time.",
}

TEXT_MAX: Final = 16 * 1024
"""Characters of a text that are answered. The longest schema that a text may quote has 11,200."""

_LINE_MAX: Final = 2048
"""Characters of one line. Cutting it in the middle keeps the words around a long value."""

_CUT: Final = " [...] "

_BREAK = re.compile(r"<br[^>]*>", re.IGNORECASE)
_COMMENT = re.compile(r"<!--|-->")
_TAG = re.compile(r"<[^>]*>")

Escape = Callable[[str], str]


def render(problem: Problem, request: Request) -> Response:
    """The response for a problem, with the version that the request speaks, if that can be told."""
    if problem.status == 401:
        return _render_unauthorized(problem, request)
    try:
        version = negotiate(request.headers.get(HEADER))
    except Problem:
        return _render(problem, request, None)
    response = _render(problem, request, version)
    response.headers.append(VERSION_HEADER[version])
    if not problem.bare:
        response.headers.append(VARY_HEADER)
    return response


def _render(problem: Problem, request: Request, version: int | None) -> Response:
    headers = list(problem.headers)
    if request.method == "HEAD":
        return Response(problem.status, b"", "text/html; charset=UTF-8", headers)
    match error_format(effective_accept(request.headers.get("accept"))):
        case "json":
            payload = {"errors": [_error(problem, request, version)]}
            return Response(problem.status, json.dumps(payload).encode(), JSON, headers)
        case "html":
            return Response(problem.status, _html(problem, request), "text/html; charset=UTF-8", headers)
        case "plain":
            return Response(problem.status, _plain(problem, request), "text/plain; charset=UTF-8", headers)


def _render_unauthorized(problem: Problem, request: Request) -> Response:
    """A 401 has a shape of its own: it is answered before the API is reached."""
    untold = Problem(401, headers=problem.headers)
    if request.method != "HEAD" and error_format(effective_accept(request.headers.get("accept"))) == "json":
        payload = {
            "message": _body(untold, request, _as_is),
            "code": "401 Unauthorized",
            "title": "Unauthorized",
        }
        return Response(401, json.dumps(payload).encode(), JSON, problem.headers)
    return _render(untold, request, None)


def _error(problem: Problem, request: Request, version: int | None) -> dict[str, str | int]:
    error: dict[str, str | int] = {
        "status": problem.status,
        "title": _TITLES[problem.status],
        "detail": strip_tags(_body(problem, request, _as_is)),
    }
    if version is not None and version >= ERROR_CODES_SINCE:
        error["code"] = problem.code if problem.code and problem.code in _CODES else codes.UNDEFINED
    error["request_id"] = request.request_id
    if version is None and problem.status == 406:
        error["max_version"] = MAX_TEXT
        error["min_version"] = MIN_TEXT
    return error


def _html(problem: Problem, request: Request) -> bytes:
    status = f"{problem.status} {_TITLES[problem.status]}"
    body = _body(problem, request, html.escape)
    page = (
        f"<html>\n <head>\n  <title>{status}</title>\n </head>\n"
        f" <body>\n  <h1>{status}</h1>\n  {body}\n </body>\n</html>"
    )
    return page.encode("ascii", "xmlcharrefreplace")


def _plain(problem: Problem, request: Request) -> bytes:
    body = strip_tags(_body(problem, request, _as_is))
    return f"{problem.status} {_TITLES[problem.status]}\n\n{body}".encode(errors="replace")


def _body(problem: Problem, request: Request, escape: Escape) -> str:
    text = escape(_shortened(problem.text))
    match problem.status:
        case 405:
            return (
                f"The method {escape(_shortened(request.method))} is not allowed for this resource. "
                f"<br /><br />\n{text}"
            )
        case 406:
            accept = escape(_shortened(effective_accept(request.headers.get("accept"))))
            return (
                "The resource could not be generated that was acceptable to your browser\n"
                f"(content of type {accept}. <br /><br />\n{text}"
            )
        case 415:
            sent = escape(_shortened(request.headers.get("content-type") or "None"))
            return f"The request media type {sent} is not supported by this server.\n<br /><br />\n{text}"
        case status:
            return f"{_EXPLANATIONS[status]}<br /><br />\n{text}\n\n"


def _as_is(text: str) -> str:
    return text


def _shortened(text: str) -> str:
    if len(text) <= _LINE_MAX:
        return text
    shortened = "\n".join(map(_shortened_line, text.split("\n")))
    return shortened if len(shortened) <= TEXT_MAX else shortened[:TEXT_MAX] + _CUT


def _shortened_line(line: str) -> str:
    if len(line) <= _LINE_MAX:
        return line
    half = _LINE_MAX // 2
    return f"{line[:half]}{_CUT}{line[-half:]}"


def strip_tags(text: str) -> str:
    """Without HTML, as webob takes it out: a tag goes from a "<" to the next ">", whatever is in between."""
    text = _replace(_BREAK, "\n", text.replace("\n", " ").replace("\r", ""))
    return _replace(_TAG, "", _COMMENT.sub("", text))


def _replace(tag: re.Pattern[str], replacement: str, text: str) -> str:
    # Behind the last ">" no tag can end. To look for its end from every "<" there would be quadratic.
    end = text.rfind(">") + 1
    return tag.sub(replacement, text[:end]) + text[end:]

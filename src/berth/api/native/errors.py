"""How /berth/v1 refuses: the shape of the Placement API's errors, always JSON."""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from berth.api.kernel.http import JSON, Request, Response
from berth.api.kernel.problem import Problem
from berth.api.native.schedule import ExplanationDetail

_encode: Final = msgspec.json.Encoder().encode


class Refusal(msgspec.Struct, omit_defaults=True):
    """Why a request was refused. ``oldest_index`` and ``start_at`` come with ``berth.pruned`` alone, an
    ``explanation`` with ``berth.no_fit``, if it was asked for."""

    status: int
    title: str
    detail: str
    code: str
    request_id: str
    oldest_index: int | None = None
    start_at: str | None = None
    explanation: ExplanationDetail | None = None


class Refusals(msgspec.Struct):
    """The body of every answer that is not a success."""

    errors: list[Refusal]


def refusal(problem: Problem, request: Request) -> Refusal:
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
    body = b"" if request.method == "HEAD" else _encode(Refusals([refusal(problem, request)]))
    return Response(problem.status, body, JSON, problem.headers)

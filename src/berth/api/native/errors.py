"""Refusals of /berth/v1: the shape of the Placement API's, codes of our own, always JSON.

The words say what was given and what would be accepted. Every code stands in the table below; the OpenAPI
description and the guide list them.
"""

from http import HTTPStatus
from typing import Final

import msgspec

from berth.api.kernel.access import refusal as policy_refusal
from berth.api.kernel.http import JSON, Request, Response
from berth.api.native.wire_schedule import Explanation
from berth.api.placement.errors import GROUP_POLICY as GROUP_POLICY
from berth.api.placement.errors import TOO_LARGE as TOO_LARGE

BAD_BODY: Final = "berth.bad_body"
BAD_PARAMETER: Final = "berth.bad_parameter"
UNKNOWN_PARAMETER: Final = "berth.unknown_parameter"
INDEX_AHEAD: Final = "berth.index_ahead"
UNAUTHORIZED: Final = "berth.unauthorized"
FORBIDDEN: Final = "berth.forbidden"
NOT_FOUND: Final = "berth.not_found"
METHOD_NOT_ALLOWED: Final = "berth.method_not_allowed"
NOT_ACCEPTABLE: Final = "berth.not_acceptable"
PRUNED: Final = "berth.pruned"
CONFLICT: Final = "berth.conflict"
QUOTA_EXCEEDED: Final = "berth.quota_exceeded"
NO_FIT: Final = "berth.no_fit"
PLAN_MOVED: Final = "berth.plan_moved"
UNSUPPORTED_MEDIA: Final = "berth.unsupported_media"
BODY_TOO_LARGE: Final = "berth.body_too_large"
UNEXPECTED: Final = "berth.unexpected"
OVERLOADED: Final = "berth.overloaded"
UNAVAILABLE: Final = "berth.unavailable"
TOO_MANY_STREAMS: Final = "berth.too_many_streams"

RETRY_SOON: Final = (("retry-after", "1"),)

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
    explanation: Explanation | None = None


class Refusals(msgspec.Struct):
    """The body of every answer that is not a success."""

    errors: list[Refusal]


class NativeProblem(Exception):
    """A refusal on its way out. ``oldest_index`` and ``start_at``: see Refusal."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        oldest_index: int | None = None,
        start_at: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.oldest_index = oldest_index
        self.start_at = start_at
        self.explanation: Explanation | None = None


def forbidden(rule: str) -> NativeProblem:
    return NativeProblem(403, FORBIDDEN, policy_refusal(rule))


def refusal(problem: NativeProblem, request: Request) -> Refusal:
    return Refusal(
        problem.status,
        HTTPStatus(problem.status).phrase,
        problem.detail,
        problem.code,
        request.request_id,
        problem.oldest_index,
        problem.start_at,
        problem.explanation,
    )


def render(problem: NativeProblem, request: Request) -> Response:
    body = b"" if request.method == "HEAD" else _encode(Refusals([refusal(problem, request)]))
    return Response(problem.status, body, JSON, problem.headers)

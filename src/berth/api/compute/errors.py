"""How the compute API refuses: Nova's envelope, a sentence of our own in it.

{"conflictingRequest": {"code": 409, "message": "..."}}
"""

from typing import Final

import msgspec

from berth.api.kernel.http import JSON, Response
from berth.api.kernel.problem import Problem

_NAMES: Final = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    406: "notAcceptable",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    503: "serviceUnavailable",
}


def render(problem: Problem) -> Response:
    name = _NAMES.get(problem.status, "computeFault")
    body = {name: {"code": problem.status, "message": problem.text}}
    return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)


def not_found(what: str, id: str) -> Problem:
    return Problem(404, f"{what} {id} could not be found.")

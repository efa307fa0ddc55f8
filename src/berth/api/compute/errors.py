"""Refusals of the compute API: Nova's envelope, a sentence of our own in it.

{"conflictingRequest": {"code": 409, "message": "..."}}
"""

from typing import Final

import msgspec

from berth.api.kernel.http import JSON, Response
from berth.api.native.rejected import problem as native_problem
from berth.api.native.rejected import then
from berth.model import rejections as r
from berth.model.rejections import Rejection

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


class ComputeProblem(Exception):
    def __init__(self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


def render(problem: ComputeProblem) -> Response:
    name = _NAMES.get(problem.status, "computeFault")
    body = {name: {"code": problem.status, "message": problem.message}}
    return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)


def not_found(what: str, id: str) -> ComputeProblem:
    return ComputeProblem(404, f"{what} {id} could not be found.")


SENTENCES: Final[dict[type[Rejection], tuple[int, str]]] = {
    r.ServerNotFound: (404, "Instance {r.id} could not be found."),
    r.ServerBusy: (
        409,
        "Cannot '{r.asked}' instance {r.id} while it is in task_state {r.task}: wait until that is over.",
    ),
    r.ServerStateWrong: (
        409,
        "Cannot '{r.asked}' instance {r.id} while it is in vm_state {r.state}: it must be in {allowed}.",
    ),
    r.ServerChangedByOthers: (
        409,
        "Cannot '{r.asked}' instance {r.id}: another client has changed its allocations since they were last "
        "written ({r.found}). {then}",
    ),
    r.ServerHoldsAlready: (
        500,
        "Instance {r.id} is new, and a consumer of that id holds resources already. This cannot be: please "
        "report it as a bug, with the request id.",
    ),
    r.ServerUnsettled: (
        409,
        "Cannot '{r.asked}' instance {r.id} while its migration {r.migration} holds the other half of what "
        "it has: confirm or revert it, or delete the instance.",
    ),
    r.ConfirmBegun: (
        409,
        "Cannot 'revertResize' instance {r.id}: its confirmation has begun to clean up the source, and did "
        "not come to its end. Confirm it again.",
    ),
    r.RevertBegun: (
        409,
        "Cannot 'confirmResize' instance {r.id}: it was being moved back or deleted, and that did not come "
        "to its end. Revert or delete it.",
    ),
    r.HostInAnotherCell: (
        400,
        "Cannot '{r.asked}' instance {r.id} to {r.host}: the instance is in {r.cell} and that host in "
        "{r.host_cell}, and a move does not leave its cell. Shelve the instance and unshelve it: then it may "
        "go to any cell.",
    ),
    r.HostNotDown: (409, "The host{host} is not down: evacuation is for servers of hosts that are."),
    r.HostIsDown: (
        409,
        "Cannot '{r.asked}': the host{host} is down. Wait until it is back, or evacuate.",
    ),
    r.HostLacksTraits: (
        400,
        "The image requires traits that the host{host} does not have: {traits}. The server stays on its "
        "host in a rebuild: choose another image, or move the server first.",
    ),
    r.HostUnfitForImage: (
        400,
        "The image needs {r.asked}, which the host{host} does not offer{found}. The server stays on its host "
        "in a rebuild: choose another image, or move the server first.",
    ),
    r.SameFlavor: (400, "The server has the flavor {r.flavor} already: when resizing, choose another."),
    r.MigrationNotFound: (404, "Migration {r.id} could not be found."),
    r.MigrationNotAbortable: (
        409,
        "Migration {r.id} is a {r.type} and {r.status}: only a live migration under way can be aborted.",
    ),
    r.HostUnknown: (
        400,
        "There is no host {r.name} with an agent: servers are built on hosts that have registered with a "
        "cell.",
    ),
    r.NeedNotFound: (404, "Server {r.server} has no need called {r.name}."),
    r.TooManyNeeds: (409, "Server {r.server} has {r.limit} needs already, and may not have more."),
    r.RecordMoved: (409, "{r.kind} {r.id} was changed by somebody else meanwhile: look, and ask again."),
}


def problem_of(rejection: Rejection, *, names_hosts: bool = True) -> ComputeProblem:
    """What was refused, as an answer; without hosts for callers that are not told of them."""
    found = SENTENCES.get(type(rejection))
    if found is None:
        known = native_problem(rejection, names_hosts=names_hosts)
        return ComputeProblem(known.status, known.detail)
    status, sentence = found
    words = {
        "host": f" {getattr(rejection, 'host', '')}" if names_hosts else "",
        "found": f": {rejection.found}" if names_hosts and isinstance(rejection, r.HostUnfitForImage) else "",
        "allowed": " or ".join(getattr(rejection, "allowed", ())) or "no state at all",
        "traits": ", ".join(getattr(rejection, "traits", ())),
        "then": then(rejection) if isinstance(rejection, r.ServerChangedByOthers) else "",
    }
    return ComputeProblem(status, sentence.format(r=rejection, **words))

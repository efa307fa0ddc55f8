"""How /berth/v1 says what the ledger refused: a status, a code and a sentence for every rejection.

Those that the Placement API knows too are told in its words.
"""

from typing import Final, NamedTuple

from berth.api.kernel.disclosure import is_no_place, no_place
from berth.api.native import errors
from berth.api.native.errors import NativeProblem
from berth.api.placement.errors import Attempt, problem_of
from berth.model import rejections as r
from berth.model.rejections import NoFit, Rejection, SpecInvalid, UnknownConsumer, UnknownHost


class _Row(NamedTuple):
    status: int
    code: str
    text: str


ROWS: Final[dict[type[Rejection], _Row]] = {
    r.QuotaExceeded: _Row(
        403,
        errors.QUOTA_EXCEEDED,
        "Quota exceeded for {names}: Requested {asked}, but already used {used} of {limits} {names}",
    ),
    r.ServerGroupsExceeded: _Row(
        403,
        errors.QUOTA_EXCEEDED,
        "Quota exceeded, too many server groups. The project may have {r.limit}.",
    ),
    r.ServerGroupMembersExceeded: _Row(
        403,
        errors.QUOTA_EXCEEDED,
        "Quota exceeded, too many servers in group {r.group}: it has {r.members}, {r.asked} more were asked "
        "for, and it may have {r.limit}.",
    ),
    r.MetadataQuotaExceeded: _Row(
        403,
        errors.QUOTA_EXCEEDED,
        "Maximum number of metadata items exceeds {r.limit}: this would be {r.asked}.",
    ),
    r.ImageQuotaExceeded: _Row(
        413,
        errors.QUOTA_EXCEEDED,
        "Resource {r.resource} is over limit of {r.limit} due to current usage {r.used} and delta {r.asked}.",
    ),
    r.ProviderNotFound: _Row(404, errors.NOT_FOUND, "There is no provider {r.provider}."),
    r.ResourceClassNotFound: _Row(400, errors.BAD_BODY, "There is no resource class {r.name}."),
    r.TraitsNotFound: _Row(400, errors.BAD_BODY, "There is no trait {names}."),
    r.ConsumerGenerationConflict: _Row(
        409, errors.CONFLICT, "Consumer {r.consumer} is there already: name one that is not, or name none."
    ),
    r.NotAHost: _Row(
        409,
        errors.CONFLICT,
        "Provider {r.provider} is not a host but stands below one: say it of {r.root}, the root of its tree.",
    ),
    r.LabelTaken: _Row(
        409,
        errors.CONFLICT,
        "The {r.kind} {r.name} is aggregate {r.holder} already: choose another name, or take it from there.",
    ),
    r.KindInUse: _Row(
        409,
        errors.CONFLICT,
        "This is the last {r.kind}, and groups are judged by it: {groups}. Delete them first, or label "
        "another.",
    ),
    r.GroupNotFound: _Row(404, errors.NOT_FOUND, "There is no group {r.group}."),
    r.GroupExists: _Row(409, errors.CONFLICT, "There is a group {r.group} already: choose another uuid."),
    r.GroupOfCluster: _Row(
        409,
        errors.CONFLICT,
        "Group {r.group} keeps the nodes of cluster {r.cluster} apart, and is the cluster's own: scale or "
        "delete the cluster.",
    ),
    r.GroupInUse: _Row(
        409,
        errors.CONFLICT,
        "Group {r.group} has {r.members} members: let them go first, or delete it with force=true.",
    ),
    r.GroupFull: _Row(
        409, errors.CONFLICT, "Group {r.group} would have more than the {r.members_max} members it may have."
    ),
    r.KindNotFound: _Row(
        400,
        errors.BAD_BODY,
        "No aggregate is a {r.kind}: label one with PUT /berth/v1/aggregates/{{uuid}} first, or use host.",
    ),
    r.GroupRuleUnsound: _Row(400, errors.BAD_BODY, "These do not go together: {r.reason}."),
    r.InAnotherGroup: _Row(
        409,
        errors.CONFLICT,
        "Consumer {r.consumer} is a member of group {r.group}, and may be of one only: let it go there "
        "first.",
    ),
    r.ServerNotFound: _Row(404, errors.NOT_FOUND, "There is no server {r.id}."),
    r.ServerBusy: _Row(
        409,
        errors.CONFLICT,
        "Cannot {r.asked} of server {r.id} while it is {r.task}: wait until that is over.",
    ),
    r.ServerUnsettled: _Row(
        409,
        errors.CONFLICT,
        "Cannot {r.asked} of server {r.id} while its migration {r.migration} holds the other half of what it "
        "has: confirm or revert the resize first.",
    ),
    r.ServerChangedByOthers: _Row(
        409,
        errors.CONFLICT,
        "Cannot {r.asked} of server {r.id}: another client has changed its allocations since they were last "
        "written ({r.found}). {then}",
    ),
    r.NeedNotFound: _Row(404, errors.NOT_FOUND, "Server {r.server} has no need called {r.name}."),
    r.TooManyNeeds: _Row(
        409, errors.CONFLICT, "Server {r.server} has {r.limit} needs already, and may not have more."
    ),
    r.NeedDoesNotFit: _Row(
        409,
        errors.NO_FIT,
        "The host {r.host} has no room for the need {r.name} of server {r.server}. {refused}",
    ),
    r.RecordMoved: _Row(
        409, errors.CONFLICT, "{r.kind} {r.id} was changed by somebody else meanwhile: look, and ask again."
    ),
    r.FindingGone: _Row(404, errors.NOT_FOUND, "There is nothing like {r.id} any more: examine again."),
    r.RepairUnsafe: _Row(409, errors.CONFLICT, "{r.id} is not for the doctor to repair: {r.reason}."),
    r.ClusterNotFound: _Row(404, errors.NOT_FOUND, "There is no cluster {r.id}."),
    r.ClusterExists: _Row(409, errors.CONFLICT, "There is a cluster {r.id} already: ask again."),
    r.ClusterBeingDeleted: _Row(
        409, errors.CONFLICT, "Cannot {r.asked} cluster {r.id}: it is being deleted. Create another."
    ),
    r.ClusterRatioFixed: _Row(409, errors.CONFLICT, "{r.sentence}"),
    r.ClusterDoesNotFit: _Row(
        409,
        errors.NO_FIT,
        "The cluster {r.name} does not fit: there is no place for its {r.nodes} new nodes together, at an "
        "anti-affinity ratio of {r.ratio} per {r.domain}. {advice} {why}",
    ),
    r.TooManyNodes: _Row(
        409,
        errors.CONFLICT,
        "The cluster would have {r.asked} nodes, those that are leaving included; {r.limit} are the most "
        "there can be: ask for fewer, or wait until those have left.",
    ),
    r.TooManyNodeGroups: _Row(
        409,
        errors.CONFLICT,
        "The cluster would have {r.asked} node groups; {r.limit} are the most there can be: remove some "
        "first.",
    ),
    r.NodeGroupNotFound: _Row(
        404, errors.NOT_FOUND, "Cluster {r.cluster} has no node group {r.name}; there are: {there}."
    ),
    r.NodeGroupExists: _Row(
        409,
        errors.CONFLICT,
        "Cluster {r.cluster} has a node group {r.name} already, or nodes of it are still leaving: choose "
        "another name, or wait until those have left.",
    ),
    r.NodeCountWrong: _Row(
        400, errors.BAD_BODY, "Node group {r.name} is to have {r.asked} nodes; it must be 0 or more."
    ),
    r.NodeNotFound: _Row(404, errors.NOT_FOUND, "Cluster {r.cluster} has no node {r.name}."),
    r.NodeLeaving: _Row(
        409,
        errors.CONFLICT,
        "Node {r.name} of cluster {r.cluster} is leaving, and is not replaced: scale up.",
    ),
    r.NodeNotFailed: _Row(
        409,
        errors.CONFLICT,
        "Nothing is wrong with node {r.name} of cluster {r.cluster}: its server is {r.state}, and its host "
        "is up. Ask with force to replace it all the same.",
    ),
    UnknownHost: _Row(
        400, errors.BAD_BODY, "The hint {r.hint} names {r.name}, and no host has that name or uuid."
    ),
    UnknownConsumer: _Row(
        400, errors.BAD_BODY, "The hint {r.hint} names consumer {r.consumer}, and that holds nothing."
    ),
    SpecInvalid: _Row(400, errors.BAD_BODY, "{r.key} is {r.value!r}; it must be {r.accepted}."),
    NoFit: _Row(409, errors.NO_FIT, "{r.needed} needed, {r.fitting} fit. {steps}"),
}

_STEPS_SHOWN_MAX: Final = 20


def problem(rejection: Rejection, *, names_hosts: bool = True) -> NativeProblem:
    """A rejection as an answer; without hosts for callers that are not told of them."""
    row = ROWS.get(type(rejection))
    if not names_hosts and is_no_place(rejection):
        return NativeProblem(409, errors.NO_FIT, no_place())
    if row is None:
        known = problem_of(rejection, Attempt.POST_ALLOCATIONS)
        code = known.code if known.code.startswith("berth.") else errors.CONFLICT
        return NativeProblem(known.status, code, known.text)
    words = _words(rejection, names_hosts=names_hosts)
    return NativeProblem(row.status, row.code, row.text.format(r=rejection, **words).rstrip())


def _words(rejection: Rejection, *, names_hosts: bool) -> dict[str, str]:
    """The parts of sentences that are more than a field."""
    match rejection:
        case r.ServerChangedByOthers():
            return {"then": then(rejection)}
        case r.QuotaExceeded():
            names, asked, used, limits = (
                ", ".join(str(part) for part in parts) for parts in zip(*rejection.over, strict=True)
            )
            return {"names": names, "asked": asked, "used": used, "limits": limits}
        case r.KindInUse():
            return {"groups": ", ".join(rejection.groups)}
        case r.TraitsNotFound():
            return {"names": ", ".join(rejection.names)}
        case NoFit():
            return {"steps": _steps(rejection)}
        case r.NodeGroupNotFound():
            return {"there": ", ".join(rejection.there) or "none"}
        case r.ClusterDoesNotFit():
            why = problem(rejection.why).detail if names_hosts else ""
            return {"advice": _ratio_advice(rejection), "why": why}
        case r.NeedDoesNotFit(refused=None):
            return {"refused": "No provider of it has as much free, or what is required of it."}
        case r.NeedDoesNotFit(refused=Rejection() as refused):
            return {"refused": problem(refused).detail}
        case _:
            return {}


def then(rejection: r.ServerChangedByOthers) -> str:
    """What can be done about allocations that another client has changed."""
    if rejection.is_recorded:
        return "This is recorded with the server. Send the request again to go on: what was added is kept."
    return (
        "It is refused until an administrator has repaired the server with berth doctor; or send the request "
        "with the header X-Berth-Conflict-Policy: retry or merge."
    )


def _ratio_advice(rejection: r.ClusterDoesNotFit) -> str:
    if rejection.fitting_ratio is not None:
        return f"A ratio of {rejection.fitting_ratio} would fit."
    return "Ask for fewer nodes or smaller ones, or add hosts."


def _steps(nothing: NoFit) -> str:
    """What each constraint left, and what the ledger said, if it came to that."""
    removing = [step for step in nothing.steps if step.removed][:_STEPS_SHOWN_MAX]
    said = [f"{step.asked}: {step.left} hosts left, {step.removed} less." for step in removing]
    if nothing.refused is not None:
        said.append(problem(nothing.refused).detail)
    if nothing.gave_up:
        said.append("Not every way was looked at: ask for fewer at once, or for fewer parts.")
    return " ".join(said) or "There are no hosts."

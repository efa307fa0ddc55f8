"""/berth/v1/groups: consumers that must, or should, share or avoid a domain."""

from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, render_keys, take_first
from berth.api.kernel.times import show_time
from berth.api.native.allocations import name_of_consumer
from berth.api.native.calls import NativeCall, NativeRoute, answer_from, change_found, respond
from berth.api.native.fields import (
    LIMIT_DEFAULT,
    GivenName,
    GivenUuid,
    KeyMarker,
    Kind,
    Limit,
    NativeBody,
    Next,
    Time,
    Uuid,
    read_consumers,
)
from berth.model import commands as c
from berth.model.groups import HOST, MEMBERS_MAX, Group, Policy
from berth.model.ids import GroupId
from berth.model.placement import SHARES_VIA_AGGREGATE
from berth.model.rejections import GroupNotFound, Rejection
from berth.sagas.proposals import delete_group as propose_deletion
from berth.view import View
from berth.view.groups import GroupRecord

# -- answers ------------------------------------------------------------------------------------


class Standing(msgspec.Struct):
    """A host that a member holds resources on, and the domains of the group's kind that the host is in."""

    host_uuid: Uuid
    host_name: str
    domains: list[str]


class Member(msgspec.Struct):
    """``stands_for`` is the consumer itself, or the server that this migration moves. ``name`` is that of the
    server; null for one that is no server here. ``standing`` is empty for a member that holds nothing yet."""

    consumer_uuid: Uuid
    name: str | None
    stands_for: Uuid
    standing: list[Standing]


class DomainCount(msgspec.Struct):
    """How many members a domain has; a server and its migration count once."""

    domain: str
    name: str
    members: int


class GroupSummary(msgspec.Struct):
    uuid: Uuid
    name: str
    policy: Policy
    domain: str
    max_per_domain: int | None
    max_skew: int | None
    project_id: str
    user_id: str
    created_at: Time
    member_count: int


class GroupsPage(msgspec.Struct):
    """A page of groups, in the order of their uuids."""

    groups: list[GroupSummary]
    next: Next = None


class GroupDetail(GroupSummary):
    """``domains`` are those that have members, ``domains_total`` is how many there are of the kind."""

    members: list[Member]
    domains: list[DomainCount]
    domains_total: int


class OneGroup(msgspec.Struct):
    group: GroupDetail


# -- bodies and queries -------------------------------------------------------------------------

_PER_DOMAIN_MAX: Final = MEMBERS_MAX
GivenPolicy = Annotated[
    Policy, Meta(description="Members share a domain or avoid it: they must, or with `soft-` they should.")
]
PerDomain = Annotated[int, Meta(ge=1, le=_PER_DOMAIN_MAX, description="How many members may share a domain.")]
Skew = Annotated[
    int,
    Meta(
        ge=1,
        le=_PER_DOMAIN_MAX,
        description="How many more members one domain may have than the emptiest of its kind.",
    ),
]
Members = Annotated[
    tuple[GivenUuid, ...], Meta(max_length=MEMBERS_MAX, description="Consumers, by their uuids.")
]


class NewGroup(NativeBody, frozen=True, kw_only=True):
    """``max_per_domain`` is 1 for a policy that keeps members apart, unless it or ``max_skew`` is given."""

    name: GivenName
    policy: GivenPolicy
    uuid: GivenUuid | None = None
    domain: Kind = HOST
    max_per_domain: PerDomain | UnsetType | None = UNSET
    max_skew: Skew | None = None
    members: Members = ()


class CreateGroupBody(NativeBody, frozen=True, kw_only=True):
    group: NewGroup


class ChangedGroup(NativeBody, frozen=True, kw_only=True):
    """What is left out stays as it is."""

    name: GivenName | UnsetType = UNSET
    policy: GivenPolicy | UnsetType = UNSET
    max_per_domain: PerDomain | UnsetType | None = UNSET
    max_skew: Skew | UnsetType | None = UNSET


class ChangeGroupBody(NativeBody, frozen=True, kw_only=True):
    group: ChangedGroup


class ChangeMembersBody(NativeBody, frozen=True, kw_only=True):
    """Consumers that become members, and members that leave."""

    add: Members = ()
    remove: Members = ()


OfProject = Annotated[str, Meta(min_length=1, max_length=255, description="Only groups of this project.")]
Force = Annotated[Literal["true", "false"], Meta(description="`true`: delete it even if it has members.")]


class GroupsQuery(msgspec.Struct, frozen=True, kw_only=True):
    project: OfProject | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


class DeleteGroupQuery(msgspec.Struct, frozen=True, kw_only=True):
    force: Force = "false"


# -- handlers -----------------------------------------------------------------------------------


def list_groups(view: View, call: NativeCall) -> GroupsPage:
    query: GroupsQuery = call.query
    records = view.groups.records
    ids = (
        id
        for id, record in records.items()
        if query.project in (None, record.group.project) and call.may_touch(record.group.project)
    )
    found, more = take_first(behind(ids, query.marker), query.limit)
    return GroupsPage(*render_keys(call.request, query, found, more, lambda id: _summarize(records[id])))


def show_group(view: View, call: NativeCall) -> OneGroup:
    return OneGroup(_describe(view, call.accept(_find_group(view, call))))


async def create_group(call: NativeCall) -> Response:
    asked: NewGroup = call.body.group
    id = GroupId((asked.uuid or call.services.ids.uuid()).lower())
    limit = asked.max_per_domain
    if isinstance(limit, msgspec.UnsetType):
        is_apart = asked.policy.endswith("anti-affinity")
        limit = 1 if is_apart and asked.max_skew is None else None
    group = Group(
        asked.name,
        asked.policy,
        asked.domain,
        limit,
        asked.max_skew,
        call.caller.project_id or "",
        call.caller.user_id or "",
        0,
    )
    command = c.CreateGroup(id, group, read_consumers(asked.members))
    response = await call.submit(_judge_quotas(call, command), lambda view: _respond(view, id, 201))
    response.headers.append(("location", f"{call.request.path}/{id}"))
    return response


async def change_group(call: NativeCall) -> Response:
    asked: ChangedGroup = call.body.group
    return await call.submit(
        change_found(
            call,
            _find_group,
            lambda view, _, group: c.ChangeGroup(
                group.id, asked.name, asked.policy, asked.max_per_domain, asked.max_skew
            ),
        ),
        lambda view: _respond(view, _read_id(call)),
    )


async def delete_group(call: NativeCall) -> Response:
    query: DeleteGroupQuery = call.query
    is_forced = query.force == "true"
    return await call.submit(
        change_found(
            call, _find_group, lambda view, _, group: propose_deletion(view, group.id, is_forced=is_forced)
        ),
        lambda _: Response(204),
    )


async def change_members(call: NativeCall) -> Response:
    asked: ChangeMembersBody = call.body
    add, remove = read_consumers(asked.add), read_consumers(asked.remove)
    return await call.submit(
        change_found(
            call,
            _find_group,
            lambda view, _, group: _judge_quotas(call, c.ChangeMembers(group.id, add, remove)),
        ),
        lambda view: _respond(view, _read_id(call)),
    )


def _judge_quotas(call: NativeCall, command: c.LedgerCommand) -> c.Enact:
    return c.Enact((), (command,), quotas=call.quotas_judged)


def _read_id(call: NativeCall) -> GroupId:
    return GroupId(call.params[0].lower())


def _find_group(view: View, call: NativeCall) -> GroupRecord | Rejection:
    """The group of the path, if there is one for the caller."""
    record = view.groups.records.get(_read_id(call))
    if record is None or not call.may_touch(record.group.project):
        return GroupNotFound(_read_id(call))
    return record


def _respond(view: View, id: GroupId, status: int = 200) -> Response:
    return respond(OneGroup(_describe(view, view.groups.records[id])), status)


def _summarize(record: GroupRecord) -> GroupSummary:
    group = record.group
    return GroupSummary(
        record.id,
        group.name,
        group.policy,
        group.domain,
        group.max_per_domain,
        group.max_skew,
        group.project,
        group.user,
        show_time(group.created_at_s),
        len(record.members),
    )


def _describe(view: View, record: GroupRecord) -> GroupDetail:
    summary = msgspec.structs.asdict(_summarize(record))
    return GroupDetail(
        **summary,
        members=_list_members(view, record),
        domains=_count_domains(view, record),
        domains_total=_count_all_domains(view, record.group.domain),
    )


def _list_members(view: View, record: GroupRecord) -> list[Member]:
    found = []
    for id, stands_for in sorted(record.members.items()):
        consumer = view.consumers.get(id)
        hosts = view.hosts_held(consumer.held) if consumer is not None else []
        standing = [
            Standing(host.id, host.name, list(view.groups.domains_of(host, record.group.domain)))
            for host in hosts
        ]
        found.append(Member(id, name_of_consumer(view, id), stands_for, standing))
    return found


def _count_domains(view: View, record: GroupRecord) -> list[DomainCount]:
    groups = view.groups
    return [
        DomainCount(domain, groups.domain_name(domain, record.hosts), len(members))
        for domain, members in sorted(groups.standing(record).items())
    ]


def _count_all_domains(view: View, kind: str) -> int:
    if kind != HOST:
        return len(list(view.groups.of_kind(kind)))
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    view.steps.take(len(sharing))
    return int(np.count_nonzero(view.roots())) - sum(view.is_pool(view.record(row)) for row in sharing)


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/groups",
        answer_from(list_groups),
        policy="berth:groups:list",
        name="list_groups",
        query=GroupsQuery,
        answer=GroupsPage,
        summary="List groups",
        description="Groups in the order of their uuids.",
    ),
    NativeRoute(
        "POST",
        "/groups",
        create_group,
        policy="berth:groups:create",
        name="create_group",
        body=CreateGroupBody,
        example={"group": {"name": "database", "policy": "anti-affinity", "domain": "rack"}},
        answer=OneGroup,
        status=201,
        summary="Create a group",
        description="A hard policy (`affinity`, `anti-affinity`) is judged in every claim, whichever API it "
        "comes through; a soft one is a weight in the choice of a host. Members may be declared here, later, "
        "or with their claim.",
    ),
    NativeRoute(
        "GET",
        "/groups/{group}",
        answer_from(show_group),
        policy="berth:groups:show",
        name="show_group",
        answer=OneGroup,
        summary="Show a group",
        description="Its members, the hosts of each, and the number of members in each domain.",
    ),
    NativeRoute(
        "PATCH",
        "/groups/{group}",
        change_group,
        policy="berth:groups:update",
        name="change_group",
        body=ChangeGroupBody,
        example={"group": {"max_per_domain": 2}},
        answer=OneGroup,
        summary="Rename a group, or change its rule",
        description="Refused with 409 if members break the new policy.",
    ),
    NativeRoute(
        "DELETE",
        "/groups/{group}",
        delete_group,
        policy="berth:groups:delete",
        name="delete_group",
        query=DeleteGroupQuery,
        status=204,
        summary="Delete a group",
        description="Refused with 409 while it has members, unless forced.",
    ),
    NativeRoute(
        "POST",
        "/groups/{group}/members",
        change_members,
        policy="berth:groups:update",
        name="change_members",
        body=ChangeMembersBody,
        example={"add": ["5a8f6d1e-4c1b-4c57-9d2b-0f1c2d3e4f50"]},
        answer=OneGroup,
        summary="Add and remove members",
        description="Consumers need not hold anything yet. Those that do must comply with the policy.",
    ),
)

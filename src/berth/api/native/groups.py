"""/berth/v1/groups: who must, or should, share or avoid a domain."""

from typing import Final

import msgspec

from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, cut, shown_page
from berth.api.kernel.rejections import berth_problem
from berth.api.kernel.times import show_time
from berth.api.native import bodies, wire_groups
from berth.api.native.calls import NativeCall, NativeRoute, encoded, listing
from berth.api.native.parameters import DeleteGroupQuery, GroupsQuery
from berth.model import commands as c
from berth.model.groups import Group
from berth.model.ids import GroupId
from berth.model.rejections import GroupNotFound
from berth.sagas.groups import delete_group
from berth.view import View
from berth.view.groups import GroupRecord


def page(view: View, call: NativeCall) -> wire_groups.Groups:
    query: GroupsQuery = call.query
    records = view.groups.records
    ids = (
        id
        for id, record in records.items()
        if query.project in (None, record.group.project) and call.may_touch(record.group.project)
    )
    found, more = cut(behind(ids, query.marker), query.limit)
    return wire_groups.Groups(*shown_page(call.request, query, found, more, lambda id: _summary(records[id])))


def show(view: View, call: NativeCall) -> wire_groups.OneGroup:
    return wire_groups.OneGroup(_whole(view, _found(view, call)))


async def create(call: NativeCall) -> Response:
    asked: bodies.NewGroup = call.body.group
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
    command = c.CreateGroup(id, group, bodies.consumers_of(asked.members))
    response = await call.submit(_within_quotas(call, command), lambda view: _answer(view, id, 201))
    response.headers.append(("location", f"{call.request.path}/{id}"))
    return response


async def change(call: NativeCall) -> Response:
    asked: bodies.ChangedGroup = call.body.group

    def propose(view: View, now_s: int) -> c.Command:
        id = _found(view, call).id
        return c.ChangeGroup(id, asked.name, asked.policy, asked.max_per_domain, asked.max_skew)

    return await call.submit(propose, lambda view: _answer(view, _id(call)))


async def delete(call: NativeCall) -> Response:
    query: DeleteGroupQuery = call.query
    is_forced = query.force == "true"
    return await call.submit(
        lambda view, _: delete_group(view, _found(view, call).id, is_forced=is_forced),
        lambda _: Response(204),
    )


async def change_members(call: NativeCall) -> Response:
    asked: bodies.ChangeMembers = call.body
    add, remove = bodies.consumers_of(asked.add), bodies.consumers_of(asked.remove)
    return await call.submit(
        lambda view, _: _within_quotas(call, c.ChangeMembers(_found(view, call).id, add, remove)),
        lambda view: _answer(view, _id(call)),
    )


def _within_quotas(call: NativeCall, command: c.LedgerCommand) -> c.Enact:
    return c.Enact((), (command,), quotas=call.quotas_judged)


def _id(call: NativeCall) -> GroupId:
    return GroupId(call.params[0].lower())


def _found(view: View, call: NativeCall) -> GroupRecord:
    """The group of the path, if there is one for the caller."""
    record = view.groups.records.get(_id(call))
    if record is None or not call.may_touch(record.group.project):
        raise berth_problem(GroupNotFound(_id(call)))
    return record


def _answer(view: View, id: GroupId, status: int = 200) -> Response:
    return encoded(wire_groups.OneGroup(_whole(view, view.groups.records[id])), status)


def _summary(record: GroupRecord) -> wire_groups.GroupSummary:
    group = record.group
    return wire_groups.GroupSummary(
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


def _whole(view: View, record: GroupRecord) -> wire_groups.Group:
    summary = msgspec.structs.asdict(_summary(record))
    return wire_groups.Group(**summary, members=_members(view, record), domains=_domains(view, record))


def _members(view: View, record: GroupRecord) -> list[wire_groups.Member]:
    found = []
    for id, stands_for in sorted(record.members.items()):
        consumer = view.consumers.get(id)
        hosts = view.hosts_held(consumer.held) if consumer is not None else []
        standing = [
            wire_groups.Standing(host.id, host.name, list(view.groups.domains_of(host, record.group.domain)))
            for host in hosts
        ]
        found.append(wire_groups.Member(id, stands_for, standing))
    return found


def _domains(view: View, record: GroupRecord) -> list[wire_groups.DomainCount]:
    groups = view.groups
    return [
        wire_groups.DomainCount(domain, groups.domain_name(domain, record.hosts), len(members))
        for domain, members in sorted(groups.standing(record).items())
    ]


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/groups",
        listing(page),
        policy="berth:groups:list",
        name="list_groups",
        query=GroupsQuery,
        answer=wire_groups.Groups,
        summary="List groups",
        description="Groups in the order of their uuids.",
    ),
    NativeRoute(
        "POST",
        "/groups",
        create,
        policy="berth:groups:create",
        name="create_group",
        body=bodies.CreateGroup,
        answer=wire_groups.OneGroup,
        status=201,
        summary="Create a group",
        description="A hard policy (`affinity`, `anti-affinity`) is judged in every claim, through "
        "whichever API it comes; a soft one weighs when a host is chosen. Members may be declared here, "
        "later, or with their claim.",
    ),
    NativeRoute(
        "GET",
        "/groups/{group}",
        listing(show),
        policy="berth:groups:show",
        name="show_group",
        answer=wire_groups.OneGroup,
        summary="Show a group",
        description="Its members, where each stands, and how many each domain has.",
    ),
    NativeRoute(
        "PATCH",
        "/groups/{group}",
        change,
        policy="berth:groups:update",
        name="change_group",
        body=bodies.ChangeGroup,
        answer=wire_groups.OneGroup,
        summary="Rename a group, or change its rule",
        description="Refused with 409 if members stand where the new rule would not let them.",
    ),
    NativeRoute(
        "DELETE",
        "/groups/{group}",
        delete,
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
        body=bodies.ChangeMembers,
        answer=wire_groups.OneGroup,
        summary="Declare members, and let members go",
        description="Consumers need not hold anything yet. Those that do are judged by where they stand.",
    ),
)

"""/os-server-groups: the ledger's groups, as Nova shows them.

A group that is made here keeps servers on one host or apart from host to host. Those made with /berth/v1 are
shown too, whatever their domain is.
"""

from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import (
    read_flag,
    read_limit,
    read_number,
    read_parameter,
    read_query,
    render_page,
)
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.model.commands import Command, CreateGroup, Enact
from berth.model.groups import HOST, MEMBERS_MAX, Group, Policy
from berth.model.ids import GroupId
from berth.model.rejections import GroupNotFound, Rejection
from berth.model.servers import Server
from berth.sagas.proposals import delete_group
from berth.view import View
from berth.view.groups import GroupRecord

_OWNERS: Final = 13
"""From this microversion on a group shows its project and user."""
_SOFT: Final = 15
_RULES: Final = 64
"""From this microversion on a group has one policy, and may have rules for it."""

QUERY: Final = {"all_projects": 1, "limit": 1, "offset": 1}
_POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
_APART: Final = "anti-affinity"


class ServerGroupRules(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    max_server_per_host: int | str | None = None


class NewServerGroup(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    policies: Annotated[tuple[str, ...], Meta(max_length=10)] | None = None
    policy: str | None = None
    rules: ServerGroupRules | None = None


class ServerGroupBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    server_group: NewServerGroup


async def list_server_groups(call: Call) -> Response:
    query = read_query(call, "server groups", QUERY)
    limit, offset = read_limit(query), read_parameter(query, "offset", 0)
    everybody = read_flag(query, "all_projects")
    if everybody:
        call.require("os_compute_api:os-server-groups:index:all_projects")

    def answer(view: View) -> Response:
        records = [
            record
            for record in view.groups.records.values()
            if everybody or record.group.project == call.project
        ]
        records.sort(key=lambda record: (record.group.created_at_s, record.id))
        shown = render_page(records[offset : offset + limit], lambda record: _show_whole(call, view, record))
        return json({"server_groups": shown})

    return await call.read(answer)


async def show_server_group(call: Call) -> Response:
    # Some clients send this with an id, too. It names one group, of whichever project.
    read_query(call, "a server group", {"all_projects": 1})
    return await call.read(
        lambda view: json({"server_group": _show_whole(call, view, call.accept(_find_group(view, call)))})
    )


async def create_server_group(call: Call) -> Response:
    asked = call.decode(ServerGroupBody).server_group
    id = GroupId(call.services.ids.uuid())
    policy = _read_policy(call, asked)
    limit = _read_limit(asked, policy)
    group = Group(asked.name, policy, HOST, limit, None, call.project, call.user, 0)
    return await call.submit(
        Enact((), (CreateGroup(id, group),), quotas=call.quotas),
        lambda view: json({"server_group": _show_whole(call, view, view.groups.records[id])}),
    )


async def delete_server_group(call: Call) -> Response:
    def propose(view: View, now_s: int) -> Command | Rejection:
        group = _find_group(view, call)
        return group if isinstance(group, Rejection) else delete_group(view, group.id, is_forced=True)

    return await call.submit(propose, lambda view: Response(204))


def _find_group(view: View, call: Call) -> GroupRecord | Rejection:
    id = call.params[0]
    record = view.groups.records.get(GroupId(id.lower()))
    if record is None or not call.access.sees(record.group.project):
        return GroupNotFound(GroupId(id))
    return call.find_forbidden(record.group.project or call.project) or record


def _read_policy(call: Call, asked: NewServerGroup) -> Policy:
    if call.version >= _RULES:
        if asked.policies is not None:
            raise Problem(400, f"From microversion 2.{_RULES} on a group has policy, not policies.")
        name = asked.policy
    else:
        if asked.policy is not None or asked.rules is not None:
            raise Problem(400, f"policy and rules are for microversion 2.{_RULES} and later.")
        if asked.policies is None or len(asked.policies) != 1:
            raise Problem(400, "policies must be a list of one policy.")
        [name] = asked.policies
    known = [policy for policy in _POLICIES if call.version >= _SOFT or not policy.startswith("soft-")]
    for policy in known:
        if policy == name:
            return policy
    raise Problem(400, f"The policy is {name!r}; it must be one of {', '.join(known)}.")


def _read_limit(asked: NewServerGroup, policy: Policy) -> int | None:
    given = asked.rules.max_server_per_host if asked.rules is not None else None
    if given is None:
        return 1 if policy.endswith(_APART) else None
    if policy != _APART:
        raise Problem(
            400, f"max_server_per_host is for the policy {_APART}; this group has {policy}: leave it out."
        )
    return read_number("max_server_per_host", given, 1, MEMBERS_MAX)


def _show_whole(call: Call, view: View, record: GroupRecord) -> dict[str, Any]:
    group = record.group
    shown: dict[str, Any] = {"id": record.id, "name": group.name, "members": _list_members(view, record)}
    if call.version >= _RULES:
        is_limited = group.policy == _APART and group.max_per_domain is not None
        rules = {"max_server_per_host": group.max_per_domain} if is_limited else {}
        shown |= {"policy": group.policy, "rules": rules}
    else:
        shown |= {"policies": [group.policy], "metadata": {}}
    if call.version >= _OWNERS:
        shown |= {"project_id": group.project, "user_id": group.user}
    return shown


def _list_members(view: View, record: GroupRecord) -> list[str]:
    """The servers in a group. A migration is a member too, for the server that it moves: it is not shown."""
    return [
        id
        for id, stands_for in record.members.items()
        if id == stands_for and view.records.get(Server, id) is not None
    ]


ROUTES: Final = (
    Route("GET", "/os-server-groups", list_server_groups, policy="os_compute_api:os-server-groups:index"),
    Route("POST", "/os-server-groups", create_server_group, policy="os_compute_api:os-server-groups:create"),
    Route("GET", "/os-server-groups/{id}", show_server_group, policy="os_compute_api:os-server-groups:show"),
    Route(
        "DELETE",
        "/os-server-groups/{id}",
        delete_server_group,
        policy="os_compute_api:os-server-groups:delete",
    ),
)

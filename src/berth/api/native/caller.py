"""GET /berth/v1/caller: who the caller is, and which rules of the policy allow it in.

A client that shows what can be done, such as the console, asks here and offers nothing that would be refused.
The rules are judged for the caller's own project; those of objects may still refuse another project's.
"""

from typing import Final

import msgspec

from berth.api.kernel.auth.rules import GUARDS, IS_ADMIN
from berth.api.kernel.http import Response
from berth.api.native.calls import NativeCall, NativeRoute, respond


class CallerDetail(msgspec.Struct):
    """``rules``: the names of the rules that allow the caller in, in the order of the alphabet."""

    user_id: str | None
    project_id: str | None
    roles: list[str]
    is_admin: bool
    rules: list[str]


async def show_caller(call: NativeCall) -> Response:
    caller, policy = call.caller, call.services.policy
    rules = sorted(rule.name for rule in GUARDS if policy.allows(rule.name, caller))
    is_admin = policy.allows(IS_ADMIN, caller)
    return respond(CallerDetail(caller.user_id, caller.project_id, list(caller.roles), is_admin, rules))


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/caller",
        show_caller,
        policy="berth:caller:show",
        name="show_caller",
        answer=CallerDetail,
        is_tagged=False,
        summary="Show who is calling",
        description="The user, project and roles of the token, and the rules of the policy that allow the "
        "caller in. Everybody with a role may ask.",
    ),
)

"""noauth: what a token and the headers beside it make of a caller."""

import pytest

from berth.api.kernel.auth.caller import Caller, NoAuth

pytestmark = pytest.mark.fast

ALL = ("admin", "manager", "member", "reader")
MEMBER = ("member", "reader")


@pytest.mark.parametrize(
    ("headers", "caller"),
    [
        ({}, None),
        ({"x-auth-token": "admin"}, Caller("admin", "admin", ALL)),
        ({"x-auth-token": "admin:p"}, Caller("admin", "p", ALL)),
        ({"x-auth-token": "user"}, Caller("user", "user", MEMBER)),
        ({"x-auth-token": "user", "x-roles": "reader, member"}, Caller("user", "user", ("reader", "member"))),
        ({"x-auth-token": "user", "x-roles": "manager"}, Caller("user", "user", ("manager", *MEMBER))),
        ({"x-auth-token": "user", "x-roles": "service"}, Caller("user", "user", ("service",))),
        ({"x-auth-token": "admin", "x-roles": ""}, Caller("admin", "admin", ())),
        ({"x-auth-token": "user:p", "x-project-id": "q"}, Caller("user", "q", MEMBER)),
        ({"x-auth-token": "user:p", "x-tenant-id": "q"}, Caller("user", "p", MEMBER)),
        (
            {"x-auth-token": "admin", "openstack-system-scope": "all"},
            Caller("admin", None, ALL, system_scope="all"),
        ),
        (
            {"x-auth-token": "admin", "openstack-system-scope": "all", "x-project-id": "q"},
            Caller("admin", "q", ALL, system_scope="all"),
        ),
        (
            {"x-auth-token": "admin", "openstack-system-scope": "all", "x-tenant-id": "q"},
            Caller("admin", "q", ALL, system_scope="all"),
        ),
    ],
)
async def test_a_caller_is_what_its_headers_say(headers: dict[str, str], caller: Caller | None) -> None:
    assert await NoAuth().identify(headers) == caller

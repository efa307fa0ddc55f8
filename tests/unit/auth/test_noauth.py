"""noauth: what a token and the headers beside it make of a caller."""

import asyncio

import pytest

from berth.api.auth.caller import Caller
from berth.api.auth.noauth import NoAuth

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("headers", "caller"),
    [
        ({}, None),
        ({"x-auth-token": "admin"}, Caller("admin", "admin", ("admin",))),
        ({"x-auth-token": "admin:p"}, Caller("admin", "p", ("admin",))),
        ({"x-auth-token": "user"}, Caller("user", "user", ())),
        ({"x-auth-token": "user", "x-roles": "reader, member"}, Caller("user", "user", ("reader", "member"))),
        ({"x-auth-token": "admin", "x-roles": ""}, Caller("admin", "admin", ())),
        ({"x-auth-token": "user:p", "x-project-id": "q"}, Caller("user", "q", ())),
        ({"x-auth-token": "user:p", "x-tenant-id": "q"}, Caller("user", "p", ())),
        (
            {"x-auth-token": "admin", "openstack-system-scope": "all"},
            Caller("admin", None, ("admin",), system_scope="all"),
        ),
        (
            {"x-auth-token": "admin", "openstack-system-scope": "all", "x-project-id": "q"},
            Caller("admin", "q", ("admin",), system_scope="all"),
        ),
        (
            {"x-auth-token": "admin", "openstack-system-scope": "all", "x-tenant-id": "q"},
            Caller("admin", "q", ("admin",), system_scope="all"),
        ),
    ],
)
def test_callers(headers: dict[str, str], caller: Caller | None) -> None:
    assert asyncio.run(NoAuth().identify(headers)) == caller

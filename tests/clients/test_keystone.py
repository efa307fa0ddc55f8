"""Berth behind OpenStack Keystone itself: whose tokens are let in, to which API, and for how long.

The part that every test run has; ``make test-keystone`` has the rest (tests/keystone)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.keystone_regions import region_behind
from tests.real_keystone import PASSWORD, RealKeystone, ask, running_keystone
from tests.servers import ServerProcess
from tests.waiting import WITHIN_S

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("keystone")]

SYSTEM = {"system": {"all": True}}
DOMAIN = {"domain": {"id": "default"}}


@pytest.fixture(scope="module")
def keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKeystone]:
    with running_keystone(tmp_path_factory.mktemp("keystone")) as keystone:
        yield keystone


@pytest.fixture(scope="module")
def region(keystone: RealKeystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with region_behind(keystone, tmp_path_factory.mktemp("region")) as region:
        yield region


def statuses(region: ServerProcess, token: str | None) -> list[int]:
    """How Placement, the native and the compute API answer who only looks."""
    paths = ("/resource_providers", "/berth/v1/cells", "/compute/v2.1/servers")
    return [ask("GET", f"{region.url}{path}", token).status for path in paths]


def wait_until_refused(region: ServerProcess, token: str) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while ask("GET", f"{region.url}/resource_providers", token).status != 401:
        assert time.monotonic() < deadline_s, "the token is still believed"
        time.sleep(0.1)


def test_each_role_is_let_in_where_its_rules_say(keystone: RealKeystone, region: ServerProcess) -> None:
    expected = {
        ("admin",): [200, 200, 200],
        ("service",): [200, 200, 403],
        ("member",): [403, 403, 200],
        ("reader",): [403, 403, 200],
    }
    found = {roles: statuses(region, keystone.log_in(keystone.add_person(*roles))) for roles in expected}
    assert found == expected
    assert statuses(region, None) == [401] * 3
    assert statuses(region, "gAAAAABnobody") == [401] * 3


def test_tokens_without_a_project_get_nothing(keystone: RealKeystone, region: ServerProcess) -> None:
    for scope in (SYSTEM, "unscoped"):
        assert statuses(region, keystone.log_in_as_admin(scope)) == [403] * 3


def test_a_reader_may_not_write_and_a_member_may_not_see_others(
    keystone: RealKeystone, region: ServerProcess
) -> None:
    reader = keystone.log_in(keystone.add_person("reader"))
    group = {"server_group": {"name": "apart", "policies": ["anti-affinity"]}}
    path = f"{region.url}/compute/v2.1/os-server-groups"
    assert ask("POST", path, reader, group).status == 403
    made = ask("POST", path, keystone.log_in(keystone.add_person("member")), group)
    assert made.status == 200, made
    other = keystone.log_in(keystone.add_person("member"))
    assert ask("GET", f"{path}/{made.body['server_group']['id']}", other).status == 404


def test_a_token_that_is_revoked_is_refused_once_it_is_not_cached_any_more(
    keystone: RealKeystone, region: ServerProcess
) -> None:
    token = keystone.log_in(keystone.add_person("admin"))
    assert statuses(region, token) == [200, 200, 200]
    keystone.revoke(token)
    wait_until_refused(region, token)


def test_an_application_credential_has_the_roles_that_it_was_given(
    keystone: RealKeystone, region: ServerProcess
) -> None:
    person = keystone.add_person("admin", "reader")
    own = keystone.log_in(person)
    path = f"users/{person.id}/application_credentials"
    credential = keystone.make(
        path, "application_credential", {"name": "look", "roles": [{"name": "reader"}]}, own
    )
    token = keystone.log_in_by_credential(credential)
    assert statuses(region, token) == [403, 403, 200]
    assert ask("DELETE", f"{keystone.url}/{path}/{credential['id']}", own).status == 204
    wait_until_refused(region, token)


def test_an_application_credential_with_access_rules_is_refused(
    keystone: RealKeystone, region: ServerProcess
) -> None:
    """Berth does not know such rules, so a token that they restrict must not get more than they allow."""
    person = keystone.add_person("admin")
    rules = [{"service": "placement", "method": "GET", "path": "/usages"}]
    credential = keystone.make(
        f"users/{person.id}/application_credentials",
        "application_credential",
        {"name": "usages", "access_rules": rules},
        keystone.log_in(person),
    )
    assert statuses(region, keystone.log_in_by_credential(credential)) == [401] * 3


def test_a_wrong_password_of_our_own_is_told_at_the_start(keystone: RealKeystone, tmp_path: Path) -> None:
    with region_behind(keystone, tmp_path, password=f"not {PASSWORD}") as region:
        deadline_s = time.monotonic() + WITHIN_S
        while "Keystone rejects Berth's own user and password" not in region.log:
            assert time.monotonic() < deadline_s, region.log
            time.sleep(0.05)
        answer = ask("GET", f"{region.url}/resource_providers", keystone.admin)
        assert answer.status == 503
        assert "Keystone rejects Berth's own user and password" in str(answer.body)
        assert int(answer.headers["retry-after"]) > 0

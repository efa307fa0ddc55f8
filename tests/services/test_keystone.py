"""Berth and OpenStack Keystone itself, where that takes longer: ``make test-keystone``. Tokens that expire,
services that act for users, a Keystone that goes away and comes back, and the client that all use."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.keystone_regions import region_behind
from tests.real_keystone import PASSWORD, RealKeystone, Reply, ask, running_keystone
from tests.servers import ServerProcess
from tests.waiting import WITHIN_S
from tests.warm_start import COMMANDS

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

START_S = 240


@pytest.fixture(scope="module")
def keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKeystone]:
    with running_keystone(tmp_path_factory.mktemp("keystone")) as keystone:
        yield keystone


@pytest.fixture(scope="module")
def region(keystone: RealKeystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with region_behind(keystone, tmp_path_factory.mktemp("region")) as region:
        yield region


def look(region: ServerProcess, token: str, **headers: str) -> Reply:
    return ask("GET", f"{region.url}/compute/v2.1/servers", token, **headers)


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


# -- expiry -------------------------------------------------------------------------------------


def test_a_token_of_a_trust_is_believed_until_the_trust_expires(
    keystone: RealKeystone, region: ServerProcess
) -> None:
    """However long tokens are cached."""
    trustor, trustee = keystone.add_person("member"), keystone.add_person("member")
    expires_at = datetime.now(UTC) + timedelta(seconds=20)
    trust = keystone.make(
        "OS-TRUST/trusts",
        "trust",
        {
            "trustor_user_id": trustor.id,
            "trustee_user_id": trustee.id,
            "project_id": trustor.project,
            "impersonation": False,
            "roles": [{"name": "member"}],
            "expires_at": expires_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
        keystone.log_in(trustor),
    )
    token = keystone.log_in(trustee, {"OS-TRUST:trust": {"id": trust["id"]}})
    assert look(region, token).status == 200
    group = {"server_group": {"name": "of a trust", "policies": ["affinity"]}}
    made = ask(
        "POST",
        f"{region.url}/compute/v2.1/os-server-groups",
        token,
        group,
        x_openstack_nova_api_version="2.13",
    )
    assert made.body["server_group"]["project_id"] == trustor.project
    wait_for(lambda: look(region, token).status == 401, "the trust has expired, and its token is believed")
    assert datetime.now(UTC) >= expires_at - timedelta(seconds=1)


def test_a_service_may_act_for_a_user_whose_token_has_expired(
    keystone: RealKeystone, region: ServerProcess
) -> None:
    user = keystone.add_person("member")
    expired = keystone.issue_expired(user)
    assert look(region, expired).status == 401
    service = keystone.log_in(keystone.add_person("service"))
    assert look(region, expired, x_service_token=service).status == 200
    # Whose role it is not, or who is nobody, cannot.
    member = keystone.log_in(keystone.add_person("member"))
    assert look(region, expired, x_service_token=member).status == 401
    fresh = keystone.log_in(user)
    assert look(region, fresh, x_service_token=member).status == 200
    assert look(region, fresh, x_service_token="nobody").status == 401


# -- Keystone goes away -------------------------------------------------------------------------


def test_a_keystone_that_goes_away_and_comes_back(
    keystone: RealKeystone, tmp_path_factory: pytest.TempPathFactory
) -> None:
    person = keystone.add_person("member")
    known, other = keystone.log_in(person), keystone.log_in(keystone.add_person("member"))
    folder = tmp_path_factory.mktemp("away")
    cached = ("--keystone-cache-seconds", "3600", "--keystone-timeout-seconds", "5")
    with region_behind(keystone, folder, *cached) as region:
        assert look(region, known).status == 200
        keystone.process.kill()
        with contextlib.ExitStack() as stack:
            stack.callback(keystone.process.start, START_S)
            # Whom it has confirmed goes on working; nobody else is let in, or told to be unknown.
            assert look(region, known).status == 200
            refused = look(region, other)
            assert refused.status == 503
            assert "Keystone is unreachable" in json.dumps(refused.body)
            assert int(refused.headers["retry-after"]) > 0
            assert ask("GET", f"{region.url}/readyz").status == 200
        assert look(region, other).status == 200
        assert "Keystone: unavailable: Keystone is unreachable" in region.log
        assert "Keystone: available again" in region.log


def test_a_region_starts_without_keystone(
    keystone: RealKeystone, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own, token = keystone.add_person("service"), keystone.log_in(keystone.add_person("member"))
    keystone.process.kill()
    try:
        with region_behind(keystone, tmp_path_factory.mktemp("without"), own=own) as region:
            wait_for(lambda: "Keystone: unavailable" in region.log, "the start says nothing of Keystone")
            assert look(region, token).status == 503
    finally:
        keystone.process.start(START_S)


# -- clients ------------------------------------------------------------------------------------


def test_the_openstack_command(keystone: RealKeystone, region: ServerProcess) -> None:
    keystone.add_endpoint("placement", region.url)
    keystone.add_endpoint("compute", f"{region.url}/compute/v2.1")
    person = keystone.add_person("admin")
    env = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    env |= {
        "OS_AUTH_URL": keystone.url,
        "OS_USERNAME": person.name,
        "OS_PASSWORD": PASSWORD,
        "OS_PROJECT_ID": person.project,
        "OS_USER_DOMAIN_ID": "default",
        "OS_IDENTITY_API_VERSION": "3",
    }

    def openstack(words: str) -> object:
        done = COMMANDS["openstack"].run([*words.split(), "-f", "json"], env, timeout_s=240)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    made = openstack("resource provider create of-keystone")
    assert isinstance(made, dict)
    listed = openstack("resource provider list")
    assert isinstance(listed, list)
    assert [one["name"] for one in listed] == ["of-keystone"]
    flavor = openstack("flavor create tiny --ram 64 --disk 1 --vcpus 1")
    assert isinstance(flavor, dict)
    assert openstack("server list") == []
    token = openstack("token issue")
    assert isinstance(token, dict)
    assert token["project_id"] == person.project

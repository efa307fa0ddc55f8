"""Signing in and out, and what becomes of the token: in a region, with a Keystone, and with a name alone."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests import keystone
from tests.console.conftest import Console, ConsolePage
from tests.keystone import PASSWORD, REFUSED, FakeKeystone
from tests.servers import berth, running

pytestmark = pytest.mark.clients


def kept_token(console: ConsolePage) -> str | None:
    token: str | None = console.page.evaluate("sessionStorage.getItem('berth.token')")
    return token


def test_a_user_signs_in_with_a_password_and_signs_out(console: Console) -> None:
    console.enter()
    token = kept_token(console)
    assert token is not None
    asking = {"x-auth-token": token}
    assert httpx.get(f"{console.cloud.url}/berth/v1/caller", headers=asking).json()["user_id"] == "admin"
    console.page.get_by_role("button", name="Sign out").click()
    expect(console.page.get_by_text("You have signed out.")).to_be_visible()
    assert kept_token(console) is None
    assert httpx.get(f"{console.cloud.url}/berth/v1/caller", headers=asking).status_code == 401


def test_no_cookie_is_set_and_the_token_is_in_no_address(console: Console) -> None:
    console.enter()
    token = kept_token(console)
    assert token is not None
    assert console.page.context.cookies() == []
    assert [one.url for one in console.asked if token in one.url or console.secrets["admin"] in one.url] == []


def test_the_session_outlives_a_reload_of_the_page(console: Console) -> None:
    console.enter()
    console.page.reload()
    expect(console.page.get_by_role("button", name="Sign out")).to_be_visible()


def test_a_wrong_password_shows_the_sentence_and_the_request_id(console: Console) -> None:
    console.expect_error("401")
    console.open()
    console.sign_in(password="not the password")
    alert = console.page.get_by_role("alert")
    expect(alert).to_contain_text("req-")
    expect(alert).to_contain_text("the user, password and project")
    form = console.page.locator("form").bounding_box()
    assert form is not None
    assert abs(form["x"] + form["width"] / 2 - 640) < 10, "it stands in the middle"


def test_a_token_that_was_revoked_leads_back_to_signing_in(console: Console) -> None:
    console.expect_error("401")
    console.enter()
    token = kept_token(console)
    assert token is not None
    revoking = {"x-auth-token": console.secrets["admin"], "x-subject-token": token}
    httpx.delete(f"{console.cloud.url}/identity/v3/auth/tokens", headers=revoking)
    console.page.reload()
    expect(console.page.get_by_text("The session has ended. Sign in again.")).to_be_visible()
    assert kept_token(console) is None


# -- with a Keystone ------------------------------------------------------------------------------


@pytest.fixture
def operator_keystone() -> Iterator[FakeKeystone]:
    """Every token that it issues is an administrator's. The first is the server's own."""
    with keystone.running() as one:
        roles = [{"name": name} for name in ("admin", "member", "reader")]
        project = {"id": "p-1", "name": "ops", "domain": {"id": "default", "name": "Default"}}
        for number in (1, 2):
            one.add(f"service-token-{number}", 4_000_000_000_000_000_000, roles=roles, project=project)
        yield one


@pytest.fixture
def with_keystone(operator_keystone: FakeKeystone, tmp_path: Path, page: Page) -> Iterator[ConsolePage]:
    options = ("--auth", "keystone", "--keystone-auth-url", operator_keystone.url)
    server = berth(tmp_path, *options, "--keystone-username", "berth", "--keystone-project-name", "service")
    server.env = {**(server.env or {}), "BERTH_KEYSTONE_PASSWORD": PASSWORD}
    with running(server):
        console = ConsolePage(server.url, page)
        yield console
        console.check()


def test_a_user_of_keystone_signs_in_and_out(
    with_keystone: ConsolePage, operator_keystone: FakeKeystone
) -> None:
    console, page = with_keystone, with_keystone.page
    console.expect_error("401")
    console.open()
    expect(page.get_by_label("Domain")).to_have_value("Default")
    console.fill_in(User="ann", Password="not the password", Project="ops")
    expect(page.get_by_role("alert")).to_contain_text(REFUSED)
    console.fill_in(User="ann", Password=PASSWORD, Project="ops", Domain="Staff")
    console.expect_views()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    *_, asked = (body["auth"] for body in operator_keystone.bodies)
    user = {"name": "ann", "password": PASSWORD, "domain": {"name": "Staff"}}
    assert asked["identity"] == {"methods": ["password"], "password": {"user": user}}
    assert asked["scope"] == {"project": {"name": "ops", "domain": {"name": "Staff"}}}
    token = kept_token(console)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You have signed out.")).to_be_visible()
    assert operator_keystone.revoked == [token]
    assert kept_token(console) is None


# -- without authentication -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(berth(tmp_path_factory.mktemp("open"))) as server:
        yield server.url


@pytest.fixture
def without_auth(open_server: str, page: Page) -> Iterator[ConsolePage]:
    console = ConsolePage(open_server, page)
    yield console
    console.check()


def test_a_name_is_enough_where_there_is_no_authentication(without_auth: ConsolePage) -> None:
    console, page = without_auth, without_auth.page
    console.open()
    expect(page.get_by_label("Password")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("admin is an administrator")
    console.fill_in(User="o'neill & co", Project="research")
    console.expect_views()
    expect(page.locator(".who")).to_contain_text("o'neill & co")
    assert kept_token(console) == "o'neill & co:research"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You have signed out.")).to_be_visible()
    console.fill_in(User="admin")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


@pytest.mark.parametrize("name", ["Jürgen", "李", "ann\u200b"])
def test_a_name_that_no_header_can_have_is_refused_with_words(without_auth: ConsolePage, name: str) -> None:
    console = without_auth
    console.open()
    console.fill_in(User=name)
    expect(console.page.get_by_role("alert")).to_contain_text("ASCII")
    console.fill_in(User="admin")
    console.expect_views()

"""Signing in and out, and what becomes of the token."""

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import Console

pytestmark = pytest.mark.clients


def kept_token(console: Console) -> str | None:
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

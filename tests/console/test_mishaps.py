"""What goes wrong between a page and its server: answers that come late, twice or not at all, addresses that
nobody has checked, and a person who is faster than the network."""

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Console
from tests.console.test_live import condition, set_hidden

pytestmark = pytest.mark.clients

FIRST_LOOK = "**/berth/v1/events?limit=1*"
"""What a stream asks first: where the journal ends."""


def hold(page: Page, pattern: str) -> list[Route]:
    """The requests that wait for the test to let them go, from the first on."""
    held: list[Route] = []
    page.route(pattern, lambda route: held.append(route))
    return held


def let_go(page: Page, pattern: str, held: list[Route]) -> None:
    for route in held:
        route.continue_()
    page.unroute(pattern)


def test_a_tab_that_was_hidden_while_it_connected_has_one_stream(console: Console) -> None:
    page = console.page
    held = hold(page, FIRST_LOOK)
    with page.expect_request(FIRST_LOOK):
        console.enter("servers")
    set_hidden(console, True)
    with page.expect_request(FIRST_LOOK):
        set_hidden(console, False)
    let_go(page, FIRST_LOOK, held)
    condition(console, "live")
    page.wait_for_timeout(500)
    assert console.count_asked("stream=true") == 1


def test_what_could_not_be_read_is_read_again_when_the_server_answers(console: Console) -> None:
    console.expect_error("net::ERR")
    page = console.page
    page.route("**/berth/v1/groups?*", lambda route: route.abort())
    console.enter("groups")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    page.unroute("**/berth/v1/groups?*")
    # The stream was never away, and nothing changes: nobody says that the list can be read now.
    empty, listed = page.get_by_text("There are no groups."), page.get_by_role("table", name="Groups")
    expect(empty.or_(listed)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_an_answer_that_does_not_come_is_given_up(console: Console) -> None:
    console.expect_error("net::ERR")
    page = console.page
    # A minute passes in three seconds.
    page.add_init_script(
        "const {timeout} = AbortSignal; AbortSignal.timeout = ms => timeout.call(AbortSignal, ms / 20)"
    )
    held = hold(page, "**/berth/v1/pools?*")
    with page.expect_request("**/berth/v1/pools?*"):
        console.enter("pools")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    assert held


def test_enter_opens_what_was_typed_and_not_what_was_found_before(console: Console) -> None:
    console.enter("fleet")
    page = console.page
    page.keyboard.press("/")
    page.keyboard.type("host-")
    expect(page.get_by_role("option", name="host-0001")).to_be_visible()
    page.keyboard.type("0004\n")
    expect(page.get_by_role("heading", name="host-0004", level=1)).to_be_visible()


@pytest.mark.parametrize("since", ["yesterday", "9999999-01-01", "%3Cb%3E"])
def test_an_address_with_a_time_that_is_none_shows_the_refusal(console: Console, since: str) -> None:
    console.expect_error("400")
    console.enter(f"journal?since={since}")
    expect(console.page.get_by_role("heading", name="Journal")).to_be_visible()
    expect(console.page.get_by_role("alert")).to_contain_text("since")


def disable(console: Console, host: str) -> Any:
    """Open the dialog that disables a host, and give a reason."""
    console.enter(f"host/{host}")
    console.page.get_by_role("button", name="Disable").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("new disks")
    return dialog


def test_a_refusal_is_told_though_its_dialog_was_closed(console: Console) -> None:
    console.expect_error("409")
    page = console.page
    held = hold(page, "**/berth/v1/hosts/*-*-*-*-*")
    dialog = disable(console, "host-0002")
    with page.expect_request(lambda one: one.method == "PATCH"):
        dialog.get_by_role("button", name="Disable").click()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    refusal = {"errors": [{"status": 409, "detail": "Somebody was faster."}]}
    [patch] = [route for route in held if route.request.method == "PATCH"]
    patch.fulfill(status=409, json=refusal)
    expect(page.get_by_role("alert")).to_contain_text("Somebody was faster.")


def test_a_dialog_ends_with_the_session(console: Console) -> None:
    console.expect_error("401")
    dialog = disable(console, "host-0002")
    expect(dialog).to_be_visible()
    console.page.evaluate("sessionStorage.clear()")
    console.page.route("**/berth/v1/**", lambda route: route.fulfill(status=401, json={}))
    dialog.get_by_role("button", name="Disable").click()
    expect(console.page.get_by_text("The session has ended. Sign in again.")).to_be_visible()
    console.page.unroute("**/berth/v1/**")
    console.sign_in("auditor")
    console.expect_views()
    expect(dialog).to_have_count(0)

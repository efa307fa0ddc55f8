"""Why: the console asks what a colleague's link asks, and shows what the API answers."""

import pytest
from playwright.sync_api import expect

from tests.console.conftest import HOSTS, Console
from tests.console.test_servers import create_server, show_server

pytestmark = pytest.mark.clients


def test_what_fits_is_shown_with_where_it_would_go(console: Console) -> None:
    console.enter("why")
    page = console.page
    page.get_by_label("Flavor").select_option("m1.small")
    page.get_by_label("How many").fill("2")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("heading", name="It fits")).to_be_visible()
    expect(page.get_by_role("region", name="Where it would go").get_by_role("listitem")).to_have_count(2)
    body = {"flavor": {"vcpus": 1, "ram": 2048, "disk": 20}}
    capacity = console.ask("POST", "/berth/v1/capacity", body)["capacity"]
    answer = page.get_by_role("region", name="The answer")
    expect(answer).to_contain_text(f"{capacity['count']:,} of them fit in all, on {capacity['hosts']} hosts.")


def test_what_does_not_fit_is_explained_and_the_change_can_be_applied(console: Console) -> None:
    question = {"flavor": {"vcpus": 200, "ram": 2048, "disk": 20}, "count": 1}
    explanation = console.ask("POST", "/berth/v1/explain", question)["explanation"]
    console.enter("why?flavor=m1.small&vcpus=200")
    page = console.page
    expect(page.get_by_role("heading", name="It does not fit")).to_be_visible()
    expect(page.get_by_role("region", name="The answer")).to_contain_text(explanation["text"])
    for step in explanation["steps"]:
        row = page.get_by_role("row", name=step["constraint"])
        expect(row.get_by_role("cell").nth(2)).to_have_text(str(step["left"]))
    page.get_by_role("button", name="Change the question so").click()
    expect(page.get_by_role("heading", name="It fits")).to_be_visible()
    assert "vcpus=32" in page.url


def test_hosts_that_a_constraint_removed_are_named(console: Console) -> None:
    console.ask("PATCH", "/berth/v1/hosts/host-0001", {"host": {"disabled": True, "reason": "test"}})
    console.enter("why?flavor=m1.small")
    row = console.page.get_by_role("row", name="enabled")
    row.get_by_text("which hosts").click()
    expect(row.get_by_role("link")).to_have_text(["host-0001"])
    console.ask("PATCH", "/berth/v1/hosts/host-0001", {"host": {"disabled": False}})


def test_what_would_help_can_be_done(console: Console) -> None:
    group = console.ask("POST", "/berth/v1/groups", {"group": {"name": "apart", "policy": "anti-affinity"}})
    uuid = group["group"]["uuid"]
    console.ask("PATCH", "/berth/v1/hosts/host-0001", {"host": {"disabled": True, "reason": "test"}})
    console.enter(f"why?flavor=m1.tiny&count={HOSTS}&group={uuid}")
    page = console.page
    expect(page.get_by_role("region", name="The answer")).to_contain_text("with the host host-0001 enabled")
    page.get_by_role("button", name="Enable host-0001").click()
    page.get_by_role("dialog").get_by_role("button", name="Enable host-0001").click()
    expect(page.get_by_role("heading", name="It fits")).to_be_visible()
    assert console.ask("GET", "/berth/v1/hosts/host-0001")["host"]["state"] == "up"
    page.get_by_label("How many").fill(str(HOSTS + 1))
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("button", name="Allow 2 of apart on each host").click()
    page.get_by_role("dialog").get_by_role("button", name="Allow 2 of apart").click()
    expect(page.get_by_role("heading", name="It fits")).to_be_visible()
    console.ask("DELETE", f"/berth/v1/groups/{uuid}")


def test_a_server_in_error_says_why_and_whether_it_would_fit_now(console: Console) -> None:
    flavor = {"name": "too-big", "vcpus": 999, "ram": 64, "disk": 1, "id": "too-big"}
    console.ask("POST", "/compute/v2.1/flavors", {"flavor": flavor})
    server = create_server(console, "nowhere", flavorRef="too-big")
    fault = show_server(console, server)["fault"]
    assert isinstance(fault, dict)
    console.enter(f"server/{server}")
    page = console.page
    expect(page.get_by_role("region", name="Why it is in error")).to_contain_text(fault["message"])
    page.get_by_role("link", name="Would it fit now?").click()
    expect(page.get_by_role("heading", name="It does not fit")).to_be_visible()
    expect(page.get_by_role("row", name="resources:VCPU")).to_contain_text("999 VCPU free")
    console.ask("DELETE", f"/compute/v2.1/servers/{server}")
    console.ask("DELETE", "/compute/v2.1/flavors/too-big")


def test_a_member_asks_and_learns_no_host(console: Console) -> None:
    console.enter("why?flavor=m1.small&vcpus=500", user="demo")
    expect(console.page.get_by_role("heading", name="It does not fit")).to_be_visible()
    expect(console.page.locator("main")).to_contain_text("It would fit with")
    expect(console.page.locator("main")).not_to_contain_text("host-0")
    assert [url for status, url in console.statuses if status in (401, 403)] == []


def test_a_refusal_shows_its_sentence_and_its_request(console: Console) -> None:
    console.expect_error("404")
    console.enter("why?flavor=m1.small&group=00000000-0000-4000-8000-000000000000")
    alert = console.page.get_by_role("alert")
    expect(alert).to_contain_text("00000000-0000-4000-8000-000000000000")
    expect(alert).to_contain_text("req-")


def test_what_was_removed_and_left_is_seen_on_a_narrow_screen(console: Console) -> None:
    console.page.set_viewport_size({"width": 360, "height": 740})
    console.enter("why?vcpus=100000&ram=1&disk=1")
    heading = console.page.get_by_role("columnheader", name="Left")
    expect(heading).to_be_visible()
    box = heading.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 360

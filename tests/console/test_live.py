"""The stream: what is shown follows the region through restarts, hidden tabs and a pruned journal."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.console.conftest import Console
from tests.console.test_servers import create_server

pytestmark = pytest.mark.clients


def condition(console: Console, name: str) -> None:
    expect(console.page.locator(f"[data-condition='{name}']")).to_be_visible()


def kill_region(console: Console) -> None:
    """As an outage would; ``berth up`` starts it again."""
    children = Path(f"/proc/{console.cloud.pid}/task/{console.cloud.pid}/children").read_text().split()
    [region] = [
        int(number) for number in children if b"\0region\0" in Path(f"/proc/{number}/cmdline").read_bytes()
    ]
    os.kill(region, signal.SIGKILL)


def test_the_stream_survives_a_restart_of_the_region(console: Console) -> None:
    for part in ("net::ERR", "Failed to load resource"):
        console.expect_error(part)
    console.enter("servers")
    condition(console, "live")
    kill_region(console)
    condition(console, "lost")
    condition(console, "live")
    id = create_server(console, "after-the-restart")
    expect(console.page.get_by_role("row", name="after-the-restart")).to_contain_text("ACTIVE")
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")


def test_a_hidden_tab_stops_and_catches_up(console: Console) -> None:
    console.enter("servers")
    condition(console, "live")
    hide = "is => {Object.defineProperty(document, 'hidden', {value: is, configurable: true});"
    hide += "document.dispatchEvent(new Event('visibilitychange'))}"
    console.page.evaluate(hide, True)
    condition(console, "paused")
    id = create_server(console, "while-hidden")
    asked = len(console.asked)
    console.page.wait_for_timeout(1500)
    assert [one.url for one in console.asked[asked:]] == []
    console.page.evaluate(hide, False)
    condition(console, "live")
    expect(console.page.get_by_role("row", name="while-hidden")).to_contain_text("ACTIVE")
    resumed = [one.url for one in console.asked if "stream=true" in one.url]
    assert len(resumed) == 2
    assert all(re.search(r"after=\d+", url) for url in resumed)
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")


def test_what_was_pruned_has_the_lists_read_again(console: Console) -> None:
    """The answer is the API's own to an index that is no longer kept, given to the first stream."""
    console.expect_error("410")
    told: list[str] = []
    refusal = {"errors": [{"status": 410, "title": "Gone", "detail": "pruned", "code": "berth.pruned"}]}

    def answer(route: Route) -> None:
        if not told:
            told.append(route.request.url)
            route.fulfill(status=410, content_type="application/json", body=json.dumps(refusal))
        else:
            route.continue_()

    console.page.route("**/berth/v1/events?stream=true*", answer)
    console.enter("servers")
    condition(console, "live")
    assert len(told) == 1
    console.page.wait_for_timeout(1500)
    assert len([one.url for one in console.asked if "/servers/detail" in one.url]) == 2


def test_a_list_is_read_once_a_second_however_much_changes(console: Console) -> None:
    console.enter("servers")
    condition(console, "live")
    ids = [create_server(console, f"busy-{number}") for number in range(2)]
    before = len([one for one in console.asked if "/servers/detail" in one.url])
    began = console.page.evaluate("performance.now()")
    for id in ids * 3:
        console.ask("PUT", f"/compute/v2.1/servers/{id}", {"server": {"name": "renamed"}})
    expect(console.page.get_by_role("row", name="renamed")).to_have_count(2)
    seconds = (console.page.evaluate("performance.now()") - began) / 1000
    reads = len([one for one in console.asked if "/servers/detail" in one.url]) - before
    assert reads <= seconds + 2
    for id in ids:
        console.ask("DELETE", f"/compute/v2.1/servers/{id}")

"""The stream: what is shown follows the region through restarts and hidden tabs."""

import os
import re
import signal
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Console, ConsolePage
from tests.console.test_servers import create_server

pytestmark = pytest.mark.clients


def condition(console: ConsolePage, name: str) -> None:
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


def hide_tab(console: ConsolePage) -> None:
    set_hidden(console, True)
    condition(console, "paused")


def show_tab(console: ConsolePage) -> None:
    set_hidden(console, False)


def set_hidden(console: ConsolePage, is_hidden: bool) -> None:
    """As a browser does with the tabs that are behind another."""
    console.page.evaluate(
        "is => {Object.defineProperty(document, 'hidden', {value: is, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))}",
        is_hidden,
    )


def test_a_hidden_tab_stops_and_catches_up(console: Console) -> None:
    console.enter("servers")
    condition(console, "live")
    hide_tab(console)
    asked = len(console.asked)
    id = create_server(console, "while-hidden")
    # A list that is shown would be read again a second after the last time.
    console.page.wait_for_timeout(1200)
    assert [one.url for one in console.asked[asked:]] == []
    show_tab(console)
    condition(console, "live")
    expect(console.page.get_by_role("row", name="while-hidden")).to_contain_text("ACTIVE")
    resumed = [one.url for one in console.asked if "stream=true" in one.url]
    assert len(resumed) == 2
    assert all(re.search(r"after=\d+", url) for url in resumed)
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")


def test_a_list_is_read_once_a_second_however_much_changes(console: Console) -> None:
    console.enter("servers")
    condition(console, "live")
    ids = [create_server(console, f"busy-{number}") for number in range(2)]
    before = console.count_asked("/servers/detail")
    began = console.page.evaluate("performance.now()")
    for id in ids * 3:
        console.ask("PUT", f"/compute/v2.1/servers/{id}", {"server": {"name": "renamed"}})
    expect(console.page.get_by_role("row", name="renamed")).to_have_count(2)
    seconds = (console.page.evaluate("performance.now()") - began) / 1000
    reads = console.count_asked("/servers/detail") - before
    assert reads <= seconds + 2
    for id in ids:
        console.ask("DELETE", f"/compute/v2.1/servers/{id}")

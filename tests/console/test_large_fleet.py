"""A fleet of a thousand hosts: read once, then followed by its events, and drawn only where it has changed.
``make bench-console`` measures ten thousand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from bench.journals import write_journal
from bench.scale import commands
from berth.journal import SqliteAddress, open_journal
from tests.console.conftest import WAIT_MS
from tests.servers import ServerProcess, berth, running

pytestmark = pytest.mark.clients

HOSTS: Final = 1500
CLAIMS: Final = 40


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    journal = open_journal(SqliteAddress(tmp_path / "large.db"), shared=False)
    write_journal(journal, commands(HOSTS, HOSTS))
    journal.close()
    with running(berth(tmp_path, "--log-level", "warning", database=tmp_path / "large.db")) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    """The console of a ledger alone, where a name is enough to sign in."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(f"{server.url}/console/#/fleet?group=none")
    page.get_by_label("User").fill("admin")
    page.get_by_role("button", name="Sign in").click()
    yield page
    context.close()


def test_claims_are_drawn_one_square_at_a_time_and_nothing_is_read_again(
    page: Page, server: ServerProcess
) -> None:
    expect(page.get_by_text(f"{HOSTS:,} hosts.")).to_be_visible()
    expect(page.locator("[data-condition=live]")).to_be_visible()
    assert page.get_by_role("link", name="Servers").count() == 0
    squares = page.locator("host-squares")
    assert squares.evaluate("element => element.squares.length") == HOSTS
    squares.evaluate(
        "element => { window.drawn = 0; const draw = element.drawSquare.bind(element);"
        "element.drawSquare = (...words) => { window.drawn++; draw(...words) } }"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    client = httpx.Client(
        base_url=server.url,
        headers={"x-auth-token": "admin", "openstack-api-version": "placement 1.39"},
        timeout=30,
    )
    host = client.get("/berth/v1/hosts?limit=1").json()["hosts"][0]
    for number in range(CLAIMS):
        body = {
            "allocations": {host["uuid"]: {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        client.put(f"/allocations/40000000-0000-4000-8000-{number:012d}", json=body).raise_for_status()
    used = client.get(f"/berth/v1/hosts/{host['uuid']}").json()["host"]["usage"]["VCPU"]["used"]
    assert used == host["usage"]["VCPU"]["used"] + CLAIMS
    page.wait_for_function(
        "([key, share]) => document.querySelector('host-squares').squares"
        ".find(one => one.key === key).share === share",
        arg=[host["uuid"], used / host["usage"]["VCPU"]["capacity"]],
    )
    assert asked == []
    assert 1 <= page.evaluate("window.drawn") <= CLAIMS
    client.close()

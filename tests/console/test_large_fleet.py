"""A fleet of a thousand hosts on a ledger alone: read once, then followed by its events, and drawn only where
it has changed. ``make bench-console`` measures ten thousand."""

import itertools
import json
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from bench.journals import write_journal
from bench.large_region import LargeRegion
from berth.engine.snapshots import take_snapshot
from berth.journal import SqliteAddress, open_journal
from tests.console.conftest import ConsolePage
from tests.console.test_live import hide_tab, show_tab
from tests.servers import ServerProcess, berth, running

pytestmark = pytest.mark.clients

HOSTS: Final = 1500
WAITING_MAX: Final = 2000
"""As live.js has it."""
EVENTS: Final = 20_500
"""More than fleet.js keeps while it waits for an answer."""
CLAIMS: Final = 40


class Ledger:
    """A server without cells, on a database with a fleet, and one of its hosts."""

    def __init__(self, server: ServerProcess, database: SqliteAddress) -> None:
        self.url = server.url
        self._database = database
        headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
        self._client = httpx.Client(base_url=server.url, headers=headers, timeout=30)
        self._numbers = itertools.count(1)
        self.host: str = self.ask("GET", "/berth/v1/hosts?limit=1")["hosts"][0]["uuid"]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self._client.request(method, path, json=body).raise_for_status()
        return answer.json() if answer.content else None

    def claim(self) -> None:
        """One of the host's VCPUs for another consumer."""
        body = {
            "allocations": {self.host: {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        self.ask("PUT", f"/allocations/40000000-0000-4000-8000-{next(self._numbers):012d}", body)

    def count_used(self) -> int:
        used: int = self.ask("GET", f"/berth/v1/hosts/{self.host}")["host"]["usage"]["VCPU"]["used"]
        return used

    def prune(self) -> None:
        """Have the journal keep nothing but its last batch, as its housekeeper does with other settings."""
        journal = open_journal(self._database, shared=None)
        take_snapshot(journal, 0, keep=0)
        self.claim()
        take_snapshot(journal, 0, keep=0)
        journal.close()

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    directory = tmp_path_factory.mktemp("large")
    database = SqliteAddress(directory / "large.db")
    journal = open_journal(database, shared=False)
    write_journal(journal, LargeRegion(HOSTS, HOSTS).commands())
    journal.close()
    with running(berth(directory, "--log-level", "warning", database=database.path)) as server:
        ledger = Ledger(server, database)
        yield ledger
        ledger.close()


@pytest.fixture
def console(ledger: Ledger, page: Page) -> Iterator[ConsolePage]:
    console = ConsolePage(ledger.url, page)
    yield console
    console.check()


def enter(console: ConsolePage, view: str) -> None:
    console.open(view)
    console.fill_in(User="admin")
    console.expect_views()


def expect_live(console: ConsolePage) -> None:
    expect(console.page.locator("[data-condition=live]")).to_be_visible()


def expect_used(console: ConsolePage, ledger: Ledger) -> None:
    """The square of the host is as full as the API says that the host is."""
    console.page.wait_for_function(
        "([uuid, used]) => document.querySelector('host-squares')?.content.items"
        ".find(one => one.uuid === uuid)?.usage.VCPU.used === used",
        arg=[ledger.host, ledger.count_used()],
    )


def test_claims_are_drawn_one_square_at_a_time_and_nothing_is_read_again(
    console: ConsolePage, ledger: Ledger
) -> None:
    enter(console, "fleet?group=none")
    page = console.page
    expect(page.get_by_text(f"{HOSTS:,} hosts.")).to_be_visible()
    expect_live(console)
    assert page.get_by_role("link", name="Servers").count() == 0
    squares = page.locator("host-squares")
    assert squares.evaluate("element => element.content.items.length") == HOSTS
    squares.evaluate(
        "element => { window.drawn = 0; const draw = element.drawSquare.bind(element);"
        "element.drawSquare = (...words) => { window.drawn++; draw(...words) } }"
    )
    asked, used = len(console.asked), ledger.count_used()
    for _ in range(CLAIMS):
        ledger.claim()
    assert ledger.count_used() == used + CLAIMS
    expect_used(console, ledger)
    assert console.asked[asked:] == []
    assert 1 <= page.evaluate("window.drawn") <= CLAIMS


def test_an_event_that_comes_after_the_list_that_has_it_is_not_added_again(
    console: ConsolePage, ledger: Ledger
) -> None:
    """The stream is held back until the list is there. The last claim shows that the first was seen."""
    held: list[Route] = []
    stream = "**/berth/v1/events?stream=true*"
    console.page.route(stream, lambda route: held.append(route))
    with console.page.expect_request(stream):
        enter(console, "why")
    ledger.claim()
    console.page.evaluate("location.hash = '#/fleet?group=none'")
    expect(console.page.get_by_text(f"{HOSTS:,} hosts.")).to_be_visible()
    [route] = held
    route.continue_()
    expect_live(console)
    ledger.claim()
    expect_used(console, ledger)


def test_an_event_that_comes_before_the_list_that_lacks_it_is_added(
    console: ConsolePage, ledger: Ledger
) -> None:
    """The list is on its way for as long as the claim and its event take."""

    def answer(route: Route) -> None:
        response = route.fetch()
        ledger.claim()
        index = ledger.ask("GET", "/berth/v1/events?newest=true&limit=1")["index"]
        console.page.wait_for_function("index => window.seen >= index", arg=index)
        route.fulfill(response=response)

    enter(console, "why")
    expect_live(console)
    # What the page has read of its stream, by the ids of the events.
    console.page.evaluate(
        "() => { const {parse} = JSON; window.seen = 0; JSON.parse = text => {"
        "const made = parse(text); if (made?.changes) window.seen = made.index; return made } }"
    )
    console.page.route("**/berth/v1/hosts?limit=*", answer, times=1)
    console.page.evaluate("location.hash = '#/fleet?group=none'")
    expect(console.page.get_by_text(f"{HOSTS:,} hosts.")).to_be_visible()
    expect_used(console, ledger)


def hold_first(page: Page, address: str) -> list[Route]:
    """Hold the first request to an address back; whoever has its route can answer it."""
    held: list[Route] = []

    def handle(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route(address, handle)
    return held


def test_no_more_events_are_kept_than_may_be(console: ConsolePage, ledger: Ledger) -> None:
    """No frame is drawn for a while, so nobody takes the events; and the list of hosts is on its way, so they
    are kept for it, too."""
    page = console.page
    stream, hosts = "**/berth/v1/events?stream=true*", "**/berth/v1/hosts?limit=*"
    streams, lists = hold_first(page, stream), hold_first(page, hosts)
    with page.expect_request(stream):
        enter(console, "why")
    page.evaluate(
        # A list that took long is not read again soon: for the page it takes no time.
        "async () => { performance.now = () => 10000; const {listen} = await import('/console/live.js');"
        "window.taken = 0; window.parsed = 0; listen(() => window.taken++, () => {}); const {parse} = JSON;"
        "JSON.parse = text => { const made = parse(text); if (made?.changes) window.parsed++; return made } }"
    )
    with page.expect_request(hosts):
        page.evaluate("location.hash = '#/fleet?group=none'")
    page.evaluate(
        "() => { window.frames_held = []; window.frame = requestAnimationFrame;"
        "window.requestAnimationFrame = one => frames_held.push(one) }"
    )
    index = ledger.ask("GET", "/berth/v1/events?newest=true&limit=1")["index"]
    event = {"index": index, "at": "2026-01-01T00:00:00Z", "request_id": "", "action": "", "changes": []}
    body = f"id: {index}\ndata: {json.dumps(event)}\n\n" * EVENTS
    streams[0].fulfill(content_type="text/event-stream", body=body)
    page.wait_for_function("most => window.parsed >= most", arg=WAITING_MAX, polling=100)
    page.wait_for_timeout(500)
    assert page.evaluate("window.parsed") < EVENTS / 2
    assert page.evaluate("window.taken") == 0
    page.evaluate("() => { window.requestAnimationFrame = frame; for (const one of frames_held) frame(one) }")
    page.wait_for_function("all => window.taken === all", arg=EVENTS, polling=100)
    lists[0].continue_()
    # More came than are kept: the list is read again.
    with page.expect_request(lambda request: request.url.endswith("/berth/v1/hosts?limit=1000")):
        pass
    expect(page.get_by_text(f"{HOSTS:,} hosts.")).to_be_visible()
    expect_live(console)


@pytest.mark.parametrize("view", ["fleet?group=none", "groups"])
def test_what_was_pruned_while_the_tab_was_hidden_is_read_again(
    console: ConsolePage, ledger: Ledger, view: str
) -> None:
    console.expect_error("410")
    enter(console, view)
    expect_live(console)
    hide_tab(console)
    ledger.claim()
    group = {"group": {"name": "made-meanwhile", "policy": "affinity"}}
    made = ledger.ask("POST", "/berth/v1/groups", group)["group"]["uuid"]
    ledger.prune()
    show_tab(console)
    expect_live(console)
    assert 410 in [status for status, _ in console.statuses]
    if view == "groups":
        expect(console.page.get_by_role("row", name="made-meanwhile")).to_be_visible()
    else:
        expect_used(console, ledger)
    ledger.ask("DELETE", f"/berth/v1/groups/{made}")

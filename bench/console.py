"""The console with a large fleet: how long until the first picture, how long frames take while claims come,
how much of that is the page's own work, and whether the heap stays bounded.

    python -m bench.console [--hosts N] [--minutes M] [--changes N] [--view ADDRESS]

The journal is written by the ledger itself. The browser is Debian's chromium, without a window; what it draws
it draws by the processor, so a real screen is not slower.

A frame is late because the page works, or because the machine does: here the server, the client that makes
the changes and all of the browser share it. So beside the time between frames, tasks of the page's main
thread are measured in the time of the processor that they took, from a trace of part of each minute. A task
is everything that the browser does there in one turn: the longest is how long a frame could wait for this
page on a machine of its own.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from bench.journals import write_journal
from bench.large_region import LargeRegion
from berth.journal import SqliteAddress, open_journal
from tests.packages import BROWSER, require
from tests.servers import berth, running

CHROMIUM: Final = "/usr/bin/chromium"
CLAIMS_AT_ONCE: Final = 25
FRAME_MS: Final = 50
"""No frame should take longer."""
ROUND_S: Final = 60.0
TRACED_S: Final = 15.0
"""Of each round. A trace of all of it would be some hundred megabytes."""
CATEGORIES: Final = ("-*", "toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline", "v8")
TASK: Final = "RunTask"
FRAME: Final = "FireAnimationFrame"
KINDS: Final = {
    "FunctionCall": "script",
    "BlinkScheduler_PerformMicrotaskCheckpoint": "script",
    "MinorGC": "garbage",
    "MajorGC": "garbage",
    "Layout": "layout",
    "UpdateLayoutTree": "layout",
    "PrePaint": "paint",
    "Paint": "paint",
    "Layerize": "paint",
    "Commit": "paint",
}
"""What the work of the thread is called in a trace."""

_WATCH: Final = """() => {
  window.frames_ms = [];
  let last = performance.now();
  const next = now => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""


class Claims(threading.Thread):
    """Claims and releases on random hosts, so many changes a second."""

    def __init__(self, client: httpx.Client, changes: int) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._pause_s = CLAIMS_AT_ONCE / changes
        self.done = threading.Event()
        self.made = 0

    def run(self) -> None:
        hosts = [host["uuid"] for host in self._client.get("/berth/v1/hosts?limit=1000").json()["hosts"]]
        places = itertools.cycle(hosts)
        next_s = time.monotonic()
        while not self.done.is_set():
            consumers = [str(uuid.uuid4()) for _ in range(CLAIMS_AT_ONCE)]
            for amount in (1, 0):
                body = {one: _claim(next(places), amount) for one in consumers}
                self._client.post("/allocations", json=body).raise_for_status()
                self.made += CLAIMS_AT_ONCE
                next_s += self._pause_s
                time.sleep(max(0, next_s - time.monotonic()))


def _claim(host: str, amount: int) -> dict[str, Any]:
    held = {host: {"resources": {"VCPU": amount}}} if amount else {}
    return {
        "allocations": held,
        "project_id": "bench",
        "user_id": "bench",
        "consumer_generation": None if amount else 1,
        "consumer_type": "INSTANCE",
    }


# -- what is measured -----------------------------------------------------------------------------


class ThreadWork(NamedTuple):
    """What the main thread of a page did while it was traced, in milliseconds: of the processor, if not said
    otherwise. ``kinds`` are per second."""

    longest: float
    longest_wall: float
    busy: float
    kinds: dict[str, float]

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {ms:.0f}" for kind, ms in sorted(self.kinds.items()))
        return (
            f"longest task {self.longest:.1f} ms of the processor ({self.longest_wall:.0f} ms in all); "
            f"{self.busy:.0f} ms a second: {kinds}"
        )


def read_trace(trace: bytes, seconds: float) -> ThreadWork:
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    # The thread that draws frames is the main thread of the page.
    drawing = (_place_of(one) for one in events if one.get("name") == FRAME)
    [(place, _)] = Counter(drawing).most_common(1)
    work = [one for one in events if "tdur" in one and _place_of(one) == place]
    tasks = [one for one in work if one["name"] == TASK]
    kinds: Counter[str] = Counter()
    for one in work:
        if one["name"] in KINDS:
            kinds[KINDS[one["name"]]] += one["tdur"]
    return ThreadWork(
        longest=max(one["tdur"] for one in tasks) / 1000,
        longest_wall=max(one["dur"] for one in tasks) / 1000,
        busy=sum(one["tdur"] for one in tasks) / 1000 / seconds,
        kinds={kind: us / 1000 / seconds for kind, us in kinds.items()},
    )


def _place_of(event: dict[str, Any]) -> tuple[int, int]:
    """The process and the thread."""
    return event["pid"], event["tid"]


def trace(browser: Browser, page: Page, seconds: float) -> ThreadWork:
    browser.start_tracing(page=page, categories=list(CATEGORIES))
    page.wait_for_timeout(seconds * 1000)
    return read_trace(browser.stop_tracing(), seconds)


def read_heap_mb(session: CDPSession) -> float:
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    return used / 1e6


def count_wrong(page: Page, client: httpx.Client) -> int:
    """How many hosts are shown otherwise than the API has them."""
    shown: dict[str, float] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('host-squares')].flatMap(({content}) => "
        "content.items.map(one => [content.keyOf(one), content.shareOf(one)])))"
    )
    wrong, path = 0, "/berth/v1/hosts?limit=1000"
    while path:
        answer = client.get(path).json()
        for host in answer["hosts"]:
            use = host["usage"]["VCPU"]
            wrong += shown[host["uuid"]] != use["used"] / use["capacity"]
        path = answer["next"]
    return wrong


def open_console(page: Page, url: str) -> None:
    page.goto(f"{url}/console/")
    page.get_by_label("User").fill("admin")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Views").wait_for()


def measure_first(page: Page, hosts: int, view: str) -> None:
    """How long a view takes that is opened from another one, with nothing in the page's memory."""
    page.evaluate("location.hash = '#/why'")
    page.reload()
    page.get_by_role("heading", name="Why").wait_for()
    began_s = time.monotonic()
    page.evaluate("view => { location.hash = '#/' + view }", view)
    page.locator("host-squares canvas, main tbody").first.wait_for()
    first_s = time.monotonic() - began_s
    page.get_by_text(f"{hosts:,} hosts.").wait_for()
    print(f"first picture after {first_s:.2f} s, all {hosts} hosts after {time.monotonic() - began_s:.2f} s")


def measure_round(browser: Browser, page: Page, claims: Claims, session: CDPSession, seconds: float) -> None:
    began_s, before = time.monotonic(), claims.made
    page.evaluate("window.frames_ms.splice(0)")
    page.wait_for_timeout(seconds * 1000)
    rate = (claims.made - before) / (time.monotonic() - began_s)
    frames = sorted(page.evaluate("window.frames_ms.splice(0)"))
    late = sum(one > FRAME_MS for one in frames)
    print(
        f"{rate:.0f} changes/s: {len(frames)} frames, median {statistics.median(frames):.0f} ms, "
        f"99 % {frames[int(len(frames) * 0.99)]:.0f} ms, longest {frames[-1]:.0f} ms, "
        f"{late} above {FRAME_MS} ms; load of the machine {os.getloadavg()[0]:.1f}"
    )
    print(f"  {trace(browser, page, TRACED_S)}; heap {read_heap_mb(session):.1f} MB", flush=True)


def measure(browser: Browser, url: str, arguments: argparse.Namespace) -> None:
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    open_console(page, url)
    for _ in range(2):
        measure_first(page, arguments.hosts, arguments.view)
    page.locator("[data-condition=live]").wait_for()
    session = page.context.new_cdp_session(page)
    print(f"heap {read_heap_mb(session):.1f} MB")
    page.evaluate(_WATCH)
    headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        claims = Claims(client, arguments.changes)
        claims.start()
        rounds_s = arguments.minutes * 60
        while rounds_s > 0:
            measure_round(browser, page, claims, session, max(1.0, min(ROUND_S, rounds_s) - TRACED_S))
            rounds_s -= ROUND_S
        claims.done.set()
        claims.join()
        page.wait_for_timeout(2000)
        if "table" not in arguments.view:
            print(f"{count_wrong(page, client)} hosts are shown otherwise than the API has them")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--changes", type=int, default=500)
    parser.add_argument("--view", default="fleet?group=none")
    arguments = parser.parse_args()
    require(*BROWSER)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        database = directory / "large.db"
        journal = open_journal(SqliteAddress(database), shared=False)
        write_journal(journal, LargeRegion(arguments.hosts, 3 * arguments.hosts).commands())
        journal.close()
        server = berth(directory, "--log-level", "warning", database=database)
        with running(server, timeout_s=600), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            measure(browser, server.url, arguments)
            browser.close()


if __name__ == "__main__":
    main()

"""The console with a large fleet: how long until the first picture, how long frames take while claims come,
and whether the heap stays bounded.

    python -m bench.console [--hosts N] [--minutes M] [--changes N]

The journal is written by the ledger itself. The browser is Debian's chromium, without a window; what it draws
it draws by the processor, so a real screen is not slower.
"""

import argparse
import itertools
import statistics
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.sync_api import Page, sync_playwright

from bench.journals import write_journal
from bench.scale import commands
from berth.journal import SqliteAddress, open_journal
from tests.packages import BROWSER, require
from tests.servers import berth, running

CHROMIUM: Final = "/usr/bin/chromium"
CLAIMS_AT_ONCE: Final = 25
LATE_MS: Final = 50

_WATCH: Final = """() => {
  window.frames_ms = [];
  let last = performance.now();
  const next = now => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
  window.long_ms = [];
  new PerformanceObserver(list => window.long_ms.push(...list.getEntries().map(one => one.duration)))
    .observe({type: 'longtask'});
}"""


class Claims(threading.Thread):
    """Claims and releases on random hosts, so many changes a second."""

    def __init__(self, url: str, changes: int) -> None:
        super().__init__(daemon=True)
        self._client = httpx.Client(
            base_url=url,
            headers={"x-auth-token": "admin", "openstack-api-version": "placement 1.39"},
            timeout=60,
        )
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


def measure(page: Page, url: str, hosts: int, changes: int, minutes: float) -> None:
    page.goto(f"{url}/console/")
    page.get_by_label("User").fill("admin")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Views").wait_for()
    page.evaluate("location.hash = '#/why'")
    page.get_by_role("heading", name="Why").wait_for()
    for what in ("first", "again"):
        began_s = time.monotonic()
        page.evaluate("location.hash = '#/fleet?group=none'")
        page.locator("host-squares canvas").wait_for()
        first_s = time.monotonic() - began_s
        page.get_by_text(f"{hosts:,} hosts.").wait_for()
        all_s = time.monotonic() - began_s
        print(f"{what}: picture after {first_s:.2f} s, all {hosts} hosts after {all_s:.2f} s")
        page.evaluate("location.hash = '#/why'")
        page.get_by_role("heading", name="Why").wait_for()
    page.evaluate("location.hash = '#/fleet?group=none'")
    page.locator("[data-condition=live]").wait_for()
    page.evaluate(_WATCH)
    claims = Claims(url, changes)
    claims.start()
    session = page.context.new_cdp_session(page)
    end_s = time.monotonic() + minutes * 60
    while time.monotonic() < end_s:
        began_s, before = time.monotonic(), claims.made
        page.wait_for_timeout(min(30.0, max(1.0, end_s - time.monotonic())) * 1000)
        rate = (claims.made - before) / (time.monotonic() - began_s)
        session.send("HeapProfiler.collectGarbage")
        heap_mb = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        frames = sorted(page.evaluate("window.frames_ms.splice(0)"))
        late = page.evaluate("window.long_ms.splice(0)")
        print(
            f"{rate:.0f} changes/s: {len(frames)} frames, median {statistics.median(frames):.0f} ms, "
            f"99 % {frames[int(len(frames) * 0.99)]:.0f} ms, worst {frames[-1]:.0f} ms; "
            f"{len(late)} tasks above {LATE_MS} ms; heap {heap_mb:.1f} MB"
        )
    claims.done.set()
    claims.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--changes", type=int, default=500)
    arguments = parser.parse_args()
    require(*BROWSER)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        database = directory / "large.db"
        journal = open_journal(SqliteAddress(database), shared=False)
        write_journal(journal, commands(arguments.hosts, 3 * arguments.hosts))
        journal.close()
        server = berth(directory, "--log-level", "warning", database=database)
        with running(server, timeout_s=600), sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--enable-precise-memory-info"]
            )
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            measure(page, server.url, arguments.hosts, arguments.changes, arguments.minutes)
            browser.close()


if __name__ == "__main__":
    main()

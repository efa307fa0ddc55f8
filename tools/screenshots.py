"""Draw the pictures of the console that the README and the guide show: ``make screenshots``.

A region with a simulated fleet is started, given something to do, and looked at with Debian's chromium. The
pictures are written to docs/pictures. Names and places come from a seed; times differ from run to run.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.sync_api import Page, sync_playwright

from tests.clouds import PROGRAMS, Cloud, cloud_running
from tests.packages import BROWSER, PackageMissing, require

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"
CHROMIUM: Final = "/usr/bin/chromium"
OPTIONS: Final = ("--hosts", "60", "--cells", "2", "--build-seconds", "0", "--live-migrate-seconds", "120")
RACKS: Final = 6
SERVERS: Final = 170
NAMES: Final = ("web", "db", "cache", "batch", "search")
WAIT_MS: Final = 30_000


class Region:
    """The region that is looked at."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        secrets = json.loads((cloud.data / "secrets.json").read_text())
        self.password: str = secrets["admin"]
        versions = {"openstack-api-version": "compute 2.94,placement 1.39"}
        self._client = httpx.Client(
            base_url=cloud.url, headers={"x-auth-token": self.password, **versions}, timeout=60
        )

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self._client.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def furnish(self) -> None:
        """Racks, flavors, servers, a group, a cluster, a host that is down and one that is disabled."""
        rng = random.Random(7)
        for name, vcpus, ram, disk in (("c8.large", 8, 8192, 100), ("m32.huge", 32, 65536, 400)):
            flavor = {"id": name, "name": name, "vcpus": vcpus, "ram": ram, "disk": disk}
            self.ask("POST", "/compute/v2.1/flavors", {"flavor": flavor})
        hosts = sorted(
            self.ask("GET", "/berth/v1/hosts?limit=100")["hosts"], key=lambda host: str(host["name"])
        )
        racks = [f"50000000-0000-4000-8000-{number:012d}" for number in range(1, RACKS + 1)]
        for number, rack in enumerate(racks, 1):
            label = {"aggregate": {"kind": "rack", "name": f"rack-{number}"}}
            self.ask("PUT", f"/berth/v1/aggregates/{rack}", label)
        for number, host in enumerate(hosts):
            path = f"/resource_providers/{host['uuid']}/aggregates"
            aggregates = self.ask("GET", path)
            aggregates["aggregates"].append(racks[number % RACKS])
            self.ask("PUT", path, aggregates)
        image = self.ask("GET", "/image/v2/images?name=cirros")["images"][0]["id"]
        for number in range(SERVERS):
            name = f"{rng.choice(NAMES)}-{number:03d}"
            size = rng.choice(("m32.huge", "c8.large", "c8.large", "4", "3"))
            server = {"name": name, "imageRef": image, "flavorRef": size}
            self.ask("POST", "/compute/v2.1/servers", {"server": server | {"networks": "none"}})
        nodes = {
            "name": "voters",
            "flavor": "m1.small",
            "image": "cirros",
            "count": 5,
            "processes": ["voter"],
        }
        apart = {"anti_affinity": ["voter"], "anti_affinity_domain": "rack"}
        self.ask("POST", "/berth/v1/clusters", {"cluster": {"name": "db", "node_groups": [nodes], **apart}})
        change = {"host": {"disabled": True, "reason": "new firmware, ticket 4711"}}
        self.ask("PATCH", "/berth/v1/hosts/host-0017", change)
        self.cloud.shell(f"{PROGRAMS}/berth sim break host-0042 --data data")
        while self.ask("GET", "/berth/v1/hosts/host-0042")["host"]["state"] != "down":
            time.sleep(0.5)
        moving = self.ask("GET", "/compute/v2.1/servers/detail?host=host-0005")["servers"][:1]
        for server in moving:
            body = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
            self.ask("POST", f"/compute/v2.1/servers/{server['id']}/action", body)


def draw(page: Page, region: Region) -> None:
    page.goto(f"{region.cloud.url}/console/")
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill(region.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Views").wait_for()
    take(page, "overview", "overview")
    take(page, "fleet?group=rack", "fleet", points_at=".block:first-of-type host-squares")
    take(page, "host/host-0005", "host")
    take(page, "moves", "moves")
    take(page, "why?flavor=m32.huge&count=60", "why")
    take(page, "journal", "journal")
    page.emulate_media(color_scheme="dark")
    take(page, "fleet?group=rack", "fleet-dark", points_at=".block:first-of-type host-squares")
    page.set_viewport_size({"width": 390, "height": 780})
    page.emulate_media(color_scheme="light")
    take(page, "overview", "overview-narrow")


def take(page: Page, view: str, name: str, points_at: str | None = None) -> None:
    page.evaluate("view => { location.hash = '#/' + view }", view)
    page.get_by_role("heading", level=1).wait_for()
    page.get_by_text("Reading …").first.wait_for(state="hidden")
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)
    if points_at is not None:
        page.locator(points_at).hover(position={"x": 60, "y": 15})
        page.wait_for_timeout(1000)
    page.screenshot(path=FOLDER / f"{name}.png")
    print(f"docs/pictures/{name}.png")


def main() -> int:
    try:
        require(*BROWSER)
    except PackageMissing as missing:
        print(f"screenshots: {missing}", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, cloud_running(Path(folder), *OPTIONS) as cloud:
        region = Region(cloud)
        region.furnish()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(WAIT_MS)
            draw(page, region)
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

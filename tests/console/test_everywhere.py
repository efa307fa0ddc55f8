"""What holds in every view: no text becomes markup, nobody is offered what would be refused, and everybody
can use it: by keyboard, on a narrow screen, in the dark."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.clouds import Cloud
from tests.console.conftest import ATTACK, ATTACKER, FAULT, ApiUser, Console
from tests.console.test_servers import create_server
from tests.packages import PackageMissing, require_npm_packages

pytestmark = pytest.mark.clients

RACK: Final = "30000000-0000-4000-8000-000000000001"
HOST: Final = "30000000-0000-4000-8000-000000000002"
CONSUMER: Final = "30000000-0000-4000-8000-000000000003"
SERIOUS: Final = ("serious", "critical")


class World:
    """Objects of every kind, whose texts are all an attack. ``texts``: those that the console must show."""

    def __init__(self, api: ApiUser) -> None:
        self.texts: set[str] = {FAULT, ATTACKER}
        attack = self._attack
        self.host = api.ask("GET", "/berth/v1/hosts/host-0003")["host"]["uuid"]
        names: dict[str, Any] = {
            "metadata": {"note": attack("metadata")},
            "description": attack("description"),
        }
        self.server_name = attack("server")
        self.server = create_server(api, self.server_name, ATTACKER, host="host-0004", **names)
        lock = {"lock": {"locked_reason": attack("lock")}}
        api.ask("POST", f"/compute/v2.1/servers/{self.server}/action", lock)
        self.broken = create_server(api, "broken")
        group = {"name": attack("group"), "policy": "anti-affinity"}
        self.group = api.ask("POST", "/berth/v1/groups", {"group": group})["group"]["uuid"]
        api.ask("POST", f"/berth/v1/groups/{self.group}/members", {"add": [self.server]})
        flavor = {"name": attack("flavor"), "vcpus": 1, "ram": 64, "disk": 1, "id": "attack"}
        api.ask("POST", "/compute/v2.1/flavors", {"flavor": flavor})
        image = {"name": attack("image"), "disk_format": "raw", "container_format": "bare"}
        self.image = api.ask("POST", "/image/v2/images", image)["id"]
        status = {"host": {"disabled": True, "reason": attack("reason")}}
        api.ask("PATCH", f"/berth/v1/hosts/{self.host}", status)
        self._make_places(api)

    def _attack(self, kind: str) -> str:
        text = f"{kind} {ATTACK}"
        self.texts.add(text)
        return text

    def _make_places(self, api: ApiUser) -> None:
        """A rack, a zone, a pool, and a host that no agent has reported."""
        attack = self._attack
        label = {"aggregate": {"kind": "rack", "name": attack("rack")}}
        api.ask("PUT", f"/berth/v1/aggregates/{RACK}", label)
        pool = {"name": attack("pool"), "inventories": {"DISK_GB": {"total": 1000}}, "aggregates": [RACK]}
        self.pool = api.ask("POST", "/berth/v1/pools", {"pool": pool})["pool"]["uuid"]
        zone = {"name": "aggregate", "availability_zone": attack("zone")}
        self.zone = api.ask("POST", "/compute/v2.1/os-aggregates", {"aggregate": zone})["aggregate"]["id"]
        api.ask(
            "POST", f"/compute/v2.1/os-aggregates/{self.zone}/action", {"add_host": {"host": "host-0003"}}
        )
        api.ask("POST", "/resource_providers", {"name": attack("host"), "uuid": HOST})
        inventories = {"VCPU": {"total": 8}}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        api.ask("PUT", f"/resource_providers/{HOST}/inventories", body)
        body = {"resource_provider_generation": 1, "aggregates": [RACK]}
        api.ask("PUT", f"/resource_providers/{HOST}/aggregates", body)
        body = {
            "allocations": {HOST: {"resources": {"VCPU": 1}}},
            "project_id": attack("project"),
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        api.ask("PUT", f"/allocations/{CONSUMER}", body)

    def views(self) -> list[str]:
        return [
            "overview",
            "fleet",
            "fleet?as=table&group=rack",
            "fleet?as=table&group=zone",
            f"host/{self.host}",
            f"host/{HOST}",
            "servers",
            f"server/{self.server}",
            f"server/{self.broken}",
            "moves",
            f"drain/{self.host}",
            "why?flavor=m1.small&count=2",
            "why?flavor=m1.small&vcpus=999",
            "groups",
            f"group/{self.group}",
            "clusters",
            "pools",
            f"pool/{self.pool}",
            "journal",
            "doctor",
        ]

    def remove(self, api: ApiUser) -> None:
        for server in (self.server, self.broken):
            api.ask("DELETE", f"/compute/v2.1/servers/{server}")
        api.ask("PATCH", f"/berth/v1/hosts/{self.host}", {"host": {"disabled": False}})
        change = {"remove_host": {"host": "host-0003"}}
        api.ask("POST", f"/compute/v2.1/os-aggregates/{self.zone}/action", change)
        api.ask("DELETE", f"/compute/v2.1/os-aggregates/{self.zone}")
        api.ask("DELETE", f"/allocations/{CONSUMER}")
        api.ask("DELETE", f"/resource_providers/{HOST}")
        api.ask("DELETE", f"/berth/v1/pools/{self.pool}")
        api.ask("DELETE", "/compute/v2.1/flavors/attack")
        api.ask("DELETE", f"/image/v2/images/{self.image}")
        api.ask("DELETE", f"/berth/v1/aggregates/{RACK}")


@pytest.fixture(scope="module")
def world(cloud: Cloud) -> Iterator[World]:
    world = World(ApiUser(cloud))
    yield world
    world.remove(ApiUser(cloud))


def go(console: Console, view: str) -> None:
    """Open a view, and wait until it has what it shows."""
    console.page.evaluate("view => { location.hash = '#/' + view }", view)
    expect(console.page.get_by_role("heading", level=1)).to_be_visible()
    expect(console.page.get_by_text("Reading …")).to_have_count(0)


def test_no_text_becomes_markup_anywhere(console: Console, world: World) -> None:
    console.enter(user=ATTACKER)
    page = console.page
    unseen = set(world.texts)

    def look(where: str) -> None:
        assert page.evaluate("typeof hacked") == "undefined", where
        assert page.locator("img[src=x], #hack, main script").count() == 0, where
        shown = page.evaluate("document.body.textContent")
        unseen.difference_update([text for text in unseen if text in shown])

    for view in world.views():
        go(console, view)
        look(view)
    page.keyboard.press("/")
    page.keyboard.type("<img")
    expect(page.get_by_role("option").filter(has_text=world.server_name)).to_be_visible()
    look("search")
    page.keyboard.press("Escape")
    go(console, "clusters")
    page.get_by_role("button", name="New cluster").click()
    form = page.get_by_role("region", name="New cluster")
    expect(form.get_by_label("Image")).to_contain_text("image <img")
    look("the form of a cluster")
    assert unseen == set()


def test_what_a_name_may_not_have_is_refused_and_shown_as_it_is(console: Console) -> None:
    """The name of a cluster is made of letters: the refusal is the API's sentence, and a text."""
    console.expect_error("400")
    console.enter("clusters")
    page = console.page
    page.get_by_role("button", name="New cluster").click()
    form = page.get_by_role("region", name="New cluster")
    form.get_by_label("Name", exact=True).fill(ATTACK)
    form.get_by_label("Name of the group").fill("nodes")
    form.get_by_label("Flavor").select_option("m1.tiny")
    form.get_by_label("Image").select_option("cirros")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("name")
    assert page.evaluate("typeof hacked") == "undefined"


def test_a_search_that_cannot_find_anything_says_why(console: Console) -> None:
    console.enter("why")
    search = console.page.get_by_role("combobox", name="Search hosts, servers")
    found = console.page.get_by_role("listbox", name="Found")
    search.fill("x" * 253)
    expect(found).to_have_text("Nothing found.")
    search.fill("x" * 254)
    expect(found).to_contain_text("at most 253 characters")


def test_axe_finds_nothing_serious_in_any_view(console: Console, world: World) -> None:
    try:
        axe = (require_npm_packages() / "axe-core" / "axe.min.js").read_text()
    except PackageMissing as missing:
        pytest.skip(str(missing))
    console.open()
    console.page.evaluate(f"{axe}; 0")
    found = violations(console, "signing in")
    console.sign_in()
    for view in world.views():
        go(console, view)
        found += violations(console, view)
    console.page.emulate_media(color_scheme="dark")
    for view in world.views():
        go(console, view)
        found += violations(console, f"{view}, dark", "color-contrast")
    assert found == []
    console.page.evaluate("document.querySelector('main').innerHTML = window.trustedTypes.emptyHTML")
    console.page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    assert len(violations(console, "a field without a label")) == 1


def violations(console: Console, where: str, *rules: str) -> list[str]:
    """What axe finds, by all of its rules or by those that are named."""
    how = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    result = console.page.evaluate("how => axe.run(document, how)", how)
    return [
        f"{where}: {one['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for one in result["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:2]
    ]


def test_every_view_fits_a_narrow_screen(console: Console, world: World) -> None:
    console.page.set_viewport_size({"width": 360, "height": 700})
    console.enter()
    for view in world.views():
        go(console, view)
        assert console.page.evaluate("document.documentElement.scrollWidth") <= 360, view


@pytest.mark.parametrize(
    ("user", "labels"),
    [
        ("demo", ["Servers", "Clusters"]),
        ("reader", ["Servers", "Clusters"]),
        ("auditor", ["Overview", "Fleet", "Moves", "Why", "Groups", "Pools", "Journal", "Doctor"]),
    ],
)
def test_nobody_is_offered_what_would_be_refused(
    console: Console, world: World, user: str, labels: list[str]
) -> None:
    """No answer is a refusal, and whoever may only look has no button that changes something."""
    console.enter(user=user)
    menu = console.page.get_by_role("navigation", name="Views").get_by_role("link")
    shown = menu.all_inner_texts()
    assert [label for label in shown if label in labels] == labels
    for label in shown:
        menu.get_by_text(label, exact=True).click()
        expect(console.page.get_by_role("heading", name=label, level=1)).to_be_visible()
        expect(console.page.get_by_text("Reading …")).to_have_count(0)
        buttons = set(console.page.locator("main button:not(.sort)").all_inner_texts())
        allowed = {"Look again", "Ask", "Older", "Show all"} | (
            {"New cluster …"} if user == "demo" else set()
        )
        assert buttons <= allowed, label
    if "Fleet" in shown:
        go(console, f"host/{world.host}")
        expect(console.page.locator("main button:not(.sort)")).to_have_count(0)
    assert [url for status, url in console.statuses if status in (401, 403)] == []


def test_an_operator_may_act_on_hosts(console: Console) -> None:
    console.enter("host/host-0002", user="operator")
    expect(console.page.get_by_role("button", name="Disable")).to_be_visible()


def test_everything_can_be_reached_by_the_keyboard(console: Console) -> None:
    console.enter("fleet")
    page = console.page
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Show as")).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_nothing_moves_for_those_who_want_no_motion(console: Console) -> None:
    console.page.emulate_media(reduced_motion="reduce")
    console.enter()
    moving = console.page.evaluate(
        "[...document.querySelectorAll('*')].filter(one => {const style = getComputedStyle(one);"
        "return parseFloat(style.transitionDuration) > 0 || parseFloat(style.animationDuration) > 0}).length"
    )
    assert moving == 0

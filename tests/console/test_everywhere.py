"""What holds in every view: no text becomes markup, nobody is offered what would be refused, and everybody
can use it: by keyboard, on a narrow screen, in the dark."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.clouds import Cloud
from tests.console.conftest import ApiUser, Console
from tests.console.test_servers import create_server
from tests.packages import PackageMissing, require_npm_packages

pytestmark = pytest.mark.clients

ATTACK: Final = """<img src=x onerror="hacked=1"><script>hacked=1</script>"'><b id=hack>${7*7}"""
RACK: Final = "30000000-0000-4000-8000-000000000001"
SERIOUS: Final = ("serious", "critical")


class World:
    """Objects of every kind, whose texts are all an attack."""

    def __init__(self, console: ApiUser) -> None:
        self.host = console.ask("GET", "/berth/v1/hosts/host-0003")["host"]["uuid"]
        text = ATTACK[:200]
        self.server = create_server(console, text, metadata={"note": text}, description=text)
        group = {"name": text, "policy": "anti-affinity"}
        self.group = console.ask("POST", "/berth/v1/groups", {"group": group})["group"]["uuid"]
        console.ask("POST", f"/berth/v1/groups/{self.group}/members", {"add": [self.server]})
        label = {"aggregate": {"kind": "rack", "name": text}}
        console.ask("PUT", f"/berth/v1/aggregates/{RACK}", label)
        pool = {"name": text, "inventories": {"DISK_GB": {"total": 1000}}, "aggregates": [RACK]}
        self.pool = console.ask("POST", "/berth/v1/pools", {"pool": pool})["pool"]["uuid"]
        flavor = {"name": "<b>", "vcpus": 1, "ram": 64, "disk": 1, "id": "attack"}
        console.ask("POST", "/compute/v2.1/flavors", {"flavor": flavor})
        status = {"host": {"disabled": True, "reason": text}}
        console.ask("PATCH", f"/berth/v1/hosts/{self.host}", status)
        aggregates = console.ask("GET", f"/resource_providers/{self.host}/aggregates")
        self.aggregates = aggregates["aggregates"]
        aggregates["aggregates"] = [*self.aggregates, RACK]
        console.ask("PUT", f"/resource_providers/{self.host}/aggregates", aggregates)

    def views(self) -> list[str]:
        return [
            "overview",
            "fleet",
            "fleet?as=table&group=rack",
            f"host/{self.host}",
            "servers",
            f"server/{self.server}",
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

    def remove(self, console: ApiUser) -> None:
        console.ask("DELETE", f"/compute/v2.1/servers/{self.server}")
        console.ask("PATCH", f"/berth/v1/hosts/{self.host}", {"host": {"disabled": False}})
        aggregates = console.ask("GET", f"/resource_providers/{self.host}/aggregates")
        aggregates["aggregates"] = self.aggregates
        console.ask("PUT", f"/resource_providers/{self.host}/aggregates", aggregates)
        console.ask("DELETE", f"/berth/v1/pools/{self.pool}")
        console.ask("DELETE", "/compute/v2.1/flavors/attack")
        console.ask("DELETE", f"/berth/v1/aggregates/{RACK}")


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
    console.enter()
    for view in world.views():
        go(console, view)
        assert console.page.evaluate("typeof hacked") == "undefined", view
        assert console.page.locator("img[src=x], #hack, main script").count() == 0, view
    go(console, f"server/{world.server}")
    expect(console.page.get_by_role("heading", level=1)).to_have_text(ATTACK[:200])
    console.page.keyboard.press("/")
    console.page.keyboard.type("<img")
    expect(console.page.get_by_role("option")).to_contain_text(ATTACK[:200])
    assert console.page.evaluate("typeof hacked") == "undefined"


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

"""The fleet and its hosts: the figures are the API's, and what happens to a host is seen as it happens."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.conftest import HOSTS, Console
from tests.console.test_servers import create_server, show_server

pytestmark = pytest.mark.clients


def test_every_host_is_a_square_and_the_figures_are_those_of_the_api(console: Console) -> None:
    console.enter("fleet")
    page = console.page
    expect(page.get_by_text(f"{HOSTS} hosts.")).to_be_visible()
    hosts = console.ask("GET", "/berth/v1/hosts?limit=100")["hosts"]
    for cell in ("cell1", "cell2"):
        names = [host["name"] for host in hosts if host["cell"] == cell]
        block = page.locator("host-squares", has_not_text="-").and_(
            page.get_by_role("group", name=f"{cell}: {len(names)} hosts")
        )
        assert block.evaluate("element => element.content.items.length") == len(names)
    page.get_by_label("Show as").select_option("table")
    for host in hosts:
        row = page.get_by_role("row", name=host["name"])
        expect(row).to_contain_text(host["cell"])
        expect(row).to_contain_text(f"of {host['usage']['VCPU']['capacity']}")


def test_a_claim_shows_in_the_squares_without_a_reload(console: Console) -> None:
    console.enter("fleet?as=table")
    expect(console.page.locator("[data-condition=live]")).to_be_visible()
    id = create_server(console, "claims")
    host = str(show_server(console, id)["OS-EXT-SRV-ATTR:host"])
    used = console.ask("GET", f"/berth/v1/hosts/{host}")["host"]["usage"]["VCPU"]["used"]
    row = console.page.get_by_role("row", name=host)
    expect(row).to_contain_text(re.compile(rf"\b{used} of \d+"))
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")
    expect(row).to_contain_text(re.compile(rf"\b{used - 1} of \d+"))


def test_squares_are_drawn_for_the_dark_whenever_it_comes(console: Console) -> None:
    console.enter("servers")
    console.page.emulate_media(color_scheme="dark")
    console.page.evaluate("location.hash = '#/fleet?group=none'")
    canvas = console.page.locator("host-squares canvas")
    expect(canvas).to_be_visible()
    pixel = "canvas => Array.from(canvas.getContext('2d').getImageData(8, 8, 1, 1).data)"
    assert max(canvas.evaluate(pixel)[:3]) < 0x60


def test_keys_choose_a_host_and_open_it(console: Console) -> None:
    id = create_server(console, "pointed", host="host-0002")
    console.enter("fleet?group=none")
    squares = console.page.get_by_role("group", name=f"All hosts: {HOSTS} hosts")
    squares.focus()
    squares.press("ArrowRight")
    squares.press("ArrowRight")
    expect(console.page.get_by_role("complementary")).to_contain_text("host-0002")
    expect(console.page.get_by_role("complementary")).to_contain_text("MEMORY_MB")
    expect(console.page.get_by_role("complementary")).to_contain_text("pointed 1 VCPU, 512 MiB, 1 GiB")
    squares.press("Enter")
    expect(console.page.get_by_role("heading", name="host-0002", level=1)).to_be_visible()
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")


def test_a_host_shows_its_tree_and_who_holds_it(console: Console) -> None:
    id = create_server(console, "holder")
    host = console.ask("GET", f"/berth/v1/hosts/{show_server(console, id)['OS-EXT-SRV-ATTR:host']}")["host"]
    console.enter(f"host/{host['name']}")
    page = console.page
    tree = page.get_by_role("region", name="What it has")
    for name, inventory in host["providers"][0]["inventories"].items():
        row = tree.get_by_role("row", name=name)
        expect(row.locator("td").last).to_have_text(f"{inventory['allocation_ratio']:g}")
    holds = page.get_by_role("region", name="Who holds it").get_by_role("row", name="holder")
    expect(holds).to_contain_text("VCPU 1, MEMORY_MB 512 MiB, DISK_GB 1 GiB")
    holds.get_by_role("link").click()
    expect(page.get_by_role("heading", name="holder", level=1)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("region", name="Last changes")).to_contain_text("holder")
    page.get_by_role("region", name="Operations").get_by_role("link", name="all of them").click()
    expect(page.get_by_label("Host", exact=True)).to_have_value(host["name"])
    expect(page.get_by_role("region", name="Under way")).to_contain_text("Nothing is under way.")
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")


def test_a_device_names_who_holds_it(console: Console) -> None:
    flavor = {"name": "gpu", "vcpus": 1, "ram": 64, "disk": 1, "id": "gpu"}
    console.ask("POST", "/compute/v2.1/flavors", {"flavor": flavor})
    specs = {"extra_specs": {"resources:VGPU": "1"}}
    console.ask("POST", "/compute/v2.1/flavors/gpu/os-extra_specs", specs)
    id = create_server(console, "trains", flavorRef="gpu")
    host = console.ask("GET", f"/berth/v1/hosts/{show_server(console, id)['OS-EXT-SRV-ATTR:host']}")["host"]
    [holder] = [one for one in host["consumers"] if one["name"] == "trains"]
    [device] = [one for one in host["providers"] if one["uuid"] in holder["allocations"] and one["parent"]]
    console.enter(f"host/{host['name']}")
    tree = console.page.get_by_role("region", name="What it has")
    boxes = tree.get_by_role("listitem").filter(has=console.page.get_by_title(device["name"]))
    expect(boxes.last).to_contain_text("Held by trains")
    boxes.last.get_by_role("link", name="trains").click()
    expect(console.page.get_by_role("heading", name="trains", level=1)).to_be_visible()
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")
    console.ask("DELETE", "/compute/v2.1/flavors/gpu")


def test_a_host_is_disabled_with_a_reason_and_enabled(console: Console) -> None:
    console.enter("host/host-0001")
    page = console.page
    page.get_by_role("button", name="Disable").click()
    dialog = page.get_by_role("dialog", name="Disable host-0001?")
    dialog.get_by_label("Reason").fill("new <b>fans</b>")
    dialog.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("host-0001 is disabled.")).to_be_visible()
    expect(page.get_by_role("region", name="How it is")).to_contain_text("new <b>fans</b>")
    status = console.ask("GET", "/berth/v1/hosts/host-0001")["host"]
    assert (status["disabled"], status["reason"]) == (True, "new <b>fans</b>")
    page.get_by_role("button", name="Enable").click()
    page.get_by_role("dialog").get_by_role("button", name="Enable").click()
    expect(page.get_by_text("host-0001 is enabled.")).to_be_visible()
    assert console.ask("GET", "/berth/v1/hosts/host-0001")["host"]["state"] == "up"


def test_search_finds_hosts_and_servers(console: Console) -> None:
    id = create_server(console, "searched")
    console.enter("fleet")
    page = console.page
    page.keyboard.press("/")
    page.keyboard.type("searched")
    expect(page.get_by_role("option", name="searched")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="searched", level=1)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("something else")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("0003")
    expect(page.get_by_role("option", name="host-0003")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="host-0003", level=1)).to_be_visible()
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")

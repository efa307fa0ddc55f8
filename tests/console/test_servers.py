"""Servers, and one of them: what the console shows is what the API says, as it changes."""

import pytest
from playwright.sync_api import expect

from tests.clouds import wait_for
from tests.console.conftest import ApiUser, Console

pytestmark = pytest.mark.clients


def start_server(
    console: ApiUser, name: str, user: str = "admin", group: str | None = None, **fields: object
) -> str:
    """A server that is being built."""
    image = console.ask("GET", "/image/v2/images?name=cirros")["images"][0]["id"]
    body: dict[str, object] = {"name": name, "imageRef": image, "flavorRef": "1", "networks": "none"} | fields
    hints = {} if group is None else {"OS-SCH-HNT:scheduler_hints": {"group": group}}
    server: str = console.ask("POST", "/compute/v2.1/servers", {"server": body} | hints, user)["server"]["id"]
    return server


def create_server(
    console: ApiUser, name: str, user: str = "admin", group: str | None = None, **fields: object
) -> str:
    """A server that is ACTIVE, or what else has become of it."""
    server = start_server(console, name, user, group, **fields)
    wait_for(lambda: show_server(console, server)["status"] != "BUILD", lambda: console.cloud.everything)
    return server


def show_server(console: ApiUser, id: str) -> dict[str, object]:
    server: dict[str, object] = console.ask("GET", f"/compute/v2.1/servers/{id}")["server"]
    return server


def test_what_the_openstack_command_changes_appears_without_a_reload(console: Console) -> None:
    console.enter("servers")
    expect(console.page.locator("[data-condition=live]")).to_be_visible()
    console.page.evaluate("window.is_same_page = true")
    env = "OS_CLIENT_CONFIG_FILE=data/clouds.yaml OS_CLOUD=berth"
    create = "server create --flavor m1.tiny --image cirros --nic none -f value -c id appears"
    id = console.cloud.shell(f"{env} openstack {create}").strip()
    row = console.page.get_by_role("row", name="appears")
    expect(row).to_contain_text("ACTIVE")
    expect(row).to_contain_text(str(show_server(console, id)["OS-EXT-SRV-ATTR:host"]))
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")
    expect(row).to_have_count(0)
    assert console.page.evaluate("window.is_same_page")


def test_filters_are_in_the_address(console: Console) -> None:
    one, other = create_server(console, "filter-one"), create_server(console, "filter-two")
    console.enter("servers?name=filter-one")
    expect(console.page.get_by_role("row", name="filter-one")).to_be_visible()
    expect(console.page.get_by_role("row", name="filter-two")).to_have_count(0)
    console.page.get_by_label("Name").fill("filter-")
    expect(console.page.get_by_role("row", name="filter-two")).to_be_visible()
    assert console.page.url.endswith("#/servers?name=filter-")
    for id in (one, other):
        console.ask("DELETE", f"/compute/v2.1/servers/{id}")


def test_a_server_shows_its_host_its_amounts_and_its_steps(console: Console) -> None:
    id = create_server(console, "shown")
    console.enter(f"server/{id}")
    page = console.page
    expect(page.get_by_role("heading", name="shown", level=1)).to_be_visible()
    host = str(show_server(console, id)["OS-EXT-SRV-ATTR:host"])
    expect(page.get_by_role("region", name="Where and what")).to_contain_text(host)
    holds = page.get_by_role("region", name="What it holds").get_by_role("row", name=host)
    expect(holds).to_contain_text("VCPU 1, MEMORY_MB 512 MiB")
    expect(holds).to_contain_text("the same")
    operations = page.get_by_role("region", name="Operations")
    expect(operations.get_by_role("heading", name="create")).to_be_visible()
    console.ask("POST", f"/compute/v2.1/servers/{id}/action", {"os-stop": None})
    expect(operations.get_by_role("heading", name="stop")).to_be_visible()
    expect(page.get_by_text("SHUTOFF")).to_be_visible()
    held = console.ask("GET", f"/allocations/{id}")
    [(provider, one)] = held["allocations"].items()
    for vcpus, said in ((2, "Another client has changed what it holds"), (1, "the same")):
        held["allocations"] = {provider: {"resources": one["resources"] | {"VCPU": vcpus}}}
        console.ask("PUT", f"/allocations/{id}", held)
        held["consumer_generation"] += 1
        expect(page.get_by_role("region", name="What it holds")).to_contain_text(said)
        expect(holds).to_contain_text(f"VCPU {vcpus}, ")
    console.ask("DELETE", f"/compute/v2.1/servers/{id}")


def test_a_member_sees_its_servers_and_no_host(console: Console) -> None:
    mine = create_server(console, "of-demo", user="demo")
    other = create_server(console, "of-admin")
    console.enter("servers", user="demo")
    expect(console.page.get_by_role("row", name="of-demo")).to_be_visible()
    expect(console.page.get_by_role("row", name="of-admin")).to_have_count(0)
    expect(console.page.locator("main")).not_to_contain_text("host-0")
    expect(console.page.locator("[data-condition=polling]")).to_be_visible()
    console.ask("POST", f"/compute/v2.1/servers/{mine}/action", {"os-stop": None}, "demo")
    expect(console.page.get_by_role("row", name="of-demo")).to_contain_text("SHUTOFF")
    console.page.get_by_role("link", name="of-demo").click()
    expect(console.page.get_by_role("region", name="Operations")).to_contain_text("stop")
    for id in (mine, other):
        console.ask("DELETE", f"/compute/v2.1/servers/{id}")

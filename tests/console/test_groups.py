"""Groups, clusters, pools and the doctor: what can be made and looked at there."""

import pytest
from playwright.sync_api import expect

from tests.console.conftest import HOSTS, Console
from tests.console.test_servers import create_server, show_server

pytestmark = pytest.mark.clients


def test_a_group_is_made_and_shows_its_members_and_its_room(console: Console) -> None:
    console.enter("groups")
    page = console.page
    form = page.get_by_role("region", name="New group")
    expect(form.get_by_label("Ratio")).to_be_visible()
    form.get_by_label("Policy").select_option("affinity")
    expect(form.get_by_label("Ratio")).to_have_count(0)
    form.get_by_label("Policy").select_option("anti-affinity")
    form.get_by_label("Name").fill("apart")
    form.get_by_label("Ratio").fill("3")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="apart", level=1)).to_be_visible()
    uuid = page.url.rpartition("/")[2]
    server = create_server(console, "member")
    console.ask("POST", f"/berth/v1/groups/{uuid}/members", {"add": [server]})
    grid = page.get_by_role("region", name="Members by host")
    expect(grid).to_contain_text("1 member, room for 2")
    expect(grid).to_contain_text(f"and {HOSTS - 1} hosts without a member, room for 3 on each")
    expect(
        page.get_by_role("region", name="Members", exact=True).get_by_role("link", name="member")
    ).to_be_visible()
    expect(grid).to_contain_text(str(show_server(console, server)["OS-EXT-SRV-ATTR:host"]))
    console.ask("DELETE", f"/compute/v2.1/servers/{server}")
    expect(page.get_by_text("It has no members.")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("The group apart is deleted.")).to_be_visible()


def test_a_cluster_that_does_not_fit_is_offered_the_ratio_that_would(console: Console) -> None:
    console.expect_error("409")
    console.enter("clusters", user="demo")
    page = console.page
    page.get_by_role("button", name="New cluster").click()
    form = page.get_by_role("region", name="New cluster")
    form.get_by_label("Name", exact=True).fill("db")
    form.get_by_label("Name of the group").fill("voters")
    form.get_by_label("Flavor").select_option("m1.tiny")
    form.get_by_label("Image").select_option("cirros")
    form.get_by_label("Nodes", exact=True).fill(str(HOSTS + 2))
    form.get_by_label("Processes", exact=True).fill("voter")
    expect(form.get_by_label("Ratio")).to_have_count(0)
    form.get_by_label("Nodes keep apart").check()
    form.get_by_label("Processes that keep apart").fill("voter")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("A ratio of 2 would fit.")
    form.get_by_role("button", name="Use a ratio of 2").click()
    expect(form.get_by_label("Ratio")).to_have_value("2")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="db", level=1)).to_be_visible()
    expect(page.get_by_text(f"{HOSTS + 2} of {HOSTS + 2} nodes ready")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("There are no clusters.")).to_be_visible()


def test_a_pool_shows_how_full_it_is_and_who_may_use_it(console: Console) -> None:
    aggregate = "10000000-0000-4000-8000-000000000001"
    path = f"/resource_providers/{console.ask('GET', '/berth/v1/hosts/host-0002')['host']['uuid']}/aggregates"
    before = console.ask("GET", path)
    after = console.ask("PUT", path, before | {"aggregates": [*before["aggregates"], aggregate]})
    pool = {"name": "disks", "inventories": {"DISK_GB": {"total": 1000}}, "aggregates": [aggregate]}
    uuid = console.ask("POST", "/berth/v1/pools", {"pool": pool})["pool"]["uuid"]
    console.enter("pools")
    page = console.page
    expect(page.get_by_role("row", name="disks")).to_contain_text("0 of 1000 GiB")
    page.get_by_role("link", name="disks").click()
    expect(page.get_by_role("heading", name="disks", level=1)).to_be_visible()
    expect(page.get_by_role("region", name="Who uses it")).to_contain_text("Nobody.")
    page.get_by_role("region", name="Which hosts may use it").get_by_role("link", name="host-0002").click()
    tree = page.get_by_role("region", name="What it has")
    expect(tree).to_contain_text("Pools that it can use")
    expect(tree.get_by_role("listitem").filter(has=page.get_by_role("link", name="disks"))).to_contain_text(
        "1 host"
    )
    console.ask("PUT", path, after | {"aggregates": before["aggregates"]})
    console.ask("DELETE", f"/berth/v1/pools/{uuid}")


def test_the_doctor_shows_what_is_wrong_and_repairs_it(console: Console) -> None:
    server = create_server(console, "sick")
    held = console.ask("GET", f"/allocations/{server}")
    body = {"allocations": {}, "project_id": "admin", "user_id": "admin", "consumer_type": "INSTANCE"}
    console.enter("doctor")
    page = console.page
    expect(page.get_by_text("Nothing is wrong")).to_be_visible()
    body["consumer_generation"] = held.get("consumer_generation", 1)
    console.ask("PUT", f"/allocations/{server}", body)
    page.get_by_role("button", name="Look again").click()
    expect(page.locator("main")).to_contain_text(server)
    [finding] = console.ask("GET", "/berth/v1/doctor")["findings"]
    expect(page.get_by_role("region", name=finding["kind"])).to_contain_text(finding["sentence"])
    page.get_by_role("button", name="Repair").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Repair").click()
    expect(page.get_by_text("Nothing is wrong")).to_be_visible()
    again = console.ask("GET", f"/allocations/{server}")
    assert [*again["allocations"]] == [*held["allocations"]]
    console.ask("DELETE", f"/compute/v2.1/servers/{server}")

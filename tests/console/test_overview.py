"""Overview, moves and journal: is everything well, what is under way, and who changed what."""

import pytest
from playwright.sync_api import expect

from tests.clouds import wait_for
from tests.console.conftest import Console
from tests.console.test_servers import create_server, show_server

pytestmark = pytest.mark.clients


def test_the_overview_opens_first_and_has_the_figures_of_the_api(console: Console) -> None:
    console.enter()
    page = console.page
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    overview = console.ask("GET", "/berth/v1/overview")["overview"]
    use = overview["capacity"]["total"]["VCPU"]
    capacity = page.get_by_role("region", name="Capacity")
    expect(capacity).to_contain_text(f"{use['used']:,} of {use['capacity']:,}")
    for cell, by_class in overview["capacity"]["by_cell"].items():
        figures = f"VCPU: {by_class['VCPU']['used']:,} of {by_class['VCPU']['capacity']:,}"
        expect(capacity.get_by_role("row", name=cell).get_by_role("img", name=figures)).to_be_visible()
    numbers = page.get_by_role("region", name="Hosts and servers")
    expect(numbers.get_by_role("row", name="hosts up")).to_contain_text(str(overview["hosts"]["up"]))
    room = page.get_by_role("region", name="Room for more")
    for flavor in overview["flavors"]:
        expect(room.get_by_role("row", name=flavor["name"])).to_contain_text(f"{flavor['fits']:,}")
    cells = page.get_by_role("region", name="Cells")
    for cell in console.ask("GET", "/berth/v1/cells")["cells"]:
        expect(cells.get_by_role("row", name=cell["name"])).to_contain_text(cell["state"])


def test_a_move_shows_both_sides_and_can_be_aborted(console: Console) -> None:
    server = create_server(console, "moving")
    source = str(show_server(console, server)["OS-EXT-SRV-ATTR:host"])
    console.enter("moves")
    page = console.page
    body = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    console.ask("POST", f"/compute/v2.1/servers/{server}/action", body)
    under_way = page.get_by_role("region", name="Under way")
    expect(under_way.get_by_role("link", name="moving")).to_be_visible()
    expect(under_way).to_contain_text(f"{source} →")
    expect(under_way).to_contain_text("Its migration holds")
    under_way.get_by_role("button", name="Abort").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort").click()
    expect(page.get_by_text("The migration is being aborted.")).to_be_visible()
    expect(under_way).to_contain_text("Nothing is under way.")
    assert show_server(console, server)["OS-EXT-SRV-ATTR:host"] == source
    console.ask("DELETE", f"/compute/v2.1/servers/{server}")


def test_a_host_is_drained_after_a_look_at_the_plan(console: Console) -> None:
    server = create_server(console, "leaves")
    host = str(show_server(console, server)["OS-EXT-SRV-ATTR:host"])
    console.enter(f"host/{host}")
    page = console.page
    page.get_by_role("link", name="Drain …").click()
    expect(page.get_by_role("region", name="The plan")).to_contain_text("Nothing has been changed yet.")
    moves = page.get_by_role("region", name="Servers that leave").first
    expect(moves.get_by_role("row", name="leaves")).to_contain_text("live migration")
    page.get_by_role("button", name=f"Drain {host}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("new fans")
    dialog.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("region", name="How far it is")).to_contain_text("0 of 1 server have left.")
    expect(moves.get_by_role("row", name="leaves")).to_contain_text("moving")
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Moves").click()
    expect(page.get_by_role("region", name="Drains").first).to_contain_text(host)
    page.get_by_role("region", name="Drains").first.get_by_role("link", name=host).click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.get_by_text(f"The drain of {host} is stopped.")).to_be_visible()
    path = f"/compute/v2.1/servers/{server}"
    [migration] = console.ask("GET", f"{path}/migrations")["migrations"]
    console.ask("DELETE", f"{path}/migrations/{migration['id']}")
    wait_for(lambda: show_server(console, server)["OS-EXT-STS:task_state"] is None, lambda: path)
    console.ask("DELETE", path)
    console.ask("PATCH", f"/berth/v1/hosts/{host}", {"host": {"disabled": False}})


def test_the_journal_says_who_changed_what_by_which_request(console: Console) -> None:
    server = create_server(console, "in-the-journal")
    actions = console.ask("GET", f"/compute/v2.1/servers/{server}/os-instance-actions")["instanceActions"]
    console.enter(f"journal?subject={server}")
    page = console.page
    journal = page.get_by_role("region", name="Journal")
    request = actions[-1]["request_id"]
    entry = journal.get_by_role("listitem").filter(has_text="POST /compute/v2.1/servers")
    expect(entry).to_contain_text(request)
    expect(entry).to_contain_text("by admin")
    console.ask("PUT", f"/compute/v2.1/servers/{server}", {"server": {"description": "seen"}})
    expect(journal).to_contain_text(f"PUT /compute/v2.1/servers/{server}")
    entry.get_by_role("link", name=request).first.click()
    expect(journal.get_by_role("listitem").filter(has_text="POST /compute/v2.1/servers")).to_have_count(1)
    assert f"request_id={request}" in page.url
    console.ask("DELETE", f"/compute/v2.1/servers/{server}")

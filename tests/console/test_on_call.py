"""Four nights on call in a browser: cause, object and way out are found on the Overview, from which the rest
is a click away. ``tests/lifecycle/test_on_call.py`` has the same nights with the command line."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.clouds import Cloud, wait_for
from tests.console.conftest import HOSTS, ApiUser, Console
from tests.console.test_servers import create_server, show_server, start_server

pytestmark = pytest.mark.clients


def list_wrong(api: ApiUser) -> list[dict[str, Any]]:
    wrong: list[dict[str, Any]] = api.ask("GET", "/berth/v1/overview")["overview"]["wrong"]
    return wrong


def find_wrong(api: ApiUser, kind: str, name: str) -> dict[str, Any]:
    """What the API says is wrong with an object, as soon as it does."""

    def found() -> list[dict[str, Any]]:
        return [one for one in list_wrong(api) if (one["kind"], one["name"]) == (kind, name)]

    wait_for(lambda: bool(found()), lambda: f"{list_wrong(api)}\n{api.cloud.everything[-4000:]}")
    return found()[0]


def expect_wrong(console: Console, kind: str, name: str) -> Locator:
    """The entry of the Overview for an object: it says what the API says, and what to do."""
    told = find_wrong(console, kind, name)
    entry = (
        console.page.get_by_role("region", name="What is wrong").get_by_role("listitem").filter(has_text=name)
    )
    expect(entry).to_contain_text(told["text"])
    expect(entry).to_contain_text(told["what_to_do"])
    return entry


def expect_well(console: Console) -> None:
    expect(console.page.get_by_text("Everything is well")).to_be_visible()


@contextlib.contextmanager
def conductor_stopped(cloud: Cloud, cell: str) -> Iterator[None]:
    """The processes of a cell stand still for a while."""
    children = Path(f"/proc/{cloud.pid}/task/{cloud.pid}/children").read_text().split()
    words = f"\0cell\0--name\0{cell}\0".encode()
    [leader] = [int(pid) for pid in children if words in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.killpg(leader, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(leader, signal.SIGCONT)


def test_a_build_hangs(console: Console) -> None:
    console.enter()
    server = start_server(console, "stuck")
    wait_for(lambda: bool(under_way(console, server)["host"]), lambda: console.cloud.everything[-4000:])
    operation = under_way(console, server)
    host = console.ask("GET", f"/berth/v1/hosts/{operation['host']}")["host"]
    page = console.page
    with conductor_stopped(console.cloud, host["cell"]):
        entry = expect_wrong(console, "operation_overdue", "stuck")
        expect(entry).to_contain_text(f"create: the step build on {host['name']} should have ended")
        entry.get_by_role("link", name=operation["request_id"]).click()
        journal = page.get_by_role("region", name="Journal")
        expect(journal).to_contain_text("POST /compute/v2.1/servers")
        page.go_back()
        entry.get_by_role("link", name="stuck").click()
        steps = page.get_by_role("region", name="Operations")
        expect(steps.get_by_role("row", name="build")).to_contain_text("overdue")
        expect(steps.get_by_role("row", name="build")).to_contain_text(host["name"])
    # With its conductor the build goes on, on another host.
    expect(page.locator("main .head .chip").first).to_contain_text("ACTIVE")
    page.get_by_role("link", name="Overview").click()
    expect_well(console)
    console.ask("DELETE", f"/compute/v2.1/servers/{server}")


def under_way(api: ApiUser, server: str) -> dict[str, Any]:
    [operation] = api.ask("GET", f"/berth/v1/operations?server={server}")["operations"]
    assert isinstance(operation, dict)
    return operation


def test_a_host_dies(console: Console) -> None:
    server = create_server(console, "left-behind")
    host = str(show_server(console, server)["OS-EXT-SRV-ATTR:host"])
    console.enter()
    expect_well(console)
    page = console.page
    console.cloud.shell(f"berth sim break {host} --data data")
    try:
        entry = expect_wrong(console, "host_down", host)
        expect(entry).to_contain_text("1 server is there")
        expect(entry).to_contain_text("evacuate its servers")
        entry.get_by_role("link", name=host).click()
        expect(page.get_by_role("heading", name=host, level=1)).to_be_visible()
        expect(page.get_by_role("region", name="Who holds it")).to_contain_text("left-behind")
        page.evaluate("location.hash = '#/fleet?as=table'")
        row = page.get_by_role("row", name=host)
        expect(row).to_contain_text("down")
    finally:
        console.cloud.shell(f"berth sim heal {host} --data data")
    expect(row).not_to_contain_text("down")
    page.get_by_role("link", name="Overview").click()
    expect_well(console)
    numbers = page.get_by_role("region", name="Hosts and servers")
    expect(numbers.get_by_role("row", name="hosts up")).to_contain_text(str(HOSTS))
    console.ask("DELETE", f"/compute/v2.1/servers/{server}")


def test_a_database_goes_away(console: Console) -> None:
    """The file of a cell's journal is moved away, and back."""
    console.enter()
    expect_well(console)
    page = console.page
    hosts = console.ask("GET", "/berth/v1/hosts?cell=cell2")["hosts"]
    file = console.cloud.data / "cell2.db"
    away = file.with_suffix(".away")
    file.rename(away)
    try:
        server = start_server(console, "waits", host=hosts[0]["name"])
        entry = expect_wrong(console, "cell_unreachable", "cell2")
        expect(entry).to_contain_text("Check the database of the cell")
        cells = page.get_by_role("region", name="Cells")
        expect(cells.get_by_role("row", name="cell2")).to_contain_text("unreachable")
        expect(cells.get_by_role("row", name="cell1")).to_contain_text("well")
    finally:
        away.rename(file)
    expect_well(console)
    wait_for(lambda: show_server(console, server)["status"] == "ACTIVE", lambda: console.cloud.everything)
    console.ask("DELETE", f"/compute/v2.1/servers/{server}")


def test_a_group_is_full(console: Console) -> None:
    """Two cells have room for two members that keep apart by cell."""
    body = {"name": "apart", "policy": "anti-affinity", "domain": "cell"}
    group = console.ask("POST", "/berth/v1/groups", {"group": body})["group"]["uuid"]
    servers = [create_server(console, f"voter-{number}", group=group) for number in (1, 2, 3)]
    console.enter()
    page = console.page
    entry = expect_wrong(console, "server_in_error", "voter-3")
    expect(entry).to_contain_text("anti-affinity")
    entry.get_by_role("link", name="Would it fit now?").click()
    expect(page.get_by_role("heading", name="It does not fit")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("anti-affinity of the group apart"))).to_contain_text("0")
    # The way out: one of them is not needed any more.
    before = count_members(console, group)
    console.ask("DELETE", f"/compute/v2.1/servers/{servers[0]}")
    wait_for(lambda: count_members(console, group) < before, lambda: console.cloud.everything[-4000:])
    page.get_by_role("button", name="Ask again").click()
    expect(page.get_by_role("heading", name="It fits")).to_be_visible()
    for server in servers[1:]:
        console.ask("DELETE", f"/compute/v2.1/servers/{server}")
    page.get_by_role("link", name="Overview").click()
    expect_well(console)
    wait_for(lambda: not count_members(console, group), lambda: console.cloud.everything[-4000:])
    console.ask("DELETE", f"/berth/v1/groups/{group}")


def count_members(api: ApiUser, group: str) -> int:
    count: int = api.ask("GET", f"/berth/v1/groups/{group}")["group"]["member_count"]
    return count

"""The console's files over HTTP: what is served, with which headers, and what browsers are sent where."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import berth.console
from berth.console.api import TYPES
from tests.worlds import HttpAnswer, RegionWorld, scope_of

pytestmark = pytest.mark.fast

STATIC = Path(berth.console.__file__).parent / "static"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path).running() as region:
        yield region


async def fetch(region: RegionWorld, path: str, method: str = "GET", **headers: str) -> HttpAnswer:
    """As a browser asks: without a version, and without a token, as nobody has signed in yet."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await region.send(scope_of(method, path, named), b"")


async def test_the_page_may_load_nothing_from_elsewhere(region: RegionWorld) -> None:
    answer = await fetch(region, "/console/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


async def test_every_file_is_served_with_a_strong_tag(region: RegionWorld) -> None:
    paths = [path for path in STATIC.rglob("*") if path.suffix.removeprefix(".") in TYPES]
    assert len(paths) > 10
    for path in paths:
        address = f"/console/{path.relative_to(STATIC)}"
        answer = await fetch(region, address)
        assert (answer.status, answer.body) == (200, path.read_bytes())
        tag = answer.headers["etag"]
        assert re.fullmatch(r'"[0-9a-f]+"', tag)
        again = await fetch(region, address, if_none_match=tag)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)


async def test_what_is_no_page_is_not_served(region: RegionWorld) -> None:
    for path in ("/console/nothing.js", "/console/../api.py", "/console/vendor/lit-html/lit-html.d.ts"):
        assert (await fetch(region, path)).status == 404
    answer = await fetch(region, "/console/main.js", "POST")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_a_browser_is_sent_to_the_console_and_others_get_the_versions(region: RegionWorld) -> None:
    for path in ("/", "/console"):
        answer = await fetch(region, path, accept=BROWSER)
        assert (answer.status, answer.headers["location"]) == (302, "console/")
    for accept in ("application/json", "*/*"):
        versions = await fetch(region, "/", accept=accept)
        assert versions.status == 200
        assert "versions" in json.loads(versions.body)
    # Upstream refuses a bad version here, whatever is accepted.
    versioned = await fetch(region, "/", accept="text/html", openstack_api_version="placement 9999.9999")
    assert versioned.status == 406
    assert (await fetch(region, "/favicon.ico")).headers["content-type"] == "image/svg+xml"


async def test_the_settings_say_how_to_sign_in(region: RegionWorld) -> None:
    answer = await fetch(region, "/console/settings.json")
    assert answer.json["auth"] == "noauth"
    assert answer.json["identity"] == "identity/v3"
    assert answer.json["has_servers"] is True


def test_no_module_asks_another_origin() -> None:
    """Addresses in the sources are names of namespaces, or comments of what is vendored."""
    found = {
        match
        for path in STATIC.rglob("*")
        if path.suffix in (".js", ".css", ".html", ".svg") and "vendor" not in path.parts
        for match in re.findall(r"(?:https?:)?//[a-z0-9][a-z0-9.-]+\.[a-z]+[^\s\"']*", path.read_text())
    }
    assert found <= {"http://www.w3.org/2000/svg"}

"""A cloud, a browser, and the console in it. Whatever a test does, the page must end without an error,
without anything that its own policy forbids, and without a request to another origin."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import Browser, Page, Request, Response, expect, sync_playwright

from tests.clouds import Cloud, cloud_running
from tests.packages import BROWSER, PackageMissing, require

CHROMIUM: Final = "/usr/bin/chromium"
WAIT_MS: Final = 20_000
"""How long something may take to appear, on a busy machine."""

HOSTS: Final = 6
OPTIONS: Final = f"--hosts {HOSTS} --cells 2 --build-seconds 0 --live-migrate-seconds 60".split()


OTHERS: Final = {"auditor": "auditor", "operator": "operator", "reader": "reader"}
"""Users beside those of ``berth up``, and their roles. A user's password is its name, made longer."""


class ApiUser:
    """Asks the APIs of a cloud, as any of its users."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.secrets: dict[str, str] = json.loads((cloud.data / "secrets.json").read_text())
        self.secrets |= {user: make_password(user) for user in OTHERS}

    def ask(self, method: str, path: str, body: object = None, user: str = "admin") -> Any:
        headers = {
            "x-auth-token": self.secrets[user],
            "openstack-api-version": "compute 2.94,placement 1.39",
        }
        answer = httpx.request(method, f"{self.cloud.url}{path}", json=body, headers=headers, timeout=30)
        assert answer.status_code < 400, answer.text
        return answer.json() if answer.content else None


class Console(ApiUser):
    """The console of a cloud in a page of a browser. ``asked``: what it has requested so far."""

    def __init__(self, cloud: Cloud, page: Page) -> None:
        super().__init__(cloud)
        self.page = page
        self.statuses: list[tuple[int, str]] = []
        self.asked: list[Request] = []
        self.errors: list[str] = []
        self.expected: list[str] = []
        page.on("request", lambda request: self.asked.append(request))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("response", self._note_response)
        page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)

    def _note_response(self, response: Response) -> None:
        self.statuses.append((response.status, response.url))
        if response.status >= 500:
            self.errors.append(f"{response.status} {response.url}")

    def open(self, view: str = "") -> None:
        self.page.goto(f"{self.cloud.url}/console/#/{view}")

    def sign_in(self, user: str = "admin", password: str | None = None) -> None:
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(self.secrets[user] if password is None else password)
        self.page.get_by_role("button", name="Sign in").click()

    def enter(self, view: str = "", user: str = "admin") -> None:
        """Open a view as a user, from signing in on."""
        self.open(view)
        self.sign_in(user)
        expect(self.page.get_by_role("navigation", name="Views")).to_be_visible()

    def expect_error(self, part: str) -> None:
        """An error with this text is meant to be in the browser's log."""
        self.expected.append(part)

    def check(self) -> None:
        assert [error for error in self.errors if not any(part in error for part in self.expected)] == []
        elsewhere = [one.url for one in self.asked if not one.url.startswith(f"{self.cloud.url}/")]
        assert elsewhere == []


def make_password(user: str) -> str:
    return f"the-password-of-{user}"


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("console")
    with cloud_running(directory, *OPTIONS) as cloud:
        with (cloud.data / "tokens.toml").open("a") as tokens:
            for user, role in OTHERS.items():
                entry = f'token = "{make_password(user)}"\nuser = "{user}"\nproject = "admin"\n'
                tokens.write(f'\n[[token]]\n{entry}roles = ["{role}"]\n')
        yield cloud


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's. A sandbox of its own it cannot have as root, and needs none: it sees our pages alone. It ends
    with the file: while it is there, the tests of this thread cannot be coroutines."""
    try:
        require(*BROWSER)
    except PackageMissing as missing:
        pytest.skip(str(missing))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def console(cloud: Cloud, browser: Browser, tmp_path: Path) -> Iterator[Console]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    console = Console(cloud, context.new_page())
    yield console
    console.check()
    context.close()

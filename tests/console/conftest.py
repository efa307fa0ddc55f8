"""A cloud, a browser, and the console in it. Whatever a test does, the page must end without an error,
without anything that its own policy forbids, and without a request to another origin."""

import json
from collections.abc import Iterator
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
OPTIONS: Final = f"--hosts {HOSTS} --cells 2 --build-timeout 5".split()
ATTACK: Final = """<img src=x onerror="hacked=1"><script>hacked=1</script>"'><b id=hack>${7*7}"""
"""What must stay a text wherever it is shown."""
FAULT: Final = f"fault {ATTACK}"
ATTACKER: Final = f"user {ATTACK}"
BEHAVIOUR: Final = f"""
build_seconds = 0
live_migrate_seconds = 60
rules = [
    {{ outcome = "hang", verb = "build", server = "stuck", times = 1 }},
    {{ outcome = "fail", verb = "build", server = "broken", message = '''{FAULT}''' }},
]
"""
"""How the simulated hosts behave from the beginning: what a server is called decides how its build ends."""


OTHERS: Final = {"auditor": "auditor", "operator": "operator", "reader": "reader", ATTACKER: "admin"}
"""Users beside those of ``berth up``, and their roles."""


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


class ConsolePage:
    """The console of a server in a page of a browser. ``asked``: what it has requested so far."""

    def __init__(self, url: str, page: Page) -> None:
        self.url = url
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
        self.page.goto(f"{self.url}/console/#/{view}")

    def fill_in(self, **fields: str) -> None:
        """Fill in the form for signing in, by the labels of its fields, and send it."""
        for label, value in fields.items():
            self.page.get_by_label(label).fill(value)
        self.page.get_by_role("button", name="Sign in").click()

    def expect_views(self) -> None:
        expect(self.page.get_by_role("navigation", name="Views")).to_be_visible()

    def expect_error(self, part: str) -> None:
        """An error with this text is meant to be in the browser's log."""
        self.expected.append(part)

    def count_asked(self, part: str) -> int:
        """How often something was requested whose address has this part."""
        return len([one for one in self.asked if part in one.url])

    def check(self) -> None:
        assert [error for error in self.errors if not any(part in error for part in self.expected)] == []
        elsewhere = [one.url for one in self.asked if not one.url.startswith(f"{self.url}/")]
        assert elsewhere == []


class Console(ApiUser, ConsolePage):
    """The console of the cloud."""

    def __init__(self, cloud: Cloud, page: Page) -> None:
        ApiUser.__init__(self, cloud)
        ConsolePage.__init__(self, cloud.url, page)

    def sign_in(self, user: str = "admin", password: str | None = None) -> None:
        self.fill_in(User=user, Password=self.secrets[user] if password is None else password)

    def enter(self, view: str = "", user: str = "admin") -> None:
        """Open a view as a user, from signing in on."""
        self.open(view)
        self.sign_in(user)
        self.expect_views()


def make_password(user: str) -> str:
    return f"the-password-of-{user.partition(' ')[0]}"


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("console")
    control = directory / "data" / "agents" / "control"
    control.mkdir(parents=True)
    (control / "behaviour.toml").write_text(BEHAVIOUR)
    # Tests find its parts by their command lines: they are started, not forked.
    with cloud_running(directory, *OPTIONS, is_warm=False) as cloud:
        with (cloud.data / "tokens.toml").open("a") as tokens:
            for user, role in OTHERS.items():
                entry = f"token = '{make_password(user)}'\nuser = '''{user}'''\nproject = 'admin'\n"
                tokens.write(f"\n[[token]]\n{entry}roles = ['{role}']\n")
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
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    yield context.new_page()
    context.close()


@pytest.fixture
def console(cloud: Cloud, page: Page) -> Iterator[Console]:
    console = Console(cloud, page)
    yield console
    console.check()

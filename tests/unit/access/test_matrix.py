"""Who may do what: every route of every API by every kind of caller, against the table that is checked in."""

from pathlib import Path

import pytest

from berth.api.kernel.auth.rules import RULES
from tests.unit.access.matrix import CALLERS, EXPECTED, Asked, Blue, measure, table

pytestmark = pytest.mark.fast

Measured = dict[Asked, list[int]]


@pytest.fixture(scope="module")
async def measured(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """``anyio_backend`` is what lets tests that are no coroutines have it."""
    return await measure(tmp_path_factory.mktemp("blue"))


def test_the_table_is_as_expected(measured: Measured) -> None:
    """If this is a change that is meant: python -m tests.unit.access.matrix, and review the diff."""
    assert table(measured).splitlines() == EXPECTED.read_text().splitlines()


@pytest.mark.parametrize(
    ("caller", "status"),
    [
        ("none", 401),
        ("wrong", 401),
        ("no-roles", 403),
        ("unknown", 403),
        ("domain-admin", 403),
        ("system-admin", 403),
    ],
)
def test_callers_without_a_role_get_nothing(measured: Measured, caller: str, status: int) -> None:
    """Whatever the table says."""
    place = CALLERS.index(caller)
    assert {statuses[place] for asked, statuses in measured.items() if asked.rule is not None} == {status}


@pytest.mark.parametrize("caller", ["reader", "other-reader"])
def test_readers_write_nothing(measured: Measured, caller: str) -> None:
    place = CALLERS.index(caller)
    written = [
        asked.title for asked, statuses in measured.items() if asked.method != "GET" and statuses[place] < 300
    ]
    # As in Nova: they are the user's own, and not of a project.
    assert [title for title in written if "/os-keypairs" not in title] == []


def test_objects_of_a_project_are_not_there_for_another(measured: Measured) -> None:
    own, other = CALLERS.index("member"), CALLERS.index("other-member")
    objects = ("/servers/{id}", "/os-server-groups/{id}", "/image/v2/images/{id}", "/clusters/{cluster}")
    about = [
        (statuses[own], statuses[other])
        for asked, statuses in measured.items()
        if any(part in asked.template for part in objects)
    ]
    assert len(about) > 40
    assert {status for _, status in about} == {403, 404}
    assert sum(status < 300 for status, _ in about) > 20


def test_every_route_names_a_rule_that_there_is(measured: Measured) -> None:
    known = {rule.name for rule in RULES}
    assert {asked.rule for asked in measured} - known == {None}
    assert [asked.title for asked in measured if asked.rule is None] == ["GET /"]


async def test_what_is_open_to_everybody(tmp_path: Path) -> None:
    """Versions and health, which are in no table of routes."""

    async with Blue(tmp_path).running() as region:
        for path in ("/compute", "/compute/v2.1", "/image", "/image/v2", "/identity", "/identity/v3"):
            assert (await region.ask("GET", path, token=None)).status in (200, 300), path
        for path in ("/healthz", "/readyz"):
            assert (await region.ask("GET", path, token=None)).status == 200, path

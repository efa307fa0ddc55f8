"""A server's past has an end, and migrations have numbers that are not given twice."""

import pytest

from berth.model.servers import Action, Migration
from berth.sagas.proposals import PAST_MAX
from tests.unit.sagas.regions import Region

pytestmark = pytest.mark.fast

ID = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "aaaaaaaa-0000-4000-8000-000000000002"


def test_only_so_much_of_the_past_is_remembered() -> None:
    region = Region()
    region.run("create", ID)
    for _ in range(PAST_MAX // 2 + 5):
        region.run("stop", ID)
        region.run("start", ID)
    actions = region.view.records.find(Action, "server", ID)
    assert len(actions) == PAST_MAX
    assert [action.name for action in actions[-2:]] == ["stop", "start"], "the oldest went"


def test_numbers_of_migrations_are_not_given_twice() -> None:
    region = Region()
    region.run("create", ID)
    numbers = []
    for _ in range(PAST_MAX + 5):
        region.run("live_migrate", ID)
        numbers.append(max(one.number for one in region.view.records.find(Migration, "server", ID)))
    assert numbers == list(range(1, PAST_MAX + 6))
    assert len(region.view.records.find(Migration, "server", ID)) == PAST_MAX
    region.run("delete", ID)
    region.run("create", OTHER)
    region.run("live_migrate", OTHER)
    assert region.migration(OTHER).number == PAST_MAX + 6

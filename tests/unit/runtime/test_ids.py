"""Ids: of the right shape, never twice, and the same again from the same seed."""

import uuid

import pytest

from berth.runtime.ids import Ids

pytestmark = pytest.mark.fast


def test_uuids_are_canonical_random_uuids() -> None:
    ids = Ids()
    for _ in range(200):
        text = ids.uuid()
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)


def test_two_generators_do_not_agree() -> None:
    assert Ids().uuid() != Ids().uuid()


def test_a_seed_gives_the_same_ids_again() -> None:
    first, again = Ids(7), Ids(7)
    assert [first.uuid() for _ in range(5)] == [again.uuid() for _ in range(5)]


def test_nothing_is_drawn_twice() -> None:
    ids = Ids(1)
    assert len({ids.batch_id() for _ in range(10_000)}) == 10_000


def test_request_ids_are_named_as_such() -> None:
    prefix, _, rest = Ids().request_id().partition("-")
    assert prefix == "req"
    assert uuid.UUID(rest).version == 4

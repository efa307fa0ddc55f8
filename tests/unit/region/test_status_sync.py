"""What dispatcher and status sync have to submit, they submit some at a time."""

import asyncio

import pytest

from berth.region.status_sync import finish_all


async def test_a_thousand_changes_are_submitted_some_at_a_time() -> None:
    under_way = most = finished = 0

    async def submit(number: int) -> None:
        nonlocal under_way, most, finished
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        finished += 1
        if number in (10, 500):
            raise LookupError(f"change {number}")

    with pytest.raises(LookupError, match="change 10"):
        await finish_all(submit(number) for number in range(1000))
    assert (finished, most) == (1000, 64), "a failure stops none of the others"

"""A body whose client left in the middle of it is not taken for a whole one."""

from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from berth.api.kernel.http import BodyCutShort, read_body

HALF = {"type": "http.request", "body": b"half", "more_body": True}
GONE = {"type": "http.disconnect"}


def receive_of(*messages: MutableMapping[str, Any]) -> Callable[[], Any]:
    left = list(messages)

    async def receive() -> MutableMapping[str, Any]:
        return left.pop(0)

    return receive


@pytest.mark.parametrize("messages", [(GONE,), (HALF, GONE), (HALF, HALF, GONE)])
async def test_half_a_body_is_refused(messages: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(BodyCutShort):
        await read_body(receive_of(*messages), 100)


async def test_a_whole_body_is_read_in_parts() -> None:
    last = {"type": "http.request", "body": b"whole", "more_body": False}
    assert await read_body(receive_of(HALF, last), 100) == b"halfwhole"

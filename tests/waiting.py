"""Waiting for a condition, with a deadline."""

import asyncio
from collections.abc import Callable
from typing import Final

WITHIN_S: Final = 120.0
"""Longer than anything takes that a test waits for, on a machine that is very busy too."""


async def until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Wait until the condition holds; ``TimeoutError`` if it does not in time."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.002)

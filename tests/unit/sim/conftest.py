"""Tests of the simulator run on its event loop."""

import pytest

from berth.sim.loop import VirtualLoop


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualLoop}

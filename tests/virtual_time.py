"""Fixtures of tests that run in the simulator: on virtual time, with processes that die."""

import gc
from collections.abc import Iterator

import pytest

from berth.sim.loop import VirtualLoop, throwing_away


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualLoop}


@pytest.fixture(scope="session")
def shared_objects() -> None:
    """What all tests share is not looked through after each of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def thrown_away(shared_objects: None) -> Iterator[None]:
    """What is left of a cloud is thrown away after its test, and not in the middle of another, which would
    fail for what the dead still do then."""
    yield
    with throwing_away():
        gc.collect()

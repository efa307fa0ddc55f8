"""The worlds that unit tests run in, with settings as they are by default."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worlds import ApplicationWorld, RegionWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ApplicationWorld]:
    async with ApplicationWorld(tmp_path).running() as world:
        yield world


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path).running() as region:
        yield region

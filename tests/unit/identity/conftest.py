"""The region of the identity tests: its callers are known by a tokens file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.identity.test_identity import FILE
from tests.worlds import RegionWorld


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path, FILE).running() as region:
        yield region

"""Where images are kept in a Glance, no image is made of a server."""

from pathlib import Path

import pytest

from berth.model.servers import Image
from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("createImage", {"name": "mine"}),
        ("createBackup", {"name": "mine", "backup_type": "daily", "rotation": 1}),
    ],
)
async def test_an_image_is_made_only_where_images_are_kept(tmp_path: Path, action: str, body: object) -> None:
    async with RegionWorld(tmp_path, image_endpoint="http://glance.example:9292").running() as region:
        await region.fleet()
        id = await region.active()
        before = len(region.engine.view.records.all(Image))
        refused = await region.act(id, action, body)
        assert (refused.status, "kept in a Glance" in refused.json["badRequest"]["message"]) == (400, True)
        assert region.record(id).run is None
        assert len(region.engine.view.records.all(Image)) == before

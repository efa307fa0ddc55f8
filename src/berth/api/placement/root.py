"""The version document: what a client sees before it knows anything."""

from typing import Final

from berth.api.kernel.http import Response
from berth.api.placement.calls import PlacementCall, encode
from berth.api.placement.versions import MAX_TEXT, MIN_TEXT

_DOCUMENT: Final = encode(
    {
        "versions": [
            {
                "id": f"v{MIN_TEXT}",
                "max_version": MAX_TEXT,
                "min_version": MIN_TEXT,
                "status": "CURRENT",
                "links": [{"rel": "self", "href": ""}],
            }
        ]
    }
)


async def show(call: PlacementCall) -> Response:
    return call.json(_DOCUMENT, call.now_s)

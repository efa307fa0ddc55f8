"""Which images a caller may see, and which it may change."""

from typing import Final

from berth.api.kernel.call import Call
from berth.api.kernel.problem import Problem
from berth.model.servers import Image
from berth.view import View


def is_listed(call: Call, image: Image, visibility: str | None) -> bool:
    """Whether it is in a list. Community images of others are there for those who ask for them."""
    if visibility not in (None, "all", image.visibility):
        return False
    if visibility is None and image.visibility == "community" and image.owner != call.project:
        return False
    return call.access.may_use_image(image)


def found(view: View, call: Call) -> Image:
    """The image of the path; not found if it is not for the caller."""
    image = view.records.get(Image, call.params[0].lower())
    if image is None or not call.access.may_use_image(image):
        raise Problem(404, f"No image found with ID {call.params[0]}.")
    return image


def own(view: View, call: Call) -> Image:
    """The image of the path, to be changed."""
    image = found(view, call)
    call.require_of(image.owner)
    return image


_PUBLISHING: Final = {"public": "publicize_image", "community": "communitize_image"}


def refuse_publishing(call: Call, before: Image | None, after: Image) -> None:
    """Refuse callers that may not put an image before others, or make it another project's."""
    if before is None or after.visibility != before.visibility:
        rule = _PUBLISHING.get(after.visibility)
        if rule is not None:
            call.require(rule, after.owner)
    # Whoever gives an image away must be one that may add it there.
    call.require_of(after.owner)

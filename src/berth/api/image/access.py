"""Which images a caller may see, and which it may change."""

from berth.api.compute.calls import Call
from berth.api.compute.errors import ComputeProblem
from berth.model.servers import Image
from berth.view import View


def is_visible(call: Call, image: Image) -> bool:
    """Whether it can be had by its id."""
    return call.is_admin or image.owner == call.project or image.visibility in ("public", "community")


def is_listed(call: Call, image: Image, visibility: str | None) -> bool:
    """Whether it is in a list. Community images of others are there for those who ask for them."""
    if visibility not in (None, "all", image.visibility):
        return False
    if visibility is None and image.visibility == "community" and image.owner != call.project:
        return False
    return is_visible(call, image)


def found(view: View, call: Call) -> Image:
    """The image of the path; not found if it is not for the caller."""
    image = view.records.get(Image, call.params[0].lower())
    if image is None or not is_visible(call, image):
        raise ComputeProblem(404, f"No image found with ID {call.params[0]}.")
    return image


def own(view: View, call: Call) -> Image:
    """The image of the path, to be changed."""
    image = found(view, call)
    if not call.is_admin and image.owner != call.project:
        raise ComputeProblem(403, f"Image {image.id} belongs to another project: only that may change it.")
    return image


def refuse_publishing(call: Call, before: Image | None, after: Image) -> None:
    """Only admins may put an image before everybody, or into the hands of others."""
    if call.is_admin:
        return
    if after.visibility == "public" and (before is None or before.visibility != "public"):
        raise ComputeProblem(
            403, "Policy doesn't allow this: it takes the role admin to make an image public."
        )
    if after.owner != (call.project if before is None else before.owner):
        raise ComputeProblem(403, "Policy doesn't allow this: it takes the role admin to give an image away.")

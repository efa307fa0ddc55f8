"""Rejections about flavors and images: what servers are made of."""

from typing import Literal

from berth.model.rejections.rejection import Rejection
from berth.model.rejections.scheduling import SpecInvalid

# -- flavors ------------------------------------------------------------------------------------


class FlavorNotFound(Rejection, frozen=True):
    id: str


class FlavorExists(Rejection, frozen=True):
    """``field``: what another flavor has already, its ID or its name."""

    field: str
    value: str


class ExtraSpecNotFound(Rejection, frozen=True):
    flavor: str
    key: str


class ExtraSpecsTooLarge(Rejection, frozen=True):
    """In bytes, keys and values together."""

    size: int
    limit: int


class FlavorIsPublic(Rejection, frozen=True):
    """Nobody needs to be given access to it."""

    flavor: str


class FlavorAccessExists(Rejection, frozen=True):
    flavor: str
    project: str


class FlavorAccessNotFound(Rejection, frozen=True):
    flavor: str
    project: str


class TooManyFlavorProjects(Rejection, frozen=True):
    flavor: str
    limit: int


# -- images -------------------------------------------------------------------------------------


class ImageNotFound(Rejection, frozen=True):
    id: str


class ImageExists(Rejection, frozen=True):
    id: str


class ImageProtected(Rejection, frozen=True):
    id: str


class ImageHasContent(Rejection, frozen=True):
    id: str
    status: str


class ImageFormatsMissing(Rejection, frozen=True):
    """An image gets its content after its formats."""


class ImageFormatFixed(Rejection, frozen=True):
    """The format that a content was judged by stays. ``field``: disk_format or container_format."""

    field: str
    status: str


class ImageQueued(Rejection, frozen=True):
    """An image without content is neither activated nor deactivated. The reason is a clause."""

    id: str
    reason: str


class ImageGone(Rejection, frozen=True):
    """It was deleted while its content was uploaded."""

    id: str


class ImagesFull(Rejection, frozen=True):
    """All images of the region together, in bytes."""

    limit: int
    used: int
    asked: int


class ImageNotShared(Rejection, frozen=True):
    """Only an image that is shared has members."""

    id: str
    visibility: str


class ImageMemberExists(Rejection, frozen=True):
    id: str
    project: str


class ImageMemberNotFound(Rejection, frozen=True):
    id: str
    project: str


class TooManyImageMembers(Rejection, frozen=True):
    id: str
    limit: int


class ImageTagNotFound(Rejection, frozen=True):
    id: str
    tag: str


class ImageTagPlaceWrong(Rejection, frozen=True):
    """A step of a patch names a place that the list of ``tags`` tags does not have."""

    path: str
    tags: int


class ImagePropertyNotFound(Rejection, frozen=True):
    """``asked``: replace or remove."""

    name: str
    asked: str


class TooManyImageProperties(Rejection, frozen=True):
    asked: int
    limit: int


class ImagePropertiesTooLarge(Rejection, frozen=True):
    """In bytes, names and values together."""

    size: int
    limit: int


# -- of a server that is to be built ------------------------------------------------------------


class BuildSourceNotFound(Rejection, frozen=True):
    """A server is to be built from a flavor or an image that is not there for the caller."""

    kind: Literal["Flavor", "Image"]
    id: str


class BuildSourceUnusable(Rejection, frozen=True):
    """A flavor or image has a key that has been refused since it was made."""

    kind: Literal["Flavor", "Image"]
    id: str
    why: SpecInvalid


class ImageNotActive(Rejection, frozen=True):
    id: str
    status: str


class FlavorTooSmall(Rejection, frozen=True):
    """For the image. Memory is in MiB, a disk in GiB."""

    flavor: str
    image: str
    resource: Literal["memory", "disk"]
    size: int
    needed: int

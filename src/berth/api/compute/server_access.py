"""Who may see a server, and who may have something done to it.

A server is its project's, and an administrator's. To everybody else it is not there. One that is locked can
be looked at by its owner, and nothing more until it is unlocked; an administrator passes.
"""

import msgspec

from berth.api.kernel.call import Call
from berth.api.kernel.problem import Problem, not_found
from berth.api.kernel.rejections import nova_problem
from berth.ledger.records import replace_record
from berth.model.commands import Enact
from berth.model.rejections import SpecInvalid
from berth.model.servers import Flavor, Image, Server
from berth.scheduler.spec_table import wrong_extra_spec, wrong_image_property
from berth.view import View


def visible(call: Call, view: View, id: str) -> Server:
    """The server, if there is one for the caller."""
    server = view.records.get(Server, id)
    if server is None or not call.access.sees(server.project):
        raise not_found("Instance", id)
    call.require_of(server.project)
    return server


def unlocked(call: Call, view: View, id: str) -> Server:
    """The server, if the caller may change it."""
    server = visible(call, view, id)
    if server.is_locked and not call.is_admin:
        raise Problem(409, f"Instance {id} is locked: unlock it first.")
    return server


def require_version(call: Call, minor: int) -> None:
    """What came with a later version is not there in an earlier one."""
    if call.version < minor:
        raise Problem(
            404, f"{call.request.method} {call.request.path} is there from microversion 2.{minor} on."
        )


def require_since(call: Call, body: msgspec.Struct, since: dict[str, int]) -> None:
    """Refuse fields that are given and came with a later version than the one that is spoken."""
    for name, minor in since.items():
        if call.version < minor and getattr(body, name) is not msgspec.UNSET:
            raise Problem(
                400,
                f"Invalid input: {name} is understood from microversion 2.{minor} on, and this request "
                f"speaks 2.{call.version}.",
            )


def usable_flavor(call: Call, view: View, ref: str | int) -> Flavor:
    """The flavor that a request names, by its id or a URL that ends in it. A server keeps a copy of it, and
    need not know who else may use it."""
    id = _last_part(str(ref))
    flavor = view.records.get(Flavor, id)
    if flavor is None or not call.access.may_use_flavor(flavor):
        raise Problem(400, f"Flavor {id} could not be found.")
    _refuse(f"Flavor {id}", wrong_extra_spec(flavor.extra_specs))
    return msgspec.structs.replace(flavor, projects=())


def usable_image(call: Call, view: View, ref: str) -> Image:
    """The image that a request names, if something can be made from it."""
    id = _last_part(ref)
    image = view.records.get(Image, id)
    if image is None or not call.access.may_use_image(image):
        raise Problem(400, f"Image {id} could not be found.")
    if image.status != "active":
        raise Problem(400, f"Image {id} is {image.status}: it must be active.")
    _refuse(f"Image {id}", wrong_image_property(image.properties))
    return image


def _refuse(what: str, wrong: SpecInvalid | None) -> None:
    """Refuse what could be made before a key was refused, and nothing can be made from any more."""
    if wrong is not None:
        raise Problem(400, f"{what} cannot be used: {nova_problem(wrong).text}")


def require_room(flavor: Flavor, image: Image) -> None:
    """Refuse a flavor that an image says is too small for it. A disk of 0 is as large as the image."""
    if flavor.memory_mb < image.min_memory_mb:
        raise Problem(
            400,
            f"Flavor {flavor.id} has {flavor.memory_mb} MB of memory, and image {image.id} needs at least "
            f"{image.min_memory_mb}: choose a larger flavor.",
        )
    if flavor.disk_gb and flavor.disk_gb < image.min_disk_gb:
        raise Problem(
            400,
            f"Flavor {flavor.id} has a disk of {flavor.disk_gb} GB, and image {image.id} needs at least "
            f"{image.min_disk_gb}: choose a larger flavor.",
        )


def changed(view: View, server: Server, now_s: int) -> Enact:
    """The command that puts a server's record in place of what stands there."""
    return Enact((replace_record(view, msgspec.structs.replace(server, updated_at_s=now_s)),))


def _last_part(ref: str) -> str:
    return ref.rstrip("/").rpartition("/")[2]

"""/v2/images/{id}/members: projects that an image is shared with.

The owner adds and removes members; a member alone says whether it takes the image. Until then the image is
not in its lists, though it can be used by its id: nobody can put images into the lists of others.

    pending <--> accepted <--> rejected
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from berth.api.image.images import change_image, find_image
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import show_time
from berth.ledger import replace_record
from berth.model.commands import Command, Enact
from berth.model.rejections import (
    ImageMemberExists,
    ImageMemberNotFound,
    ImageNotShared,
    Rejection,
    TooManyImageMembers,
)
from berth.model.servers import Image, ImageMember
from berth.view import View

_MEMBERS_MAX: Final = 128
SCHEMA: Final = "/v2/schemas/member"


class NewMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    member: Annotated[str, Meta(min_length=1, max_length=255)]


class MemberAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Clients may say again which member it is."""

    status: Literal["pending", "accepted", "rejected"]
    member: str | None = None
    member_id: str | None = None


def _render_member(image: Image, member: ImageMember) -> dict[str, Any]:
    return {
        "image_id": image.id,
        "member_id": member.project,
        "status": member.status,
        "created_at": show_time(member.created_at_s),
        "updated_at": show_time(member.updated_at_s),
        "schema": SCHEMA,
    }


def _find_shared(view: View, call: Call) -> Image | Rejection:
    image = find_image(view, call)
    if isinstance(image, Rejection) or image.visibility == "shared":
        return image
    return ImageNotShared(image.id, image.visibility)


def _find_member(view: View, call: Call) -> tuple[Image, ImageMember] | Rejection:
    """The member of the path; not found for other members."""
    image = _find_shared(view, call)
    if isinstance(image, Rejection):
        return image
    project = call.params[1]
    member = image.find_member(project)
    if member is None or not (call.access.sees(image.owner) or call.access.sees(project)):
        return ImageMemberNotFound(image.id, project)
    return image, member


async def list_members(call: Call) -> Response:
    """All of them for the owner, and itself for a member."""

    def answer(view: View) -> list[dict[str, Any]] | Rejection:
        image = _find_shared(view, call)
        if isinstance(image, Rejection):
            return image
        sees_all = call.access.sees(image.owner)
        return [
            _render_member(image, member)
            for member in image.members
            if sees_all or member.project == call.project
        ]

    return json({"members": await call.read(answer), "schema": "/v2/schemas/members"})


async def show_member(call: Call) -> Response:
    image, member = await call.read(lambda view: _find_member(view, call))
    return json(_render_member(image, member))


async def add_member(call: Call) -> Response:
    project, now_s = call.decode(NewMember).member, call.now_s

    def after(image: Image) -> Image | Rejection:
        if image.visibility != "shared":
            return ImageNotShared(image.id, image.visibility)
        if image.find_member(project) is not None:
            return ImageMemberExists(image.id, project)
        if len(image.members) >= _MEMBERS_MAX:
            return TooManyImageMembers(image.id, _MEMBERS_MAX)
        member = ImageMember(project, created_at_s=now_s, updated_at_s=now_s)
        return msgspec.structs.replace(image, members=(*image.members, member))

    return await change_image(call, after, lambda image: _answer(image, project))


def _answer(image: Image, project: str) -> Response:
    member = image.find_member(project)
    assert member is not None, "it has just been written"
    return json(_render_member(image, member))


async def update_member(call: Call) -> Response:
    """What the member says of the image: neither its owner nor another member may."""
    body, project = call.decode(MemberAnswer), call.params[1]
    for named in (body.member, body.member_id):
        if named is not None and named != project:
            raise Problem(400, f"The body is about member {named[:100]!r}, and the path about {project!r}.")

    def propose(view: View, now_s: int) -> Command | Rejection:
        found = _find_member(view, call)
        if isinstance(found, Rejection):
            return found
        image, member = found
        forbidden = call.find_forbidden(project)
        if forbidden is not None:
            return forbidden
        changed = msgspec.structs.replace(member, status=body.status, updated_at_s=now_s)
        members = tuple(changed if one is member else one for one in image.members)
        return Enact((replace_record(view, msgspec.structs.replace(image, members=members)),))

    def answer(view: View) -> Response:
        image = view.records.get(Image, call.params[0].lower())
        assert image is not None, "it has just been written"
        return _answer(image, project)

    return await call.submit(propose, answer)


async def remove_member(call: Call) -> Response:
    project = call.params[1]

    def after(image: Image) -> Image | Rejection:
        if image.visibility != "shared":
            return ImageNotShared(image.id, image.visibility)
        if image.find_member(project) is None:
            return ImageMemberNotFound(image.id, project)
        left = tuple(member for member in image.members if member.project != project)
        return msgspec.structs.replace(image, members=left)

    return await change_image(call, after, lambda image: Response(204))


ROUTES: Final = (
    Route("GET", "/images/{id}/members", list_members, policy="get_members"),
    Route("POST", "/images/{id}/members", add_member, policy="add_member"),
    Route("GET", "/images/{id}/members/{project}", show_member, policy="get_member"),
    Route("PUT", "/images/{id}/members/{project}", update_member, policy="modify_member"),
    Route("DELETE", "/images/{id}/members/{project}", remove_member, policy="delete_member"),
)

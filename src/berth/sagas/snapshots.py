"""Images that are made of servers: their records, from the request until the run that makes one has ended.

    (none) --(requested)--> queued --(the run is done)--> active
                                 \\--(it has failed, or was aborted)--> gone

Such an image has the id of the run that makes it. A backup replaces the oldest of its kind, as soon as it is
there itself and not before: of a server and a backup type so many are kept as was said with the last one.
"""

import hashlib
from typing import Final

import msgspec

from berth.ledger import remove_record, replace_record
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.rejections import Rejection
from berth.model.saga_runs import SagaRun
from berth.model.servers import Image, Server
from berth.sagas.proposals import Context, propose_in_place
from berth.sagas.saga import Saga
from berth.view import View

INSTANCE: Final = "instance_uuid"
KIND: Final = "image_type"
BACKUP_TYPE: Final = "backup_type"
_CONTENT: Final = b""
"""What agents hand over: a simulated disk has nothing on it."""
_NOT_INHERITED: Final = ("cache_in_nova", "img_signature", "img_signature_hash_method")
"""Properties of an image that are about its content, and so are not those of another one."""


def propose_snapshot(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    saga: Saga,
    name: str,
    properties: dict[str, str],
    rotation: int | None = None,
) -> Enact | Rejection:
    """Start a run that makes an image of a server where it is. ``rotation``: how many backups of its kind
    are kept then."""
    server = view.records.get(Server, id)
    run = context.make_run_id()
    image = None if server is None else _make_image(view, now_s, context, server, run, name, properties)
    if image is not None:
        image = msgspec.structs.replace(image, rotation=rotation)
    changed = () if image is None else (image,)
    return propose_in_place(view, now_s, context, id, saga, run=run, changed=changed)


def _make_image(
    view: View,
    now_s: int,
    context: Context,
    server: Server,
    id: str,
    name: str,
    properties: dict[str, str],
) -> Image:
    base = view.records.get(Image, server.image or "") or Image(id="")
    inherited = {key: value for key, value in base.properties.items() if key not in _NOT_INHERITED}
    return Image(
        id=id,
        name=name,
        visibility="private",
        owner=context.project,
        properties=inherited
        | {
            INSTANCE: server.id,
            "user_id": context.user,
            "owner_id": server.project,
            "base_image_ref": server.image or "",
            "image_location": "snapshot",
            "image_state": "available",
        }
        | properties,
        disk_format=base.disk_format or "raw",
        container_format=base.container_format or "bare",
        min_disk_gb=server.flavor.disk_gb or base.min_disk_gb,
        min_memory_mb=base.min_memory_mb,
        created_at_s=now_s,
        updated_at_s=now_s,
    )


def settle_image(view: View, run: str, now_s: int, *, is_done: bool) -> tuple[RecordChanged, ...]:
    """The changes of images when a run has ended that may have made one."""
    image = view.records.get(Image, run)
    if image is None or image.status != "queued":
        # Its owner has deleted it meanwhile, or has given it another content.
        return ()
    if not is_done:
        return (remove_record(view, image),)
    made = msgspec.structs.replace(
        image,
        status="active",
        size=len(_CONTENT),
        checksum=hashlib.md5(_CONTENT, usedforsecurity=False).hexdigest(),
        hash_value=hashlib.sha512(_CONTENT).hexdigest(),
        rotation=None,
        updated_at_s=now_s,
    )
    if image.rotation is None:
        return (replace_record(view, made),)
    kept = _list_backups(view, made)[: image.rotation]
    others = [one for one in _list_backups(view, made) if one not in kept and one.id != made.id]
    own = (replace_record(view, made) if made in kept else remove_record(view, image),)
    return (*own, *(remove_record(view, one) for one in others if not one.is_protected))


def _list_backups(view: View, made: Image) -> list[Image]:
    """All backups of the same server and type, the newest first."""
    kinds = (INSTANCE, KIND, BACKUP_TYPE)
    wanted = [made.properties.get(key) for key in kinds]
    found = [
        one
        for one in view.records.all(Image)
        if one.id != made.id
        and one.owner == made.owner
        and one.status == "active"
        and [one.properties.get(key) for key in kinds] == wanted
    ]
    return [made, *sorted(found, key=lambda one: (one.created_at_s, one.id), reverse=True)]


def settle_snapshot(view: View, run: SagaRun, now_s: int) -> tuple[RecordChanged, ...]:
    return settle_image(view, run.id, now_s, is_done=run.phase == "done")

"""POST /servers/{id}/action: have something done to a server. Every action that is offered is a row below.

An action begins in the writer's turn: whether the caller may is asked there, what it needs is claimed there,
and its saga run has begun when the answer goes out. The server's actions tell how it ended.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.compute.servers.create import (
    fetch_image,
    find_host_name,
    find_key,
    find_missing_zone,
    find_usable_flavor,
    find_usable_image,
)
from berth.api.compute.servers.fields import (
    SINCE,
    BuildBody,
    HostName,
    Metadata,
    Name,
    Ref,
    ServerBody,
    Text,
    change_guest,
    check_guest,
    check_name,
    find_excess,
    refuse_fields,
    show_password,
)
from berth.api.compute.servers.show import find_server, find_unlocked, get_server, show_changed
from berth.api.compute.servers.update import rename_server, replace_server, submit_delete
from berth.api.compute.versions import require_since
from berth.api.kernel.access import is_no_place, no_place
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.ports import read_port_needs
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import why_no_place
from berth.api.kernel.router import Route
from berth.ledger.quotas import find_exceeded
from berth.model.commands import Enact
from berth.model.quotas import amounts_of
from berth.model.rejections import Forbidden, Rejection, ServerNotOffloaded
from berth.model.servers import Flavor, Need, Server
from berth.sagas import (
    confirm,
    create_backup,
    create_image,
    evacuate,
    live_migrate,
    migrate,
    pause,
    reboot,
    rebuild,
    rescue,
    reset,
    resize,
    restore,
    resume,
    revert,
    shelve,
    shelve_offload,
    start,
    stop,
    suspend,
    unpause,
    unrescue,
    unshelve,
)
from berth.sagas.proposals import Context
from berth.view import View

T = TypeVar("T")
Begin = Callable[[View, int, Context, str], Enact | Rejection]
_ROTATION_MAX: Final = 9_999
"""How many backups of one type may be kept of a server."""

# -- bodies -------------------------------------------------------------------------------------


class Resize(ServerBody, kw_only=True, frozen=True):
    flavor_ref: Ref | int
    disk_config: Any = None


class Migrate(ServerBody, kw_only=True, frozen=True):
    host: HostName | UnsetType | None = UNSET


class LiveMigrate(ServerBody, kw_only=True, frozen=True):
    host: HostName | None = None
    block_migration: Any = None
    disk_over_commit: Any = None
    force: Any = None


class Evacuate(ServerBody, kw_only=True, frozen=True):
    host: HostName | None = None
    force: Any = None
    admin_pass: Any = None
    on_shared_storage: Any = None


class Rebuild(BuildBody, kw_only=True, frozen=True):
    image_ref: Ref
    name: Name | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    description: Text | UnsetType | None = UNSET
    key_name: Name | UnsetType | None = UNSET
    preserve_ephemeral: Any = None


class Unshelve(ServerBody, kw_only=True, frozen=True):
    """A zone of None unpins the server from the zone that it was created in."""

    availability_zone: Name | UnsetType | None = UNSET
    host: HostName | UnsetType = UNSET


class Reboot(ServerBody, kw_only=True, frozen=True):
    type: Literal["SOFT", "Soft", "soft", "HARD", "Hard", "hard"]


class Rescue(ServerBody, kw_only=True, frozen=True):
    admin_pass: Text | None = None
    rescue_image_ref: Any = None


class ResetState(ServerBody, kw_only=True, frozen=True):
    state: Literal["active", "error"]


class CreateImage(ServerBody, kw_only=True, frozen=True):
    name: Name
    metadata: Metadata = msgspec.field(default_factory=dict)


class CreateBackup(ServerBody, kw_only=True, frozen=True):
    name: Name
    backup_type: Text
    rotation: Annotated[int, Meta(ge=0, le=_ROTATION_MAX)] | Annotated[str, Meta(pattern=r"^[0-9]{1,4}\Z")]
    metadata: Metadata = msgspec.field(default_factory=dict)


class Lock(ServerBody, kw_only=True, frozen=True):
    locked_reason: Name | UnsetType = UNSET


# -- how an action begins -----------------------------------------------------------------------


async def act_on_server(call: Call) -> Response:
    """Do the one action that the body names."""
    named = call.decode(dict[str, msgspec.Raw])
    if len(named) != 1:
        raise Problem(400, f"The body must have one action, and it has {len(named)}.")
    [(name, raw)] = named.items()
    action = _ACTIONS.get(name)
    if action is None:
        await call.read(lambda view: find_server(call, view, call.params[0]))
        raise _refuse_action(name)
    return await action.handler(call, raw)


def _refuse_action(name: str) -> Problem:
    offered = ", ".join(sorted(_ACTIONS))
    if name in _NOT_OFFERED:
        return Problem(400, f"The action {name} is not supported. Supported: {offered}.")
    return Problem(400, f"Unknown action: {name[:100]}. Supported: {offered}.")


def _decode_action(raw: msgspec.Raw, kind: type[T], empty: T | None = None) -> T:
    """The body of an action. Null stands for ``empty``, where there is one."""
    try:
        found = msgspec.json.decode(raw, type=kind if empty is None else kind | None)
    except msgspec.ValidationError as error:
        raise Problem(400, f"Invalid input: {error}") from None
    return found if found is not None else empty  # type: ignore[return-value]


async def _start(call: Call, begin: Begin, status: int = 202) -> Response:
    return await _start_and_answer(call, begin, lambda view: Response(status))


async def _start_move(call: Call, begin: Begin, status: int = 202) -> Response:
    """Start what looks for another place: what the ports of the server need is read again before."""
    server = await call.read(lambda view: find_unlocked(call, view, call.params[0]))
    needs = await read_port_needs(call.services.ports, server.ports, server.project, server.id)
    return await _start_and_answer(call, begin, lambda view: Response(status), call.accept(needs))


async def _start_and_answer(
    call: Call, begin: Begin, answer: Callable[[View], Response], port_needs: tuple[Need, ...] = ()
) -> Response:
    id, context = call.params[0], call.context()._replace(port_needs=port_needs)

    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_unlocked(call, view, id)
        return server if isinstance(server, Rejection) else begin(view, now_s, context, id)

    outcome = await call.try_submit(propose, answer)
    if isinstance(outcome, Rejection):
        if not is_no_place(outcome):
            raise call.problem_of(outcome)
        why = why_no_place(outcome)
        raise Problem(400, why if call.access.sees_hosts else no_place(why))
    return outcome


# -- moves --------------------------------------------------------------------------------------


async def _resize(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, Resize)
    refuse_fields("resize", body)

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        flavor = find_usable_flavor(call, view, body.flavor_ref)
        if isinstance(flavor, Rejection):
            return flavor
        # Before a place is looked for: there may be none, and the quota is what the user can do without.
        return _find_exceeded(view, context, id, flavor) or resize.propose(view, now_s, context, id, flavor)

    return await _start_move(call, begin)


def _find_exceeded(view: View, context: Context, id: str, flavor: Flavor) -> Rejection | None:
    """Why a server may not become as large as a flavor, if its project's quota does not allow that."""
    server = view.records.get(Server, id)
    if server is None:
        return None
    _, before = amounts_of(server)
    _, after = amounts_of(msgspec.structs.replace(server, flavor=flavor))
    more = {name: after[name] - before[name] for name in after}
    return find_exceeded(view, context.quotas, server.project, more)


async def _migrate(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, Migrate, Migrate())
    require_since(call, body, {"host": 56})
    if isinstance(body.host, str):
        call.require("os_compute_api:os-migrate-server:migrate:host")

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        host = find_host_name(view, body.host)
        return host if isinstance(host, Rejection) else migrate.propose(view, now_s, context, id, host)

    return await _start_move(call, begin)


async def _confirm(call: Call, raw: msgspec.Raw) -> Response:
    return await _start(call, confirm.propose, 204)


async def _revert(call: Call, raw: msgspec.Raw) -> Response:
    return await _start(call, revert.propose)


async def _live_migrate(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, LiveMigrate)
    if isinstance(body.host, str):
        call.require("os_compute_api:os-migrate-server:migrate_live:host")
    # Before 2.25 the field was required, and clients sent false.
    refuse_fields("os-migrateLive", body, block_migration=(False,) if call.version < 25 else ())

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        host = find_host_name(view, body.host)
        return host if isinstance(host, Rejection) else live_migrate.propose(view, now_s, context, id, host)

    return await _start_move(call, begin)


async def _evacuate(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, Evacuate)
    refuse_fields("evacuate", body)

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        host = find_host_name(view, body.host)
        return host if isinstance(host, Rejection) else evacuate.propose(view, now_s, context, id, host)

    return await _start_move(call, begin, 200)


# -- where it is --------------------------------------------------------------------------------


_SHOWS_KEY: Final = 54
_SHOWS_USER_DATA: Final = 57
"""From these microversions on the answer to a rebuild has them."""


async def _rebuild(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, Rebuild)
    require_since(call, body, {**SINCE, "description": 19, "key_name": 54, "user_data": 57})
    refuse_fields("rebuild", body)
    check_name(body.name)
    check_guest(call, body)
    if not isinstance(body.metadata, UnsetType):
        call.accept(find_excess(body.metadata))
    await fetch_image(call, body.image_ref)

    def change_server(server: Server, key: str | None) -> Server:
        server = rename_server(change_guest(server, body), body.name, body.description)
        if not isinstance(body.metadata, UnsetType):
            server = msgspec.structs.replace(server, metadata=body.metadata)
        if not isinstance(body.key_name, UnsetType):
            guest = msgspec.structs.replace(server.guest, public_key=key)
            server = msgspec.structs.replace(server, key_name=body.key_name, guest=guest)
        return server

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        image = find_usable_image(call, view, body.image_ref)
        if isinstance(image, Rejection):
            return image
        key = find_key(view, call.user, body.key_name)
        if isinstance(key, Rejection):
            return key
        return rebuild.propose(view, now_s, context, id, image, lambda server: change_server(server, key))

    def answer(view: View) -> Response:
        shown = show_changed(call, view, get_server(call, view, call.params[0]))
        server = get_server(call, view, call.params[0])
        if call.version >= _SHOWS_KEY:
            shown["key_name"] = server.key_name
        if call.version >= _SHOWS_USER_DATA:
            shown.pop("OS-EXT-SRV-ATTR:user_data", None)
            shown["user_data"] = server.guest.user_data
        return json({"server": shown | show_password(body.admin_pass, call.services.ids)}, 202)

    return await _start_and_answer(call, begin, answer)


def _make_handler(propose: Begin) -> "ActionHandler":
    async def handle(call: Call, raw: msgspec.Raw) -> Response:
        return await _start(call, propose)

    return handle


async def _shelve(call: Call, raw: msgspec.Raw) -> Response:
    is_away = call.services.settings.shelve_offload
    return await _start(call, shelve.propose_away if is_away else shelve.propose)


async def _unshelve(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, Unshelve, Unshelve())
    require_since(call, body, {"availability_zone": 77, "host": 91})
    if body.host is not msgspec.UNSET:
        call.require("os_compute_api:os-shelve:unshelve_to_host")
    zone = body.availability_zone
    if zone is None and call.version < 91:
        raise Problem(400, "Invalid input: an availability_zone of null needs microversion 2.91 or later.")

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        server = view.records.get(Server, id)
        if server is not None and server.state == "shelved" and body != Unshelve():
            return ServerNotOffloaded(id)
        missing = find_missing_zone(view, zone)
        if missing is not None:
            return missing
        host = find_host_name(view, body.host)
        if isinstance(host, Rejection):
            return host
        return unshelve.propose(view, now_s, context, id, zone=zone, host=host)

    return await _start_move(call, begin)


async def _reboot(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, Reboot)
    return await _start(call, reboot.propose if body.type.upper() == "SOFT" else reboot.propose_hard)


async def _rescue(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, Rescue, Rescue())
    refuse_fields("rescue", body)
    password = body.admin_pass or call.services.ids.uuid()[-12:]
    return await _start_and_answer(call, rescue.propose, lambda view: json({"adminPass": password}))


async def _create_image(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, CreateImage)
    _require_images(call, "createImage")
    check_name(body.name)
    call.accept(find_excess(body.metadata))

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        return create_image.propose(view, now_s, context, id, body.name, body.metadata)

    return await _start_and_answer(call, begin, lambda view: _show_made(call, view))


async def _create_backup(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, CreateBackup)
    _require_images(call, "createBackup")
    check_name(body.name)
    call.accept(find_excess(body.metadata))
    rotation = int(body.rotation)

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        given = (body.name, body.backup_type, rotation, body.metadata)
        return create_backup.propose(view, now_s, context, id, *given)

    def answer(view: View) -> Response:
        # With a rotation of 0 nothing is kept, not even this one.
        return _show_made(call, view) if rotation else Response(202)

    return await _start_and_answer(call, begin, answer)


def _require_images(call: Call, action: str) -> None:
    """An image is made where images are kept: in a Glance nothing is written."""
    if call.services.images is None:
        raise Problem(400, f"The action {action} is not supported here: images are kept in a Glance.")


def _show_made(call: Call, view: View) -> Response:
    """Where the image is that is being made: it has the id of the run that makes it."""
    image = get_server(call, view, call.params[0]).run or ""
    if call.version >= _IMAGE_ID_SINCE:
        return json({"image_id": image}, 202)
    return Response(202, headers=[("location", f"{call.origin}/image/v2/images/{image}")])


_IMAGE_ID_SINCE: Final = 45


async def _reset_state(call: Call, raw: msgspec.Raw) -> Response:
    state = _decode_action(raw, ResetState).state

    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_server(call, view, call.params[0])
        return server if isinstance(server, Rejection) else reset.propose(view, now_s, server.id, state)

    return await call.submit(propose, lambda _: Response(202))


async def _force_delete(call: Call, raw: msgspec.Raw) -> Response:
    return await submit_delete(call, is_forced=True, status=202)


# -- locks --------------------------------------------------------------------------------------


async def _lock(call: Call, raw: msgspec.Raw) -> Response:
    body = _decode_action(raw, Lock, Lock())
    require_since(call, body, {"locked_reason": 73})
    reason = body.locked_reason if isinstance(body.locked_reason, str) else None

    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_server(call, view, call.params[0])
        if isinstance(server, Rejection):
            return server
        locker = _read_locker(call, server)
        if server.is_locked and locker == "owner":
            # The first lock stays, with its reason.
            return Enact(())
        return replace_server(
            view,
            msgspec.structs.replace(server, is_locked=True, locked_by=locker, locked_reason=reason),
            now_s,
        )

    return await call.submit(propose, lambda _: Response(202))


async def _unlock(call: Call, raw: msgspec.Raw) -> Response:
    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_server(call, view, call.params[0])
        if isinstance(server, Rejection):
            return server
        is_of_another = server.is_locked and (server.locked_by or "owner") != _read_locker(call, server)
        if is_of_another and not call.allows(_UNLOCK_OVERRIDE, server.project):
            return Forbidden(_UNLOCK_OVERRIDE)
        return replace_server(
            view,
            msgspec.structs.replace(server, is_locked=False, locked_by=None, locked_reason=None),
            now_s,
        )

    return await call.submit(propose, lambda _: Response(202))


_UNLOCK_OVERRIDE: Final = "os_compute_api:os-lock-server:unlock:unlock_override"


def _read_locker(call: Call, server: Server) -> Literal["owner", "admin"]:
    """The role in which the caller locks: in its own project it is an owner, as in Nova."""
    return "owner" if server.project == call.project else "admin"


# -- the table ----------------------------------------------------------------------------------

ActionHandler = Callable[[Call, msgspec.Raw], Awaitable[Response]]


class _Action(NamedTuple):
    handler: ActionHandler
    rule: str


_ACTIONS: Final[dict[str, _Action]] = {
    "resize": _Action(_resize, "os_compute_api:servers:resize"),
    "confirmResize": _Action(_confirm, "os_compute_api:servers:confirm_resize"),
    "revertResize": _Action(_revert, "os_compute_api:servers:revert_resize"),
    "migrate": _Action(_migrate, "os_compute_api:os-migrate-server:migrate"),
    "os-migrateLive": _Action(_live_migrate, "os_compute_api:os-migrate-server:migrate_live"),
    "evacuate": _Action(_evacuate, "os_compute_api:os-evacuate"),
    "rebuild": _Action(_rebuild, "os_compute_api:servers:rebuild"),
    "shelve": _Action(_shelve, "os_compute_api:os-shelve:shelve"),
    "shelveOffload": _Action(
        _make_handler(shelve_offload.propose), "os_compute_api:os-shelve:shelve_offload"
    ),
    "unshelve": _Action(_unshelve, "os_compute_api:os-shelve:unshelve"),
    "forceDelete": _Action(_force_delete, "os_compute_api:os-deferred-delete:force"),
    "os-start": _Action(_make_handler(start.propose), "os_compute_api:servers:start"),
    "os-stop": _Action(_make_handler(stop.propose), "os_compute_api:servers:stop"),
    "reboot": _Action(_reboot, "os_compute_api:servers:reboot"),
    "pause": _Action(_make_handler(pause.propose), "os_compute_api:os-pause-server:pause"),
    "unpause": _Action(_make_handler(unpause.propose), "os_compute_api:os-pause-server:unpause"),
    "suspend": _Action(_make_handler(suspend.propose), "os_compute_api:os-suspend-server:suspend"),
    "resume": _Action(_make_handler(resume.propose), "os_compute_api:os-suspend-server:resume"),
    "rescue": _Action(_rescue, "os_compute_api:os-rescue"),
    "unrescue": _Action(_make_handler(unrescue.propose), "os_compute_api:os-unrescue"),
    "createImage": _Action(_create_image, "os_compute_api:servers:create_image"),
    "createBackup": _Action(_create_backup, "os_compute_api:os-create-backup"),
    "restore": _Action(_make_handler(restore.propose), "os_compute_api:os-deferred-delete:restore"),
    "os-resetState": _Action(_reset_state, "os_compute_api:os-admin-actions:reset_state"),
    "lock": _Action(_lock, "os_compute_api:os-lock-server:lock"),
    "unlock": _Action(_unlock, "os_compute_api:os-lock-server:unlock"),
}

_NOT_OFFERED: Final = frozenset(
    (
        "changePassword",
        "addSecurityGroup",
        "removeSecurityGroup",
        "addFixedIp",
        "removeFixedIp",
        "addFloatingIp",
        "removeFloatingIp",
        "trigger_crash_dump",
        "resetNetwork",
        "injectNetworkInfo",
        "os-getConsoleOutput",
        "os-getVNCConsole",
        "os-getSPICEConsole",
        "os-getRDPConsole",
        "os-getSerialConsole",
    )
)
"""Actions that Nova has and Berth does not."""


ROUTES: Final = (
    Route(
        "POST",
        "/servers/{id}/action",
        act_on_server,
        policy="os_compute_api:servers:show",
        actions={name: action.rule for name, action in _ACTIONS.items()},
    ),
)

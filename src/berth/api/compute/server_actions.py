"""POST /servers/{id}/action: have something done to a server. Every action that is offered is a row below.

An action begins in the writer's turn: who may is asked there, what it needs is claimed there, and the order
is on its way when the answer goes out. What becomes of it is told by the server's actions.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from berth.api.compute import server_bodies as sent
from berth.api.compute.server_access import (
    changed,
    require_since,
    unlocked,
    usable_flavor,
    usable_image,
    visible,
)
from berth.api.compute.server_create import require_host, require_zone
from berth.api.compute.server_fields import refuse_fields
from berth.api.compute.server_wire import detail
from berth.api.compute.servers import deleted, renamed
from berth.api.kernel.call import Call, json
from berth.api.kernel.disclosure import is_no_place, no_place
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import why_no_place
from berth.api.kernel.router import Route
from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.model.servers import Server
from berth.sagas import (
    confirm,
    evacuate,
    live_migrate,
    migrate,
    rebuild,
    resize,
    revert,
    shelve,
    shelve_offload,
    start,
    stop,
    unshelve,
)
from berth.sagas.proposals import Context
from berth.view import View

T = TypeVar("T")
Begin = Callable[[View, int, Context, str], Enact | Rejection]


async def act(call: Call) -> Response:
    """Exactly one action, by its name."""
    context = call.decode(dict[str, msgspec.Raw])
    if len(context) != 1:
        raise Problem(400, f"The body must have one action, and it has {len(context)}.")
    [(name, raw)] = context.items()
    action = _ACTIONS.get(name)
    if action is None:
        await call.read(lambda view: visible(call, view, call.params[0]))
        raise _not_offered(name)
    return await action.handler(call, raw)


def _not_offered(name: str) -> Problem:
    offered = ", ".join(sorted(_ACTIONS))
    if name in _NOT_OFFERED:
        return Problem(400, f"The action {name} is not offered here. What is: {offered}.")
    return Problem(400, f"There is no such action: {name[:100]}. What is offered: {offered}.")


def _sent(raw: msgspec.Raw, kind: type[T], empty: T | None = None) -> T:
    """The body of an action, as a struct says it must be; null stands for ``empty``, if it may."""
    try:
        found = msgspec.json.decode(raw, type=kind if empty is None else kind | None)
    except msgspec.ValidationError as error:
        raise Problem(400, f"Invalid input: {error}") from None
    return found if found is not None else empty  # type: ignore[return-value]


async def _begun(call: Call, begin: Begin, status: int = 202) -> Response:
    return await _begun_and_answered(call, begin, lambda view: Response(status))


async def _begun_and_answered(call: Call, begin: Begin, answer: Callable[[View], Response]) -> Response:
    id, context = call.params[0], call.context()

    def propose(view: View, now_s: int) -> Enact | Rejection:
        unlocked(call, view, id)
        return begin(view, now_s, context, id)

    outcome = await call.try_submit(propose, answer)
    if isinstance(outcome, Rejection):
        if not is_no_place(outcome):
            raise call.problem_of(outcome)
        raise Problem(400, why_no_place(outcome) if call.access.sees_hosts else no_place())
    return outcome


# -- moves --------------------------------------------------------------------------------------


async def _resize(call: Call, raw: msgspec.Raw) -> Response:
    body = _sent(raw, sent.Resize)
    refuse_fields("resize", body)

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        return resize.propose(view, now_s, context, id, usable_flavor(call, view, body.flavor_ref))

    return await _begun(call, begin)


async def _migrate(call: Call, raw: msgspec.Raw) -> Response:
    body = _sent(raw, sent.Migrate, sent.Migrate())
    require_since(call, body, {"host": 56})
    if isinstance(body.host, str):
        call.require("os_compute_api:os-migrate-server:migrate:host")

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        return migrate.propose(view, now_s, context, id, _host(view, body.host))

    return await _begun(call, begin)


async def _confirm(call: Call, raw: msgspec.Raw) -> Response:
    return await _begun(call, confirm.propose, 204)


async def _revert(call: Call, raw: msgspec.Raw) -> Response:
    return await _begun(call, revert.propose)


async def _live_migrate(call: Call, raw: msgspec.Raw) -> Response:
    body = _sent(raw, sent.LiveMigrate)
    if isinstance(body.host, str):
        call.require("os_compute_api:os-migrate-server:migrate_live:host")
    # Before 2.25 it had to be said, and this is what clients said.
    refuse_fields("os-migrateLive", body, block_migration=(False,) if call.version < 25 else ())

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        return live_migrate.propose(view, now_s, context, id, _host(view, body.host))

    return await _begun(call, begin)


async def _evacuate(call: Call, raw: msgspec.Raw) -> Response:
    body = _sent(raw, sent.Evacuate)
    refuse_fields("evacuate", body)

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        return evacuate.propose(view, now_s, context, id, _host(view, body.host))

    return await _begun(call, begin, 200)


def _host(view: View, named: str | msgspec.UnsetType | None) -> str | None:
    return require_host(view, named) if isinstance(named, str) else None


# -- where it is --------------------------------------------------------------------------------


async def _rebuild(call: Call, raw: msgspec.Raw) -> Response:
    body = _sent(raw, sent.Rebuild)
    require_since(call, body, {"description": 19, "key_name": 54})
    refuse_fields("rebuild", body)

    def renewed(server: Server) -> Server:
        server = renamed(server, body.name, body.description)
        if not isinstance(body.metadata, msgspec.UnsetType):
            metadata = sent.checked_metadata(body.metadata)
            server = msgspec.structs.replace(server, metadata=metadata)
        if body.key_name is None:
            server = msgspec.structs.replace(server, key_name=None)
        return server

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        image = usable_image(call, view, body.image_ref)
        return rebuild.propose(view, now_s, context, id, image, renewed)

    def answer(view: View) -> Response:
        return json({"server": detail(call, view, visible(call, view, call.params[0]))}, 202)

    return await _begun_and_answered(call, begin, answer)


def _in_place(propose: Begin) -> "Handler":
    async def handle(call: Call, raw: msgspec.Raw) -> Response:
        return await _begun(call, propose)

    return handle


async def _shelve(call: Call, raw: msgspec.Raw) -> Response:
    is_away = call.services.settings.shelve_offload
    return await _begun(call, shelve.propose_away if is_away else shelve.propose)


async def _unshelve(call: Call, raw: msgspec.Raw) -> Response:
    body = _sent(raw, sent.Unshelve, sent.Unshelve())
    require_since(call, body, {"availability_zone": 77, "host": 91})
    if body.host is not msgspec.UNSET:
        call.require("os_compute_api:os-shelve:unshelve_to_host")
    zone = body.availability_zone
    if zone is None and call.version < 91:
        raise Problem(
            400, "Invalid input: an availability_zone of null is understood from microversion 2.91 on."
        )

    def begin(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
        server = visible(call, view, id)
        if server.state == "shelved" and body != sent.Unshelve():
            raise Problem(
                409,
                f"Instance {id} is shelved and not offloaded: it is still on its host. Unshelve it without a "
                "host or an availability zone, or offload it first.",
            )
        if isinstance(zone, str):
            require_zone(view, zone)
        return unshelve.propose(view, now_s, context, id, zone=zone, host=_host(view, body.host))

    return await _begun(call, begin)


async def _force_delete(call: Call, raw: msgspec.Raw) -> Response:
    return await deleted(call, is_forced=True, status=202)


# -- locks --------------------------------------------------------------------------------------


async def _lock(call: Call, raw: msgspec.Raw) -> Response:
    body = _sent(raw, sent.Lock, sent.Lock())
    require_since(call, body, {"locked_reason": 73})
    reason = body.locked_reason if isinstance(body.locked_reason, str) else None

    def propose(view: View, now_s: int) -> Enact:
        server = visible(call, view, call.params[0])
        locker = _locker(call, server)
        if server.is_locked and locker == "owner":
            # Whoever has locked it, it stays theirs, with their reason.
            return Enact(())
        return changed(
            view,
            msgspec.structs.replace(server, is_locked=True, locked_by=locker, locked_reason=reason),
            now_s,
        )

    return await call.submit(propose, lambda _: Response(202))


async def _unlock(call: Call, raw: msgspec.Raw) -> Response:
    def propose(view: View, now_s: int) -> Enact:
        server = visible(call, view, call.params[0])
        if server.is_locked and (server.locked_by or "owner") != _locker(call, server):
            call.require("os_compute_api:os-lock-server:unlock:unlock_override", server.project)
        return changed(
            view,
            msgspec.structs.replace(server, is_locked=False, locked_by=None, locked_reason=None),
            now_s,
        )

    return await call.submit(propose, lambda _: Response(202))


def _locker(call: Call, server: Server) -> Literal["owner", "admin"]:
    """As whom the caller locks: from its own project as an owner, as Nova has it."""
    return "owner" if server.project == call.project else "admin"


# -- the table ----------------------------------------------------------------------------------

Handler = Callable[[Call, msgspec.Raw], Awaitable[Response]]


class _Action(NamedTuple):
    handler: Handler
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
    "shelveOffload": _Action(_in_place(shelve_offload.propose), "os_compute_api:os-shelve:shelve_offload"),
    "unshelve": _Action(_unshelve, "os_compute_api:os-shelve:unshelve"),
    "forceDelete": _Action(_force_delete, "os_compute_api:os-deferred-delete:force"),
    "os-start": _Action(_in_place(start.propose), "os_compute_api:servers:start"),
    "os-stop": _Action(_in_place(stop.propose), "os_compute_api:servers:stop"),
    "lock": _Action(_lock, "os_compute_api:os-lock-server:lock"),
    "unlock": _Action(_unlock, "os_compute_api:os-lock-server:unlock"),
}

_NOT_OFFERED: Final = frozenset(
    (
        "reboot",
        "pause",
        "unpause",
        "suspend",
        "resume",
        "rescue",
        "unrescue",
        "restore",
        "createImage",
        "createBackup",
        "changePassword",
        "addSecurityGroup",
        "removeSecurityGroup",
        "addFixedIp",
        "removeFixedIp",
        "addFloatingIp",
        "removeFloatingIp",
        "trigger_crash_dump",
        "os-resetState",
        "resetNetwork",
        "injectNetworkInfo",
        "os-getConsoleOutput",
        "os-getVNCConsole",
        "os-getSPICEConsole",
        "os-getRDPConsole",
        "os-getSerialConsole",
    )
)
"""What Nova can have done to a server, and Berth cannot."""

ROUTES: Final = (
    Route(
        "POST",
        "/servers/{id}/action",
        act,
        policy="os_compute_api:servers:show",
        actions={name: action.rule for name, action in _ACTIONS.items()},
    ),
)

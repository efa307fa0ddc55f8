"""/os-migrations: all moves; /servers/{id}/migrations: the running live migrations of a server, which can be
aborted.
"""

from collections.abc import Callable
from typing import Any, Final

from berth.api.compute.servers.show import find_unlocked, get_server
from berth.api.compute.versions import make_links, require_version
from berth.api.kernel.call import Call, empty, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import Key, page_newest, read_flag, read_query, refuse_marker
from berth.api.kernel.problem import Problem, not_found
from berth.api.kernel.router import Route
from berth.api.kernel.times import parse_time, show_plain_time
from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.model.servers import Flavor, Migration
from berth.sagas import live_migrate
from berth.view import View

MigrationFilter = Callable[[Migration], bool]

_LIVE: Final = "live-migration"
_UNDER_WAY: Final = ("accepted", "migrating")
_FIELDS: Final[dict[str, tuple[int, Callable[[Migration], tuple[str, ...]]]]] = {
    "status": (1, lambda migration: (_show_status(migration),)),
    "host": (1, lambda migration: (migration.source.name, migration.dest.name)),
    "source_compute": (1, lambda migration: (migration.source.name,)),
    "instance_uuid": (1, lambda migration: (migration.server,)),
    "migration_type": (1, lambda migration: (migration.type,)),
    "user_id": (80, lambda migration: (migration.user,)),
    "project_id": (80, lambda migration: (migration.project,)),
}
"""Filters: the microversion they came with, and the values that a migration has for them."""
_NAME_HOSTS: Final = ("host", "source_compute")
_HOSTS: Final = "os_compute_api:os-migrations:index:host"
QUERY: Final = {name: since for name, (since, _) in _FIELDS.items()} | {
    "hidden": 1,
    "limit": 59,
    "marker": 59,
    "changes-since": 59,
    "changes-before": 66,
}


async def list_migrations(call: Call) -> Response:
    query = read_query(call, "migrations", QUERY)
    if query.get("project_id") != call.project:
        call.require("os_compute_api:os-migrations:index:all_projects")
    if any(name in query for name in _NAME_HOSTS):
        # The answer would tell which host a migration is on.
        call.require(_HOSTS)
    if read_flag(query, "hidden"):
        raise Problem(400, "hidden must be false or left out: no migration is hidden.")
    has_pages = call.version >= 59
    tests = _read_filters(query)

    def answer(view: View) -> dict[str, Any]:
        behind = _find_marker(view, query)
        records = view.records
        server = query.get("instance_uuid")
        migrations = records.all(Migration) if server is None else records.find(Migration, "server", server)
        matching = (one for one in migrations if all(test(one) for test in tests))
        shown, links = page_newest(
            call,
            query,
            matching,
            key=_make_key,
            behind=behind,
            render=lambda one: _show_listed(call, one),
            id_of=lambda one: one.id,
        )
        return {"migrations": shown} | ({"migrations_links": links} if links and has_pages else {})

    return json(await call.read(answer))


def _make_key(migration: Migration) -> Key:
    return migration.number, migration.id


def _find_marker(view: View, query: dict[str, str]) -> Key | None:
    marker = query.get("marker")
    if marker is None:
        return None
    migration = view.records.get(Migration, marker)
    if migration is None or query.get("project_id", migration.project) != migration.project:
        raise refuse_marker(marker)
    return _make_key(migration)


def _read_filters(query: dict[str, str]) -> list[MigrationFilter]:
    tests: list[MigrationFilter] = [
        lambda one, read=_FIELDS[name][1], value=value: value in read(one)  # type: ignore[misc]
        for name, value in query.items()
        if name in _FIELDS
    ]
    if "changes-since" in query:
        since_s = parse_time("changes-since", query["changes-since"])
        tests.append(lambda one: one.updated_at_s >= since_s)
    if "changes-before" in query:
        before_s = parse_time("changes-before", query["changes-before"])
        tests.append(lambda one: one.updated_at_s <= before_s)
    return tests


def _show_status(migration: Migration) -> str:
    """The status in Nova's words: a live migration that is migrating is running."""
    if migration.type == _LIVE and migration.status == "migrating":
        return "running"
    return migration.status


# -- of one server ------------------------------------------------------------------------------


async def list_server_migrations(call: Call) -> Response:
    require_version(call, 23)
    found = await call.read(lambda view: [_show_live(call, one) for one in _find_live_migrations(call, view)])
    return json({"migrations": found})


async def show_migration(call: Call) -> Response:
    require_version(call, 23)
    return json(
        {"migration": await call.read(lambda view: _show_live(call, _find_live_migration(call, view)))}
    )


async def abort_migration(call: Call) -> Response:
    require_version(call, 24)
    id, migration = call.params

    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_unlocked(call, view, id)
        return server if isinstance(server, Rejection) else live_migrate.propose_abort(view, id, migration)

    return await call.submit(propose, lambda _: empty(202))


async def refuse_action(call: Call) -> Response:
    require_version(call, 22)
    await call.read(lambda view: _find_live_migration(call, view))
    raise Problem(400, "A live migration cannot be forced to complete: it can only be aborted.")


def _find_live_migrations(call: Call, view: View) -> list[Migration]:
    server = get_server(call, view, call.params[0])
    return [
        migration
        for migration in view.records.find(Migration, "server", server.id)
        if migration.type == _LIVE and migration.status in _UNDER_WAY
    ]


def _find_live_migration(call: Call, view: View) -> Migration:
    named = call.params[1]
    for migration in _find_live_migrations(call, view):
        if named in (migration.id, str(migration.number)):
            return migration
    raise not_found("In-progress live migration", named)


# -- rendering ----------------------------------------------------------------------------------


def _show_common(call: Call, migration: Migration, names_hosts: str) -> dict[str, Any]:
    """``names_hosts`` is the rule by which callers are told the hosts."""
    is_told = call.allows(names_hosts, migration.project)
    source, dest = (migration.source.name, migration.dest.name) if is_told else (None, None)
    body: dict[str, Any] = {
        "id": migration.number,
        "status": _show_status(migration),
        "source_compute": source,
        "source_node": source,
        "dest_compute": dest,
        "dest_node": dest,
        "dest_host": dest,
        "created_at": show_plain_time(migration.created_at_s),
        "updated_at": show_plain_time(migration.updated_at_s),
    }
    if call.version >= 59:
        body["uuid"] = migration.id
    if call.version >= 80:
        body |= {"project_id": migration.project, "user_id": migration.user}
    return body


def _show_listed(call: Call, migration: Migration) -> dict[str, Any]:
    body = _show_common(call, migration, _HOSTS) | {
        "instance_uuid": migration.server,
        "old_instance_type_id": _show_flavor_id(migration.flavor_before),
        "new_instance_type_id": _show_flavor_id(migration.flavor_after),
    }
    if call.version >= 23:
        body["migration_type"] = migration.type
    if call.version >= 23 and migration.type == _LIVE and migration.status in _UNDER_WAY:
        body["links"] = make_links(call, f"servers/{migration.server}/migrations", str(migration.number))
    return body


def _show_flavor_id(flavor: Flavor) -> int | None:
    """The id of the flavor, if it is a number: Nova has numbers here, and clients refuse anything else."""
    return int(flavor.id) if flavor.id.isascii() and flavor.id.isdigit() else None


def _show_live(call: Call, migration: Migration) -> dict[str, Any]:
    """Progress in bytes is not known, so it is null."""
    parts = ("total", "processed", "remaining")
    unknown = {f"{what}_{part}_bytes": None for what in ("memory", "disk") for part in parts}
    both = _show_common(call, migration, "os_compute_api:servers:migrations:index:host")
    return both | {"server_uuid": migration.server} | unknown


ROUTES: Final = (
    Route("GET", "/os-migrations", list_migrations, policy="os_compute_api:os-migrations:index"),
    Route(
        "GET",
        "/servers/{id}/migrations",
        list_server_migrations,
        policy="os_compute_api:servers:migrations:index",
    ),
    Route(
        "GET",
        "/servers/{id}/migrations/{migration}",
        show_migration,
        policy="os_compute_api:servers:migrations:show",
    ),
    Route(
        "DELETE",
        "/servers/{id}/migrations/{migration}",
        abort_migration,
        policy="os_compute_api:servers:migrations:delete",
    ),
    Route(
        "POST",
        "/servers/{id}/migrations/{migration}/action",
        refuse_action,
        policy="os_compute_api:servers:migrations:force_complete",
    ),
)

"""Every route of every API, called by every kind of caller, in a region with objects of the project ``blue``.

    python -m tests.unit.access.matrix      writes routes_by_callers.txt anew: review it as a diff

Routes are read off the route tables; what stands for their variable parts, and what is sent, is below. A
route for which something is missing here fails the test by name.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from berth.api.compute.api import ROUTES as COMPUTE
from berth.api.identity.api import IdentityApi
from berth.api.image.api import ROUTES as IMAGE
from berth.api.kernel.auth.caller import Caller, with_implied
from berth.api.kernel.auth.tokens import Grant, TokenEntry, Tokens
from berth.api.kernel.router import Route
from berth.api.native.routes import PREFIX as NATIVE_PREFIX
from berth.api.native.routes import ROUTES as NATIVE
from berth.api.placement.routes import ROUTES as PLACEMENT
from berth.model.clusters import Cluster, Node, NodeGroup
from berth.model.commands import CreateGroup, Enact
from berth.model.events import AnyRecord, Origin, RecordChanged
from berth.model.groups import HOST, Group
from berth.model.ids import GroupId
from berth.model.servers import (
    Action,
    ActionEvent,
    Aggregate,
    Flavor,
    GuestAddress,
    Host,
    Image,
    ImageMember,
    Migration,
    Place,
    Server,
)
from tests.worlds import RegionWorld, uuid_of

EXPECTED: Final = Path(__file__).with_name("routes_by_callers.txt")

# -- callers ------------------------------------------------------------------------------------

_BLUE: Final = {
    "no-roles": "",
    "unknown": "stranger",
    "reader": "reader",
    "member": "member",
    "manager": "manager",
}
_RED: Final = {"other-reader": "reader", "other-member": "member", "other-manager": "manager"}
_USERS: Final = [
    *((name, "blue", role) for name, role in _BLUE.items()),
    *((name, "red", role) for name, role in _RED.items()),
    ("auditor", "ops", "auditor"),
    ("operator", "ops", "operator"),
    ("service", "service", "service"),
    ("admin", "ops", "admin"),
]
_SCOPED: Final = {
    "domain-admin": Caller("domain-admin", None, with_implied(("admin", "service")), domain_id="d"),
    "system-admin": Caller("system-admin", None, with_implied(("admin", "service")), system_scope="all"),
}
CALLERS: Final = ("none", "wrong", *(name for name, _, _ in _USERS), *_SCOPED)


def _token(caller: str) -> str:
    return f"{caller}-token-0123456789"


def _tokens_file() -> str:
    return "".join(
        f'[[token]]\ntoken = "{_token(name)}"\nuser = "{name}"\nproject = "{project}"\n'
        f"roles = {[role] if role else []}\n"
        for name, project, role in _USERS
    )


class _WithScopes(Tokens):
    """A tokens file has projects alone; a Keystone has more."""

    def known_by_token(self, token: str) -> tuple[TokenEntry, Grant | None] | None:
        for name, caller in _SCOPED.items():
            if token == _token(name):
                [first, *_] = self._current()
                return msgspec.structs.replace(first, caller=caller), None
        return super().known_by_token(token)


# -- objects ------------------------------------------------------------------------------------

_SERVER, _GROUP, _IMAGE, _MIGRATION, _CLUSTER = (uuid_of(number) for number in (11, 12, 13, 14, 15))
_HOST, _SPARE, _AGGREGATE, _NODE, _LABELLED, _POOL = (uuid_of(number) for number in (1, 2, 16, 17, 18, 19))
_PLACE: Final = Place(_HOST, "host-1", "cell-1")
_SMALL: Final = Flavor(id="1", name="small", vcpus=1, memory_mb=512, extra_specs={"resources:VCPU": "1"})
_LARGE: Final = Flavor(id="2", name="large", vcpus=2, memory_mb=512)
_PRIVATE: Final = Flavor(id="3", name="private", vcpus=2, memory_mb=512, is_public=False, projects=("blue",))


def _server(id: str, name: str) -> Server:
    return Server(
        id=id,
        name=name,
        project="blue",
        user="member",
        flavor=_SMALL,
        image=_IMAGE,
        state="active",
        place=_PLACE,
        metadata={"note": "x"},
        tags=("old",),
        addresses=(GuestAddress("private", "10.0.0.1"),),
        created_at_s=1,
    )


_RECORDS: Final[tuple[AnyRecord, ...]] = (
    _SMALL,
    _LARGE,
    _PRIVATE,
    Image(
        id=_IMAGE,
        name="private",
        status="active",
        visibility="shared",
        owner="blue",
        tags=("old",),
        properties={"note": "x"},
        disk_format="raw",
        container_format="bare",
        members=(ImageMember("green"),),
    ),
    Image(id=uuid_of(19), name="public", status="active", visibility="public", owner="ops"),
    Host(id=_HOST, number=1, name="host-1", cell="cell-1"),
    Host(id=_SPARE, number=2, name="host-2", cell="cell-1"),
    Aggregate(id=_AGGREGATE, number=1, name="racks"),
    _server(_SERVER, "one"),
    _server(_NODE, "c-w-0"),
    Migration(
        id=_MIGRATION,
        number=1,
        server=_SERVER,
        type="live-migration",
        status="migrating",
        source=_PLACE,
        dest=Place(_SPARE, "host-2", "cell-1"),
        flavor_before=_SMALL,
        flavor_after=_SMALL,
        project="blue",
        user="member",
    ),
    Action(
        id=uuid_of(20),
        server=_SERVER,
        name="create",
        request_id="req-1",
        project="blue",
        user="member",
        started_at_s=1,
        updated_at_s=1,
        events=(ActionEvent("build", 1, 1, "Success", "host-1", None),),
    ),
    Cluster(
        id=_CLUSTER,
        name="c",
        project="blue",
        user="member",
        node_groups=(NodeGroup(name="w", flavor=_SMALL, image=None, processes=(), count=1),),
        nodes=(Node(name="c-w-0", node_group="w", index=0, server=_NODE),),
    ),
)

_PARAMS: Final = {
    "aggregates/{aggregate}": _LABELLED,
    "allocations/{consumer_uuid}": _SERVER,
    "clusters/{cluster}": _CLUSTER,
    "domains/{id}": "default",
    "endpoints/{id}": "none",
    "extensions/{alias}": "os-hosts",
    "flavors/{id}": "1",
    "groups/{group}": _GROUP,
    "hosts/{host}": _HOST,
    "images/{id}": _IMAGE,
    "ips/{network}": "private",
    "inventories/{resource_class}": "VCPU",
    "members/{project}": "green",
    "metadata/{key}": "note",
    "migrations/{migration}": "1",
    "needs/{need}": "port",
    "nodes/{node}": "c-w-0",
    "os-aggregates/{id}": "1",
    "os-extra_specs/{key}": "resources:VCPU",
    "os-hosts/{host}": "host-1",
    "os-instance_usage_audit_log/{before}": "2026-01-01",
    "os-simple-tenant-usage/{project}": "blue",
    "os-hypervisors/{id}": _HOST,
    "os-hypervisors/{pattern}": "host",
    "os-instance-actions/{request_id}": "req-1",
    "os-keypairs/{name}": "key",
    "os-quota-class-sets/{name}": "default",
    "os-quota-sets/{project}": "blue",
    "os-server-groups/{id}": _GROUP,
    "os-services/{id}": _HOST,
    "pools/{pool}": _POOL,
    "projects/{id}": "blue",
    "regions/{id}": "RegionOne",
    "resource_classes/{name}": "CUSTOM_GOLD",
    "resource_providers/{uuid}": _HOST,
    "roles/{id}": "member",
    "servers/{id}": _SERVER,
    "servers/{server}": _SERVER,
    "services/{id}": "none",
    "tags/{tag}": "old",
    "traits/{name}": "CUSTOM_FAST",
    "users/{id}": "member",
}
"""What stands for a variable part, by the part before it."""

# -- what is sent -------------------------------------------------------------------------------

_V21: Final = "/compute/v2.1"
_NEED: Final = {"resources": {"VCPU": 1}}
_NEW_CLUSTER: Final = {"name": "d", "node_groups": [{"name": "w", "flavor": "small", "count": 1}]}
_NO_BODY: Final = object()
_PUBLIC_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBbGnNzZBm0kqoBuHyL9uIwm3tVDsqNGrZEPYA4NqqZz ann"
_BODIES: Final[dict[str, Any]] = {
    "POST /resource_classes": {"name": "CUSTOM_SILVER"},
    "PUT /resource_classes/{name}": _NO_BODY,
    "POST /resource_providers": {"name": "host-9"},
    "PUT /resource_providers/{uuid}": {"name": "host-one"},
    "POST /resource_providers/{uuid}/inventories": {
        "resource_provider_generation": 2,
        "resource_class": "SRIOV_NET_VF",
        "total": 4,
    },
    "PUT /resource_providers/{uuid}/inventories": {"resource_provider_generation": 2, "inventories": {}},
    "PUT /resource_providers/{uuid}/inventories/{resource_class}": {
        "resource_provider_generation": 2,
        "total": 9,
    },
    "PUT /resource_providers/{uuid}/aggregates": {"resource_provider_generation": 2, "aggregates": []},
    "PUT /resource_providers/{uuid}/traits": {"resource_provider_generation": 2, "traits": []},
    "PUT /traits/{name}": _NO_BODY,
    "POST /allocations": {
        uuid_of(99): {
            "allocations": {_HOST: {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
    },
    "PUT /allocations/{consumer_uuid}": {
        "allocations": {_HOST: {"resources": {"VCPU": 1}}},
        "project_id": "blue",
        "user_id": "member",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    },
    "POST /reshaper": {
        "inventories": {_HOST: {"resource_provider_generation": 2, "inventories": {}}},
        "allocations": {},
    },
    "POST /berth/v1/groups": {"group": {"name": "h", "policy": "affinity"}},
    "PATCH /berth/v1/groups/{group}": {"group": {"name": "h"}},
    "POST /berth/v1/groups/{group}/members": {"add": [_SERVER]},
    "PUT /berth/v1/aggregates/{aggregate}": {"aggregate": {"kind": "rack", "name": "r1", "metadata": {}}},
    "PUT /berth/v1/hosts/{host}": {"host": {"disabled": True}},
    "PATCH /berth/v1/hosts/{host}": {"host": {"disabled": True}},
    "POST /berth/v1/hosts/{host}/drain": {"drain": {"dry_run": True}},
    "POST /berth/v1/pools": {"pool": {"name": "other", "inventories": {"DISK_GB": {"total": 1}}}},
    "PUT /berth/v1/pools/{pool}": {"pool": {"name": "nas", "inventories": {"DISK_GB": {"total": 2}}}},
    "POST /berth/v1/schedule": {"resources": {"VCPU": 1}},
    "POST /berth/v1/explain": {"resources": {"VCPU": 1}},
    "POST /berth/v1/capacity": {"resources": {"VCPU": 1}},
    "PUT /berth/v1/servers/{server}/needs/{need}": _NEED,
    "POST /berth/v1/doctor/repair": {"findings": "all"},
    "POST /berth/v1/clusters": {"cluster": _NEW_CLUSTER},
    "POST /berth/v1/clusters/{cluster}/scale": {"counts": {"w": 2}},
    "POST /berth/v1/clusters/{cluster}/nodes/{node}/replace": {"force": True},
    f"POST {_V21}/servers": {"server": {"name": "two", "flavorRef": "1"}},
    f"PUT {_V21}/servers/{{id}}": {"server": {"name": "three"}},
    f"PUT {_V21}/servers/{{id}}/metadata": {"metadata": {"a": "b"}},
    f"POST {_V21}/servers/{{id}}/metadata": {"metadata": {"a": "b"}},
    f"PUT {_V21}/servers/{{id}}/metadata/{{key}}": {"meta": {"note": "y"}},
    f"POST {_V21}/flavors": {"flavor": {"name": "new", "vcpus": 1, "ram": 1, "disk": 0}},
    f"PUT {_V21}/flavors/{{id}}": {"flavor": {"description": "x"}},
    f"POST {_V21}/flavors/{{id}}/os-extra_specs": {"extra_specs": {"resources:VCPU": "2"}},
    f"PUT {_V21}/flavors/{{id}}/os-extra_specs/{{key}}": {"resources:VCPU": "2"},
    f"POST {_V21}/os-server-groups": {"server_group": {"name": "g", "policy": "affinity"}},
    f"POST {_V21}/os-aggregates": {"aggregate": {"name": "more"}},
    f"PUT {_V21}/os-aggregates/{{id}}": {"aggregate": {"name": "other"}},
    f"PUT {_V21}/os-services/{{id}}": {"status": "disabled"},
    f"PUT {_V21}/os-quota-sets/{{project}}": {"quota_set": {"cores": 5}},
    f"PUT {_V21}/os-quota-class-sets/{{name}}": {"quota_class_set": {"cores": 5}},
    f"POST {_V21}/os-keypairs": {"keypair": {"name": "key", "public_key": _PUBLIC_KEY}},
    f"PUT {_V21}/servers/{{id}}/tags": {"tags": ["new"]},
    f"PUT {_V21}/servers/{{id}}/tags/{{tag}}": _NO_BODY,
    f"PUT {_V21}/os-hosts/{{host}}": {"status": "disable"},
    f"POST {_V21}/images/{{id}}/metadata": {"metadata": {"a": "b"}},
    f"PUT {_V21}/images/{{id}}/metadata": {"metadata": {"a": "b"}},
    f"PUT {_V21}/images/{{id}}/metadata/{{key}}": {"meta": {"note": "y"}},
    f"POST {_V21}/os-server-external-events": {
        "events": [{"name": "network-changed", "server_uuid": _SERVER}]
    },
    "POST /image/v2/images": {"name": "new"},
    "PATCH /image/v2/images/{id}": [{"op": "replace", "path": "/name", "value": "x"}],
    "PUT /image/v2/images/{id}/tags/{tag}": _NO_BODY,
    "POST /image/v2/images/{id}/members": {"member": "black"},
    "PUT /image/v2/images/{id}/members/{project}": {"status": "accepted"},
    "POST /image/v2/images/{id}/actions/deactivate": _NO_BODY,
    "POST /image/v2/images/{id}/actions/reactivate": _NO_BODY,
}
_ACTIONS: Final[dict[str, Any]] = {
    "resize": {"flavorRef": "2"},
    "reboot": {"type": "SOFT"},
    "os-resetState": {"state": "error"},
    "createImage": {"name": "image"},
    "createBackup": {"name": "backup", "backup_type": "daily", "rotation": 1},
    "os-migrateLive": {"host": None, "block_migration": "auto"},
    "evacuate": {},
    "rebuild": {"imageRef": uuid_of(19)},
    "addTenantAccess": {"tenant": "green"},
    "removeTenantAccess": {"tenant": "green"},
    "add_host": {"host": "host-1"},
    "remove_host": {"host": "host-1"},
    "set_metadata": {"metadata": {"a": "b"}},
}
_QUERIES: Final = {
    "GET /allocation_candidates": "?resources=VCPU:1",
    "GET /usages": "?project_id=blue",
    "GET /berth/v1/events": "?after={index}",
    "GET /berth/v1/usage": "?by=root",
    f"GET {_V21}/os-migrations": "?project_id=blue",
}
_OLD: Final = (f"{_V21}/os-hosts", f"{_V21}/images")
_OLD_OF_HYPERVISORS: Final = ("/search", "/servers", "/statistics", "/uptime")
"""Beginnings of paths, and ends of those below /os-hypervisors, that later versions of Nova's API do not
have."""
_MEDIA: Final = {
    "PATCH /image/v2/images/{id}": "application/openstack-images-v2.1-json-patch",
    "PUT /image/v2/images/{id}/file": "application/octet-stream",
}


class Asked(NamedTuple):
    """A row: what is called, and by which rule it is judged; None for what is open to everybody."""

    method: str
    template: str
    rule: str | None
    action: str | None = None

    @property
    def name(self) -> str:
        return f"{self.method} {self.template}"

    @property
    def title(self) -> str:
        return self.name if self.action is None else f"{self.name} {self.action}"

    @property
    def path(self) -> str:
        parts = self.template.split("/")
        return "/".join(
            _PARAMS[f"{parts[place - 1]}/{part}"] if part.startswith("{") else part
            for place, part in enumerate(parts)
        )

    @property
    def body(self) -> Any:
        if self.action is not None:
            return {self.action: _ACTIONS.get(self.action)}
        if self.method in ("GET", "DELETE"):
            return _NO_BODY
        return _BODIES.get(self.name, {})


def rows(region: "Blue") -> Iterable[Asked]:
    yield from (Asked(route.method, route.path, route.policy) for route in PLACEMENT)
    yield from (Asked(route.method, NATIVE_PREFIX + route.path, route.policy) for route in NATIVE)
    mounted = (_V21, COMPUTE), ("/image/v2", IMAGE), ("/identity/v3", _identity_routes(region))
    for prefix, of_api in mounted:
        for one in of_api:
            if not one.actions:
                yield Asked(one.method, prefix + one.path, one.policy)
            for action, rule in one.actions.items():
                yield Asked(one.method, prefix + one.path, rule, action)


def _identity_routes(region: "Blue") -> Iterable[Route[Any]]:
    """Made anew for each way of knowing callers."""
    [identity] = (api for api in region.parts.apis if isinstance(api, IdentityApi))
    return identity.routes


# -- the region ---------------------------------------------------------------------------------


class Blue(RegionWorld):
    """Made once, and put back as it was after every call that has changed it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _tokens_file())
        self._made = path / "made.db"
        self._index = 0
        self._subject = ""

    async def start(self) -> None:
        """As every worker, with its own reading of the file."""
        self._authenticator = _WithScopes(str(self.tokens_file), self.clock, issues=True)
        await super().start()

    async def fill(self) -> None:
        def make(view: Any, now_s: int) -> Enact:
            return Enact(tuple(RecordChanged(None, record) for record in _RECORDS))

        admin = {"token": _token("admin")}
        for number in (1, 2):
            body: Any = {"name": f"host-{number}", "uuid": uuid_of(number)}
            await self._done("POST", "/resource_providers", body, **admin)
            inventories = {name: {"total": 8} for name in ("VCPU", "DISK_GB")}
            inventories["MEMORY_MB"] = {"total": 8192}
            body = {"resource_provider_generation": 0, "inventories": inventories}
            await self._done("PUT", f"/resource_providers/{uuid_of(number)}/inventories", body, **admin)
            body = {"resource_provider_generation": 1, "aggregates": [uuid_of(30)]}
            await self._done("PUT", f"/resource_providers/{uuid_of(number)}/aggregates", body, **admin)
        label = {"aggregate": {"kind": "cell", "name": "cell-1", "metadata": {}}}
        await self._done("PUT", f"/berth/v1/aggregates/{uuid_of(30)}", label, **admin)
        pool = {"pool": {"name": "nas", "inventories": {"DISK_GB": {"total": 1}}}}
        await self._done("PUT", f"/berth/v1/pools/{_POOL}", pool, **admin)
        for path in ("/resource_classes/CUSTOM_GOLD", "/traits/CUSTOM_FAST"):
            await self._done("PUT", path, **admin)
        group = Group("g", "anti-affinity", HOST, 1, None, "blue", "member", 0)
        for proposal in (make, CreateGroup(GroupId(_GROUP), group)):
            origin = Origin("req", None, None, "test")
            refused = await self.engine.submit(proposal, origin, lambda view, changed: None)
            assert refused is None, refused
        login = {"user": {"name": "member", "domain": {"id": "default"}, "password": _token("member")}}
        auth = {"auth": {"identity": {"methods": ["password"], "password": login}}}
        self._subject = (await self.ask("POST", "/identity/v3/auth/tokens", auth, token=None)).headers[
            "x-subject-token"
        ]
        self._index = await self.engine.read(lambda view: int(view.index))
        await self.engine.stop()
        shutil.copy(self.path / "journal.db", self._made)
        await self.start()

    async def _done(self, method: str, path: str, body: object = None, **how: Any) -> None:
        answer = await self.ask(method, path, body, **how)
        assert answer.status < 300, (method, path, answer.body)

    async def statuses(self, asked: Asked) -> list[int]:
        return [await self._status(asked, caller) for caller in CALLERS]

    async def _status(self, asked: Asked, caller: str) -> int:
        path = asked.template
        is_old = path.startswith(_OLD) or ("hypervisors" in path and path.endswith(_OLD_OF_HYPERVISORS))
        version = "2.1" if is_old else "2.94"
        headers = {
            "openstack-api-version": f"placement 1.39, compute {version}",
            "x-subject-token": self._subject,
        }
        if asked.name in _MEDIA:
            headers["content-type"] = _MEDIA[asked.name]
        query = _QUERIES.get(asked.name, "").format(index=self._index)
        body = None if asked.body is _NO_BODY else asked.body
        answer = await self.ask(
            asked.method,
            asked.path + query,
            body,
            token=None if caller == "none" else _token(caller),
            headers=headers,
        )
        if await self.engine.read(lambda view: int(view.index)) != self._index:
            await self._restore()
        return answer.status

    async def _restore(self) -> None:
        await self.engine.stop()
        for file in self.path.glob("journal.db*"):
            file.unlink()
        shutil.copy(self._made, self.path / "journal.db")
        await self.start()


async def measure(path: Path) -> dict[Asked, list[int]]:
    """What every caller gets at every route."""
    async with Blue(path).running() as region:
        await region.fill()
        return {asked: await region.statuses(asked) for asked in rows(region)}


def table(measured: Mapping[Asked, list[int]]) -> str:
    """One line a route, with what each caller gets: 401 unknown, 403 refused, 404 not there for it, ``yes``
    for all else: done, or answered by what the route itself has to say."""
    titles = max(len(asked.title) for asked in measured)
    rules = max(len(asked.rule or "") for asked in measured)
    widths = [max(3, len(caller)) for caller in CALLERS]

    def line(title: str, rule: str, cells: Iterable[str]) -> str:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"{title.ljust(titles)}  {rule.ljust(rules)}  {padded}".rstrip()

    lines = [line("route", "rule", CALLERS)]
    lines += [
        line(asked.title, asked.rule or "(open)", (_cell(status) for status in statuses))
        for asked, statuses in measured.items()
    ]
    return "\n".join(lines) + "\n"


def _cell(status: int) -> str:
    assert status < 500 or status == 501, status
    return str(status) if status in (401, 403, 404) else "yes"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        EXPECTED.write_text(table(asyncio.run(measure(Path(folder)))))

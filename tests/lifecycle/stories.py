"""How a server comes to where an operation can begin, and how each operation is begun."""

from collections.abc import Callable
from typing import Final

import msgspec

from berth.model.commands import CreateGroup, Enact
from berth.model.formats import FORMAT
from berth.model.groups import Group
from berth.model.ids import GroupId
from berth.model.rejections import Rejection
from berth.model.servers import CellStatus, Flavor, Image, Need, Place, Server
from berth.sagas import (
    confirm,
    create,
    create_backup,
    create_image,
    delete,
    evacuate,
    live_migrate,
    migrate,
    needs,
    pause,
    reboot,
    rebuild,
    rescue,
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
from berth.sim.cloud import Begin, SimCloud
from berth.view import View

SMALL: Final = Flavor(id="small", name="small", vcpus=1, memory_mb=512, disk_gb=1)
LARGE: Final = Flavor(id="large", name="large", vcpus=2, memory_mb=1024, disk_gb=2)


def _with_devices(name: str, cpus: int) -> Flavor:
    asked = {"VCPU": 0, "PCPU": cpus, "VGPU": 1, "SRIOV_NET_VF": 1}
    return Flavor(
        id=name,
        name=name,
        vcpus=cpus,
        memory_mb=512,
        disk_gb=1,
        extra_specs={f"resources:{kind}": str(amount) for kind, amount in asked.items()},
    )


DEVICES_SMALL: Final = _with_devices("devices-small", 2)
DEVICES_LARGE: Final = _with_devices("devices-large", 3)
_OTHERS: Final = {SMALL.id: LARGE, DEVICES_SMALL.id: DEVICES_LARGE, DEVICES_LARGE.id: DEVICES_SMALL}
PORT: Final = Need("port", {"DISK_GB": 1})
IMAGE: Final = Image(id="11111111-2222-4333-8444-555555555555", name="other", status="active")

Beginning = Callable[[View, int, Context, str], Enact | Rejection]


def _migration_of(view: View, id: str) -> str:
    server = view.records.get(Server, id)
    return "none" if server is None or server.migration is None else server.migration


def _other_flavor(view: View, id: str) -> Flavor:
    server = view.records.get(Server, id)
    return SMALL if server is None else _OTHERS.get(server.flavor.id, SMALL)


BEGINNINGS: Final[dict[str, Beginning]] = {
    "delete": lambda view, now_s, context, id: delete.propose(view, now_s, context, id),
    "resize": lambda view, now_s, context, id: resize.propose(
        view, now_s, context, id, _other_flavor(view, id)
    ),
    "migrate": lambda view, now_s, context, id: migrate.propose(view, now_s, context, id),
    "confirm": confirm.propose,
    "revert": revert.propose,
    "live_migrate": lambda view, now_s, context, id: live_migrate.propose(view, now_s, context, id),
    "evacuate": lambda view, now_s, context, id: evacuate.propose(view, now_s, context, id),
    "rebuild": lambda view, now_s, context, id: rebuild.propose(view, now_s, context, id, IMAGE),
    "unshelve": lambda view, now_s, context, id: unshelve.propose(view, now_s, context, id),
    "unshelve_here": lambda view, now_s, context, id: unshelve.propose(view, now_s, context, id),
    "start": start.propose,
    "stop": stop.propose,
    "shelve": shelve.propose,
    "shelve_away": shelve.propose_away,
    "shelve_offload": shelve_offload.propose,
    "reboot": reboot.propose,
    "reboot_hard": reboot.propose_hard,
    "pause": pause.propose,
    "unpause": unpause.propose,
    "suspend": suspend.propose,
    "resume": resume.propose,
    "rescue": rescue.propose,
    "unrescue": unrescue.propose,
    "create_image": lambda view, now_s, context, id: create_image.propose(view, now_s, context, id, "i", {}),
    "create_backup": lambda view, now_s, context, id: create_backup.propose(
        view, now_s, context, id, "b", "daily", 1, {}
    ),
    "soft_delete": lambda view, now_s, context, id: delete.propose(view, now_s, context, id, is_soft=True),
    "restore": restore.propose,
}

MORE: Final[dict[str, Beginning]] = {
    "force delete": lambda view, now_s, context, id: delete.propose(view, now_s, context, id, is_forced=True),
    "abort": lambda view, now_s, context, id: live_migrate.propose_abort(view, id, _migration_of(view, id)),
    "need": lambda view, now_s, context, id: needs.set_need(view, now_s, context.rules, id, PORT),
    "no need": lambda view, now_s, context, id: needs.remove_need(view, now_s, context.rules, id, PORT.name),
}
"""What else can be asked for."""

BEFORE: Final[dict[str, tuple[str, ...]]] = {
    "create": (),
    "confirm": ("create", "resize"),
    "revert": ("create", "resize"),
    "start": ("create", "stop"),
    "shelve_offload": ("create", "shelve"),
    "unshelve": ("create", "shelve_away"),
    "unshelve_here": ("create", "shelve"),
    "unpause": ("create", "pause"),
    "resume": ("create", "suspend"),
    "unrescue": ("create", "rescue"),
    "restore": ("create", "soft_delete"),
}
"""What is done before an operation, so that it can begin; a creation for those that are not named."""


def new_server(cloud: SimCloud, **fields: object) -> Server:
    id = cloud.ids.uuid()
    return msgspec.structs.replace(
        Server(id=id, name=f"server-{id[:8]}", project="project", user="user", flavor=SMALL), **fields
    )


def beginning(
    cloud: SimCloud, saga: str, server: Server, context: Context | None = None, host: str | None = None
) -> Begin:
    """The wish that begins an operation with a server. ``host``: where it is created."""
    by = context or cloud.context()._replace(resizes_in_place=False)
    if saga == "create":
        return lambda view, now_s: create.propose(view, now_s, by, (server,), 1, host=host)
    begin = BEGINNINGS.get(saga) or MORE[saga]
    return lambda view, now_s: begin(view, now_s, by, server.id)


async def done(
    cloud: SimCloud, saga: str, server: Server, context: Context | None = None, host: str | None = None
) -> Server | None:
    """The server after an operation that must succeed."""
    refused = await cloud.begin(beginning(cloud, saga, server, context, host))
    assert refused is None, f"{saga} is refused: {refused}"
    after = await cloud.at_rest(server.id)
    assert after is None or after.fault is None, f"{saga} failed: {after}"
    return after


async def brought_before(
    cloud: SimCloud, saga: str, context: Context | None = None, host: str | None = None
) -> Server:
    """A server with which an operation can begin. ``host``: where it is created."""
    server = new_server(cloud)
    for name in BEFORE.get(saga, ("create",)):
        await done(cloud, name, server, context, host)
    if saga == "evacuate":
        await host_dies(cloud, server)
    return server


async def cells_ready(cloud: SimCloud) -> None:
    """Wait until the region knows that servers may move between its cells."""
    await cloud.until(
        lambda view: (
            view.records.count(CellStatus) == len(cloud.cells)
            and all(one.is_reachable and one.format == FORMAT for one in view.records.all(CellStatus))
        )
    )


async def host_dies(cloud: SimCloud, server: Server) -> Place:
    """The host that a server is on, when it is known to be down."""
    found = await cloud.server(server.id)
    assert found is not None
    assert found.place is not None
    place = found.place
    cloud.hosts[place.name].kill()
    await cloud.until(lambda view: any(view.record(row).id == place.id for row in view.down))
    return place


async def kept_apart(cloud: SimCloud, name: str) -> str:
    """A new group whose members do not share a host."""
    return await _new_group(cloud, Group(name, "anti-affinity", "host", 1, None, "project", "user", 0))


async def kept_together(cloud: SimCloud, name: str) -> str:
    """A new group whose members share a host."""
    return await _new_group(cloud, Group(name, "affinity", "host", None, None, "project", "user", 0))


async def _new_group(cloud: SimCloud, group: Group) -> str:
    id = cloud.ids.uuid()
    refused = await cloud.begin(lambda view, now_s: Enact((), (CreateGroup(GroupId(id), group),)))
    assert refused is None, refused
    return id
